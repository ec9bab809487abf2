"""Base class of every model whose fields are flags, and the options of the commands that transcribe speech.

A field is a flag: its type, bounds, default and title, and below it its help, the text of `--help` and of the
page. It does not import tyro, because an export has a copy of the normaliser's options.
"""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

RECOGNIZERS_NAME = "recognizers"  # in the folder of the published files


class Options(BaseModel):
    """Frozen options without unknown fields; the text below a field is its help."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for field in cls.model_fields.values():
            if field.description:
                field.description = " ".join(field.description.split())  # of several lines


class RecognizerFolder(Options):
    """Folder of speech recognizers from the hub."""

    asr_folder: Path = Field(Path("checkpoints") / RECOGNIZERS_NAME, title="Recognizer folder")
    """Folder for speech recognizers that are downloaded from the hub."""
