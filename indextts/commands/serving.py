"""The command of the speech server."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from indextts.commands.base import Command
from indextts.commands.speech import CheckpointSpeech


class Serve(Command, CheckpointSpeech):
    """Serve speech over HTTP as OpenAI's API does: POST /v1/audio/speech and GET /v1/models.

    Requests that wait are spoken in one batch. Other machines reach the server only with a key.
    """

    program: ClassVar[str] = "tools/serve.py"
    checkpoint: Path = Field(title="Checkpoint")
    """Checkpoint, run directory, exported model folder, or USER/NAME of a model on the hub."""
    voices: list[Path] = Field(min_length=1, title="Voices")
    """Recording or folder of recordings; the name of a file is the name of its voice."""
    model_name: str = Field("indextts2", title="Model name")
    """Name of the model in requests."""
    host: str = Field("127.0.0.1", title="Host")
    """Address to listen on."""
    port: int = Field(8880, ge=0, le=65535, title="Port")
    """Port to listen on; 0 takes a free one."""
    key_file: Path | None = Field(None, title="Key file")
    """File with one key per line, or sha256: and its digest; a request must carry one of them. Required for a
    host other than this machine."""
    max_characters: int = Field(4096, ge=1, le=20_000, title="Maximum characters")
    """Maximum length of a text."""
    max_waiting: int = Field(32, ge=1, title="Maximum requests")
    """Maximum number of requests in work or waiting."""
    requests_per_minute: int = Field(60, ge=0, title="Requests per minute")
    """Maximum number of requests per minute of a key, or of an address without keys; 0 is no limit."""
    max_batch: int = Field(8, ge=1, title="Batch size")
    """Maximum number of segments that are generated together."""
