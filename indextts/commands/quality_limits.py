"""Limits of the quality check in `check_amharic_data.py`."""

from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt, NonPositiveFloat, PositiveFloat

from indextts.commands.options import Options

Percent = Annotated[float, Field(ge=0, le=100)]
AtLeastOne = Annotated[int, Field(ge=1)]


class QualityLimits(Options):
    """Limits of the check: warn_... fields warn, most others reject, and the last four judge the data set."""

    min_duration_s: NonNegativeFloat = Field(1.0, title="Minimum duration (s)")
    """Shorter clips are rejected."""
    max_duration_s: PositiveFloat = Field(20.0, title="Maximum duration (s)")
    """Longer clips are rejected."""
    warn_min_duration_s: NonNegativeFloat = Field(2.0, title="Warning: minimum duration (s)")
    """Shorter clips get a warning."""
    warn_max_duration_s: PositiveFloat = Field(15.0, title="Warning: maximum duration (s)")
    """Longer clips get a warning."""
    min_snr_db: float = Field(10.0, title="Minimum SNR (dB)")
    """Clips with a lower signal-to-noise ratio are rejected."""
    warn_min_snr_db: float = Field(15.0, title="Warning: minimum SNR (dB)")
    """Clips with a lower signal-to-noise ratio get a warning."""
    max_silence_percent: Percent = Field(50.0, title="Maximum silence (%)")
    """Clips with more silence are rejected."""
    warn_max_silence_percent: Percent = Field(25.0, title="Warning: maximum silence (%)")
    """Clips with more silence get a warning."""
    warn_max_edge_s: NonNegativeFloat = Field(0.5, title="Warning: maximum edge silence (s)")
    """Clips with longer silence at the start or end get a warning."""
    max_clipped_percent: Percent = Field(0.1, title="Maximum clipping (%)")
    """Clips with more samples at full scale (0.999 and above) are rejected."""
    warn_max_clipped_run: NonNegativeInt = Field(2, title="Warning: maximum clipped run")
    """Clips with more consecutive samples at full scale get a warning."""
    max_flat_percent: Percent = Field(0.05, title="Maximum flat tops (%)")
    """Clips with more samples in flat tops at any level are rejected: clipping that was turned down
    afterwards."""
    warn_min_peak_ratio: float = Field(1.22, ge=1, title="Warning: minimum peak ratio")
    """Clips whose peaks rise less above the loud samples get a warning: clipping that resampling or lossy
    coding has rounded."""
    max_dropouts: NonNegativeInt = Field(0, title="Maximum dropouts")
    """Clips with more gaps inside the speech are rejected."""
    max_clicks: NonNegativeInt = Field(2, title="Maximum clicks")
    """Clips with more clicks are rejected."""
    warn_max_clicks: NonNegativeInt = Field(0, title="Warning: maximum clicks")
    """Clips with more clicks get a warning."""
    warn_max_end_db: float = Field(-15.0, title="Warning: maximum level at the end (dB)")
    """Clips whose last 20 ms are louder, relative to the clip, get a warning: cut off."""
    warn_max_start_db: float = Field(-4.0, title="Warning: maximum level at the start (dB)")
    """Clips whose first 20 ms are louder, relative to the clip, get a warning."""
    warn_max_offset_percent: NonNegativeFloat = Field(20.0, title="Warning: maximum DC offset (%)")
    """Clips with a larger mean, as a share of the RMS, get a warning."""
    min_bak: float = Field(2.0, title="Minimum BAK")
    """Clips with a lower DNSMOS background score but a SIG of at least 3 are rejected: loud noise or voices
    behind clear speech."""
    max_bak_below: PositiveFloat = Field(3.5, title="Maximum BAK below the speaker")
    """Clips whose DNSMOS background score is below the median of their speaker by more than this many robust
    standard deviations are rejected: music, voices or noise behind the speech."""
    warn_max_bak_below: PositiveFloat = Field(2.6, title="Warning: maximum BAK below the speaker")
    """Clips whose DNSMOS background score is below the median of their speaker by more than this many robust
    standard deviations get a warning."""
    max_sig_below: PositiveFloat = Field(3.5, title="Maximum SIG below the speaker")
    """Clips whose DNSMOS signal score is below the median of their speaker by more than this many robust
    standard deviations are rejected: distorted speech, or several voices."""
    warn_max_sig_below: PositiveFloat = Field(2.6, title="Warning: maximum SIG below the speaker")
    """Clips whose DNSMOS signal score is below the median of their speaker by more than this many robust
    standard deviations get a warning."""
    max_music_db: float = Field(-35.0, title="Maximum tones in the pauses (dB)")
    """Clips with louder tones in the pauses, relative to the speech, are rejected: music or hum."""
    warn_max_music_db: float = Field(-45.0, title="Warning: maximum tones in the pauses (dB)")
    """Clips with louder tones in the pauses, relative to the speech, get a warning."""
    warn_max_voice_deviation: PositiveFloat = Field(5.0, title="Warning: maximum voice deviation")
    """Clips whose similarity to the speaker's other clips is below the median by more than this many robust
    standard deviations get a warning: a wrong label, or several voices."""
    warn_max_halves_deviation: PositiveFloat = Field(4.0, title="Warning: maximum deviation of the halves")
    """Clips whose halves have a similarity of voice below the median by more than this many robust standard
    deviations get a warning."""
    min_rms_dbfs: NonPositiveFloat = Field(-45.0, title="Minimum RMS (dBFS)")
    """Quieter clips are rejected."""
    warn_min_rms_dbfs: NonPositiveFloat = Field(-30.0, title="Warning: minimum RMS (dBFS)")
    """Quieter clips get a warning."""
    warn_max_rms_dbfs: NonPositiveFloat = Field(-14.0, title="Warning: maximum RMS (dBFS)")
    """Louder clips get a warning."""
    warn_min_bandwidth_hz: NonNegativeFloat = Field(7000.0, title="Warning: minimum bandwidth (Hz)")
    """Clips with a smaller bandwidth, such as telephone audio, get a warning."""
    min_syllables_per_s: NonNegativeFloat = Field(2.5, title="Minimum syllables per second")
    """Slower clips are rejected, because text is missing."""
    max_syllables_per_s: PositiveFloat = Field(12.0, title="Maximum syllables per second")
    """Faster clips are rejected, because the text is too long."""
    warn_min_syllables_per_s: NonNegativeFloat = Field(4.0, title="Warning: minimum syllables per second")
    """Slower clips get a warning."""
    warn_max_syllables_per_s: PositiveFloat = Field(10.0, title="Warning: maximum syllables per second")
    """Faster clips get a warning."""
    max_length_deviation: PositiveFloat = Field(3.7, title="Maximum deviation of the length")
    """Clips whose text is longer or shorter for its speech than the speaker's median by more than this many
    robust standard deviations are rejected."""
    max_text_deviation: PositiveFloat = Field(5.0, title="Maximum deviation of the text")
    """Clips whose text fits the recognizer's transcript worse than the median by more than this many robust
    standard deviations are rejected."""
    min_script_percent: Percent = Field(85.0, title="Minimum letters in the script (%)")
    """Texts with a smaller share of letters in the script of their language are rejected."""
    max_tigrinya_percent: Percent = Field(1.0, title="Maximum Tigrinya letters (%)")
    """Texts with a larger share of Tigrinya letters are rejected."""
    min_tigrinya_letters: AtLeastOne = Field(2, title="Minimum Tigrinya letters")
    """Texts with fewer Tigrinya letters only get a warning, because a verb or a name may contain one."""
    warn_max_duration_error_s: NonNegativeFloat = Field(0.2, title="Warning: maximum duration error (s)")
    """Clips whose duration in the manifest differs more from that of the recording get a warning."""
    max_clips_of_text: AtLeastOne = Field(5, title="Maximum clips of a text")
    """Clips of a speaker are rejected if more of them, with different sounds, have the same text: usually it
    is wrong."""
    warn_max_speakers_of_text: AtLeastOne = Field(5, title="Warning: maximum speakers of a text")
    """Sentences that more speakers read get a warning."""
    max_speaker_percent: float = Field(50.0, title="Maximum share of a speaker (%)", gt=0, le=100)
    """The report names speakers with a larger share of the hours."""
    min_speaker_minutes: NonNegativeFloat = Field(5.0, title="Minimum minutes of a speaker")
    """The report names speakers with less speech."""
    min_language_percent: Percent = Field(90.0, title="Minimum texts in the language (%)")
    """The data set is reported as unfit if a smaller share of its texts is in its language."""
    max_rejected_percent: Percent = Field(50.0, title="Maximum rejected clips (%)")
    """The data set is reported as unfit if a larger share of its clips is rejected."""
