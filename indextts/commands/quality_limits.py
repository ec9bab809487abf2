"""Limits of the quality check in `check_amharic_data.py`."""

from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, NonNegativeInt, NonPositiveFloat, PositiveFloat

from indextts.commands.options import Options

Percent = Annotated[float, Field(ge=0, le=100)]
AtLeastOne = Annotated[int, Field(ge=1)]


def _rejects(default: float, title: str, clips: str, why: str = "") -> Any:
    """Return the field of a limit beyond which clips are rejected."""
    return Field(default, title=title, description=f"{clips} are rejected{why}.")


def _warns(default: float, title: str, clips: str, why: str = "", *, ge: float | None = None) -> Any:
    """Return the field of a limit beyond which clips get a warning."""
    return Field(default, title=f"Warning: {title}", description=f"{clips} get a warning{why}.", ge=ge)


class QualityLimits(Options):
    """Limits of the check: warn_... fields warn, most others reject, and the last four judge the data set."""

    min_duration_s: NonNegativeFloat = _rejects(1.0, "Minimum duration (s)", "Shorter clips")
    max_duration_s: PositiveFloat = _rejects(20.0, "Maximum duration (s)", "Longer clips")
    warn_min_duration_s: NonNegativeFloat = _warns(2.0, "minimum duration (s)", "Shorter clips")
    warn_max_duration_s: PositiveFloat = _warns(15.0, "maximum duration (s)", "Longer clips")
    min_snr_db: float = _rejects(15.0, "Minimum SNR (dB)", "Clips with a lower signal-to-noise ratio")
    warn_min_snr_db: float = _warns(20.0, "minimum SNR (dB)", "Clips with a lower signal-to-noise ratio")
    max_silence_percent: Percent = _rejects(40.0, "Maximum silence (%)", "Clips with more silence")
    warn_max_silence_percent: Percent = _warns(25.0, "maximum silence (%)", "Clips with more silence")
    warn_max_edge_s: NonNegativeFloat = _warns(
        0.5, "maximum edge silence (s)", "Clips with longer silence at the start or end"
    )
    max_clipped_percent: Percent = _rejects(
        0.1, "Maximum clipping (%)", "Clips with more samples at full scale (0.999 and above)"
    )
    warn_max_clipped_run: NonNegativeInt = _warns(
        2, "maximum clipped run", "Clips with more consecutive samples at full scale"
    )
    max_flat_percent: Percent = _rejects(
        0.05,
        "Maximum flat tops (%)",
        "Clips with more samples in flat tops at any level",
        ": clipping that was turned down afterwards",
    )
    warn_min_peak_ratio: float = _warns(
        1.22,
        "minimum peak ratio",
        "Clips whose peaks rise less above the loud samples",
        ": clipping that resampling or lossy coding has rounded",
        ge=1,
    )
    max_dropouts: NonNegativeInt = _rejects(0, "Maximum dropouts", "Clips with more gaps inside the speech")
    max_clicks: NonNegativeInt = _rejects(2, "Maximum clicks", "Clips with more clicks")
    warn_max_clicks: NonNegativeInt = _warns(0, "maximum clicks", "Clips with more clicks")
    max_end_db: float = Field(-15.0, title="Maximum level at the end (dB)")
    """Clips whose last 20 ms are louder, relative to the clip, get a warning: cut off."""
    warn_max_start_db: float = _warns(
        -4.0, "maximum level at the start (dB)", "Clips whose first 20 ms are louder, relative to the clip,"
    )
    warn_max_offset_percent: NonNegativeFloat = _warns(
        20.0, "maximum DC offset (%)", "Clips with a larger mean, as a share of the RMS,"
    )
    max_bak_below: PositiveFloat = _rejects(
        3.5,
        "Maximum BAK below the speaker",
        "Clips whose DNSMOS background score is more deviations below the median of their speaker",
        ": music, voices or noise behind the speech",
    )
    warn_max_bak_below: PositiveFloat = _warns(
        2.6,
        "maximum BAK below the speaker",
        "Clips whose DNSMOS background score is more deviations below the median of their speaker",
    )
    max_sig_below: PositiveFloat = _rejects(
        3.5,
        "Maximum SIG below the speaker",
        "Clips whose DNSMOS signal score is more deviations below the median of their speaker",
        ": distorted speech, or several voices",
    )
    warn_max_sig_below: PositiveFloat = _warns(
        2.6,
        "maximum SIG below the speaker",
        "Clips whose DNSMOS signal score is more deviations below the median of their speaker",
    )
    max_music_db: float = _rejects(
        -35.0,
        "Maximum tones in the pauses (dB)",
        "Clips with louder tones in the pauses, relative to the speech,",
        ": music or hum",
    )
    warn_max_music_db: float = _warns(
        -45.0,
        "maximum tones in the pauses (dB)",
        "Clips with louder tones in the pauses, relative to the speech,",
    )
    warn_max_voice_deviation: PositiveFloat = _warns(
        5.0,
        "maximum voice deviation",
        "Clips whose voice is farther from the speaker's other clips, in units of the usual spread,",
        ": a wrong label, or several voices",
    )
    warn_max_halves_deviation: PositiveFloat = _warns(
        4.0,
        "maximum deviation of the halves",
        "Clips whose halves differ more in voice, in units of the usual spread,",
    )
    min_rms_dbfs: NonPositiveFloat = _rejects(-40.0, "Minimum RMS (dBFS)", "Quieter clips")
    warn_min_rms_dbfs: NonPositiveFloat = _warns(-30.0, "minimum RMS (dBFS)", "Quieter clips")
    warn_max_rms_dbfs: NonPositiveFloat = _warns(-14.0, "maximum RMS (dBFS)", "Louder clips")
    warn_min_bandwidth_hz: NonNegativeFloat = _warns(
        7000.0, "minimum bandwidth (Hz)", "Clips with a smaller bandwidth, such as telephone audio,"
    )
    min_syllables_per_s: NonNegativeFloat = _rejects(
        2.5, "Minimum syllables per second", "Slower clips", ", because text is missing"
    )
    max_syllables_per_s: PositiveFloat = _rejects(
        12.0, "Maximum syllables per second", "Faster clips", ", because the text is too long"
    )
    warn_min_syllables_per_s: NonNegativeFloat = _warns(4.0, "minimum syllables per second", "Slower clips")
    warn_max_syllables_per_s: PositiveFloat = _warns(10.0, "maximum syllables per second", "Faster clips")
    warn_max_rate_iqr: PositiveFloat = _warns(
        1.5,
        "maximum rate deviation (IQR)",
        "Clips whose speaking rate is farther from the speaker's median, in interquartile ranges,",
    )
    max_text_deviation: PositiveFloat = _rejects(
        5.0,
        "Maximum deviation of the text",
        "Clips whose text fits the recognizer's transcript worse than the median, by more robust standard "
        "deviations,",
    )
    min_script_percent: Percent = _rejects(
        85.0,
        "Minimum letters in the script (%)",
        "Texts with a smaller share of letters in the script of their language",
    )
    max_tigrinya_percent: Percent = _rejects(
        1.0, "Maximum Tigrinya letters (%)", "Texts with a larger share of Tigrinya letters"
    )
    min_tigrinya_letters: AtLeastOne = Field(2, title="Minimum Tigrinya letters")
    """Texts with fewer Tigrinya letters only get a warning, because a verb or a name may contain one."""
    warn_max_duration_error_s: NonNegativeFloat = _warns(
        0.2, "maximum duration error (s)", "Clips", " if manifest and recording differ by more"
    )
    warn_max_speakers_of_text: AtLeastOne = _warns(
        5, "maximum speakers of a text", "Sentences that more speakers read"
    )
    max_speaker_percent: float = Field(50.0, title="Maximum share of a speaker (%)", gt=0, le=100)
    """The report names speakers with a larger share of the hours."""
    min_speaker_minutes: NonNegativeFloat = Field(5.0, title="Minimum minutes of a speaker")
    """The report names speakers with less speech."""
    min_language_percent: Percent = Field(90.0, title="Minimum texts in the language (%)")
    """The data set is reported as unfit if a smaller share of its texts is in its language."""
    max_rejected_percent: Percent = Field(50.0, title="Maximum rejected clips (%)")
    """The data set is reported as unfit if a larger share of its clips is rejected."""
