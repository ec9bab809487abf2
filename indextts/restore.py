"""What a checkpoint allows under a tokenizer: a pure decision, made before anything is loaded.

No torch here: facts about the checkpoint and about the run go in, a plan comes out, `indextts.checkpoint`
carries it out. The plan is one of two:

    continue    model, optimizer, scheduler (and scaler), step, epoch, position: all of them
    start over  the model's weights, its text rows moved by piece; all the rest fresh, step 0, epoch 0

Never two of three: an optimizer without its scheduler, or a scheduler under a fresh optimizer, is what made
losses jump after a resume. The text tables have one row more than the tokenizer has pieces, so pieces are
compared with pieces (rows - 1), never with rows.
"""

from dataclasses import dataclass

from indextts.errors import UserError

REQUIRED_KEYS = ("model", "optimizer", "epoch", "step")


@dataclass(frozen=True)
class Vocabulary:
    """The identity of a tokenizer.

    Args:
        pieces: the SentencePiece strings in the order of their ids; the text tables of the model have one
            row more than this.
        fingerprint: sha256 over the ordered pieces with their types, scores and the normaliser's settings.
    """

    pieces: tuple[str, ...]
    fingerprint: str

    @property
    def size(self) -> int:
        return len(self.pieces)


@dataclass(frozen=True)
class CheckpointFacts:
    """What a checkpoint says of itself.

    Args:
        keys: the top-level keys of the file.
        text_rows: rows of its text embedding.
        vocabulary: None in a file from elsewhere.
        trained_shapes: shape of every parameter its optimizer holds, by name; None where it has no names.
        data_order: digest of the samples and seed that the position belongs to; None where not recorded.
    """

    keys: frozenset[str]
    text_rows: int
    vocabulary: Vocabulary | None
    step: int
    epoch: int
    trained_shapes: dict[str, tuple[int, ...]] | None
    data_order: str | None


@dataclass(frozen=True)
class RunFacts:
    """What the run about to start is like; fields as in CheckpointFacts.

    Args:
        base_size: pieces of the base tokenizer, whose rows stay frozen.
    """

    vocabulary: Vocabulary
    base_size: int
    trained_shapes: dict[str, tuple[int, ...]]
    data_order: str


@dataclass(frozen=True)
class RestorePlan:
    """What is taken over from a checkpoint.

    Args:
        continues: model, optimizer, scheduler, scaler, step and epoch are restored; else all but the model
            are fresh.
        keeps_position: the epoch goes on after the samples that are done; else at its beginning.
        row_of: for each row of the new text tables the row of the checkpoint's it comes from, -1 for a
            fresh one; None where the tables stay as they are.
        lines: what the log says, in order.
    """

    continues: bool
    keeps_position: bool
    row_of: tuple[int, ...] | None
    lines: tuple[str, ...]


def require_keys(keys: frozenset[str]) -> None:
    """Raise a UserError unless `keys` has all that a resume needs."""
    missing = [key for key in REQUIRED_KEYS if key not in keys]
    if missing:
        raise UserError(
            f"Checkpoint missing required keys: {missing}; a checkpoint to resume from is a model_step*.pth "
            "or latest.pth of a run, base weights go to --base-checkpoint"
        )


def plan_restore(checkpoint: CheckpointFacts, run: RunFacts) -> RestorePlan:
    """Return what `checkpoint` allows for `run`.

    Raises:
        UserError: the checkpoint lacks a required key.
    """
    require_keys(checkpoint.keys)
    said = _compare_vocabularies(checkpoint, run)
    if said is None:
        return _start_over_with_other_pieces(checkpoint, run)
    difference = _first_difference(checkpoint.trained_shapes, run.trained_shapes)
    if difference is not None:
        return _start_over_with_other_parameters(checkpoint, difference, said)
    if "scheduler" not in checkpoint.keys:
        said.append(f"[Info] No scheduler state in the checkpoint: rebuilt from step {checkpoint.step}")
    keeps_position = checkpoint.data_order == run.data_order
    if not keeps_position:
        said.append("[Warn] The training data or the seed changed: the epoch starts at its beginning")
    return RestorePlan(continues=True, keeps_position=keeps_position, row_of=None, lines=tuple(said))


