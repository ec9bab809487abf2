"""Restore plan of `--resume`, computed at once from the meta of the checkpoint, without torch.

The page shows the plan and `--plan` prints it. The weights are not read; a corrupt checkpoint is detected
when it is loaded. If the meta is not sufficient (a new run, a checkpoint without a meta file, an incomplete
newest checkpoint, many changed pairs without an index), the result is None, and the trainer decides.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from indextts.commands.terminal import continued
from indextts.commands.train import Train
from indextts.data.feature_store import common_codebook, read_info
from indextts.data.manifest import sample_pairs
from indextts.errors import RESUME_REFUSED, UserError
from indextts.models.gpt.config import load_config_of
from indextts.planning.pairs_size import MAX_SAMPLED_PAIRS, read_epoch
from indextts.runs.directory import (
    CheckpointMeta,
    FileIdentity,
    checkpoints,
    files_without_meta,
    identify,
    read_meta,
)
from indextts.runs.lora_base import base_of_run, find_base, identify_base
from indextts.runs.restore import plan_restore
from indextts.runs.restore_facts import (
    CheckpointFacts,
    RestorePlan,
    RunFacts,
    contents,
    pairs_files,
    world_size,
)
from indextts.runs.schedule import EpochSize
from indextts.text.bases import load_tokenizer, new_languages


def plan_from_meta(command: Train, num_processes: int = 1) -> RestorePlan | None:
    """Return the restore plan; None if only the weights can decide, a UserError where the trainer refuses."""
    found = _find(command.resume, command.output_dir)
    if found is None:
        return None
    path, meta = found
    base = base_of_run(meta.base, path, command.base_checkpoint)
    if meta.settings.get("lora_rank"):
        try:  # the trainer compares its content too
            find_base(meta.base, path, given=base, reads_content=False)
        except UserError as error:
            raise UserError(str(error), RESUME_REFUSED) from None
    run = _run_facts(command, meta, base, num_processes)
    return plan_restore(CheckpointFacts.of_meta(path.name, meta), run) if run else None


def _find(resume: str, run_dir: Path) -> tuple[Path, CheckpointMeta] | None:
    """Return the checkpoint that `resume` selects, if its meta is readable and it has the recorded size."""
    if resume == "auto":
        present = checkpoints(run_dir)
        # a file without a meta may be the newest; and the trainer skips a corrupt newest one, by its digest
        if not present or files_without_meta(run_dir):
            return None
        path, meta = present[0]
    else:
        path = Path(resume)
        try:
            meta = read_meta(path)
        except ValueError:
            return None
    return (path, meta) if path.is_file() and path.stat().st_size == meta.num_bytes else None


def _run_facts(command: Train, meta: CheckpointMeta, base_path: Path, num_processes: int) -> RunFacts | None:
    """Return the facts of the run; None if its pairs changed and tokenizing them would take long."""
    tokenizer = load_tokenizer(command.tokenizer)
    config, files = load_config_of(command.config, tokenizer), command.train_files
    paths = [file.path for file in (*files, *command.val_files)]
    try:
        manifests = tuple(identify(path, meta.manifests) for path in paths)
    except OSError as error:
        raise UserError(
            f"{error.filename}: cannot be read ({error.strerror}); check the path and its permissions"
        ) from None
    base, why_no_base = identify_base(base_path, meta.base, reads_content=False)
    # Not the threads and the device, which only the trainer's own process knows: MKL counts the cores that it
    # uses, and torchrun sets OMP_NUM_THREADS. `--plan` compares them.
    try:
        environment = {"torch": version("torch"), "processes": num_processes}
    except PackageNotFoundError:
        environment = {"processes": num_processes}
    run = RunFacts(
        vocabulary=tokenizer.vocabulary,
        base_size=meta.base_size,
        gpt_config=asdict(config),
        command=command,
        size=EpochSize(meta.num_samples, meta.num_positions, meta.longest),
        data_order=lambda seed: meta.data_order if seed == meta.settings["seed"] else "",
        manifests=manifests,
        base=base,
        environment=environment,
        trained_shapes=None,
        validation_set=_validation_set(continued(command, meta.settings), meta, manifests, num_processes),
        new_languages=new_languages(tokenizer, config.of_base, files),
        why_no_base=why_no_base,
        normalizer=tokenizer.options.record,
        codebook=common_codebook({store: read_info(store) for store in _stores(command)}),
    )
    if _has_same_tokens(meta, run, command.model_dump(mode="json")):
        return run
    epoch = read_epoch(command.train_files, command.tokenizer, command.config, command.output_dir)
    if epoch is None:
        return None
    return replace(run, size=epoch.pairs.size, data_order=epoch.data_order)


def _has_same_tokens(meta: CheckpointMeta, run: RunFacts, settings: dict[str, Any]) -> bool:
    before, now = pairs_files(meta.settings, meta.manifests), pairs_files(settings, run.manifests)
    return (
        contents(before["train_manifest"]) == contents(now["train_manifest"])
        and meta.tokenizer_fingerprint == run.vocabulary.fingerprint
        and meta.normalizer in ({}, run.normalizer)
    )


def _validation_set(
    command: Train, meta: CheckpointMeta, manifests: Sequence[FileIdentity], num_processes: int
) -> str | None:
    """Return the digest of the pairs of a validation; "" for other pairs, None if reading them takes long."""
    settings = command.model_dump(mode="json")
    before = Train.model_construct(**meta.settings)
    same_files = contents(pairs_files(meta.settings, meta.manifests)["val_manifest"]) == contents(
        pairs_files(settings, manifests)["val_manifest"]
    )
    num_before = before.max_val_batches * before.validation_batch_size * world_size(meta.environment)
    num_now = command.max_val_batches * command.validation_batch_size * num_processes
    if same_files and num_before == num_now:
        return meta.validation_set
    epoch = read_epoch(command.val_files, command.tokenizer, command.config, command.output_dir)
    if epoch is None:
        return None
    if num_now in range(1, epoch.pairs.size.num_samples):  # a random part, which another number changes
        return "" if same_files else None
    return epoch.data_order(0)


def _stores(command: Train) -> list[Path]:
    """Return the feature stores of all pairs; of a large file without an index, those of a sample."""
    stores: set[Path] = set()
    for files in (command.train_files, command.val_files):
        epoch = read_epoch(files, command.tokenizer, command.config, command.output_dir)
        if epoch is not None:
            stores.update(epoch.stores)
            continue
        for file in files:
            stores.update(pair.features for pair in sample_pairs(file.path, MAX_SAMPLED_PAIRS)[1])
    return sorted(stores)
