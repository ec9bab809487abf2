"""Preprocessing: encode recordings to codes, conditioning latents and emotion vectors, and split them.

    OUTPUT_DIR/
      features/              the feature store (indextts/data/feature_store.py), and digests of the
                             recordings
      train_manifest.jsonl   utterances with features and code_len; written after the last is encoded
      val_manifest.jsonl     likewise; absent with --val-ratio 0
      rejected.jsonl         rejected recordings with reasons (rejected.py)

Preprocessing can be killed at any time and started again; it keeps finished shards. Features depend only on
the bytes of a recording and on the networks. A change of ids, texts, speakers, splits or tokenizers therefore
encodes nothing again; a new or changed recording is encoded alone; another base checkpoint requires new
conditioning latents and emotion vectors, and the earlier ones stay in the store.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from indextts.commands.data import Preprocess
from indextts.data.batch_sizing import choose_device, choose_throughput
from indextts.data.encoding import MIN_CODES, ClipEncoder, encoders_identity, reproducible_math
from indextts.data.feature_store import FeatureStore, StoreInfo
from indextts.data.feature_store_writer import FeatureStoreWriter, locked
from indextts.data.manifest import Utterance, write_utterances
from indextts.data.networks import (
    BACKEND_NAME,
    NUM_SPECIAL_CODES,
    Networks,
    load_base_config,
    load_networks,
    require_rate_of,
)
from indextts.data.on_ray.cluster import running_on
from indextts.data.progress import Progress
from indextts.data.rejected import REJECTED_NAME, Rejected, all_rejected, rejected_counts, write_rejected
from indextts.data.report import log_hours
from indextts.data.review import read_reviewed
from indextts.data.split import Split, log_split, split_utterances
from indextts.errors import CHECK_FAILED, UserError, disk_errors
from indextts.features import builtin
from indextts.features.audio import RecordingError, audio_duration_s
from indextts.features.backend import CODES_PER_SECOND, LEAD_S, SpeechBackend
from indextts.models.gpt.config import GPTConfig, speech_backend
from indextts.models.gpt.model import UnifiedVoice
from indextts.system.amounts import counted, listed
from indextts.system.digest import file_sha256
from indextts.system.disk import require_space
from indextts.system.process_pool import map_in_threads
from indextts.system.processes import num_cores

if TYPE_CHECKING:  # Ray is optional
    from indextts.data.on_ray.encoding import RayEncoder

    Encoder = ClipEncoder | RayEncoder

logger = logging.getLogger(__name__)

FEATURES_FOLDER_NAME = "features"
TRAIN_NAME = "train_manifest.jsonl"
VAL_NAME = "val_manifest.jsonl"
DURATION_TOLERANCE_S = 0.2  # rounding and re-encoding stay below, a truncated file does not
ROUNDING = 0.01  # of a code: resampling rounds a clip's length to samples
MAX_REJECTED_SHARE = 0.5  # of the recordings; with more, the manifest or the machine has a problem


@dataclass(frozen=True)
class PreprocessResult:
    """Content of the output folder."""

    output_dir: Path
    num_train: int
    num_val: int
    num_encoded: int  # recordings encoded by this run
    num_kept: int  # utterances encoded by earlier runs
    rejected: list[Rejected]  # rejected recordings, in the order of the manifest

    @property
    def is_mostly_rejected(self) -> bool:
        num_all = self.num_train + self.num_val + len(self.rejected)
        return len(self.rejected) > MAX_REJECTED_SHARE * num_all

    def __str__(self) -> str:
        return (
            f"{self.output_dir}: {counted(self.num_train, 'utterance')} for training, {self.num_val} for "
            f"validation; {self.num_encoded} encoded, {self.num_kept} kept, {rejected_counts(self.rejected)}"
        )


def preprocess(command: Preprocess) -> PreprocessResult:
    """Encode the utterances of a manifest and write the training and validation manifests.

    An unusable recording is skipped and listed in rejected.jsonl.

    Raises:
        UserError: manifest, config or checkpoint is invalid; no recording is usable; or the output folder
            cannot be written.
    """
    command = command.model_copy(update={"backend": speech_backend(command.backend, command.config)})
    _check_encoder_precision(command)
    with running_on(command.engine, command.ray_address):
        return _preprocess(command)


def _preprocess(command: Preprocess) -> PreprocessResult:
    config = load_base_config(command)
    if command.manifest.resolve() in (
        (command.output_dir / name).resolve() for name in (TRAIN_NAME, VAL_NAME)
    ):
        raise UserError(f"{command.manifest} would be overwritten; choose another --output-dir")
    if command.engine == "local":
        networks = load_networks(command, config, choose_device(command.device))
    else:  # only for their identity and sizes; the processes of the cluster encode
        networks = load_networks(command.model_copy(update={"amp": False}), config, torch.device("cpu"))
    if networks.published is None:
        logger.warning("--backend builtin is for trying the software: it gives a synthetic sound")
    numbered = read_reviewed(command.manifest)
    # Check recordings after everything that fails quickly: reading 200,000 files takes minutes.
    utterances, keys, rejected = _usable(command, config, numbered)
    split = split_utterances(utterances, command.val_ratio, command.seed, command.val_speakers)
    folder = command.output_dir / FEATURES_FOLDER_NAME
    with locked(folder), reproducible_math(), ExitStack() as stack:
        backend = networks.published or _builtin_backend(folder, config)
        encoder = stack.enter_context(_encoder(command, config, networks, backend))
        writer = FeatureStoreWriter(folder, _store_info(command, encoder, networks.model))
        missing: dict[str, Utterance] = {}
        for utterance in utterances:
            if keys[utterance.id] not in writer:
                missing.setdefault(keys[utterance.id], utterance)
        _require_disk_space(folder, writer.info, len(missing))
        # a recording of several utterances is encoded once
        rejected += _encode(encoder, list(missing.values()), writer)
        store = FeatureStore.open(writer.path)
        encoded = {id: key for id, key in keys.items() if key in store}
        rejected = all_rejected(numbered, rejected, keys, encoded.keys())
        write_rejected(command.output_dir, [one.record for one in rejected])
        train, val = ([u for u in each if u.id in encoded] for each in (split.train, split.val))
        split = replace(split, train=train, val=val)
        if not split.train:
            raise UserError(_nothing_usable(command, rejected), CHECK_FAILED)
        write_manifests(command.output_dir, split, store, encoded)
        got = (utterance for _, utterance in numbered)
        log_hours("Preprocessing", got, (*split.train, *split.val), rejected_counts(rejected))
    return PreprocessResult(
        output_dir=command.output_dir,
        num_train=len(split.train),
        num_val=len(split.val),
        num_encoded=sum(key in store for key in missing),
        num_kept=sum(key not in missing for key in encoded.values()),
        rejected=rejected,
    )


@contextmanager
def _encoder(
    command: Preprocess, config: GPTConfig, networks: Networks, backend: SpeechBackend
) -> Iterator["Encoder"]:
    """Yield an encoder that runs in this process or in the processes of a cluster."""
    if command.engine == "local":
        throughput = choose_throughput(config, networks.device, command.batch_seconds, command.num_workers)
        yield networks.encoder(backend, throughput)
        return
    from indextts.data.on_ray.encoding import encoder_on_ray  # imported here because Ray is optional

    folder = command.output_dir / FEATURES_FOLDER_NAME
    with encoder_on_ray(command, folder / BACKEND_NAME, backend, networks.model) as encoder:
        yield encoder


def _encode(
    encoder: "Encoder", utterances: Sequence[Utterance], writer: FeatureStoreWriter
) -> list[Rejected]:
    """Encode utterances into the store; return the rejected ones."""
    rejected: list[Rejected] = []
    seconds = {utterance.id: utterance.duration_s for utterance in utterances}
    progress = Progress("Encoding", len(utterances), sum(seconds.values()))
    for result in encoder.encode_all(utterances):
        if isinstance(result, Rejected):
            logger.warning("Rejected %s: %s: %s", result.id, result.audio, result.reason)
            rejected.append(result)
        elif result.key not in writer:  # it may be, if the file changed to one that is encoded already
            writer.add(result)
        progress.advance(seconds[result.id])
    writer.flush()
    return rejected


def _check_encoder_precision(command: Preprocess) -> None:
    if command.encoder_precision == "float32":
        return
    others = {
        "--amp": command.amp,
        "--backend builtin": command.backend == "builtin",
        "--engine ray": command.engine == "ray",
    }
    if wrong := [flag for flag, is_set in others.items() if is_set]:
        raise UserError(
            f"--encoder-precision {command.encoder_precision} does not work with {' and '.join(wrong)}; it "
            "needs --backend indextts2 on one machine, without --amp"
        )


def _usable(
    command: Preprocess, config: GPTConfig, numbered: Sequence[tuple[int, Utterance]]
) -> tuple[list[Utterance], dict[str, str], list[Rejected]]:
    """Return the utterances that the model accepts by their headers, sorted by id, the keys, and the rest."""
    recorded, keys, broken = _inspect(command.manifest, numbered)
    utterances, misfits = _of_fitting_length(
        recorded, MIN_CODES, config.max_mel_tokens * config.of_base.features_per_code, LEAD_S[command.backend]
    )
    rejected = broken + misfits
    if broken:
        logger.warning(
            "Rejected %s: %s: %s%s",
            counted(len(broken), "unreadable recording"),
            broken[0].audio,
            broken[0].reason,
            ", ..." if len(broken) > 1 else "",
        )
    if rejected:  # written before hours of encoding, so that the user can repair them meanwhile
        write_rejected(command.output_dir, [one.record for one in rejected])
    if not utterances:
        raise UserError(_nothing_usable(command, rejected), CHECK_FAILED)
    return sorted(utterances, key=lambda utterance: utterance.id), keys, rejected


def _inspect(
    manifest: Path, utterances: Sequence[tuple[int, Utterance]]
) -> tuple[list[Utterance], dict[str, str], list[Rejected]]:
    """Return the utterances with readable files at the files' durations, their keys by id, and the others."""
    files = list(dict.fromkeys(utterance.audio for _, utterance in utterances))
    progress = Progress("Checking recordings", len(files))
    found: dict[Path, tuple[float, str] | RecordingError] = {}
    # Threads mostly wait for the disk, and hashlib releases the GIL.
    for file, result in zip(files, map_in_threads(_duration_and_key, files, num_cores()), strict=True):
        found[file] = result
        progress.advance()
    readable: list[Utterance] = []
    keys: dict[str, str] = {}
    rejected: list[Rejected] = []
    num_off = 0
    for _, utterance in utterances:
        result = found[utterance.audio]
        if isinstance(result, RecordingError):
            rejected.append(Rejected.from_error(utterance, result))
            continue
        duration_s, keys[utterance.id] = result
        num_off += abs(duration_s - utterance.duration_s) > DURATION_TOLERANCE_S
        readable.append(replace(utterance, duration_s=duration_s))
    if num_off:
        logger.warning(
            "%s: %d of %d durations are wrong by more than %s s; using the durations measured from the files",
            manifest,
            num_off,
            len(utterances),
            DURATION_TOLERANCE_S,
        )
    return readable, keys, rejected


