"""Taking over a folder of the predecessor: its features packed, its rows split anew.

    OUTPUT_DIR/
      features/, train_manifest.jsonl, val_manifest.jsonl   as preprocessing writes them
      rejected.jsonl    rows that were left out: line (FILE:NUMBER), id, audio, code (one word) and reason

Nothing in such a folder says which weights made the features. So the store's identity is that they came from
this folder, unverified: they are never mixed with our own, and the trainer warns of them. The split is made
anew, since the predecessor's has the same recordings on both sides; so are the pairs, with our own tool.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from indextts.commands.data import ImportFeatures
from indextts.data.feature_store import IMPORTED, FeatureStore, StoreInfo
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter, locked
from indextts.data.manifest import Utterance
from indextts.data.networks import NUM_SPECIAL_CODES, load_fitting_config
from indextts.data.predecessor import Limits, OldFolder, OldUtterance, RejectedRow
from indextts.data.preprocess import FEATURES_FOLDER_NAME, write_manifests
from indextts.data.progress import Progress
from indextts.data.rejected import REJECTED_NAME
from indextts.data.split import split_utterances
from indextts.errors import UserError
from indextts.models.gpt.config import GPTConfig
from indextts.system.json_lines import write_json_lines
from indextts.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ImportedFeatures:
    """What stands in the output folder, and what was found.

    Args:
        findings: a line for each kind of damage, with count and examples.
    """

    output_dir: Path
    num_train: int
    num_val: int
    num_rejected: int
    findings: list[str]

    def __str__(self) -> str:
        lines = [
            f"{self.output_dir}: {self.num_train} utterances for training, {self.num_val} for validation; "
            f"{self.num_rejected} rows left out",
            *(f"  {finding}" for finding in self.findings),
        ]
        if self.num_rejected:
            lines.append(f"  each row that is left out: {self.output_dir / REJECTED_NAME}")
        return "\n".join(lines)


def import_features(command: ImportFeatures) -> ImportedFeatures:
    """Check and pack a folder of the predecessor; a second time, only what is new is packed.

    Raises:
        UserError: it is no such folder, no row can be used, or the output folder cannot be written.
    """
    config = load_fitting_config(command.config)
    if command.output_dir.resolve() == command.import_features.resolve():
        raise UserError(f"--output-dir {command.output_dir} is the folder to import, choose another one")
    tokenizer = None if command.tokenizer is None else Tokenizer.load(command.tokenizer)
    old = OldFolder(command.import_features, limits_of(config), tokenizer)
    progress = Progress("Importing", sum(_count_lines(manifest) for manifest in old.manifests))
    folder = command.output_dir / FEATURES_FOLDER_NAME
    utterances: list[Utterance] = []
    keys: dict[str, str] = {}
    with locked(folder):
        writer = FeatureStoreWriter(folder, _store_info(command, config))
        for one in old.utterances():
            keys[one.utterance.id] = _key(one)
            if keys[one.utterance.id] not in writer:
                writer.add(_encoded(one, keys[one.utterance.id]))
            utterances.append(one.utterance)
            progress.advance()
        writer.flush()
        _write_rejected(command.output_dir / REJECTED_NAME, old.rejected)
        if not utterances:
            raise UserError(
                f"{command.import_features}: none of {len(old.rejected)} rows can be used, as "
                f"{old.rejected[0].reason if old.rejected else 'there is none'}; {REJECTED_NAME} has them all"
            )
        utterances.sort(key=lambda utterance: utterance.id)
        split = split_utterances(utterances, command.val_ratio, command.seed, command.val_speakers)
        write_manifests(command.output_dir, split, FeatureStore.open(writer.path), keys)
    return ImportedFeatures(
        output_dir=command.output_dir,
        num_train=len(split.train),
        num_val=len(split.val),
        num_rejected=len(old.rejected),
        findings=old.findings.lines(),
    )


def limits_of(config: GPTConfig) -> Limits:
    """Return what features must be for the model of `config`."""
    return Limits(
        num_codes=config.number_mel_codes - NUM_SPECIAL_CODES,
        max_codes=config.max_mel_tokens,
        num_latents=config.num_latents,
        model_dim=config.model_dim,
    )


def _store_info(command: ImportFeatures, config: GPTConfig) -> StoreInfo:
    unverified = f"unverified, from {command.import_features.resolve()}"
    return StoreInfo(
        backend=IMPORTED,
        backend_identity=unverified,
        encoders_identity=unverified,
        model_dim=config.model_dim,
        num_latents=config.num_latents,
        latents=command.latents,
    )


def _key(one: OldUtterance) -> str:
    """Return the sha256 of the features: whether the recording there is the one encoded, nobody knows."""
    digest = hashlib.sha256()
    for array in (one.codes, one.condition, one.emo_vec):
        digest.update(array.tobytes())
    return digest.hexdigest()


def _encoded(one: OldUtterance, key: str) -> EncodedUtterance:
    return EncodedUtterance(one.utterance.id, key, one.codes, one.condition, one.emo_vec)


def _write_rejected(path: Path, rejected: Sequence[RejectedRow]) -> None:
    if rejected:
        write_json_lines(path, (vars(row) for row in rejected))
    else:
        path.unlink(missing_ok=True)


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for line in file if line.strip())
