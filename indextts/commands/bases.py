"""The published models that a run can start from, and what differs between them. Does not import torch.

    base    speaker condition                        rows before the text               text positions
    2.0     latents (K, D) of a speech encoder       latents + emotion, 2 speed rows    token + position
    2.5     style vector (1, Z) of CAM++             projection + emotion, 2 zero rows  ... + language row

A base is recognised by its weights (`base_of`), never by the `version` of a config.yaml: published files of
2.5 say 2.0. All other code asks a `Base`; code that computes differently lies in one module per package
(`models/gpt/bases.py`).
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
        weight_names: weights that only the GPT of this base has.
    """

    name: str
    title: str
    condition: Literal["latents", "style"]
    weight_names: frozenset[str]


BASE_2_0 = Base("2.0", "IndexTTS-2.0", "latents", frozenset({"speed_emb.weight"}))
BASE_2_5 = Base("2.5", "IndexTTS-2.5", "style", frozenset({"lang_embedding.weight", "spk_emb_proj.weight"}))
BASES = {base.name: base for base in (BASE_2_0, BASE_2_5)}


def base_of(weight_names: Iterable[str]) -> Base:
    """Return the base that has the most of its own weights among `weight_names`; 2.0 if none has any."""
    found = set(weight_names)
    return max(BASES.values(), key=lambda base: len(base.weight_names & found))
