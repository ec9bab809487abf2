"""What `--resume` would do, from the meta file beside the checkpoint alone: at once, and without torch.

The page shows it and `--plan` prints it. Nothing of gigabytes is read: whether the checkpoint itself is whole
is seen when it is loaded. Where the meta file is not enough (a new run, a file from elsewhere, a folder whose
checkpoints are in doubt) the answer is None, and the trainer has to look at weights.
"""

from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.models.gpt.config import load_config
from indextts.runs.directory import CheckpointMeta, FileIdentity, checkpoints, identify
from indextts.runs.restore import plan_restore
from indextts.runs.restore_facts import CheckpointFacts, RestorePlan, RunFacts, has_same_pairs
from indextts.runs.restore_notes import plan_text
from indextts.runs.schedule import EpochSize
from indextts.system.digest import PIECE_BYTES
from indextts.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class MetaPlan:
    """What a resume would do, and the facts that it was decided by."""

    plan: RestorePlan
    facts: CheckpointFacts
    run: RunFacts

    def __str__(self) -> str:
        return plan_text(self.plan, self.facts, self.run)


def describe_restore(command: Train, num_processes: int = 1) -> str | None:
    """Return the plan of starting `command`, for people; None where only weights can tell.

    Args:
        command: its `model_fields_set` are the fields that were typed.
        num_processes: that would train together.

    Raises:
        UserError: the start would be refused; with the sentence and status of the trainer.
    """
    found = plan_from_meta(command, num_processes)
    return None if found is None else str(found)


def plan_from_meta(command: Train, num_processes: int = 1) -> MetaPlan | None:
    """Return the restore plan of `command`; arguments, None and errors as for `describe_restore`."""
    found = _find(command)
    if found is None:
        return None
    path, meta = found
    facts = CheckpointFacts.of_meta(path.name, meta)
    run = _run_facts(command, meta, num_processes)
    return MetaPlan(plan_restore(facts, run), facts, run)


def _find(command: Train) -> tuple[Path, CheckpointMeta] | None:
    """Return the checkpoint that `--resume` means, if it is one of ours and seems whole."""
    if command.resume == "auto":
        present = checkpoints(command.output_dir)
        # a damaged newest is passed over by the trainer, and which one it takes then only digests say
        return present[0] if present and _has_its_size(*present[0]) else None
    path = Path(command.resume)
    if not path.is_file():
        return None
    try:
        meta = CheckpointMeta.read(path.with_suffix(".json"))
    except ValueError:
        return None
    return (path, meta) if _has_its_size(path, meta) else None


def _has_its_size(path: Path, meta: CheckpointMeta) -> bool:
    return path.is_file() and path.stat().st_size == meta.num_bytes


def _run_facts(command: Train, meta: CheckpointMeta, num_processes: int) -> RunFacts:
    tokenizer = Tokenizer.load(command.tokenizer)
    paths = [*command.train_manifest, *command.val_manifest]
    try:
        manifests = tuple(identify(path, meta.manifests) for path in paths)
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read ({error.strerror})") from None
    base, why_no_base = _base_identity(command.base_checkpoint, meta.base)
    run = RunFacts(
        vocabulary=tokenizer.vocabulary,
        base_size=meta.base_size,
        gpt_config=asdict(load_config(command.config)),
        command=command,
        size=EpochSize(meta.num_samples, meta.num_positions, meta.longest),
        data_order=None,
        manifests=manifests,
        base=base,
        environment={**_environment(), "processes": num_processes},
        trained_shapes=None,
        why_no_base=why_no_base,
        normalizer=tokenizer.options.record,
    )
    if has_same_pairs(meta, run):
        return run
    return replace(run, size=run.size.scaled(sum(_count_lines(path) for path in command.train_manifest)))


def _base_identity(path: Path, recorded: FileIdentity) -> tuple[FileIdentity | None, str]:
    """Return the base file's identity where it is known without reading gigabytes, and else why it is not."""
    if not path.is_file():
        return None, "it is absent"
    status = path.stat()
    if status.st_size != recorded.num_bytes:  # another file, whatever is in it
        identity = FileIdentity(
            path=str(path), num_bytes=status.st_size, mtime_ns=status.st_mtime_ns, digest=""
        )
        return identity, ""
    if status.st_size <= PIECE_BYTES or _is_untouched(path, recorded):
        return identify(path, [recorded]), ""
    return None, "it was moved or touched since; the start compares it"


def _is_untouched(path: Path, recorded: FileIdentity) -> bool:
    return (str(path.resolve()), path.stat().st_mtime_ns) == (recorded.path, recorded.mtime_ns)


def _environment() -> dict[str, Any]:
    """Return what is known of the machine without torch."""
    try:
        return {"torch": version("torch")}
    except PackageNotFoundError:
        return {}


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for line in file if line.strip())
