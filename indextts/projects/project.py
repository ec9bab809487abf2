"""Project: the folder of a voice and its settings, shared by the terminal and the page. No torch.

    WORKSPACE/NAME/
      project.json                        the settings of the project
      readings.tsv                        spoken forms of written ones (indextts/text/readings.py)
      checkpoints/                        config.yaml gpt.pth bpe.model: the base model; that of
                                          IndexTTS-2.5 has a .tiktoken file in place of bpe.model
      dataset/                            manifest.jsonl audio/ check/ review.jsonl
      recordings/                         recordings without texts from a browser
      transcribed/                        their clips and texts: indextts/data/transcribing/
      uploads/                            NAME.zip and files/ from a browser, sources of the import
      tokenizers/amharic_extended_bpe.model    amharic_extended.tiktoken with IndexTTS-2.5
      preprocessed_amharic/               features/ train_manifest.jsonl val_manifest.jsonl
                                          train_pairs.jsonl val_pairs.jsonl
      training_output/                    the run directory
      proof/                              proof of the set-up (indextts/projects/proof.py)
      export/                             the exported model: indextts/speech/export/model_folder.py
      listen/                             speech that the page synthesized, and votes (webui/listen/)
      scores/                             scores that the page computed (webui/listen/)
      pipeline/STAGE.json now.json        finished stages, the current one (indextts/projects/pipeline.py)
      drafts/FORM.json                    values of the page's forms (indextts/webui/forms.py)
      server_keys                         digest of the key of its speech server (webui/listen/serving.py)
      tensorboard.json                    address of its TensorBoard (indextts/projects/tensorboard.py)
      jobs/TIME_STAGE/                    background jobs (indextts/projects/jobs)

A YAML file describes a project; its relative paths start at its own folder:

    name: my_voice                        folder name
    title: የእኔ ድምፅ                         name to read; without it, the folder name
    language: am                          ISO 639 code
    manifest: recordings/manifest.jsonl   JSON lines with audio, text, speaker; or instead:
    data: {source: [talks, cv-am.zip]}    flags of tools/import_dataset.py
    base: IndexTTS-2                      folder with config.yaml, gpt.pth and the tokenizer
    normalizer: {thousand: ሺ}             options of the normaliser
    tokenizer: {target_size: 14000}       flags of the stage's command, as field names
    check: {min_snr_db: 12}
    preprocess: {val_ratio: 0.01}
    pairs: {pairs_per_target: 2}
    train: {epochs: 3, learning_rate: 5.0e-5}
    launch: {processes: 4}                several GPUs: indextts/commands/launching.py
    export: {dtype: float16}
"""

import re
import threading
import unicodedata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from indextts.commands.bases import BASE_2_0, BASES, Base, base_in
from indextts.commands.normalizer_options import NormalizerOptions
from indextts.errors import UserError
from indextts.system.files import write_json
from indextts.system.messages import Message
from indextts.system.yaml_files import problems_of, read_section
from indextts.text.languages import AMHARIC, find_language

REPOSITORY = Path(__file__).resolve().parents[2]
DEMO, DEMO_NAME = REPOSITORY / "demo/project.yaml", "demo"  # the name is that in the file
_WRITING = threading.Lock()  # two browsers write project.json one after the other
PUBLISHED = BASE_2_0.folder  # with the downloads of a workspace
# Folders of the published files in a workspace; not allowed as project names.
PUBLISHED_FOLDERS = tuple(base.folder for base in BASES.values())

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
NAME_RULE = "project.name_rule"
MAX_TITLE_CHARS = 60
TITLE_RULE = "project.title_rule"


