"""Options of the text normaliser, and their fingerprint.

`NormalizerOptions()` is the default everywhere. `fingerprint` identifies the version and the options: texts
with the same fingerprint were normalised in the same way. `record` lists both, as JSON:

    {"version": 7, "homophones": "off", ..., "rules_off": ["dates"], "readings": [["BBC", "ቢቢሲ", "word"]]}

The tokenizer file contains the record (indextts/text/tokenizer.py), which data, run and export share.
For information, config.json of a run and the meta file of each checkpoint contain it too.
"""

import hashlib
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, field_validator

from indextts.commands.bases import LetterCase
from indextts.commands.options import Options
from indextts.system.amounts import counted
from indextts.system.language_codes import standard_code

NORMALIZER_VERSION = 7  # increases when the output of `normalize` changes
# Recorded unless at their default.
NEWER_OPTIONS = ("language", "language_row", "letter_case", "money_decimals", "rules_off", "readings")


# The rules that can be switched off; the others only clean characters and marks.
RuleName = Literal[
    "transcript marks",
    "font damage",
    "addresses",
    "verses",
    "abbreviations",
    "Roman numerals",
    "grouped numbers",
    "commas",
    "joined phone numbers",
    "ranges with words",
    "minus",
    "phone numbers",
    "dates",
    "times",
    "money",
    "percent",
    "measures",
    "comparisons",
    "fractions",
    "ranges",
    "repeated numbers",
    "numbers",
    "Latin words",
    "Greek letters",
    "symbols",
]
Match = Literal["word", "prefix", "number"]


class Reading(NamedTuple):
    """A written form, its spoken form, and where the written form counts."""

    written: str
    spoken: str
    match: Match


class NormalizerChoices(Options):
    """What flags and options share, all but `language` for Amharic; the first value is the default."""

    language: str = Field("am", title="Language")
    """ISO 639 code of the language of the texts, such as am, ko or sw."""
    language_row: Literal["own", "common"] = Field("own", title="Language row")
    """Row that IndexTTS-2.5 adds to each text: own refuses a language outside its table; common is the row of
    all such languages."""
    homophones: Literal["off", "strict", "loose"] = Field("off", title="Homophones")
    """strict replaces letters of the same sound by one letter; loose also merges the row of ኸ."""
    labialised: Literal["keep", "merge"] = Field("keep", title="Labialised letters")
    """merge replaces ጐ by ጎ, ቍ by ቁ and so on, which many speakers pronounce alike."""
    acronyms: Literal["keep", "letters"] = Field("keep", title="Acronyms")
    """keep leaves BBC as it is; letters spells it as ቢ ቢ ሲ."""
    years: Literal["cardinal", "hundreds"] = Field("cardinal", title="Years")
    """cardinal reads 1985 as any number; hundreds reads it as nineteen hundred and eighty-five."""
    phone_numbers: Literal["digits", "pairs"] = Field("digits", title="Phone numbers")
    """Reading of phone numbers, digit by digit or in pairs."""
    money_decimals: Literal["cents", "decimal"] = Field("cents", title="Decimals of money")
    """cents reads 12.50 ብር as twelve birr and fifty santim; decimal as twelve point five zero birr."""
    thousand: Literal["ሺህ", "ሺ"] = Field("ሺህ", title="Word for 1,000")
    """Spelling of 1,000."""
    million: Literal["ሚሊዮን", "ሚሊየን"] = Field("ሚሊዮን", title="Word for 1,000,000")
    """Spelling of 1,000,000."""
    fifty: Literal["ሃምሳ", "ሀምሳ", "አምሳ"] = Field("ሃምሳ", title="Word for 50")
    """Spelling of 50."""
    sixty: Literal["ስልሳ", "ስድሳ"] = Field("ስልሳ", title="Word for 60")
    """Spelling of 60."""
    eighty: Literal["ሰማንያ", "ሰማኒያ"] = Field("ሰማንያ", title="Word for 80")
    """Spelling of 80."""
    percent: Literal["በመቶ", "ከመቶ", "ፐርሰንት"] = Field("በመቶ", title="Word for %")
    """Spoken form of %."""

    @field_validator("language")
    @classmethod
    def _has_one_code(cls, code: str) -> str:
        return standard_code(code) or code  # an unknown one is refused when it is looked up

    @field_validator("homophones", mode="before")
    @classmethod
    def _yaml_reads_off_as_false(cls, value: object) -> object:
        return "off" if value is False else value


class NormalizerFlags(NormalizerChoices):
    """The flags of the normaliser in a command."""

    rules_off: list[RuleName] = Field([], title="Rules switched off")
    """Rules of the normaliser that are not applied, by name."""
    readings: Path | None = Field(None, title="Readings")
    """Table of written and spoken forms (readings.tsv) that is applied before the rules."""


class NormalizerOptions(NormalizerChoices):
    """The options that `normalize` takes.

    Args:
        letter_case: of the letters that have one. No flag: it follows the base (`Base.letter_case`), and a
            tokenizer that records none was built for upper case.
        readings: in a fixed order, so that the order in their file does not matter.
    """

    letter_case: LetterCase = "upper"
    rules_off: tuple[RuleName, ...] = ()
    readings: tuple[Reading, ...] = ()

    @field_validator("rules_off", "readings")
    @classmethod
    def _has_one_order(cls, rows: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(sorted(set(rows)))

    @property
    def fingerprint(self) -> str:
        """The version and 16 hex digits over all options, such as `v7-0123456789abcdef`."""
        digest = hashlib.sha256(self.model_dump_json(exclude=self._unrecorded).encode()).hexdigest()
        return f"v{NORMALIZER_VERSION}-{digest[:16]}"

    @property
    def record(self) -> dict[str, Any]:
        """The version and every option, by name; without `_unrecorded`, as in older records."""
        return {"version": NORMALIZER_VERSION, **self.model_dump(mode="json", exclude=self._unrecorded)}

    @property
    def _unrecorded(self) -> set[str]:
        """The newer options, where they are at their default."""
        return {
            name for name in NEWER_OPTIONS if getattr(self, name) == type(self).model_fields[name].default
        }

    @property
    def summary(self) -> str:
        """The options that differ from the default, as text."""
        changed = [
            f"{name} {value}"
            for name, value in self.model_dump(exclude={"rules_off", "readings"}).items()
            if value != type(self).model_fields[name].default
        ]
        changed += [f"without {name}" for name in self.rules_off]
        changed += [counted(len(self.readings), "reading")] if self.readings else []
        return ", ".join(changed) or "default options"


DEFAULT_OPTIONS = NormalizerOptions()


def of_language(options: NormalizerOptions, language: str) -> NormalizerOptions:
    """Return `options` if they are for `language`, else the default options of that language and base."""
    others = NormalizerOptions(language=language, letter_case=options.letter_case)
    return options if options.language == others.language else others
