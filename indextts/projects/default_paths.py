"""Files that the two check programs read when the command names none: those of the only project.

`check_amharic_data.py` and `verify_amharic_training.py` also know the folder names of the predecessor.
"""

from pathlib import Path
from typing import Any

from indextts.commands.data import CheckData, VerifyTraining
from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings, read_project

PREDECESSOR_FOLDER = Path("preprocessed_amharic")
WORKSPACE = Path("workspace")
TOKENIZER = Path("tokenizers/amharic_extended_bpe.model")
MANIFESTS = (
    Path("amharic_dataset/manifest.jsonl"),
    Path("preprocessed_amharic/train_manifest.jsonl"),
    Path("processed_data/train_manifest.jsonl"),
)


def with_default_paths(command: CheckData) -> CheckData:
    """Return the command with files to check: those of `preprocessed_amharic/`, or of the only project.

    What is left at its default is then as that project's settings say.
    """
    if command.train_manifest or command.train_pairs or command.val_pairs:
        return command
    asked: dict[str, Any] = {}
    projects = sorted(path.parent for path in command.workspace.glob("*/project.json"))
    if PREDECESSOR_FOLDER.is_dir():
        found = _existing(
            train_manifest=PREDECESSOR_FOLDER / "train_manifest.jsonl",
            train_pairs=PREDECESSOR_FOLDER / "train_pairs.jsonl",
            val_pairs=PREDECESSOR_FOLDER / "val_pairs.jsonl",
        )
    elif len(projects) == 1:
        project = Project(projects[0])
        asked = _asked(command, read_project(project))
        found = _existing(
            train_manifest=project.manifest,
            train_pairs=project.pairs("train"),
            val_pairs=project.pairs("val"),
        )
    else:
        found = {}
    if not found:
        raise UserError(
            "nothing to check, give --train-manifest, --train-pairs or --val-pairs: there is no "
            f"{PREDECESSOR_FOLDER}/ here, and {command.workspace}/ has {len(projects)} projects"
        )
    return CheckData(**{**command.model_dump(), **asked, **found})


def _asked(command: CheckData, settings: ProjectSettings) -> dict[str, Any]:
    """Return the limits and options of a project, but for those that the command chooses itself."""
    return {
        name: value
        for name, value in {**settings.normalizer, **settings.check}.items()
        if getattr(command, name, None) == CheckData.model_fields[name].default
    }


def with_default_tokenizer(args: VerifyTraining) -> VerifyTraining:
    """Return the command with a tokenizer: as given, at the usual place, or of the only project.

    Raises:
        UserError: there is none, or several projects have one.
    """
    if args.tokenizer is not None:
        return args
    if TOKENIZER.is_file():
        manifest = args.manifest or [path for path in MANIFESTS if path.is_file()][:1]
        return args.model_copy(update={"tokenizer": TOKENIZER, "manifest": manifest})
    project = only_project(WORKSPACE)
    found = {
        "tokenizer": project.tokenizer,
        "config": project.config,
        "base_checkpoint": project.base_checkpoint,
        "manifest": [project.manifest],
    }
    untyped = {name: path for name, path in found.items() if name not in args.model_fields_set}
    return args.model_copy(update=untyped)


def only_project(workspace: Path) -> Project:
    """Return the one project of the workspace that has a tokenizer."""
    projects = [Project(path.parent) for path in sorted(workspace.glob("*/project.json"))]
    projects = [project for project in projects if project.tokenizer.is_file()]
    if len(projects) != 1:
        names = ", ".join(project.root.name for project in projects)
        which = f"{workspace}/ has {len(projects)} projects with a tokenizer{': ' if names else ''}{names}"
        raise UserError(f"--tokenizer was not given, {TOKENIZER} is absent and {which}; give --tokenizer")
    return projects[0]


def _existing(**paths: Path) -> dict[str, Path]:
    return {field: path for field, path in paths.items() if path.is_file()}
