"""Limits of the quality check in `check_amharic_data.py`."""

from pydantic import BaseModel, ConfigDict, Field


class QualityLimits(BaseModel):
    """Limits of the check: warn_... fields warn, most others reject, and the last four judge the data set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_duration_s: float = Field(
        1.0, ge=0, title="Minimum duration (s)", description="Shorter clips are rejected."
    )
    max_duration_s: float = Field(
        20.0, gt=0, title="Maximum duration (s)", description="Longer clips are rejected."
    )
    warn_min_duration_s: float = Field(
        2.0, ge=0, title="Warning: minimum duration (s)", description="Shorter clips get a warning."
    )
    warn_max_duration_s: float = Field(
        15.0, gt=0, title="Warning: maximum duration (s)", description="Longer clips get a warning."
    )
    min_snr_db: float = Field(
        15.0, title="Minimum SNR (dB)", description="Clips with a lower signal-to-noise ratio are rejected."
    )
    warn_min_snr_db: float = Field(
        20.0,
        title="Warning: minimum SNR (dB)",
        description="Clips with a lower signal-to-noise ratio get a warning.",
    )
    max_silence_percent: float = Field(
        40.0, ge=0, le=100, title="Maximum silence (%)", description="Clips with more silence are rejected."
    )
    warn_max_silence_percent: float = Field(
        25.0,
        ge=0,
        le=100,
        title="Warning: maximum silence (%)",
        description="Clips with more silence get a warning.",
    )
    warn_max_edge_s: float = Field(
        0.5,
        ge=0,
        title="Warning: maximum edge silence (s)",
        description="Clips with longer silence at the start or end get a warning.",
    )
    max_clipped_percent: float = Field(
        0.1,
        ge=0,
        le=100,
        title="Maximum clipping (%)",
        description="Clips with more samples at full scale (0.999 and above) are rejected.",
    )
    warn_max_clipped_run: int = Field(
        2,
        ge=0,
        title="Warning: maximum clipped run",
        description="Clips with more consecutive samples at full scale get a warning.",
    )
    max_flat_percent: float = Field(
        0.05,
        ge=0,
        le=100,
        title="Maximum flat tops (%)",
        description="Clips with more samples in flat tops at any level are rejected: clipping that was "
        "turned down afterwards.",
    )
    warn_min_peak_ratio: float = Field(
        1.22,
        ge=1,
        title="Warning: minimum peak ratio",
        description="Clips whose peaks rise less above the loud samples get a warning: clipping that "
        "resampling or lossy coding has rounded.",
    )
    max_dropouts: int = Field(
        0, ge=0, title="Maximum dropouts", description="Clips with more gaps inside the speech are rejected."
    )
    max_clicks: int = Field(
        2, ge=0, title="Maximum clicks", description="Clips with more clicks are rejected."
    )
    warn_max_clicks: int = Field(
        0, ge=0, title="Warning: maximum clicks", description="Clips with more clicks get a warning."
    )
    max_end_db: float = Field(
        -15.0,
        title="Maximum level at the end (dB)",
        description="Clips whose last 20 ms are louder, relative to the clip, get a warning: cut off.",
    )
    warn_max_start_db: float = Field(
        -4.0,
        title="Warning: maximum level at the start (dB)",
        description="Clips whose first 20 ms are louder, relative to the clip, get a warning.",
    )
    warn_max_offset_percent: float = Field(
        20.0,
        ge=0,
        title="Warning: maximum DC offset (%)",
        description="Clips with a larger mean, as a share of the RMS, get a warning.",
    )
    max_bak_below: float = Field(
        3.5,
        gt=0,
        title="Maximum BAK below the speaker",
        description="Clips whose DNSMOS background score is more deviations below the median of their "
        "speaker are rejected: music, voices or noise behind the speech.",
    )
    warn_max_bak_below: float = Field(
        2.6,
        gt=0,
        title="Warning: maximum BAK below the speaker",
        description="Clips whose DNSMOS background score is more deviations below the median of their "
        "speaker get a warning.",
    )
    max_sig_below: float = Field(
        3.5,
        gt=0,
        title="Maximum SIG below the speaker",
        description="Clips whose DNSMOS signal score is more deviations below the median of their "
        "speaker are rejected: distorted speech, or several voices.",
    )
    warn_max_sig_below: float = Field(
        2.6,
        gt=0,
        title="Warning: maximum SIG below the speaker",
        description="Clips whose DNSMOS signal score is more deviations below the median of their "
        "speaker get a warning.",
    )
    max_music_db: float = Field(
        -35.0,
        title="Maximum tones in the pauses (dB)",
        description="Clips with louder tones in the pauses, relative to the speech, are rejected: music or "
        "hum.",
    )
    warn_max_music_db: float = Field(
        -45.0,
        title="Warning: maximum tones in the pauses (dB)",
        description="Clips with louder tones in the pauses, relative to the speech, get a warning.",
    )
    warn_max_voice_deviation: float = Field(
        5.0,
        gt=0,
        title="Warning: maximum voice deviation",
        description="Clips whose voice is farther from the speaker's other clips, in units of the usual "
        "spread, get a warning: a wrong label, or several voices.",
    )
    warn_max_halves_deviation: float = Field(
        4.0,
        gt=0,
        title="Warning: maximum deviation of the halves",
        description="Clips whose halves differ more in voice, in units of the usual spread, get a warning.",
    )
    min_rms_dbfs: float = Field(
        -40.0, le=0, title="Minimum RMS (dBFS)", description="Quieter clips are rejected."
    )
    warn_min_rms_dbfs: float = Field(
        -30.0, le=0, title="Warning: minimum RMS (dBFS)", description="Quieter clips get a warning."
    )
    warn_max_rms_dbfs: float = Field(
        -14.0, le=0, title="Warning: maximum RMS (dBFS)", description="Louder clips get a warning."
    )
    warn_min_bandwidth_hz: float = Field(
        7000.0,
        ge=0,
        title="Warning: minimum bandwidth (Hz)",
        description="Clips with a smaller bandwidth, such as telephone audio, get a warning.",
    )
    min_syllables_per_s: float = Field(
        2.5,
        ge=0,
        title="Minimum syllables per second",
        description="Slower clips are rejected, because text is missing.",
    )
    max_syllables_per_s: float = Field(
        12.0,
        gt=0,
        title="Maximum syllables per second",
        description="Faster clips are rejected, because the text is too long.",
    )
    warn_min_syllables_per_s: float = Field(
        4.0, ge=0, title="Warning: minimum syllables per second", description="Slower clips get a warning."
    )
    warn_max_syllables_per_s: float = Field(
        10.0, gt=0, title="Warning: maximum syllables per second", description="Faster clips get a warning."
    )
    warn_max_rate_iqr: float = Field(
        1.5,
        gt=0,
        title="Warning: maximum rate deviation (IQR)",
        description="Clips whose speaking rate is farther from the speaker's median, in "
        "interquartile ranges, get a warning.",
    )
    max_text_deviation: float = Field(
        5.0,
        gt=0,
        title="Maximum deviation of the text",
        description="Clips whose text fits the recognizer's transcript worse than the median, by more robust "
        "standard deviations, are rejected.",
    )
    min_script_percent: float = Field(
        85.0,
        ge=0,
        le=100,
        title="Minimum letters in the script (%)",
        description="Texts with a smaller share of letters in the script of their language are rejected.",
    )
    max_tigrinya_percent: float = Field(
        1.0,
        ge=0,
        le=100,
        title="Maximum Tigrinya letters (%)",
        description="Texts with a larger share of Tigrinya letters are rejected.",
    )
    min_tigrinya_letters: int = Field(
        2,
        ge=1,
        title="Minimum Tigrinya letters",
        description="Texts with fewer Tigrinya letters only get a warning, because a verb or a name "
        "may contain one.",
    )
    warn_max_duration_error_s: float = Field(
        0.2,
        ge=0,
        title="Warning: maximum duration error (s)",
        description="Clips get a warning if manifest and recording differ by more.",
    )
    warn_max_speakers_of_text: int = Field(
        5,
        ge=1,
        title="Warning: maximum speakers of a text",
        description="Sentences that more speakers read get a warning.",
    )
    max_speaker_percent: float = Field(
        50.0,
        gt=0,
        le=100,
        title="Maximum share of a speaker (%)",
        description="The report names speakers with a larger share of the hours.",
    )
    min_speaker_minutes: float = Field(
        5.0,
        ge=0,
        title="Minimum minutes of a speaker",
        description="The report names speakers with less speech.",
    )
    min_language_percent: float = Field(
        90.0,
        ge=0,
        le=100,
        title="Minimum texts in the language (%)",
        description="The data set is reported as unfit if a smaller share of its texts is in its language.",
    )
    max_rejected_percent: float = Field(
        50.0,
        ge=0,
        le=100,
        title="Maximum rejected clips (%)",
        description="The data set is reported as unfit if a larger share of its clips is rejected.",
    )
