"""The facts that a restore is decided by, and the plan that comes out; `indextts.runs.restore` decides."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from indextts.commands.train import Train
from indextts.runs.directory import CheckpointMeta, FileIdentity
from indextts.runs.restore_differences import Difference, recorded_manifests, split_manifests
from indextts.runs.schedule import EpochSize, Schedule
from indextts.text.vocabulary import Vocabulary

REQUIRED_KEYS = ("model", "optimizer", "epoch", "step")


@dataclass(frozen=True)
class CheckpointFacts:
    """What a checkpoint says of itself.

    Args:
        name: of the file.
        keys: the top-level keys of the file.
        text_rows: rows of its text embedding.
        meta: None in a file from elsewhere; all below but `trained_shapes` is for such a file alone.
        trained_shapes: shape of the moments of every parameter that the run trains, by name; None where
            they have no names and none could be found, or where only the meta file was read.
        misfit: why no names could be found.
        has_scheduler, has_scaler: whether it holds the state of one.
        learning_rate: of its last step, where its scheduler says so.
    """

    name: str
    keys: frozenset[str]
    text_rows: int
    step: int
    epoch: int
    meta: CheckpointMeta | None
    trained_shapes: dict[str, tuple[int, ...]] | None = None
    misfit: str = "it has no parameter names"
    has_scheduler: bool = True
    has_scaler: bool = False
    learning_rate: float | None = None

    @classmethod
    def of_meta(cls, name: str, meta: CheckpointMeta) -> Self:
        """Return the facts that the meta file alone gives; it was written when the file was whole."""
        return cls(
            name=name,
            keys=frozenset(REQUIRED_KEYS),
            text_rows=meta.tokenizer_size + 1,
            step=meta.step,
            epoch=meta.epoch,
            meta=meta,
            has_scaler=meta.environment.get("arithmetic") == "float16",
        )

    @property
    def vocabulary(self) -> Vocabulary | None:
        """None in a file from elsewhere."""
        if self.meta is None:
            return None
        return Vocabulary(tuple(self.meta.pieces), self.meta.tokenizer_fingerprint)


@dataclass(frozen=True)
class RunFacts:
    """What the run about to start is like.

    Args:
        base_size: pieces of the base tokenizer, whose rows stay frozen.
        gpt_config: `dataclasses.asdict(GPTConfig)`.
        command: as given; its `model_fields_set` are the fields that were typed.
        size: of an epoch; where only meta files were read and the pairs changed, that of all pairs.
        data_order: returns the digest of the samples with a seed, that a position belongs to; None where
            the pairs were not read, and the digests of their files decide.
        manifests: train first and then val.
        base: None where the base checkpoint was not compared with the run's.
        environment: as in CheckpointMeta; what is not known is absent.
        trained_shapes: shape of every trained parameter; None where only meta files were read.
        why_no_base: why the base was not compared.
        normalizer: as in CheckpointMeta.
    """

    vocabulary: Vocabulary
    base_size: int
    gpt_config: Mapping[str, Any]
    command: Train
    size: EpochSize
    data_order: Callable[[int], str] | None
    manifests: tuple[FileIdentity, ...]
    base: FileIdentity | None
    environment: Mapping[str, Any]
    trained_shapes: dict[str, tuple[int, ...]] | None
    why_no_base: str = "it is absent"
    normalizer: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RestorePlan:
    """What is taken over from a checkpoint.

    Args:
        continues: model, optimizer, schedule, step and epoch are restored; else all but the model is fresh.
        keeps_position: the epoch goes on after the samples that are done; else at its beginning.
        takes_scaler: the gradient scaler's state is restored too.
        row_of: for each row of the new text tables the row of the checkpoint's it comes from, -1 for a
            fresh one; None where the tables stay as they are.
        command: with the values that hold.
        schedule: of the run from here on.
        rate_change: the learning rates before and after, in a sentence; empty where the schedule stays.
        differences: between the checkpoint and now, the ones that hold first.
        notes: what is unusual or could not be checked, a sentence each.
        lines: what the log says, in order; notes and differences are among them.
    """

    continues: bool
    keeps_position: bool
    takes_scaler: bool
    row_of: tuple[int, ...] | None
    command: Train
    schedule: Schedule
    rate_change: str
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    lines: tuple[str, ...]


def world_size(environment: Mapping[str, Any]) -> int:
    """Return how many processes trained together; an older checkpoint does not know of more than one."""
    return int(environment.get("processes", 1))


def has_same_pairs(meta: CheckpointMeta, run: RunFacts) -> bool:
    old = recorded_manifests(meta)["train_manifest"]
    new = split_manifests(run.manifests, len(run.command.train_manifest))["train_manifest"]
    return [file.digest for file in old] == [file.digest for file in new]


def is_counted_only(checkpoint: CheckpointFacts, run: RunFacts) -> bool:
    """Return whether `size` is that of the pairs of the manifests, too long ones and all."""
    return run.data_order is None and checkpoint.meta is not None and not has_same_pairs(checkpoint.meta, run)
