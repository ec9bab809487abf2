"""Reasons to flag a clip. No torch here.

A hard reason rejects a clip: later stages skip it unless a person keeps it. A soft reason is a warning. The
limits are flags of `check_amharic_data.py`; docs/data.md explains them.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Reason:
    """Reason to flag a clip.

    Args:
        name: the flag in files and filters.
        is_hard: whether it rejects the clip.
        what: a short description.
        measure: a key of the clip's measures; empty for a reason without a number.
        side: the side of the limit on which clips are flagged.
        limit: a field of QualityLimits; empty for 0.
        shown: the format of the number.
        harder: the reason for the same number that replaces this one.
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
    Reason("unreadable", True, "unreadable recording"),
    Reason("too_short", True, "too short", "duration_s", "below", "min_duration_s", "{:.2f} s"),
    Reason("too_long", True, "too long", "duration_s", "above", "max_duration_s", "{:.2f} s"),
    Reason("noisy", True, "low signal-to-noise ratio", "snr_db", "below", "min_snr_db", "{:.1f} dB"),
    Reason("silent", True, "mostly silence", "silence_percent", "above", "max_silence_percent", "{:.0f} %"),
    Reason(
        "clipped",
        True,
        "clipped",
        "clipped_percent",
        "above",
        "max_clipped_percent",
        "{:.2f} % of samples",
    ),
    Reason(
        "flat_tops",
        True,
        "clipped before it was turned down",
        "flat_percent",
        "above",
        "max_flat_percent",
        "{:.2f} % of samples",
    ),
    Reason("dropouts", True, "gaps in the sound", "num_dropouts", "above", "max_dropouts", "{:.0f}"),
    Reason("clicks", True, "many clicks", "num_clicks", "above", "max_clicks", "{:.0f}"),
    Reason("cut_end", False, "cut off at the end", "end_db", "above", "max_end_db", "{:.0f} dB at the end"),
    Reason(
        "background",
        True,
        "music, voices or noise in the background",
        "bak_below",
        "above",
        "max_bak_below",
        "BAK {:.1f} deviations below the speaker's median",
    ),
    Reason(
        "distorted",
        True,
        "distorted speech or several voices",
        "sig_below",
        "above",
        "max_sig_below",
        "SIG {:.1f} deviations below the speaker's median",
    ),
    Reason(
        "music",
        True,
        "music or hum in the pauses",
        "music_db",
        "above",
        "max_music_db",
        "{:.0f} dB relative to the speech",
    ),
    Reason("quiet", True, "too quiet", "rms_dbfs", "below", "min_rms_dbfs", "{:.1f} dBFS"),
    Reason(
        "too_slow",
        True,
        "too little text for its duration",
        "syllables_per_s",
        "below",
        "min_syllables_per_s",
        "{:.1f} syllables/s",
    ),
    Reason(
        "too_fast",
        True,
        "too much text for its duration",
        "syllables_per_s",
        "above",
        "max_syllables_per_s",
        "{:.1f} syllables/s",
    ),
    Reason(
        "foreign",
        True,
        "in another script",
        "script_percent",
        "below",
        "min_script_percent",
        "{:.0f} % of the letters are in the script",
    ),
    Reason(
        "tigrinya",
        True,
        "Tigrinya",
        "tigrinya_percent",
        "above",
        "max_tigrinya_percent",
        "{:.1f} % Tigrinya letters",
    ),
    Reason(
        "wrong_text",
        True,
        "text differs from the speech",
        "text_mismatch",
        "above",
        "max_text_deviation",
        "{:.1f} deviations",
    ),
    Reason(
        "unheard_words",
        True,
        "start or end of the text not heard",
        "text_unheard",
        "above",
        "max_text_deviation",
        "{:.1f} deviations",
        harder="wrong_text",
    ),
    Reason(
        "extra_words",
        True,
        "speech before or after the text",
        "text_beyond",
        "above",
        "max_text_deviation",
        "{:.1f} deviations",
        harder="wrong_text",
    ),
    Reason("doubtful_text", True, "doubtful transcript"),
    Reason("same_audio", True, "the same audio as another clip"),
    Reason("same_text", True, "the same text as another clip of the speaker"),
    Reason(
        "short", False, "short", "duration_s", "below", "warn_min_duration_s", "{:.2f} s", harder="too_short"
    ),
    Reason(
        "long", False, "long", "duration_s", "above", "warn_max_duration_s", "{:.2f} s", harder="too_long"
    ),
    Reason(
        "some_noise", False, "some noise", "snr_db", "below", "warn_min_snr_db", "{:.1f} dB", harder="noisy"
    ),
    Reason(
        "pauses",
        False,
        "long pauses",
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
        "clipped peaks",
        "clipped_run",
        "above",
        "warn_max_clipped_run",
        "{:.0f} samples in a row",
        harder="clipped",
    ),
    Reason(
        "some_background",
        False,
        "unusual background",
        "bak_below",
        "above",
        "warn_max_bak_below",
        "BAK {:.1f} deviations below the speaker's median",
        harder="background",
    ),
    Reason(
        "some_music",
        False,
        "tones in the pauses",
        "music_db",
        "above",
        "warn_max_music_db",
        "{:.0f} dB relative to the speech",
        harder="music",
    ),
    Reason(
        "some_distortion",
        False,
        "unusual sound of the speech",
        "sig_below",
        "above",
        "warn_max_sig_below",
        "SIG {:.1f} deviations below the speaker's median",
        harder="distorted",
    ),
    Reason(
        "other_voice",
        False,
        "another voice than the speaker's other clips",
        "voice_deviation",
        "above",
        "warn_max_voice_deviation",
        "{:.1f} spreads from the median",
    ),
    Reason(
        "voice_change",
        False,
        "the voice changes",
        "halves_deviation",
        "above",
        "warn_max_halves_deviation",
        "{:.1f} spreads from the median",
    ),
    Reason(
        "limited",
        False,
        "limited or clipped peaks",
        "peak_ratio",
        "below",
        "warn_min_peak_ratio",
        "peak ratio {:.2f}",
        harder="flat_tops",
    ),
    Reason(
        "some_clicks", False, "clicks", "num_clicks", "above", "warn_max_clicks", "{:.0f}", harder="clicks"
    ),
    Reason(
        "cut_start",
        False,
        "cut off at the start",
        "start_db",
        "above",
        "warn_max_start_db",
        "{:.0f} dB at the start",
    ),
    Reason(
        "offset",
        False,
        "DC offset",
        "offset_percent",
        "above",
        "warn_max_offset_percent",
        "{:.0f} % of the RMS",
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
        "little text for its duration",
        "syllables_per_s",
        "below",
        "warn_min_syllables_per_s",
        "{:.1f} syllables/s",
        harder="too_slow",
    ),
    Reason(
        "fast",
        False,
        "much text for its duration",
        "syllables_per_s",
        "above",
        "warn_max_syllables_per_s",
        "{:.1f} syllables/s",
        harder="too_fast",
    ),
    Reason(
        "odd_rate",
        False,
        "unusual rate for the speaker",
        "rate_iqr",
        "above",
        "warn_max_rate_iqr",
        "{:.1f} interquartile ranges from the median",
    ),
    Reason(
        "tigrinya_letter",
        False,
        "letters of Tigrinya",
        "tigrinya_letter_percent",
        "above",
        "max_tigrinya_percent",
        "{:.1f} % Tigrinya letters",
        harder="tigrinya",
    ),
    Reason("latin_left", False, "Latin letters", "num_latin", "above", "", "{:.0f}"),
    Reason("digits_left", False, "digits that are not spelled out", "num_digits", "above", "", "{:.0f}"),
    Reason("others_left", False, "characters of other scripts", "num_other", "above", "", "{:.0f}"),
    Reason(
        "duration_off",
        False,
        "duration differs from the manifest",
        "duration_error_s",
        "above",
        "warn_max_duration_error_s",
        "by {:.2f} s",
    ),
    Reason(
        "common_text",
        False,
        "the same text by many speakers",
        "speakers_of_text",
        "above",
        "warn_max_speakers_of_text",
        "{:.0f} speakers",
    ),
)


REASON_OF = {reason.name: reason for reason in REASONS}


@dataclass(frozen=True)
class Flag:
    """Reason that applies to a clip.

    Args:
        severity: distance beyond the limit, comparable within a reason.
        description: the reason with its number.
    """

    reason: str
    severity: float
    description: str

    @property
    def is_hard(self) -> bool:
        return REASON_OF[self.reason].is_hard
