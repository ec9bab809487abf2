"""What a clip is judged by: the limits, and the reasons that a clip can be flagged for. No torch here.

A hard reason rejects a clip: it is left out of what follows unless a person keeps it. A
soft one is a warning. Limits are flags of `check_amharic_data.py`; docs/data.md says where each comes from.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Reason:
    """Why a clip is flagged.

    Args:
        name: the flag, as it stands in files and filters.
        is_hard: it rejects the clip.
        what: says it of a clip, in a few words.
        measure: the number that is judged, a key of the clip's measures; "" if it is no number.
        side: on which side of the limit the clip is flagged.
        limit: a field of QualityLimits; "" for 0.
        shown: how the number is written.
        harder: the reason for the same number that makes this one needless.
    """

    name: str
    is_hard: bool
    what: str
    measure: str = ""
    side: Literal["below", "above"] = "above"
    limit: str = ""
    shown: str = ""
    harder: str = ""


REASONS = (
    Reason("unreadable", True, "the recording cannot be read"),
    Reason("too_short", True, "too short", "duration_s", "below", "min_duration_s", "{:.2f} s"),
    Reason("too_long", True, "too long", "duration_s", "above", "max_duration_s", "{:.2f} s"),
    Reason("noisy", True, "speech hardly above the noise", "snr_db", "below", "min_snr_db", "{:.1f} dB"),
    Reason("silent", True, "mostly silence", "silence_percent", "above", "max_silence_percent", "{:.0f} %"),
    Reason(
        "clipped",
        True,
        "overdriven",
        "clipped_percent",
        "above",
        "max_clipped_percent",
        "{:.2f} % of samples",
    ),
    Reason("quiet", True, "too quiet", "rms_dbfs", "below", "min_rms_dbfs", "{:.1f} dBFS"),
    Reason("too_slow", True, "too little text", "fidel_per_s", "below", "min_fidel_per_s", "{:.1f} fidel/s"),
    Reason("too_fast", True, "too much text", "fidel_per_s", "above", "max_fidel_per_s", "{:.1f} fidel/s"),
    Reason(
        "foreign",
        True,
        "not Ethiopic",
        "ethiopic_percent",
        "below",
        "min_ethiopic_percent",
        "{:.0f} % of letters are Ethiopic",
    ),
    Reason(
        "tigrinya",
        True,
        "Tigrinya",
        "tigrinya_percent",
        "above",
        "max_tigrinya_percent",
        "{:.1f} % of fidel are Tigrinya's",
    ),
    Reason("same_audio", True, "the sound of another clip"),
    Reason("same_text", True, "the text of another clip of this speaker"),
    Reason(
        "short", False, "short", "duration_s", "below", "warn_min_duration_s", "{:.2f} s", harder="too_short"
    ),
    Reason(
        "long", False, "long", "duration_s", "above", "warn_max_duration_s", "{:.2f} s", harder="too_long"
    ),
    Reason("some_noise", False, "noise", "snr_db", "below", "warn_min_snr_db", "{:.1f} dB", harder="noisy"),
    Reason(
        "pauses",
        False,
        "much silence",
        "silence_percent",
        "above",
        "warn_max_silence_percent",
        "{:.0f} %",
        harder="silent",
    ),
    Reason("edges", False, "silence at start or end", "edge_s", "above", "warn_max_edge_s", "{:.2f} s"),
    Reason(
        "peaks",
        False,
        "peaks cut off",
        "clipped_run",
        "above",
        "warn_max_clipped_run",
        "{:.0f} samples in a row",
        harder="clipped",
    ),
    Reason(
        "low_level", False, "quiet", "rms_dbfs", "below", "warn_min_rms_dbfs", "{:.1f} dBFS", harder="quiet"
    ),
    Reason("high_level", False, "loud", "rms_dbfs", "above", "warn_max_rms_dbfs", "{:.1f} dBFS"),
    Reason(
        "narrow_band",
        False,
        "no high frequencies",
        "bandwidth_hz",
        "below",
        "warn_min_bandwidth_hz",
        "ends at {:.0f} Hz",
    ),
    Reason(
        "slow",
        False,
        "little text",
        "fidel_per_s",
        "below",
        "warn_min_fidel_per_s",
        "{:.1f} fidel/s",
        harder="too_slow",
    ),
    Reason(
        "fast",
        False,
        "much text",
        "fidel_per_s",
        "above",
        "warn_max_fidel_per_s",
        "{:.1f} fidel/s",
        harder="too_fast",
    ),
    Reason(
        "odd_rate",
        False,
        "a rate that is odd for the speaker",
        "rate_iqr",
        "above",
        "warn_max_rate_iqr",
        "{:.1f} interquartile ranges off",
    ),
    Reason(
        "tigrinya_letter",
        False,
        "a letter of Tigrinya",
        "tigrinya_letter_percent",
        "above",
        "max_tigrinya_percent",
        "{:.1f} % of fidel are Tigrinya's",
        harder="tigrinya",
    ),
    Reason("latin_left", False, "Latin letters", "num_latin", "above", "", "{:.0f} Latin letters"),
    Reason("digits_left", False, "digits that are not read", "num_digits", "above", "", "{:.0f} digits"),
    Reason(
        "others_left", False, "another script or signs", "num_other", "above", "", "{:.0f} other characters"
    ),
    Reason(
        "duration_off",
        False,
        "another duration than the manifest says",
        "duration_error_s",
        "above",
        "warn_max_duration_error_s",
        "off by {:.2f} s",
    ),
    Reason(
        "common_text",
        False,
        "a sentence of many speakers",
        "speakers_of_text",
        "above",
        "warn_max_speakers_of_text",
        "{:.0f} speakers",
    ),
)


REASON_OF = {reason.name: reason for reason in REASONS}


@dataclass(frozen=True)
class Flag:
    """A reason that holds for a clip.

    Args:
        severity: how far the limit is passed; comparable within one reason.
        said: the reason with its number, for a person.
    """

    reason: str
    severity: float
    said: str

    @property
    def is_hard(self) -> bool:
        return REASON_OF[self.reason].is_hard
