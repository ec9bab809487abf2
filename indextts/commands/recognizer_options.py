"""Options of the commands that transcribe speech."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class RecognizerOptions(BaseModel):
    """Speech recognizers, from local folders or the hub."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    asr: list[str] = Field(
        [],
        title="Recognizer",
        description="Folder of a speech recognizer of transformers, or its name OWNER/NAME on the Hugging "
        "Face hub, to compare speech with its text.",
    )
    asr_folder: Path = Field(
        Path("checkpoints/recognizers"),
        title="Recognizer folder",
        description="Folder for recognizers that are downloaded from the hub.",
    )
