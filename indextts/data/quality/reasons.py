"""Reasons to flag a clip. No torch here.

A hard reason rejects a clip: later stages skip it unless a person keeps it. A soft reason is a warning. The
limits are flags of `check_amharic_data.py`; docs/data.md explains them.
"""

from dataclasses import dataclass
from typing import Literal

SHOWN = {  # the number of a measure, in the description of a flag
    "duration_s": "{:.2f} s",
    "snr_db": "{:.1f} dB",
    "silence_percent": "{:.0f} %",
    "clipped_percent": "{:.2f} % of samples",
    "flat_percent": "{:.2f} % of samples",
    "num_dropouts": "{:.0f}",
    "num_clicks": "{:.0f}",
    "end_db": "{:.0f} dB at the end",
    "bak_below": "BAK {:.1f} deviations below the speaker's median",
    "sig_below": "SIG {:.1f} deviations below the speaker's median",
    "music_db": "{:.0f} dB relative to the speech",
    "rms_dbfs": "{:.1f} dBFS",
    "syllables_per_s": "{:.1f} syllables/s",
    "script_percent": "{:.0f} % of the letters are in the script",
    "tigrinya_percent": "{:.1f} % Tigrinya letters",
    "text_mismatch": "{:.1f} deviations",
    "text_unheard": "{:.1f} deviations",
    "text_beyond": "{:.1f} deviations",
    "edge_s": "{:.2f} s",
    "clipped_run": "{:.0f} samples in a row",
    "voice_deviation": "{:.1f} spreads from the median",
    "halves_deviation": "{:.1f} spreads from the median",
    "peak_ratio": "peak ratio {:.2f}",
    "start_db": "{:.0f} dB at the start",
    "offset_percent": "{:.0f} % of the RMS",
    "bandwidth_hz": "ends at {:.0f} Hz",
    "rate_iqr": "{:.1f} interquartile ranges from the median",
    "tigrinya_letter_percent": "{:.1f} % Tigrinya letters",
    "num_latin": "{:.0f}",
    "num_digits": "{:.0f}",
    "num_other": "{:.0f}",
    "duration_error_s": "by {:.2f} s",
    "speakers_of_text": "{:.0f} speakers",
}


@dataclass(frozen=True)
class Reason:
    """Reason to flag a clip.

    Args:
        name: the flag in files and filters.
        is_hard: whether it rejects the clip.
        what: a short description.
        measure: a key of the clip's measures; empty for a reason without a number.
        limit: a field of QualityLimits, whose name tells the side on which clips are flagged; empty for
            clips above 0.
        harder: the reason for the same number that replaces this one.
    """

    name: str
    is_hard: bool
    what: str
    measure: str = ""
    limit: str = ""
    harder: str = ""

    @property
    def side(self) -> Literal["below", "above"]:
        """The side of the limit on which clips are flagged."""
        return "below" if "min_" in self.limit else "above"


