"""Preprocessing: recordings to codes, conditioning and emotion vectors, and the split.

    OUTPUT_DIR/
      features/              the feature store (indextts/data/feature_store.py)
      train_manifest.jsonl   utterances with features and code_len; written when all are encoded
      val_manifest.jsonl     likewise; absent with --val-ratio 0

It may be killed at any time and started again: finished shards are kept. A recording that changed under its
id is encoded anew; another codebook, base checkpoint or config is refused.
"""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from indextts.checkpoint import read_weights
from indextts.commands import Preprocess
from indextts.data.encoding import CARD_BATCH_VECTORS, ClipEncoder, encoders_identity, exact_arithmetic
from indextts.data.feature_store import FeatureStore, StoreInfo, file_sha256
from indextts.data.feature_store_writer import FeatureStoreWriter, locked
from indextts.data.progress import Progress
from indextts.data.recordings import with_true_durations
from indextts.data.split import MIN_UTTERANCES, Split, split_utterances
from indextts.errors import UserError
from indextts.features import builtin
from indextts.features.backend import CODES_PER_SECOND, FEATURE_DIM, LEAD_S, SpeechBackend
from indextts.gpt.config import GPTConfig, load_config
from indextts.gpt.load import load_model
from indextts.manifest import Utterance, write_utterances
from indextts.review import read_reviewed

logger = logging.getLogger(__name__)

FEATURES_FOLDER_NAME = "features"
TRAIN_NAME = "train_manifest.jsonl"
VAL_NAME = "val_manifest.jsonl"
BACKEND_NAME = "builtin.npz"
NUM_SPECIAL_CODES = 2  # start and stop, the last of number_mel_codes
ROUNDING = 0.01  # of a code: resampling rounds a clip's length to whole samples
MIN_CODES = 3  # the conformer's first convolution is 3 feature vectors wide
MAX_IDS_SHOWN = 5


@dataclass(frozen=True)
class PreprocessResult:
    """What stands in the output folder.

    Args:
        num_encoded: utterances encoded now.
        num_kept: utterances that were encoded before.
        num_excluded: utterances that are too short or too long for the model.
    """

    output_dir: Path
    num_train: int
    num_val: int
    num_encoded: int
    num_kept: int
    num_excluded: int

    def __str__(self) -> str:
        return (
            f"{self.output_dir}: {self.num_train} utterances for training, {self.num_val} for validation; "
            f"{self.num_encoded} encoded, {self.num_kept} kept, {self.num_excluded} excluded"
        )


def preprocess(command: Preprocess) -> PreprocessResult:
    """Encode the utterances of a manifest and write the training and validation manifests.

    Raises:
        UserError: something is wrong with manifest, recordings, config or checkpoint; or the output folder
            holds features that were made with something else.
    """
    config = _load_fitting_config(command.config)
    device = _choose_device(command.device)
    _require_other_manifest(command)
    published = _load_published(command, config, device) if command.backend == "indextts2" else None
    if published is None:
        _require_feature_dim(command.config, config, FEATURE_DIM)
        logger.warning("--backend builtin is for trying the software: its codes make no voice")
    recorded = with_true_durations(command.manifest, read_reviewed(command.manifest))
    utterances = _usable(command.manifest, recorded, config.max_mel_tokens, LEAD_S[command.backend])
    split = split_utterances(utterances, command.val_ratio, command.seed)
    weights = read_weights(command.gpt_checkpoint)
    model = load_model(config, weights, str(command.gpt_checkpoint)).to(device).eval()
    folder = command.output_dir / FEATURES_FOLDER_NAME
    with locked(folder), exact_arithmetic():
        backend = published or _fit_or_load(folder, utterances, config, command.seed)
        batch_vectors = CARD_BATCH_VECTORS if device.type == "cuda" else 0
        encoder = ClipEncoder(backend, model, device, batch_vectors)
        writer = FeatureStoreWriter(folder, _store_info(command, encoder))
        _drop_changed(writer, utterances, command.output_dir)
        pending = [utterance for utterance in utterances if utterance.id not in writer]
        _require_space(folder, config, len(pending))
        progress = Progress("Encoding", len(pending))
        for encoded in encoder.encode_all(pending):
            writer.add(encoded)
            progress.advance()
        writer.flush()
        _write_manifests(command.output_dir, split, FeatureStore.open(folder))
    return PreprocessResult(
        output_dir=command.output_dir,
        num_train=len(split.train),
        num_val=len(split.val),
        num_encoded=len(pending),
        num_kept=len(utterances) - len(pending),
        num_excluded=len(recorded) - len(utterances),
    )


def _load_fitting_config(path: Path) -> GPTConfig:
    """Return the config, whose last two codes must be start and stop."""
    config = load_config(path)
    num_codes = config.number_mel_codes - NUM_SPECIAL_CODES
    if num_codes < 1 or min(config.start_mel_token, config.stop_mel_token) < num_codes:
        raise UserError(f"{path}: start_mel_token and stop_mel_token must be the last 2 of number_mel_codes")
    return config


def _require_feature_dim(path: Path, config: GPTConfig, feature_dim: int) -> None:
    if config.feature_dim != feature_dim:
        raise UserError(
            f"{path}: feature_dim is {config.feature_dim}, the speech encoder makes {feature_dim}"
        )


