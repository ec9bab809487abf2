"""Default input files of `check_amharic_data.py` and `verify_amharic_training.py`: those of the only project.

Both programs also find the folders of the predecessor of this project.
"""

import os
from pathlib import Path
from typing import Any

from indextts.commands.data import CheckData, VerifyTraining
from indextts.data.review import check_folder
from indextts.errors import UserError
from indextts.projects.project import Project, read_project
from indextts.system.amounts import counted

PREDECESSOR_FOLDER = Path("preprocessed_amharic")
WORKSPACE = Path("workspace")
TOKENIZER = Path("tokenizers/amharic_extended_bpe.model")
MANIFESTS = (
    Path("amharic_dataset/manifest.jsonl"),
    Path("preprocessed_amharic/train_manifest.jsonl"),
    Path("processed_data/train_manifest.jsonl"),
)


def with_default_paths(command: CheckData) -> CheckData:
    """Return the command with files to check, and the report folder whose verdicts later stages apply.

    Without a file, they are those of `preprocessed_amharic/`, or of the only project, whose settings replace
    defaults; a UserError without any.
    """
    if not (command.train_manifest or command.train_pairs or command.val_pairs):
        command = _with_default_files(command)
    manifest = command.train_manifest
    if command.report_dir is None and manifest is not None and os.access(manifest.parent, os.W_OK):
        command = command.model_copy(update={"report_dir": check_folder(manifest)})
    return command


def _with_default_files(command: CheckData) -> CheckData:
    options: dict[str, Any] = {}
    projects = _projects(command.workspace)
    files: dict[str, Path] = {}
    if PREDECESSOR_FOLDER.is_dir():
        names = ("train_manifest", "train_pairs", "val_pairs")
        files = {name: PREDECESSOR_FOLDER / f"{name}.jsonl" for name in names}
    elif len(projects) == 1:
        [project] = projects
        settings = read_project(project)
        options = {
            name: value
            for name, value in {**settings.normalizer, **settings.check}.items()
            if getattr(command, name, None) == CheckData.model_fields[name].default
        }
        pairs = {f"{split}_pairs": project.pairs(split) for split in ("train", "val")}
        files = {"train_manifest": project.manifest, **pairs}
    found = {field: path for field, path in files.items() if path.is_file()}
    if not found:
        raise UserError(
            f"no files to check: there is no {PREDECESSOR_FOLDER}/ here, and {command.workspace}/ has "
            f"{counted(len(projects), 'project')}; pass --train-manifest, --train-pairs or --val-pairs"
        )
    return CheckData(**{**command.model_dump(), **options, **found})


def with_default_tokenizer(args: VerifyTraining) -> VerifyTraining:
    """Return the command with a tokenizer: given, of `tokenizers/` or the only project, else a UserError."""
    if args.tokenizer is not None:
        return args
    if TOKENIZER.is_file():
        manifest = args.manifest or [path for path in MANIFESTS if path.is_file()][:1]
        return args.model_copy(update={"tokenizer": TOKENIZER, "manifest": manifest})
    projects = [project for project in _projects(WORKSPACE) if project.tokenizer.is_file()]
    if len(projects) != 1:
        names = ", ".join(project.root.name for project in projects)
        number = counted(len(projects), "project")
        raise UserError(
            f"--tokenizer: not given, {TOKENIZER} is missing, and {WORKSPACE}/ has {number} with a tokenizer"
            f"{f' ({names})' if names else ''}; pass --tokenizer"
        )
    [project] = projects
    found = {
        "tokenizer": project.tokenizer,
        "config": project.config,
        "base_checkpoint": project.base_checkpoint,
        "manifest": [project.manifest],
    }
    untyped = {name: path for name, path in found.items() if name not in args.model_fields_set}
    return args.model_copy(update=untyped)


def _projects(workspace: Path) -> list[Project]:
    return [Project(path.parent) for path in sorted(workspace.glob("*/project.json"))]
