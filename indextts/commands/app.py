"""Commands around a project: the pipeline, the page, TensorBoard, the demo's base checkpoint."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import (
    Field,
)

from indextts.commands.base import Command

Stage = Literal["data", "tokenizer", "preprocess", "pairs", "train", "export"]


class RunPipeline(Command):
    """Run all stages of a project, each only if it is not done or its input changed."""

    program: ClassVar[str] = "tools/run_pipeline.py"
    workspace: Path = Field(Path("workspace"), description="Folder of all projects.")
    demo: bool = Field(False, description="The embedded demo: a few minutes on a CPU, nothing downloaded.")
    config: Path | None = Field(None, description="A project of your own, as a YAML file.")
    until: Stage = Field("export", description="The last stage to run.")
    max_steps: int = Field(0, ge=0, description="Stop the training at this step; 0 for its end.")


class ServeTensorboard(Command):
    """Serve TensorBoard over a run's event files, to this machine only; the page passes it on."""

    program: ClassVar[str] = "tools/serve_tensorboard.py"
    logdir: Path = Field(description="Folder with event files: logs/ of a run directory.")
    address_file: Path = Field(description="File that gets the port and the process.")
    path_prefix: str = Field("", description="What its addresses begin with, such as /tensorboard/demo.")
    reload_s: int = Field(10, ge=1, description="Seconds between two looks at the event files.")


class WebUI(Command):
    """Open the page: eight tabs over the same commands, trainings in the background."""

    program: ClassVar[str] = "webui_amharic.py"
    workspace: Path = Field(Path("workspace"), description="Folder of all projects.")
    root: list[Path] = Field([], description="Folders besides the workspace that the page may read.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(7863, ge=1, le=65535, description="Port to listen on.")
    max_upload_mb: int = Field(2000, ge=1, description="Largest file that may be uploaded, in MB.")
    share: bool = Field(False, description="Open a public link, with a password.")
    auth_file: Path | None = Field(None, description="File with one line: user:password.")
    allowed_host: list[str] = Field(
        [], description="Host names besides this machine's that may be asked for."
    )


class MakeBaseCheckpoint(Command):
    """Write a base checkpoint of a config's full structure with seeded random weights."""

    program: ClassVar[str] = "demo/make_base_checkpoint.py"
    config: Path = Field(description="The model's config.")
    output: Path = Field(description="The checkpoint to write.")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="Seed of the weights.")