def _load_published(command: Preprocess, config: GPTConfig, device: torch.device) -> SpeechBackend:
    """Return the speech encoder and codec of the published weights, which must fit the config."""
    from indextts.features import indextts2  # here, because its libraries take seconds to import

    default_folder = Preprocess.model_fields["speech_encoder"].default
    folder = indextts2.find_files(
        command.speech_encoder,
        command.semantic_codec,
        command.stats,
        look_in_cache=command.speech_encoder == default_folder,
    )
    backend = indextts2.load(command.config, folder, command.semantic_codec, command.stats, device)
    _require_feature_dim(command.config, config, backend.feature_dim)
    num_codes = config.number_mel_codes - NUM_SPECIAL_CODES
    if backend.num_codes != num_codes:
        raise UserError(
            f"{command.config}: semantic_codec.codebook_size is {backend.num_codes}, but number_mel_codes "
            f"asks for {num_codes} codes, use the config.yaml that was published with the checkpoint"
        )
    return backend


def _choose_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        logger.info("The encoders run on %s (--device auto)", name)
    elif name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: no CUDA device was found, give --device cpu")
    return torch.device(name)


def _require_other_manifest(command: Preprocess) -> None:
    for name in (TRAIN_NAME, VAL_NAME):
        if command.manifest.resolve() == (command.output_dir / name).resolve():
            raise UserError(f"{command.manifest} would be overwritten, choose another --output-dir")


def _usable(
    manifest: Path, utterances: Sequence[Utterance], max_codes: int, lead_s: float
) -> list[Utterance]:
    """Return the utterances that the model's position tables and convolutions can take, sorted by id.

    Args:
        lead_s: what the backend needs of a clip before its first code.
    """
    num_codes = {u.id: (u.duration_s - lead_s) * CODES_PER_SECOND for u in utterances}  # not yet rounded down
    too_short = [id for id, number in num_codes.items() if number < MIN_CODES + ROUNDING]
    too_long = [id for id, number in num_codes.items() if number >= max_codes + 1 - ROUNDING]
    for ids, what in ((too_short, f"less than {MIN_CODES}"), (too_long, f"more than {max_codes}")):
        if ids:
            shown = ", ".join(ids[:MAX_IDS_SHOWN]) + (", ..." if len(ids) > MAX_IDS_SHOWN else "")
            logger.warning("%d utterances are excluded, they have %s codes: %s", len(ids), what, shown)
    excluded = {*too_short, *too_long}
    usable = [utterance for utterance in utterances if utterance.id not in excluded]
    if not usable:
        raise UserError(f"{manifest}: no utterance is of a length that the model takes, cut the recordings")
    return sorted(usable, key=lambda utterance: utterance.id)


def _fit_or_load(
    folder: Path, utterances: Sequence[Utterance], config: GPTConfig, seed: int
) -> SpeechBackend:
    """Return the builtin backend of the folder; the first time it is learned from the utterances."""
    path = folder / BACKEND_NAME
    num_codes = config.number_mel_codes - NUM_SPECIAL_CODES
    if path.exists():
        logger.info("The codes of %s are used", path)
    else:
        builtin.fit([utterance.audio for utterance in utterances], num_codes, seed).save(path)
    backend = builtin.load(path)
    if backend.num_codes != num_codes:
        raise UserError(
            f"{folder}: its features have {backend.num_codes} codes, the config asks for {num_codes}, "
            "choose another --output-dir or delete this folder"
        )
    return backend


def _store_info(command: Preprocess, encoder: ClipEncoder) -> StoreInfo:
    return StoreInfo(
        backend=command.backend,
        backend_identity=encoder.backend.identity,
        encoders_identity=encoders_identity(encoder.model),
        model_dim=encoder.model.config.model_dim,
        num_latents=encoder.model.config.num_latents,
    )


def _drop_changed(writer: FeatureStoreWriter, utterances: Sequence[Utterance], output_dir: Path) -> None:
    """Drop the features of recordings that are no longer those that were encoded under the same id."""
    store = FeatureStore.open(writer.folder)
    encoded = [utterance for utterance in utterances if utterance.id in store]
    if len(encoded) < len(store.ids):
        num_others = len(store.ids) - len(encoded)
        logger.info("%d utterances of %s are not in this manifest and stay there", num_others, store.folder)
    progress = Progress("Comparing recordings", len(encoded))
    changed = []
    for utterance in encoded:
        if file_sha256(utterance.audio) != store.audio_sha256(utterance.id):
            changed.append(utterance.id)
        progress.advance()
    if changed:
        logger.warning(
            "%d recordings changed since they were encoded and are encoded anew: %s",
            len(changed),
            ", ".join(changed[:MAX_IDS_SHOWN]),
        )
        for name in (TRAIN_NAME, VAL_NAME):  # they would name features that are gone
            (output_dir / name).unlink(missing_ok=True)
        writer.drop_shards_with(changed)


def _require_space(folder: Path, config: GPTConfig, num_utterances: int) -> None:
    bytes_each = 4 * config.model_dim * (config.num_latents + 1)
    needed, free = num_utterances * bytes_each, shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{folder}: {num_utterances} utterances need {needed / 1e9:.1f} GB, the disk has "
            f"{free / 1e9:.1f} GB left, free some or choose another --output-dir"
        )


def _write_manifests(output_dir: Path, split: Split, store: FeatureStore) -> None:
    if split.small_speakers:
        logger.info(
            "%d speakers have fewer than %d utterances and none for validation",
            len(split.small_speakers),
            MIN_UTTERANCES,
        )
    train_manifest, val_manifest = output_dir / TRAIN_NAME, output_dir / VAL_NAME
    train_manifest.unlink(missing_ok=True)  # a kill must not leave the two parts of different splits
    if split.val:
        write_utterances(val_manifest, _with_features(split.val, store))
    else:
        val_manifest.unlink(missing_ok=True)
    write_utterances(train_manifest, _with_features(split.train, store))


def _with_features(utterances: Sequence[Utterance], store: FeatureStore) -> list[Utterance]:
    folder = store.folder.resolve()
    return [replace(u, features=folder, num_codes=store.num_codes(u.id)) for u in utterances]