REASONS = (
    Reason("unreadable", True, "unreadable recording"),
    Reason("too_short", True, "too short", "duration_s", "min_duration_s"),
    Reason("too_long", True, "too long", "duration_s", "max_duration_s"),
    Reason("noisy", True, "low signal-to-noise ratio", "snr_db", "min_snr_db"),
    Reason("silent", True, "mostly silence", "silence_percent", "max_silence_percent"),
    Reason("clipped", True, "clipped", "clipped_percent", "max_clipped_percent"),
    Reason("flat_tops", True, "clipped before it was turned down", "flat_percent", "max_flat_percent"),
    Reason("dropouts", True, "gaps in the sound", "num_dropouts", "max_dropouts"),
    Reason("clicks", True, "many clicks", "num_clicks", "max_clicks"),
    Reason("cut_end", False, "cut off at the end", "end_db", "max_end_db"),
    Reason("background", True, "music, voices or noise in the background", "bak_below", "max_bak_below"),
    Reason("distorted", True, "distorted speech or several voices", "sig_below", "max_sig_below"),
    Reason("music", True, "music or hum in the pauses", "music_db", "max_music_db"),
    Reason("quiet", True, "too quiet", "rms_dbfs", "min_rms_dbfs"),
    Reason("too_slow", True, "too little text for its duration", "syllables_per_s", "min_syllables_per_s"),
    Reason("too_fast", True, "too much text for its duration", "syllables_per_s", "max_syllables_per_s"),
    Reason("foreign", True, "in another script", "script_percent", "min_script_percent"),
    Reason("tigrinya", True, "Tigrinya", "tigrinya_percent", "max_tigrinya_percent"),
    Reason("wrong_text", True, "text differs from the speech", "text_mismatch", "max_text_deviation"),
    Reason(
        "unheard_words",
        True,
        "start or end of the text not heard",
        "text_unheard",
        "max_text_deviation",
        "wrong_text",
    ),
    Reason(
        "extra_words",
        True,
        "speech before or after the text",
        "text_beyond",
        "max_text_deviation",
        "wrong_text",
    ),
    Reason("doubtful_text", True, "doubtful transcript"),
    Reason("same_audio", True, "the same audio as another clip"),
    Reason("same_text", True, "the same text as another clip of the speaker"),
    Reason("short", False, "short", "duration_s", "warn_min_duration_s", "too_short"),
    Reason("long", False, "long", "duration_s", "warn_max_duration_s", "too_long"),
    Reason("some_noise", False, "some noise", "snr_db", "warn_min_snr_db", "noisy"),
    Reason("pauses", False, "long pauses", "silence_percent", "warn_max_silence_percent", "silent"),
    Reason("edges", False, "silence at start or end", "edge_s", "warn_max_edge_s"),
    Reason("peaks", False, "clipped peaks", "clipped_run", "warn_max_clipped_run", "clipped"),
    Reason("some_background", False, "unusual background", "bak_below", "warn_max_bak_below", "background"),
    Reason("some_music", False, "tones in the pauses", "music_db", "warn_max_music_db", "music"),
    Reason(
        "some_distortion",
        False,
        "unusual sound of the speech",
        "sig_below",
        "warn_max_sig_below",
        "distorted",
    ),
    Reason(
        "other_voice",
        False,
        "another voice than the speaker's other clips",
        "voice_deviation",
        "warn_max_voice_deviation",
    ),
    Reason("voice_change", False, "the voice changes", "halves_deviation", "warn_max_halves_deviation"),
    Reason("limited", False, "limited or clipped peaks", "peak_ratio", "warn_min_peak_ratio", "flat_tops"),
    Reason("some_clicks", False, "clicks", "num_clicks", "warn_max_clicks", "clicks"),
    Reason("cut_start", False, "cut off at the start", "start_db", "warn_max_start_db"),
    Reason("offset", False, "DC offset", "offset_percent", "warn_max_offset_percent"),
    Reason("low_level", False, "quiet", "rms_dbfs", "warn_min_rms_dbfs", "quiet"),
    Reason("high_level", False, "loud", "rms_dbfs", "warn_max_rms_dbfs"),
    Reason("narrow_band", False, "no high frequencies", "bandwidth_hz", "warn_min_bandwidth_hz"),
    Reason(
        "slow",
        False,
        "little text for its duration",
        "syllables_per_s",
        "warn_min_syllables_per_s",
        "too_slow",
    ),
    Reason(
        "fast", False, "much text for its duration", "syllables_per_s", "warn_max_syllables_per_s", "too_fast"
    ),
    Reason("odd_rate", False, "unusual rate for the speaker", "rate_iqr", "warn_max_rate_iqr"),
    Reason(
        "tigrinya_letter",
        False,
        "letters of Tigrinya",
        "tigrinya_letter_percent",
        "max_tigrinya_percent",
        "tigrinya",
    ),
    Reason("latin_left", False, "Latin letters", "num_latin"),
    Reason("digits_left", False, "digits that are not spelled out", "num_digits"),
    Reason("others_left", False, "characters of other scripts", "num_other"),
    Reason(
        "duration_off",
        False,
        "duration differs from the manifest",
        "duration_error_s",
        "warn_max_duration_error_s",
    ),
    Reason(
        "common_text",
        False,
        "the same text by many speakers",
        "speakers_of_text",
        "warn_max_speakers_of_text",
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
