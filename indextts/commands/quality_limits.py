"""Limits by which `check_amharic_data.py` judges utterances."""

from pydantic import BaseModel, ConfigDict, Field


class QualityLimits(BaseModel):
    """The limits: those named warn_... warn, the others reject, the last ones judge the whole set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_duration_s: float = Field(1.0, ge=0, description="Reject shorter clips.")
    max_duration_s: float = Field(20.0, gt=0, description="Reject longer clips.")
    warn_min_duration_s: float = Field(2.0, ge=0, description="Warn of shorter clips.")
    warn_max_duration_s: float = Field(15.0, gt=0, description="Warn of longer clips.")
    min_snr_db: float = Field(15.0, description="Reject speech less far above the noise.")
    warn_min_snr_db: float = Field(20.0, description="Warn of speech less far above the noise.")
    max_silence_percent: float = Field(40.0, ge=0, le=100, description="Reject clips with more silence.")
    warn_max_silence_percent: float = Field(25.0, ge=0, le=100, description="Warn of more silence.")
    warn_max_edge_s: float = Field(0.5, ge=0, description="Warn of longer silence at start or end.")
    max_clipped_percent: float = Field(
        0.1, ge=0, le=100, description="Reject clips with more samples at full scale (0.999 and above)."
    )
    warn_max_clipped_run: int = Field(2, ge=0, description="Warn of more such samples in a row.")
    min_rms_dbfs: float = Field(-40.0, le=0, description="Reject quieter clips.")
    warn_min_rms_dbfs: float = Field(-30.0, le=0, description="Warn of quieter clips.")
    warn_max_rms_dbfs: float = Field(-14.0, le=0, description="Warn of louder clips.")
    warn_min_bandwidth_hz: float = Field(
        7000.0, ge=0, description="Warn of clips whose sound ends below: a telephone, say."
    )
    min_fidel_per_s: float = Field(2.5, ge=0, description="Reject slower: text is missing.")
    max_fidel_per_s: float = Field(12.0, gt=0, description="Reject faster: text is too long.")
    warn_min_fidel_per_s: float = Field(4.0, ge=0, description="Warn of slower clips.")
    warn_max_fidel_per_s: float = Field(10.0, gt=0, description="Warn of faster clips.")
    warn_max_rate_iqr: float = Field(
        1.5, gt=0, description="Warn of a rate farther from the speaker's median, in interquartile ranges."
    )
    min_ethiopic_percent: float = Field(
        85.0, ge=0, le=100, description="Reject texts with a smaller share of Ethiopic letters."
    )
    max_tigrinya_percent: float = Field(
        1.0, ge=0, le=100, description="Reject texts with more letters that mark Tigrinya."
    )
    min_tigrinya_letters: int = Field(
        2, ge=1, description="Only warn of texts with fewer such letters: a verb or a name may have one."
    )
    warn_max_duration_error_s: float = Field(
        0.2, ge=0, description="Warn where manifest and recording differ by more."
    )
    warn_max_speakers_of_text: int = Field(5, ge=1, description="Warn of a sentence that more speakers read.")
    max_speaker_percent: float = Field(50.0, gt=0, le=100, description="Notice a speaker with more hours.")
    min_speaker_minutes: float = Field(5.0, ge=0, description="Notice speakers with less.")
    min_amharic_percent: float = Field(90.0, ge=0, le=100, description="Unfit set: fewer Amharic texts.")
    max_rejected_percent: float = Field(50.0, ge=0, le=100, description="Unfit set: more clips rejected.")