def _duration_and_key(path: Path) -> tuple[float, str] | RecordingError:
    try:
        return audio_duration_s(path), file_sha256(path)
    except RecordingError as error:
        return error
    except OSError as error:
        return RecordingError(path, "unreadable", f"cannot be read ({error.strerror})")


def _of_fitting_length(
    utterances: Iterable[Utterance], min_codes: int, max_codes: int, lead_s: float
) -> tuple[list[Utterance], list[Rejected]]:
    """Return the utterances with a duration that the model accepts, and the rejected ones.

    Args:
        utterances: with true durations.
        lead_s: audio that the speech encoder needs before the first code.
    """
    fitting: list[Utterance] = []
    rejected: list[Rejected] = []
    shortest_s, longest_s = (
        lead_s + codes / CODES_PER_SECOND for codes in (min_codes + ROUNDING, max_codes + 1 - ROUNDING)
    )
    for utterance in utterances:
        if utterance.duration_s < shortest_s:
            reason = f"lasts {utterance.duration_s:.3f} s, the model needs {shortest_s:.3f} s; record more"
            rejected.append(Rejected.of(utterance, "too_short", reason))
        elif utterance.duration_s >= longest_s:
            reason = (
                f"lasts {utterance.duration_s:.3f} s, the model accepts {longest_s:.3f} s; cut the recording"
            )
            rejected.append(Rejected.of(utterance, "too_long", reason))
        else:
            fitting.append(utterance)
    limits = {"too_short": f"shorter than {shortest_s:.3f}", "too_long": f"longer than {longest_s:.3f}"}
    for code, what in limits.items():
        ids = [each.id for each in rejected if each.code == code]
        if ids:
            logger.warning("Rejected %s %s s: %s", counted(len(ids), "recording"), what, listed(ids))
    return fitting, rejected


