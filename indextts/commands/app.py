"""Commands around a project: the pipeline, the page, TensorBoard, the demo's base checkpoint."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from indextts.commands.base import Command
from indextts.commands.options import Options

Stage = Literal["data", "tokenizer", "preprocess", "pairs", "train", "export"]


class OfProject(Options):
    """Options of a command for a whole project."""

    workspace: Path = Field(Path("workspace"), title="Workspace")
    """Folder that holds all projects."""
    demo: bool = Field(False, title="Demo")
    """Run the embedded demo, which takes a few minutes on a CPU and downloads nothing."""
    config: Path | None = Field(None, title="Project file")
    """Project as a YAML file."""


class RunPipeline(Command, OfProject):
    """Run all stages of a project; a stage that is done with unchanged input is skipped."""

    program: ClassVar[str] = "tools/run_pipeline.py"
    first: Stage = Field("data", title="First stage")
    """Stage to begin with; the earlier ones stay as they are."""
    until: Stage = Field("export", title="Last stage")
    """Last stage to run."""
    max_steps: int = Field(0, ge=0, title="Maximum steps")
    """Step at which training stops; 0 trains all epochs."""


class ProveSetup(Command, OfProject):
    """Overfit a few utterances of a project and speak them: do data, tokenizer, features and settings fit?

    Exits with status 0 if they do and 1 if not. Without pairs, the stages before the training run first.
    """

    program: ClassVar[str] = "tools/prove_setup.py"
    num_utterances: int = Field(0, ge=0, title="Utterances")
    """Number of utterances to overfit; 0 takes 300, or 60 of the demo."""
    steps: int = Field(0, ge=0, title="Steps")
    """Number of training steps; 0 takes 3,000, or 400 for the demo."""
    asr: list[str] = Field([], title="Recognizer")
    """Folder of a speech recognizer, or its name OWNER/NAME on the Hugging Face hub; the default comes
    from the settings of the project."""
    train_flags: list[str] = Field([], title="Trainer flags")
    """Flags of the trainer, such as --lora-rank=64, in place of the project's; tab 6 passes its form."""


class ServeTensorboard(Command):
    """Serve TensorBoard over a run's event files to this machine only; the page proxies it."""

    program: ClassVar[str] = "tools/serve_tensorboard.py"
    logdir: Path = Field(title="Log folder")
    """Folder with event files: logs/ of a run directory."""
    address_file: Path = Field(title="Address file")
    """File for the port and the process."""
    path_prefix: str = Field("", title="Path prefix")
    """Prefix of every URL, such as /tensorboard/demo."""
    reload_s: int = Field(10, ge=1, title="Reload interval (s)")
    """Seconds between two reads of the event files."""


class WebUI(Command):
    """Start the web page: eight tabs over the same commands, with training in the background."""

    program: ClassVar[str] = "webui_amharic.py"
    workspace: Path = Field(Path("workspace"), title="Workspace")
    """Folder that holds all projects."""
    root: list[Path] = Field([], title="Additional folders")
    """Folders besides the workspace that the page may read."""
    host: str = Field("127.0.0.1", title="Host")
    """Address to listen on."""
    port: int = Field(7863, ge=1, le=65535, title="Port")
    """Port to listen on."""
    max_upload_mb: int = Field(2000, ge=1, title="Maximum upload size (MB)")
    """Maximum size of an uploaded file, in MB."""
    share: bool = Field(False, title="Public link")
    """Open a password-protected public link."""
    auth_file: Path | None = Field(None, title="Password file")
    """File with one line, user:password."""
    allowed_host: list[str] = Field([], title="Allowed hosts")
    """Host names that requests may use besides the names of this machine."""
    trusted_proxy: list[str] = Field([], title="Trusted proxies")
    """Addresses or networks of reverse proxies whose X-Forwarded headers are believed."""


class MakeBaseCheckpoint(Command):
    """Write a base checkpoint with the full structure of a config and seeded random weights."""

    program: ClassVar[str] = "demo/make_base_checkpoint.py"
    config: Path = Field(title="Model config")
    """Path of the model's config.yaml, beside the tokenizer, which tells IndexTTS-2.0 from 2.5."""
    output: Path = Field(title="Output file")
    """Path for the checkpoint."""
    seed: int = Field(0, ge=0, le=2**63 - 1, title="Seed")
    """Random seed of the weights."""
