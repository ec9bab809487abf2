"""Reasons to flag a clip. No torch here.

A hard reason rejects a clip: later stages skip it unless a person keeps it. A soft reason is a warning. The
limits are flags of `check_amharic_data.py`; docs/data.md explains them.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Measure:
    """Texts about a number of each clip, "" where it is not shown.

    Args:
        flagged: in the description of a flag.
        title: of its histogram.
        spread: of its minimum, median and maximum in the report.
    """

    flagged: str = ""
    title: str = ""
    spread: str = ""


MEASURES = {
    "duration_s": Measure("{:.2f} s", "duration (s)", "duration in s"),
    "syllables_per_s": Measure("{:.1f} syllables/s", "syllables per second", "syllables per second"),
    "snr_db": Measure(
        "{:.1f} dB",
        "SNR (dB)",
        "SNR in dB (speech over steady noise; music and other voices do not count)",
    ),
    "silence_percent": Measure("{:.0f} %", "silence (%)", "silence in percent"),
    "rms_dbfs": Measure("{:.1f} dBFS", "RMS (dBFS)"),
    "loudness_lufs": Measure(title="loudness (LUFS)", spread="loudness in LUFS"),
    "bandwidth_hz": Measure("ends at {:.0f} Hz", "bandwidth (Hz)"),
    "clipped_percent": Measure("{:.2f} % of samples", "clipped samples (%)"),
    "clipped_run": Measure("{:.0f} samples in a row"),
    "flat_percent": Measure("{:.2f} % of samples"),
    "peak_ratio": Measure("peak ratio {:.2f}"),
    "num_dropouts": Measure("{:.0f}"),
    "num_clicks": Measure("{:.0f}"),
    "start_db": Measure("{:.0f} dB at the start"),
    "end_db": Measure("{:.0f} dB at the end", "level at the end (dB)"),
    "edge_s": Measure("{:.2f} s"),
    "offset_percent": Measure("{:.0f} % of the RMS"),
    "sig": Measure(title="DNSMOS SIG", spread="DNSMOS SIG, distortion of the speech (1 to 5)"),
    "bak": Measure(title="DNSMOS BAK", spread="DNSMOS BAK, background (1 to 5)"),
    "ovrl": Measure(title="DNSMOS OVRL", spread="DNSMOS OVRL, overall (1 to 5)"),
    "bak_below": Measure(
        "BAK {:.1f} deviations below the speaker's median", "BAK below the speaker's median, in deviations"
    ),
    "sig_below": Measure(
        "SIG {:.1f} deviations below the speaker's median", "SIG below the speaker's median, in deviations"
    ),
    "music_db": Measure("{:.0f} dB relative to the speech", "tones in the pauses (dB)"),
    "voice_deviation": Measure("{:.1f} spreads from the median", "deviation of the voice (spreads)"),
    "halves_deviation": Measure("{:.1f} spreads from the median", "deviation of the halves (spreads)"),
    "script_percent": Measure("{:.0f} % of the letters are in the script", "letters in the script (%)"),
    "error_percent": Measure(title="recognizer errors (% of letters)"),
    "alignment": Measure(title="alignment of the text (nats per letter)"),
    "tigrinya_percent": Measure("{:.1f} % Tigrinya letters"),
    "tigrinya_letter_percent": Measure("{:.1f} % Tigrinya letters"),
    "text_mismatch": Measure("{:.1f} deviations"),
    "text_unheard": Measure("{:.1f} deviations"),
    "text_beyond": Measure("{:.1f} deviations"),
    "rate_iqr": Measure("{:.1f} interquartile ranges from the median"),
    "num_latin": Measure("{:.0f}"),
    "num_digits": Measure("{:.0f}"),
    "num_other": Measure("{:.0f}"),
    "duration_error_s": Measure("by {:.2f} s"),
    "speakers_of_text": Measure("{:.0f} speakers"),
}


@dataclass(frozen=True)
class Reason:
    """Reason to flag a clip.

    Args:
        is_hard: whether it rejects the clip.
        name: the flag in files and filters.
        what: a short description.
        measure: a key of the clip's measures; empty for a reason without a number.
        limit: a field of QualityLimits, whose name tells the side on which clips are flagged; empty for
            clips above 0.
        harder: the reason for the same number that replaces this one.
    """

    is_hard: bool
    name: str
    what: str
    measure: str = ""
    limit: str = ""
    harder: str = ""

    @property
    def side(self) -> Literal["below", "above"]:
        """The side of the limit on which clips are flagged."""
        return "below" if "min_" in self.limit else "above"


_REJECT = (
    ("unreadable", "unreadable recording"),
    ("too_short", "too short", "duration_s", "min_duration_s"),
    ("too_long", "too long", "duration_s", "max_duration_s"),
    ("noisy", "low signal-to-noise ratio", "snr_db", "min_snr_db"),
    ("silent", "mostly silence", "silence_percent", "max_silence_percent"),
    ("clipped", "clipped", "clipped_percent", "max_clipped_percent"),
    ("flat_tops", "clipped before it was turned down", "flat_percent", "max_flat_percent"),
    ("dropouts", "gaps in the sound", "num_dropouts", "max_dropouts"),
    ("clicks", "many clicks", "num_clicks", "max_clicks"),
    ("background", "music, voices or noise in the background", "bak_below", "max_bak_below"),
    ("distorted", "distorted speech or several voices", "sig_below", "max_sig_below"),
    ("music", "music or hum in the pauses", "music_db", "max_music_db"),
    ("quiet", "too quiet", "rms_dbfs", "min_rms_dbfs"),
    ("too_slow", "too little text for its duration", "syllables_per_s", "min_syllables_per_s"),
    ("too_fast", "too much text for its duration", "syllables_per_s", "max_syllables_per_s"),
    ("foreign", "in another script", "script_percent", "min_script_percent"),
    ("tigrinya", "Tigrinya", "tigrinya_percent", "max_tigrinya_percent"),
    ("wrong_text", "text differs from the speech", "text_mismatch", "max_text_deviation"),
    (
        "unheard_words",
        "start or end of the text not heard",
        "text_unheard",
        "max_text_deviation",
        "wrong_text",
    ),
    ("extra_words", "speech before or after the text", "text_beyond", "max_text_deviation", "wrong_text"),
    ("doubtful_text", "doubtful transcript"),
    ("same_audio", "the same audio as another clip"),
    ("same_text", "the same text as another clip of the speaker"),
)
_WARN = (
    ("cut_end", "cut off at the end", "end_db", "max_end_db"),
    ("short", "short", "duration_s", "warn_min_duration_s", "too_short"),
    ("long", "long", "duration_s", "warn_max_duration_s", "too_long"),
    ("some_noise", "some noise", "snr_db", "warn_min_snr_db", "noisy"),
    ("pauses", "long pauses", "silence_percent", "warn_max_silence_percent", "silent"),
    ("edges", "silence at start or end", "edge_s", "warn_max_edge_s"),
    ("peaks", "clipped peaks", "clipped_run", "warn_max_clipped_run", "clipped"),
    ("some_background", "unusual background", "bak_below", "warn_max_bak_below", "background"),
    ("some_music", "tones in the pauses", "music_db", "warn_max_music_db", "music"),
    ("some_distortion", "unusual sound of the speech", "sig_below", "warn_max_sig_below", "distorted"),
    (
        "other_voice",
        "another voice than the speaker's other clips",
        "voice_deviation",
        "warn_max_voice_deviation",
    ),
    ("voice_change", "the voice changes", "halves_deviation", "warn_max_halves_deviation"),
    ("limited", "limited or clipped peaks", "peak_ratio", "warn_min_peak_ratio", "flat_tops"),
    ("some_clicks", "clicks", "num_clicks", "warn_max_clicks", "clicks"),
    ("cut_start", "cut off at the start", "start_db", "warn_max_start_db"),
    ("offset", "DC offset", "offset_percent", "warn_max_offset_percent"),
    ("low_level", "quiet", "rms_dbfs", "warn_min_rms_dbfs", "quiet"),
    ("high_level", "loud", "rms_dbfs", "warn_max_rms_dbfs"),
    ("narrow_band", "no high frequencies", "bandwidth_hz", "warn_min_bandwidth_hz"),
    ("slow", "little text for its duration", "syllables_per_s", "warn_min_syllables_per_s", "too_slow"),
    ("fast", "much text for its duration", "syllables_per_s", "warn_max_syllables_per_s", "too_fast"),
    ("odd_rate", "unusual rate for the speaker", "rate_iqr", "warn_max_rate_iqr"),
    ("tigrinya_letter", "letters of Tigrinya", "tigrinya_letter_percent", "max_tigrinya_percent", "tigrinya"),
    ("latin_left", "Latin letters", "num_latin"),
    ("digits_left", "digits that are not spelled out", "num_digits"),
    ("others_left", "characters of other scripts", "num_other"),
    ("duration_off", "duration differs from the manifest", "duration_error_s", "warn_max_duration_error_s"),
    ("common_text", "the same text by many speakers", "speakers_of_text", "warn_max_speakers_of_text"),
)
REASONS = (*(Reason(True, *row) for row in _REJECT), *(Reason(False, *row) for row in _WARN))
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
