"""The published models that a run can start from, and what differs between them. Does not import torch.

    base    speaker condition                        rows before the text               text positions
    2.0     latents (K, D) of a speech encoder       latents + emotion, 2 speed rows    token + position
    2.5     style vector (1, Z) of CAM++             projection + emotion, 2 zero rows  ... + language row

A base is recognised by its weights (`base_of`), never by the `version` of a config.yaml: published files of
2.5 say 2.0. All other code asks a `Base`; code that computes differently lies in one module per package
(`bases.py` in `text/`, `models/gpt/`, `features/`, `speech/synthesis/`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Base:
    """One published model.

    Attributes:
        name: as stored in checkpoints.
        title: the published name.
        condition: what the speaker condition of the GPT is.
        tokenizer_file: published name of the tokenizer.
        codec_file: path of the semantic codec in a model folder.
        reads_states: whether the acoustic model reads the GPT's states besides the codes.
        has_duration_factor: whether speech can be made slower or faster.
        weight_names: weights that only the GPT of this base has.
    """

    name: str
    title: str
    condition: Literal["latents", "style"]
    tokenizer_file: str
    codec_file: str
    reads_states: bool
    has_duration_factor: bool
    weight_names: frozenset[str]


BASE_2_0 = Base(
    name="2.0",
    title="IndexTTS-2.0",
    condition="latents",
    tokenizer_file="bpe.model",
    codec_file="semantic_codec/model.safetensors",
    reads_states=True,
    has_duration_factor=False,
    weight_names=frozenset({"speed_emb.weight"}),
)
BASE_2_5 = Base(
    name="2.5",
    title="IndexTTS-2.5",
    condition="style",
    tokenizer_file="multilingual_zh_ja_yue_char_del.tiktoken",
    codec_file="codec.pth",
    reads_states=False,
    has_duration_factor=True,
    weight_names=frozenset({"lang_embedding.weight", "spk_emb_proj.weight"}),
)
BASES = {base.name: base for base in (BASE_2_0, BASE_2_5)}


def base_of(weight_names: Iterable[str]) -> Base:
    """Return the base that has the most of its own weights among `weight_names`; 2.0 if none has any."""
    found = set(weight_names)
    return max(BASES.values(), key=lambda base: len(base.weight_names & found))
