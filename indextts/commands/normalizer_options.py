"""What a normaliser's user may choose, and the name of a choice.

`NormalizerOptions()` is what everything uses that does not say otherwise. `fingerprint` names the version and
the options together: two texts with the same fingerprint were normalised alike. `record` spells both out:

    {"version": 3, "homophones": "off", ...}

It stands inside the tokenizer's file (indextts/text/normalizer_record.py), which data, run and export share,
and to be read by people in a run's config.json and in each checkpoint's meta file.
"""

import hashlib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

NORMALIZER_VERSION = 3  # counts the changes of what `normalize` returns


class NormalizerOptions(BaseModel):
    """The choices of a normaliser; in each, the first value is the default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    homophones: Literal["off", "strict", "loose"] = Field(
        "off", description="Letters of one sound become one letter; loose merges the row of ኸ too."
    )
    labialised: Literal["keep", "merge"] = Field(
        "keep", description="merge: ጐ becomes ጎ, ቍ becomes ቁ and so on, which many speakers say alike."
    )
    acronyms: Literal["keep", "letters"] = Field("keep", description="BBC, or its letters' names, ቢ ቢ ሲ.")
    years: Literal["cardinal", "hundreds"] = Field(
        "cardinal", description="1985 as any other number, or as nineteen hundred and eighty-five."
    )
    phone_numbers: Literal["digits", "pairs"] = Field("digits", description="Digit by digit, or in pairs.")
    thousand: Literal["ሺህ", "ሺ"] = Field("ሺህ", description="Spelling of 1000.")
    million: Literal["ሚሊዮን", "ሚሊየን"] = Field("ሚሊዮን", description="Spelling of 1,000,000.")
    fifty: Literal["ሃምሳ", "ሀምሳ", "አምሳ"] = Field("ሃምሳ", description="Spelling of 50.")
    sixty: Literal["ስልሳ", "ስድሳ"] = Field("ስልሳ", description="Spelling of 60.")
    eighty: Literal["ሰማንያ", "ሰማኒያ"] = Field("ሰማንያ", description="Spelling of 80.")
    percent: Literal["በመቶ", "ከመቶ", "ፐርሰንት"] = Field("በመቶ", description="Word for %.")

    @field_validator("homophones", mode="before")
    @classmethod
    def _yaml_reads_off_as_false(cls, value: object) -> object:
        return "off" if value is False else value

    @property
    def fingerprint(self) -> str:
        """The version and 16 hex digits over all options, such as `v2-0123456789abcdef`."""
        digest = hashlib.sha256(self.model_dump_json().encode()).hexdigest()
        return f"v{NORMALIZER_VERSION}-{digest[:16]}"

    @property
    def record(self) -> dict[str, Any]:
        """The version and every option, by name."""
        return {"version": NORMALIZER_VERSION, **self.model_dump()}

    @property
    def summary(self) -> str:
        """The choices that are not the default, for people."""
        changed = [
            f"{name} {value}"
            for name, value in self.model_dump().items()
            if value != type(self).model_fields[name].default
        ]
        return ", ".join(changed) or "default options"


DEFAULT_OPTIONS = NormalizerOptions()


def chosen_options(holder: NormalizerOptions) -> NormalizerOptions:
    """Return the options alone of a command that has them among its flags."""
    return NormalizerOptions(**{name: getattr(holder, name) for name in NormalizerOptions.model_fields})
