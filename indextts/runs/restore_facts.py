"""The input and the output of a restore decision: `CheckpointFacts` and `RunFacts` in, `RestorePlan` out.

`indextts.runs.restore` decides, `indextts.runs.restore_rows` words the result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from indextts.commands.normalizer_options import DEFAULT_OPTIONS
from indextts.commands.pairs_file import PairsFile, parse_files
from indextts.commands.train import Train
from indextts.runs.directory import CheckpointMeta, FileIdentity
from indextts.runs.schedule import EpochSize, Schedule
from indextts.system.messages import Message
from indextts.text.vocabulary import Vocabulary

REQUIRED_KEYS = ("model", "optimizer", "epoch", "step")
# Config keys that no weight shape depends on: these may change. Pieces are compared separately.
NO_SIZES = ("dropout", "pe_length", "number_text_tokens")


@dataclass(frozen=True)
class Codebook:
    """The codebook of semantic codes; codes of different codebooks have no common meaning."""

    identity: str  # of the speech backend that made the codes, from `codebook_identity`
    store: Path  # a feature store that has such codes


def codebook_identity(backend_identity: str) -> str:
    """Return the identity of a speech backend without the arithmetic, which changes few codes."""
    return backend_identity.partition(" in ")[0]


@dataclass(frozen=True)
class CheckpointFacts:
    """The contents of a checkpoint, as far as a restore depends on them.

    Args:
        meta: None for a checkpoint of another program. The fields below, except `trained_shapes`, matter
            only for such a file.
        trained_shapes: shapes of the optimizer moments by parameter name; None if the moments have no names
            and none could be inferred, or if only the meta file was read.
        misfit: the reason why no names could be inferred.
        learning_rate: of its last step, if its scheduler recorded it.
        old_pieces: of --resume-tokenizer, for a checkpoint of another program.
        codebook: identity of the codebook of its codes; None if it is unknown.
        languages: of the texts that it was trained on; None if they are unknown.
    """

    name: str
    keys: frozenset[str]
    text_rows: int
    step: int
    epoch: int
    meta: CheckpointMeta | None
    trained_shapes: dict[str, tuple[int, ...]] | None = None
    misfit: str = "it has no parameter names"
    has_scaler: bool = False
    learning_rate: float | None = None
    old_pieces: Vocabulary | None = None
    codebook: str | None = None
    languages: frozenset[str] | None = None

    @classmethod
    def of_meta(cls, name: str, meta: CheckpointMeta) -> Self:
        """Return the facts that the meta file alone provides; assumes that the checkpoint is complete."""
        # of the settings: a language that came back from an earlier part is taken for a new one
        own = meta.normalizer.get("language", DEFAULT_OPTIONS.language)
        files = parse_files(meta.settings["train_manifest"])
        return cls(
            name=name,
            keys=frozenset(REQUIRED_KEYS),
            text_rows=meta.tokenizer_size + 1,
            step=meta.step,
            epoch=meta.epoch,
            meta=meta,
            has_scaler=meta.environment.get("arithmetic") == "float16",
            codebook=meta.codebook,
            languages=frozenset(file.language or own for file in files),
        )

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary of the checkpoint; None if another program wrote it and its tokenizer is unknown."""
        if self.meta is None:
            return self.old_pieces
        return Vocabulary(tuple(self.meta.pieces), self.meta.tokenizer_fingerprint)


@dataclass(frozen=True)
class RunFacts:
    """The run that is about to start.

    Args:
        base_size: pieces of the base tokenizer; their rows stay frozen.
        gpt_config: `dataclasses.asdict(GPTConfig)`.
        command: as given; `model_fields_set` holds the fields that were typed.
        size: of an epoch.
        data_order: returns the digest of the sample order for a seed. It alone decides about the position.
        manifests: train first, then val.
        base: None if the base checkpoint could not be compared with that of the run.
        environment: as in `CheckpointMeta`, without the unknown keys.
        trained_shapes: shape of every trained parameter; None if only meta files were read.
        validation_set: digest of the pairs of a validation, as in `CheckpointMeta`; None if it is unknown.
        new_languages: the rows of the languages that the base was not trained on.
        codebook: of the feature stores; None if it is unknown.
    """

    vocabulary: Vocabulary
    base_size: int
    gpt_config: Mapping[str, Any]
    command: Train
    size: EpochSize
    data_order: Callable[[int], str]
    manifests: tuple[FileIdentity, ...]
    base: FileIdentity | None
    environment: Mapping[str, Any]
    trained_shapes: dict[str, tuple[int, ...]] | None
    validation_set: str | None = None
    new_languages: Mapping[str, int] = field(default_factory=dict)
    why_no_base: Message = field(default_factory=lambda: Message("restore.base_absent"))
    normalizer: Mapping[str, Any] = field(default_factory=dict)
    codebook: Codebook | None = None

    @property
    def has_new_rows(self) -> bool:
        """Whether the run has pieces or a language that the base was not trained on."""
        return self.vocabulary.size > self.base_size or bool(self.new_languages)


# "moves": with the weights, to the rows of other pieces or into merged matrices, while the run restarts
AverageOutcome = Literal["continues", "moves", "is off", "has other adapters"]


@dataclass(frozen=True)
class RestorePlan:
    """The parts of a checkpoint that a run restores; `restore_rows` words it.

    Args:
        continues: restore model, optimizer, schedule, step and epoch; if False, only the model.
        keeps_position: continue the epoch after the samples that are done; if False, restart the epoch.
        row_of: the row of the checkpoint's text tables for each row of the new tables, -1 for a fresh row;
            None if the tables stay unchanged.
        command: with the values that the run uses.
        adapters: what happens to the checkpoint's LoRA adapters; None if nothing does.
        misfit: why the optimizer state does not fit; empty if that is not why the run restarts.
        finished: why the run has no step left; None if it has.
        keeps_best: keep the best validation so far; None if only the start can compare the validation pairs.
        average: what happens to the checkpoint's weight average; None if there is none.
        added_languages: rows of new languages that start as that of --language-row-init.
    """

    checkpoint: CheckpointFacts
    run: RunFacts
    continues: bool
    keeps_position: bool
    takes_scaler: bool
    row_of: tuple[int, ...] | None
    command: Train
    schedule: Schedule
    adapters: Message | None = None
    misfit: str = ""
    finished: Message | None = None
    keeps_best: bool | None = True
    average: AverageOutcome | None = None
    added_languages: Mapping[str, int] = field(default_factory=dict)


def world_size(environment: Mapping[str, Any]) -> int:
    """Return the number of ranks; 1 in an environment that does not name it."""
    return int(environment.get("processes", 1))


def pairs_files(
    settings: Mapping[str, Any], manifests: Sequence[FileIdentity]
) -> dict[str, list[tuple[PairsFile, FileIdentity]]]:
    """Return the pairs files of a run with their identities, by the Train field that names them.

    Args:
        manifests: the identities, train first, then val.
    """
    rest = iter(manifests)
    return {
        name: list(zip(parse_files(settings[name]), rest, strict=False))
        for name in ("train_manifest", "val_manifest")
    }


def contents(files: Sequence[tuple[PairsFile, FileIdentity]]) -> list[tuple[str, str, float | None]]:
    """Return what a run reads of each file, whatever its path: the digest, the language and the share.

    Shares are relative to each other, so 0.7 and 0.3 are the same as 7 and 3.
    """
    total = sum(file.share or 0.0 for file, _ in files)
    return [
        (identity.digest, file.language, None if file.share is None else round(file.share / total, 9))
        for file, identity in files
    ]