def describe(plan: RestorePlan, checkpoint: CheckpointFacts, run: RunFacts) -> str:
    """Return the plan in a sentence, for whoever decides whether to start."""
    if plan.continues:
        place = f"step {checkpoint.step:,}, epoch {checkpoint.epoch}"
        position = (
            "" if plan.keeps_position else "; the epoch starts at its beginning, since the data changed"
        )
        return f"{place}: model, optimizer and scheduler continue{position}"
    fresh = f"optimizer, scheduler and scaler fresh; step 0 (was at step {checkpoint.step:,})"
    if plan.row_of is None:
        return f"the optimizer state does not fit: weights as they are; {fresh}"
    sizes = f"{checkpoint.text_rows - 1:,} -> {run.vocabulary.size:,} pieces"
    num_new = sum(row < 0 for row in plan.row_of)
    return f"tokenizer changed, {sizes}: weights by piece, {num_new:,} rows new; {fresh}"


def move_rows(old: Vocabulary, new: Vocabulary) -> tuple[int, ...]:
    """Return for each row of the new text tables its row in the old ones, by piece, -1 where there is none.

    The spare last row moves to the new end.
    """
    row = {piece: index for index, piece in enumerate(old.pieces)}
    return (*(row.get(piece, -1) for piece in new.pieces), old.size)


def _compare_vocabularies(checkpoint: CheckpointFacts, run: RunFacts) -> list[str] | None:
    """Return what to say where the rows fit the tokenizer as they are, None where they do not."""
    recorded = checkpoint.vocabulary
    if recorded is None:
        if checkpoint.text_rows - 1 != run.vocabulary.size:
            return None
        return ["[Warn] The checkpoint names no tokenizer: only sizes could be compared, and they agree"]
    if recorded.fingerprint == run.vocabulary.fingerprint:
        return []
    if recorded.pieces == run.vocabulary.pieces:
        return [
            "[Warn] The tokenizer has the checkpoint's pieces with other scores or settings: "
            "the rows fit, but texts are cut differently than before"
        ]
    return None


def _start_over_with_other_pieces(checkpoint: CheckpointFacts, run: RunFacts) -> RestorePlan:
    if checkpoint.vocabulary is not None:
        row_of = move_rows(checkpoint.vocabulary, run.vocabulary)
    else:
        row_of = _move_base_rows(checkpoint.text_rows, run)
    carried = sum(row >= 0 for row in row_of[:-1])
    old_size = checkpoint.text_rows - 1
    if old_size != run.vocabulary.size:
        first = "WARNING: Vocab size mismatch!"
    else:
        first = "WARNING: Vocabulary mismatch: the same size, but other pieces!"
    lines = (
        first,
        f"[Warn]    Checkpoint vocab: {old_size}",
        f"[Warn]    Current tokenizer: {run.vocabulary.size}",
        f"[Info] {carried} text rows are carried over by piece, {run.vocabulary.size - carried} are new",
        *_start_over_lines(checkpoint.step),
    )
    return RestorePlan(continues=False, keeps_position=False, row_of=row_of, lines=lines)


def _move_base_rows(old_rows: int, run: RunFacts) -> tuple[int, ...]:
    """Return the rows of the base alone: of the others a file without a record does not say the pieces."""
    kept = min(run.base_size, old_rows - 1)
    return (*range(kept), *(-1 for _ in range(run.vocabulary.size - kept)), old_rows - 1)


def _start_over_with_other_parameters(
    checkpoint: CheckpointFacts, difference: str, said: list[str]
) -> RestorePlan:
    lines = (
        *said,
        f"[Warn] The optimizer state does not fit: {difference}",
        *_start_over_lines(checkpoint.step),
    )
    return RestorePlan(continues=False, keeps_position=False, row_of=None, lines=lines)


def _start_over_lines(step: int) -> tuple[str, ...]:
    return (
        "[Info] SKIPPING optimizer, scheduler, AND scaler restore",
        "[Info] AUTOMATIC FIX: Skipping incompatible optimizer state",
        "[Info] Using FRESH optimizer with initial LR and warmup",
        f"[Info] Training will RESTART from step 0 (was at step {step})",
    )


def _first_difference(old: dict[str, tuple[int, ...]] | None, new: dict[str, tuple[int, ...]]) -> str | None:
    """Return how the parameters of two optimizers differ, or None where they are the same."""
    if old is None:
        return "it has no parameter names"
    for name in [*new, *(name for name in old if name not in new)]:
        if old.get(name) != new.get(name):
            return f"{name} is {old.get(name, 'absent')} in the checkpoint and {new.get(name, 'absent')} here"
    return None
