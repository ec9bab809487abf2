"""The published models that a run can start from, and what differs between them. Does not import torch.

    base    speaker condition                        rows before the text               text positions
    2.0     latents (K, D) of a speech encoder       latents + emotion, 2 speed rows    token + position
    2.5     style vector (1, Z) of CAM++             projection + emotion, 2 zero rows  ... + language row

A base is recognised by its weights (`base_of`), never by the `version` of a config.yaml: published files of
2.5 say 2.0. All other code asks a `Base`; code that computes differently lies in one module per package:
`bases.py` in `text/`, `models/gpt/`, `features/`, `data/`, `planning/`, `speech/synthesis/` and `training/`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

FEATURES_PER_SECOND = 50


@dataclass(frozen=True)
class Base:
    """One published model.

    Attributes:
        name: as stored in checkpoints.
        title: the published name.
        condition: what the speaker condition of the GPT is.
        codes_per_second: semantic codes of a second of speech; speech features are 50.
        trained_languages: codes of the languages that the published model speaks, where it has language rows.
        tokenizer_file: published name of the tokenizer.
        codec_file: path of the semantic codec in a model folder.
        reads_states: whether the acoustic model reads the GPT's states besides the codes.
        has_duration_factor: whether speech can be made slower or faster.
        is_exportable: whether tools/export_gpt.py can write a model folder of it.
        weight_names: weights that only the GPT of this base has.
    """

    name: str
    title: str
    condition: Literal["latents", "style"]
    codes_per_second: int
    trained_languages: tuple[str, ...]
    tokenizer_file: str
    codec_file: str
    reads_states: bool
    has_duration_factor: bool
    is_exportable: bool
    weight_names: frozenset[str]

    @property
    def features_per_code(self) -> int:
        return FEATURES_PER_SECOND // self.codes_per_second


BASE_2_0 = Base(
    name="2.0",
    title="IndexTTS-2.0",
    condition="latents",
    codes_per_second=50,
    trained_languages=(),
    tokenizer_file="bpe.model",
    codec_file="semantic_codec/model.safetensors",
    reads_states=True,
    has_duration_factor=False,
    is_exportable=True,
    weight_names=frozenset({"speed_emb.weight"}),
)
BASE_2_5 = Base(
    name="2.5",
    title="IndexTTS-2.5",
    condition="style",
    codes_per_second=25,
    trained_languages=("en", "zh", "ja", "es", "ar"),
    tokenizer_file="multilingual_zh_ja_yue_char_del.tiktoken",
    codec_file="codec.pth",
    reads_states=False,
    has_duration_factor=True,
    is_exportable=False,
    weight_names=frozenset({"lang_embedding.weight", "spk_emb_proj.weight"}),
)
BASES = {base.name: base for base in (BASE_2_0, BASE_2_5)}


def base_of(weight_names: Iterable[str]) -> Base:
    """Return the base that has the most of its own weights among `weight_names`; 2.0 if none has any."""
    found = set(weight_names)
    return max(BASES.values(), key=lambda base: len(base.weight_names & found))
