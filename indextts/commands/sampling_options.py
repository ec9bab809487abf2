"""Sampling settings of speech generation. No torch here.

The defaults are those of the published front end, for the published codes. A built-in code repeats as long as
a sound lasts, so repetition must not be penalised, and the models for built-in codes are trained from scratch
with the positions of training (`of_backend`). Their temperature and top p are those of the fewest wrong
letters among those tried with the demo (demo/README.md).
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field

from indextts.commands.options import Options


class Sampling(Options):
    """Sampling settings; the defaults are those of the published front end."""

    do_sample: bool = Field(True, title="Sampling")
    """Sample the codes; without it, the most likely code is taken."""
    temperature: float = Field(0.8, gt=0, le=10, title="Temperature")
    """Softmax temperature; values below 1 favour likely codes; 0.3 for builtin codes."""
    top_k: int = Field(30, ge=0, title="Top k")
    """Number of most likely codes to sample from; 0 samples from all."""
    top_p: float = Field(0.8, gt=0, le=1, title="Top p")
    """Cumulative probability of the most likely codes to sample from; 1 samples from all; 0.7 for builtin
    codes."""
    repetition_penalty: float = Field(10.0, gt=0, le=100, title="Repetition penalty")
    """Penalty on codes that already occurred; 1 turns it off, as for builtin codes."""
    num_beams: int = Field(3, ge=1, le=16, title="Beams")
    """Number of beams in beam search; 1 for builtin codes."""
    length_penalty: float = Field(0.0, ge=-5, le=5, title="Length penalty")
    """Exponent of the length in beam scores; values above 0 favour longer sequences."""
    max_codes: int = Field(1500, ge=1, title="Maximum codes")
    """Maximum length of the speech in codes: 50 a second with IndexTTS-2.0, 25 with 2.5."""
    positions: Literal["published", "training"] = Field("published", title="Code positions")
    """published numbers the codes 0 2 3 4 as the published code does; training numbers them 0 1 2 3, as
    builtin codes need."""
    seed: int = Field(0, ge=0, le=2**63 - 1, title="Seed")
    """Random seed of the sampling."""

    @classmethod
    def of_backend(cls, backend: str, typed: Mapping[str, Any]) -> Self:
        """Return the settings with `typed` fields as given and the others as the backend needs them."""
        return cls(**{**(BUILTIN_CODES if backend == "builtin" else {}), **typed})


BUILTIN_CODES = {
    "repetition_penalty": 1.0,
    "num_beams": 1,
    "positions": "training",
    "temperature": 0.3,
    "top_p": 0.7,
}