class ProjectSettings(BaseModel):
    """Settings of a project, as in its YAML file; paths are absolute."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    title: str = ""
    language: str = AMHARIC
    manifest: Path | None = None
    base: Path
    data: dict[str, Any] = {}
    check: dict[str, Any] = {}
    normalizer: dict[str, Any] = {}
    tokenizer: dict[str, Any] = {}
    preprocess: dict[str, Any] = {}
    pairs: dict[str, Any] = {}
    train: dict[str, Any] = {}
    launch: dict[str, Any] = {}
    export: dict[str, Any] = {}

    @field_validator("name")
    @classmethod
    def _is_a_folder_name(cls, name: str) -> str:
        if not is_folder_name(name):
            raise ValueError(str(Message(NAME_RULE, {"name": repr(name)})))
        return name

    @field_validator("title")
    @classmethod
    def _is_a_title(cls, title: str) -> str:
        if title and not is_title(title):
            raise ValueError(str(Message(TITLE_RULE, {"max": MAX_TITLE_CHARS})))
        return title

    @field_validator("language")
    @classmethod
    def _is_a_language(cls, code: str) -> str:
        try:
            return find_language(code).code
        except UserError as error:
            raise ValueError(str(error)) from None

    @field_validator("data")
    @classmethod
    def _may_name_one_source(cls, chosen: dict[str, Any]) -> dict[str, Any]:
        return {**chosen, "source": [chosen["source"]]} if isinstance(chosen.get("source"), str) else chosen

    @field_validator("normalizer")
    @classmethod
    def _has_only_options(cls, chosen: dict[str, Any]) -> dict[str, Any]:
        try:
            NormalizerOptions(**chosen)
            if "language" in chosen:
                raise ValueError("language belongs to the project; write it at the top of the file")
            if "readings" in chosen:
                raise ValueError("readings belong in readings.tsv in the project's folder")
        except ValidationError as error:
            raise ValueError("; ".join(problems_of(error))) from None
        return chosen

    @property
    def is_demo(self) -> bool:
        """Whether the project starts from the small base of the demo."""
        return self.base.parent == DEMO.parent

    def with_fields(self, stage: str, **fields: Any) -> "ProjectSettings":
        return self.model_copy(update={stage: {**getattr(self, stage), **fields}})


def read_settings(path: Path) -> ProjectSettings:
    """Return the settings in a YAML file; a UserError for an unreadable file or an invalid key."""
    try:
        settings = read_section(
            ProjectSettings, path, "docs/projects.md describes the YAML file of a project"
        )
    except UserError as error:
        raise UserError(f"--config {error}") from None
    folder = path.resolve().parent
    paths: dict[str, Any] = {"base": folder / settings.base}
    if settings.manifest is not None:
        paths["manifest"] = folder / settings.manifest
    if isinstance(settings.data.get("source"), list):
        sources = [str(folder / str(source)) for source in settings.data["source"]]
        paths["data"] = {**settings.data, "source": sources}
    return settings.model_copy(update=paths)


def is_folder_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_title(title: str) -> bool:
    """Return whether a project may have this title: one short line without invisible characters."""
    letters = (letter for letter in title if letter != " ")
    has_only_visible = all(unicodedata.category(letter)[0] not in "CZ" for letter in letters)
    return 0 < len(title) <= MAX_TITLE_CHARS and title == title.strip() and has_only_visible


def make_settings(**fields: Any) -> ProjectSettings:
    """Return settings with these fields; a UserError if one is missing or of the wrong type."""
    try:
        return ProjectSettings(**fields)
    except ValidationError as error:
        raise UserError("; ".join(problems_of(error))) from None


def read_project(project: "Project") -> ProjectSettings:
    """Return the settings in project.json; a UserError if it is missing or corrupt."""
    return read_section(ProjectSettings, project.root / "project.json", "create the project again")


def write_project(project: "Project", settings: ProjectSettings) -> None:
    """Write the project's project.json; the folder must exist."""
    with _WRITING:
        write_json(project.root / "project.json", settings.model_dump(mode="json"))


def project_names(workspace: Path) -> list[str]:
    """Return the project names of the workspace, the demo last, without links that lead out of it."""
    folders = [path.parent for path in workspace.glob("*/project.json")]
    inside = workspace.resolve()
    names = [folder.name for folder in folders if folder.resolve().is_relative_to(inside)]
    return sorted(names, key=lambda name: (name == DEMO_NAME, name))


class Project:
    """Paths of a project; two of the same folder are equal."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "checkpoints/config.yaml"
        self.base_checkpoint = root / "checkpoints/gpt.pth"
        self.dataset = root / "dataset"
        self.manifest = root / "dataset/manifest.jsonl"
        self.uploads = root / "uploads"
        self.recordings = root / "recordings"
        self.transcribed = root / "transcribed"
        self.readings = root / "readings.tsv"
        self.preprocessed = root / "preprocessed_amharic"
        self.run_dir = root / "training_output"
        self.proof = root / "proof"
        self.listen = root / "listen"
        self.tensorboard_address = root / "tensorboard.json"
        self.server_keys = root / "server_keys"
        self.scores = root / "scores"
        self.jobs = root / "jobs"
        self.export = root / "export"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Project) and self.root == other.root

    def __hash__(self) -> int:
        return hash(self.root)

    @property
    def base(self) -> Base:
        return base_in(self.config.parent)

    @property
    def base_tokenizer(self) -> Path:
        return self.config.with_name(self.base.tokenizer_file)

    @property
    def tokenizer(self) -> Path:
        return self.root / "tokenizers" / self.base.extended_file

    def uploaded(self) -> list[Path]:
        """Return the uploads: archives, parquet files, and the folder of single files."""
        inside = sorted(self.uploads.iterdir()) if self.uploads.is_dir() else []
        return [path for path in inside if not path.name.startswith(".")]

    def utterances(self, split: str) -> Path:
        """Return the preprocessed manifest of `split`, "train" or "val"."""
        return self.preprocessed / f"{split}_manifest.jsonl"

    def pairs(self, split: str) -> Path:
        """Return the pairs of `split`, "train" or "val"."""
        return self.preprocessed / f"{split}_pairs.jsonl"