def _nothing_usable(command: Preprocess, rejected: Sequence[Rejected]) -> str:
    return (
        f"{command.manifest}: no recording is usable, {rejected_counts(rejected)}; see "
        f"{command.output_dir / REJECTED_NAME} for the reasons, repair the recordings and run the same "
        "command again"
    )


def _builtin_backend(folder: Path, config: GPTConfig) -> SpeechBackend:
    """Return the builtin backend of the folder, which the first run records there."""
    path = folder / BACKEND_NAME
    num_codes = config.number_mel_codes - NUM_SPECIAL_CODES
    if not path.exists():
        backend = builtin.create(num_codes, config.of_base.features_per_code)
        with disk_errors(path):
            backend.save(path)
    backend = builtin.load(path)
    if backend.num_codes != num_codes:
        raise UserError(
            f"{folder}: the features have {backend.num_codes} different codes, the config requires "
            f"{num_codes}; choose another --output-dir or delete this folder"
        )
    require_rate_of(config.of_base, backend, path)
    return backend


def _store_info(command: Preprocess, encoder: "Encoder", model: UnifiedVoice) -> StoreInfo:
    num_rows, width = model.config.condition_shape
    return StoreInfo(
        backend=command.backend,
        backend_identity=encoder.backend_identity,
        encoders_identity=encoders_identity(model),
        model_dim=model.config.model_dim,
        num_latents=num_rows,
        latents=command.latents,
        base=model.config.base,
        condition_dim=0 if width == model.config.model_dim else width,
    )


def _require_disk_space(folder: Path, info: StoreInfo, num_utterances: int) -> None:
    bytes_each = sum(array.row_bytes for array in info.conditioning_formats.values())
    what = f"{counted(num_utterances, 'utterance')} need"
    require_space(folder, folder, what, num_utterances * bytes_each)


def write_manifests(output_dir: Path, split: Split, store: FeatureStore, keys: Mapping[str, str]) -> None:
    """Write the manifests of both parts, with the keys of their features in the store by id."""
    log_split(split)
    train_manifest, val_manifest = output_dir / TRAIN_NAME, output_dir / VAL_NAME
    train_manifest.unlink(missing_ok=True)  # a kill must not leave manifests of different splits
    if split.val:
        write_utterances(val_manifest, _with_features(split.val, store, keys))
    else:
        val_manifest.unlink(missing_ok=True)
    write_utterances(train_manifest, _with_features(split.train, store, keys))


def _with_features(
    utterances: Sequence[Utterance], store: FeatureStore, keys: Mapping[str, str]
) -> list[Utterance]:
    path = store.path.resolve()
    return [
        replace(u, features=path, num_codes=store.num_codes(keys[u.id]), features_key=keys[u.id])
        for u in utterances
    ]
