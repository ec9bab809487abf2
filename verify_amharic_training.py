"""Check from the terminal that tokenizer, config, base checkpoint and texts fit; exit status 1 if not."""

from collections.abc import Sequence
from pathlib import Path

from indextts.checkpoint import text_rows
from indextts.command_line import parse, run
from indextts.commands import VerifyTraining
from indextts.errors import UserError
from indextts.gpt.config import load_config
from indextts.manifest import read_hours
from indextts.project import Project
from indextts.review import read_reviewed_texts
from indextts.text.tokenizer import Tokenizer
from indextts.text.verify import verify
from indextts.text.vocabulary_size import advise_size

WORKSPACE = Path("workspace")
TOKENIZER = Path("tokenizers/amharic_extended_bpe.model")
MANIFESTS = (
    Path("amharic_dataset/manifest.jsonl"),
    Path("preprocessed_amharic/train_manifest.jsonl"),
    Path("processed_data/train_manifest.jsonl"),
)


def main(argv: Sequence[str] | None = None) -> int:
    args = with_files_found(parse(VerifyTraining, argv))
    assert args.tokenizer is not None
    base_tokenizer = args.base_checkpoint.with_name("bpe.model")
    hours = [read_hours(manifest) for manifest in args.manifest]
    known = [found for found in hours if found is not None]
    report = verify(
        Tokenizer.load(args.tokenizer),
        base=Tokenizer.load(base_tokenizer) if base_tokenizer.exists() else None,
        base_text_rows=text_rows(args.base_checkpoint),
        config_text_tokens=load_config(args.config).number_text_tokens,
        texts=[text for manifest in args.manifest for text in read_reviewed_texts(manifest)],
        max_unknown_percent=args.max_unknown_percent,
        advice=advise_size(sum(known)) if known and len(known) == len(hours) else None,
    )
    print(report)
    return 1 if report.problems else 0


def with_files_found(args: VerifyTraining) -> VerifyTraining:
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


if __name__ == "__main__":
    run(main)
