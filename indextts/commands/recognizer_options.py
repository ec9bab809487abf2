"""Options of the commands that transcribe speech."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

RECOGNIZERS_NAME = "recognizers"  # in the folder of the published files


class RecognizerFolder(BaseModel):
    """Folder of speech recognizers from the hub."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    asr_folder: Path = Field(
        Path("checkpoints") / RECOGNIZERS_NAME,
        title="Recognizer folder",
        description="Folder for speech recognizers that are downloaded from the hub.",
    )
