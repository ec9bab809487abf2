"""How the next code is drawn: the settings of a generation. No torch here.

The defaults are those of the published front end, for the published codes. The built-in codes are another
language: one repeats as long as a sound lasts, so that what was said before must not be punished, and what
speaks them was trained from scratch at training's positions (`of_backend`).
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field


class Sampling(BaseModel):
    """Settings of a generation; the defaults are those of the published front end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    do_sample: bool = Field(True, description="Draw codes; otherwise the best is taken.")
    temperature: float = Field(0.8, gt=0, le=10, description="Below 1 the likely becomes likelier.")
    top_k: int = Field(30, ge=0, description="Draw among so many best codes; 0 for all.")
    top_p: float = Field(0.8, gt=0, le=1, description="Draw among the best codes of this share; 1 for all.")
    repetition_penalty: float = Field(
        10.0, gt=0, le=100, description="Against codes said before; 1 for none, as with the builtin codes."
    )
    num_beams: int = Field(
        3, ge=1, le=16, description="Sequences followed at once; with the builtin codes 1."
    )
    length_penalty: float = Field(0.0, ge=-5, le=5, description="Of beams; above 0 favours longer ones.")
    max_codes: int = Field(1500, ge=1, description="Longest speech, in codes of 20 ms.")
    positions: Literal["published", "training"] = Field(
        "published",
        description="Of the codes: 0 2 3 4 as the published code generates, or 0 1 2 3 as training counts, "
        "and as the builtin codes want it.",
    )
    seed: int = Field(0, ge=0, le=2**63 - 1, description="Of the draws.")

    @classmethod
    def of_backend(cls, backend: str, typed: Mapping[str, Any]) -> Self:
        """Return `typed` fields as they are, the others as the codes of a speech backend ask for them."""
        return cls(**{**(BUILTIN_CODES if backend == "builtin" else {}), **typed})


BUILTIN_CODES = {"repetition_penalty": 1.0, "num_beams": 1, "positions": "training"}
