"""Table of the checkpoints that a training run can resume from. No torch; reads no weights.

The trainer's own restore plan decides, from the meta file, whether the tokenizer fits and what a resume does.
A checkpoint counts as valid if its meta is readable and it has the recorded size; its digest is compared when
it is loaded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.planning.plan_from_meta import MetaPlan, plan_from_meta
from indextts.runs.checkpoints import validation_losses
from indextts.runs.directory import CheckpointMeta, checkpoint_files, checkpoints, read_metrics
from indextts.system.messages import Message, as_is

VALID = "planning.valid"
NO_META = "planning.no_meta"
CORRUPT = "planning.corrupt"
OTHER_SIZE = "planning.other_size"
MISSING = "planning.missing"

FITS = "planning.fits"
TOKENIZED_DIFFERENTLY = "planning.tokenized_differently"
MOVED = "planning.moved"
NOT_KNOWN = "planning.not_known"

Fit = Literal["continues", "restarts", "refused", "unknown"]


@dataclass(frozen=True)
class ResumeRow:
    """A checkpoint.

    Args:
        path: the file; if the checkpoint has several names, the numbered one.
        names: all its names in the folder.
        saved: time of the save, in Unix time.
        mel_loss: loss of the validation at its step, None if there was none.
        is_valid: None if there is no meta to compare with.
        fit: the effect of a resume with the settings of the form.
        why: the reason for `fit`; for a refusal, the trainer's own message.
    """

    path: Path
    names: tuple[str, ...]
    step: int | None
    epoch: int | None
    part: int | None
    saved: float
    mel_loss: float | None
    is_valid: bool | None
    validity: Message
    fit: Fit
    why: Message

    @property
    def can_start(self) -> bool:
        return self.is_valid is not False and self.fit != "refused"


def resume_rows(command: Train) -> list[ResumeRow]:
    """Return the checkpoints of the run directory, newest first, then those without a meta."""
    folder = command.output_dir
    losses = _validation_losses(folder / "metrics.jsonl")
    by_serial: dict[int, list[tuple[Path, CheckpointMeta]]] = {}
    for path, meta in checkpoints(folder):
        by_serial.setdefault(meta.serial, []).append((path, meta))
    rows = [_row(command, same, losses) for same in by_serial.values()]
    known = {path for same in by_serial.values() for path, _ in same}
    foreign = [path for path in checkpoint_files(folder) if path not in known and path.is_file()]
    return rows + [_foreign_row(path) for path in foreign]


def _row(
    command: Train,
    same: Sequence[tuple[Path, CheckpointMeta]],
    losses: Mapping[tuple[int, int], float],
) -> ResumeRow:
    present = [(path, meta) for path, meta in same if path.is_file()]
    path, meta = (present or same)[0]
    is_valid, validity = _validity(path, meta)
    fit, why = _fit(command, path) if is_valid else ("unknown", Message(NOT_KNOWN))
    return ResumeRow(
        path=path,
        names=tuple(each.name for each, _ in same),
        step=meta.step,
        epoch=meta.epoch,
        part=meta.part,
        saved=path.stat().st_mtime if present else path.with_suffix(".json").stat().st_mtime,
        mel_loss=losses.get((meta.part, meta.step)),
        is_valid=is_valid,
        validity=validity,
        fit=fit,
        why=why,
    )


def _foreign_row(path: Path) -> ResumeRow:
    is_corrupt = path.name.startswith("damaged-")
    return ResumeRow(
        path=path,
        names=(path.name,),
        step=None,
        epoch=None,
        part=None,
        saved=path.stat().st_mtime,
        mel_loss=None,
        is_valid=False if is_corrupt else None,
        validity=Message(CORRUPT if is_corrupt else NO_META),
        fit="unknown",
        why=Message(NOT_KNOWN),
    )


def _validity(path: Path, meta: CheckpointMeta) -> tuple[bool, Message]:
    if not path.is_file():
        return False, Message(MISSING)
    num_bytes = path.stat().st_size
    if num_bytes != meta.num_bytes:
        values = {"now": f"{num_bytes:,}", "expected": f"{meta.num_bytes:,}"}
        return False, Message(OTHER_SIZE, values)
    return True, Message(VALID)


def _fit(command: Train, path: Path) -> tuple[Fit, Message]:
    try:
        found = plan_from_meta(command.model_copy(update={"resume": str(path)}))
    except UserError as error:
        return "refused", as_is(str(error))
    if found is None:
        return "unknown", Message(NOT_KNOWN)
    return ("continues" if found.plan.continues else "restarts"), _why(found)


def _why(found: MetaPlan) -> Message:
    before, now = found.facts.vocabulary, found.run.vocabulary
    if not found.plan.continues and before is not None:
        return Message(MOVED, {"old": f"{before.size:,}", "new": f"{now.size:,}"})
    return Message(FITS if before and before.fingerprint == now.fingerprint else TOKENIZED_DIFFERENTLY)


def _validation_losses(metrics: Path) -> dict[tuple[int, int], float]:
    try:
        return validation_losses(read_metrics(metrics))
    except OSError:
        return {}
