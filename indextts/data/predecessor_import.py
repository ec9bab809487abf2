"""Import of a folder of the predecessor: pack its features and split its rows again.

    OUTPUT_DIR/
      features/, train_manifest.jsonl, val_manifest.jsonl   as preprocessing writes them
      rejected.jsonl    skipped rows: line (FILE:NUMBER), id, audio, code (one word) and reason

Such a folder does not record which weights produced its features. The store's identity is therefore the path
of the folder, marked as unverified: the features are never mixed with others, and the trainer warns about
them. The import makes a new split, because the predecessor's has the same recordings on both sides; pairs
are built with tools/build_gpt_prompt_pairs.py.
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
from indextts.system.amounts import counted
from indextts.system.files import count_lines
from indextts.system.json_lines import write_json_lines
from indextts.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ImportedFeatures:
    """Content of the output folder, and damage in the imported folder.

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
            f"{self.output_dir}: {counted(self.num_train, 'utterance')} for training, {self.num_val} for "
            f"validation; {counted(self.num_rejected, 'row')} skipped",
            *(f"  {finding}" for finding in self.findings),
        ]
        if self.num_rejected:
            lines.append(f"  list of the skipped rows: {self.output_dir / REJECTED_NAME}")
        return "\n".join(lines)


def import_features(command: ImportFeatures) -> ImportedFeatures:
    """Check and pack a folder of the predecessor; a second import packs only new rows.

    Raises:
        UserError: it is not such a folder, no row is usable, or the output folder cannot be written.
    """
    config = load_fitting_config(command.config)
    if command.output_dir.resolve() == command.import_features.resolve():
        raise UserError(
            f"--output-dir {command.output_dir} is the folder being imported; choose a different folder"
        )
    tokenizer = None if command.tokenizer is None else Tokenizer.load(command.tokenizer)
    limits = Limits(
        num_codes=config.number_mel_codes - NUM_SPECIAL_CODES,
        max_codes=config.max_mel_tokens,
        num_latents=config.num_latents,
        model_dim=config.model_dim,
    )
    old = OldFolder(command.import_features, limits, tokenizer)
    progress = Progress("Importing", sum(count_lines(manifest) for manifest in old.manifests))
    folder = command.output_dir / FEATURES_FOLDER_NAME
    utterances: list[Utterance] = []
    keys: dict[str, str] = {}
    with locked(folder):
        writer = FeatureStoreWriter(folder, _store_info(command, config))
        for row in old.utterances():
            id, key = row.utterance.id, _key(row)
            keys[id] = key
            if key not in writer:
                writer.add(EncodedUtterance(id, key, row.codes, row.condition, row.emo_vec))
            utterances.append(row.utterance)
            progress.advance()
        writer.flush()
        _write_rejected(command.output_dir / REJECTED_NAME, old.rejected)
        if not utterances:
            first = f", the first because {old.rejected[0].reason}" if old.rejected else ""
            raise UserError(
                f"{command.import_features}: none of {counted(len(old.rejected), 'row')} is usable{first}; "
                f"see {command.output_dir / REJECTED_NAME}"
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


def _key(row: OldUtterance) -> str:
    """Return the sha256 of the features; the recording may have changed since it was encoded."""
    digest = hashlib.sha256()
    for array in (row.codes, row.condition, row.emo_vec):
        digest.update(array.tobytes())
    return digest.hexdigest()


def _write_rejected(path: Path, rejected: Sequence[RejectedRow]) -> None:
    if rejected:
        write_json_lines(path, (vars(row) for row in rejected))
    else:
        path.unlink(missing_ok=True)
