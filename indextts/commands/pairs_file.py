"""A pairs file as --train-manifest and --val-manifest name it: its path, its language, its share of an epoch.

PATH             texts of the tokenizer's language
PATH@en          texts of another language, by its ISO 639 code
PATH@0.15        a share of the training pairs of an epoch, relative to the shares of the other files
PATH@en@0.15     both
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from indextts.system.language_codes import standard_code

_LANGUAGE = re.compile(r"(?P<path>.+)@(?P<value>[a-z]{2,3})")
_SHARE = re.compile(r"(?P<path>.+)@(?P<value>\d+(\.\d+)?|\.\d+)")


@dataclass(frozen=True)
class PairsFile:
    """One pairs file of a run."""

    path: Path
    language: str = ""  # of its texts; "" for that of the tokenizer
    share: float | None = None  # of the pairs of an epoch, above 0; None without one

    @classmethod
    def parse(cls, typed: str | Path) -> Self:
        """Return the file that a flag names; a ValueError for a share of 0 or an unknown language."""
        text, share, language = str(typed), None, ""
        if found := _SHARE.fullmatch(text):
            text, share = found["path"], float(found["value"])
            if share <= 0:
                raise ValueError(f"{typed}: the share must be above 0")
        if found := _LANGUAGE.fullmatch(text):
            text, language = found["path"], standard_code(found["value"]) or ""
            if not language:
                raise ValueError(f"{typed}: no language has the code {found['value']}")
        return cls(Path(text), language, share)

    def __str__(self) -> str:
        parts = [str(self.path), self.language, "" if self.share is None else f"{self.share:g}"]
        return "@".join(part for part in parts if part)

    @property
    def name(self) -> str:
        """The value of the flag with the name of the file in place of its path."""
        return str(type(self)(Path(self.path.name), self.language, self.share))


def parse_files(typed: list[Path] | list[str]) -> tuple[PairsFile, ...]:
    """Return the files of a flag; errors as for `PairsFile.parse`."""
    return tuple(map(PairsFile.parse, typed))
