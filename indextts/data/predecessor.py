r"""Import folders of the predecessor: find their known defects, pack the features, and split the rows again.

Axes: T codes, K latents, D model width.

    FOLDER/                      usually processed_data/ or preprocessed_amharic/
      train_manifest.jsonl       id, audio_path, text, speaker, language, duration, text_ids_path, text_len,
      val_manifest.jsonl         codes_path, code_len, condition_path, condition_len, emo_vec_path
      train_pairs.jsonl          pairs of them; not used, pairs are built again
      codes/ID.npy               int32 (T,), 50 a second; T is often that of the longest clip of a batch
      condition/ID.npy           float32 (K, D)
      emo_vec/ID.npy             float32 (D,)
      text_ids/ID.npy            int32, of some tokenizer; not used, the ids are computed from the text

A row is rejected if its features may not belong to its recording: see `OldFolder._read`. Codes beyond the
recording's end are cut off, which leaves the correct number of codes. The last of them, and the conditioning,
were still computed next to padding and differ slightly from those of the clip alone.

A path in such a manifest is a relative or absolute path of Linux or Windows, and may start with folders that
do not exist on this machine: D:\work\processed_data\codes\a.npy is codes/a.npy of the folder.

    OUTPUT_DIR/
      features/, train_manifest.jsonl, val_manifest.jsonl   as preprocessing writes them
      rejected.jsonl    skipped rows: line (FILE:NUMBER), id, audio, code (one word) and reason

Such a folder does not record which weights produced its features. The store's identity is therefore the path
of the folder, marked as unverified: the features are never mixed with others, and the trainer warns about
them. The import makes a new split, because the predecessor's has the same recordings on both sides; pairs
are built with tools/build_gpt_prompt_pairs.py.
"""

import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indextts.commands.data import ImportFeatures
from indextts.data.encoding import MIN_CODES
from indextts.data.feature_store import IMPORTED, FeatureStore, StoreInfo
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter, locked
from indextts.data.manifest import Utterance
from indextts.data.networks import NUM_SPECIAL_CODES, load_fitting_config
from indextts.data.preprocess import DURATION_TOLERANCE_S, FEATURES_FOLDER_NAME, write_manifests
from indextts.data.progress import Progress
from indextts.data.rejected import REJECTED_NAME, write_rejected
from indextts.data.report import Findings
from indextts.data.split import split_utterances
from indextts.errors import UserError
from indextts.features.audio import audio_duration_s
from indextts.features.backend import CODES_PER_SECOND, LEAD_S
from indextts.models.gpt.config import GPTConfig
from indextts.system.amounts import counted
from indextts.system.files import count_lines
from indextts.system.json_lines import read_json_lines_or_errors
from indextts.text.ethiopic import text_key
from indextts.text.languages import AMHARIC
from indextts.text.tokenizer import Tokenizer

UTTERANCE_FILES = ("train_manifest.jsonl", "val_manifest.jsonl")
MAX_CODES_SHORT = DURATION_TOLERANCE_S * CODES_PER_SECOND
MAX_ROUNDING_CODES = 1  # durations in manifests may be rounded
MIN_DECODED = 0.5  # share of a text's letters: unknown pieces are missing in the decoded text


@dataclass(frozen=True)
class ImportedFeatures:
    """Content of the output folder, and damage in the imported folder."""

    output_dir: Path
    num_train: int
    num_val: int
    num_rejected: int
    findings: list[str]  # a line for each kind of damage, with count and examples

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
    old = OldFolder(command.import_features, config, tokenizer)
    progress = Progress("Importing", sum(count_lines(manifest) for manifest in old.manifests))
    folder = command.output_dir / FEATURES_FOLDER_NAME
    utterances: list[Utterance] = []
    keys: dict[str, str] = {}
    with locked(folder):
        writer = FeatureStoreWriter(folder, _store_info(command, config))
        for utterance, encoded in old.utterances():
            keys[utterance.id] = encoded.key
            if encoded.key not in writer:
                writer.add(encoded)
            utterances.append(utterance)
            progress.advance()
        writer.flush()
        rejected_path = command.output_dir / REJECTED_NAME
        write_rejected(command.output_dir, old.rejected)
        if not utterances:
            first = f", the first because {old.rejected[0]['reason']}" if old.rejected else ""
            raise UserError(
                f"{command.import_features}: none of {counted(len(old.rejected), 'row')} is usable{first}; "
                f"see {rejected_path}"
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


class RejectedError(Exception):
    """An unusable row: `code` is one word for counting, the message has the details."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass
class OldFolder:
    """A folder of the predecessor; `utterances` fills `findings` and `rejected`."""

    folder: Path
    config: GPTConfig  # of the model that the features are for
    tokenizer: Tokenizer | None = None  # the tokenizer to compare text ids with; None to skip the comparison
    findings: Findings = field(default_factory=Findings)  # all damage by kind, including that of usable rows
    rejected: list[dict[str, object]] = field(default_factory=list)  # rows that `utterances` skipped

    @property
    def manifests(self) -> list[Path]:
        """Return the existing manifests of utterances; a UserError if there are none."""
        found = [self.folder / name for name in UTTERANCE_FILES if (self.folder / name).is_file()]
        if not found:
            raise UserError(
                f"{self.folder}: contains neither {' nor '.join(UTTERANCE_FILES)}; use the folder that the "
                "predecessor's preprocessing wrote"
            )
        return found

    def utterances(self) -> Iterator[tuple[Utterance, EncodedUtterance]]:
        """Yield the valid rows with their features, in the order of the files; list the others in `rejected`.

        The recording of an utterance may be missing.
        """
        first_line: dict[str, str] = {}
        for manifest in self.manifests:
            for number, record in read_json_lines_or_errors(manifest):
                line = f"{manifest.name}:{number}"
                try:
                    if isinstance(record, UserError):
                        raise RejectedError("broken_line", str(record))
                    yield self._read(line, record, first_line)
                except RejectedError as error:
                    row = record if isinstance(record, dict) else {}
                    id, audio = str(row.get("id", "")), str(row.get("audio_path", ""))
                    found = {"line": line, "id": id, "audio": audio}
                    self.rejected.append({**found, "code": error.code, "reason": str(error)})
                    self.findings.add(f"rows skipped ({error.code})", f"{line} {error}")

    def _read(
        self, line: str, record: dict[str, object], first_line: dict[str, str]
    ) -> tuple[Utterance, EncodedUtterance]:
        """Return a row and its features; a RejectedError if these may not belong to its recording."""
        id, text, speaker = (_string(record, name) for name in ("id", "text", "speaker"))
        if first_line.setdefault(id, line) != line:
            raise RejectedError("duplicate_id", f"{first_line[id]} already has the id {id!r}")
        width = self.config.model_dim
        codes = self._array(record, "codes_path", (None,), np.integer)
        condition = self._array(record, "condition_path", (self.config.num_latents, width), np.floating)
        emo_vec = self._array(record, "emo_vec_path", (width,), np.floating)
        num_codes = self.config.number_mel_codes - NUM_SPECIAL_CODES
        if len(codes) and not 0 <= codes.min() <= codes.max() < num_codes:
            found = f"codes from {codes.min()} to {codes.max()}, not within 0 to {num_codes - 1}"
            raise RejectedError("codes_out_of_range", found)
        for name, array in (("condition", condition), ("emo_vec", emo_vec)):
            if not np.isfinite(array).all():
                raise RejectedError("not_finite", f"{name} has values that are NaN or infinite")
        if record.get("code_len") != len(codes):
            found = f"{id}: code_len {record.get('code_len')}, the file has {len(codes)}"
            self.findings.add("rows with the wrong number of codes", found)
        audio, duration_s = self._recording(record)
        codes = self._of_true_length(id, codes, duration_s, is_measured=audio is not None)
        self._check_text_ids(id, text, record)
        written = record.get("audio_path")
        recordings = (record.get("recording"), record.get("source_file"))
        named = (each for each in recordings if isinstance(each, str) and each.strip())
        utterance = Utterance(
            id=id,
            audio=audio or self.folder.resolve() / (written if isinstance(written, str) else f"{id}.wav"),
            text=text,
            speaker=speaker,
            duration_s=duration_s,
            language=str(record.get("language") or AMHARIC),
            recording=next(filter(None, named), None),
        )
        arrays = codes.astype(np.int64), condition.astype(np.float32), emo_vec.astype(np.float32)
        # Of the features, not of the recording, which may have changed since it was encoded.
        key = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
        return utterance, EncodedUtterance(id, key, *arrays)

    def _array(
        self, record: dict[str, object], name: str, shape: tuple[int | None, ...], kind: type
    ) -> NDArray[Any]:
        """Return the array in a file of the row; None in `shape` is any length, `kind` a class of numpy."""
        written = _string(record, name)
        path = find_moved(self.folder.resolve(), written)
        if path is None:
            raise RejectedError("missing_file", f"{name} {written} does not exist")
        try:
            array: NDArray[Any] = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError, MemoryError) as error:
            raise RejectedError("unreadable_file", f"{path}: {' '.join(str(error).split())}") from None
        fits = isinstance(array, np.ndarray) and len(array.shape) == len(shape)
        if not fits or any(want not in (None, have) for want, have in zip(shape, array.shape, strict=True)):
            wanted = ", ".join("any" if length is None else str(length) for length in shape)
            found = getattr(array, "shape", None)
            raise RejectedError("wrong_shape", f"{path}: shape {found}, expected ({wanted})")
        if not np.issubdtype(array.dtype, kind):
            raise RejectedError("wrong_type", f"{path}: {array.dtype}, expected {kind.__name__}")
        return array

    def _recording(self, record: dict[str, object]) -> tuple[Path | None, float]:
        """Return the row's recording, None if it is missing, and its duration in seconds."""
        value = record.get("duration")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        manifest_s = float(value) if is_number and 0 < value < math.inf else None  # type: ignore[arg-type, operator]
        written = record.get("audio_path")
        path = find_moved(self.folder.resolve(), written) if isinstance(written, str) and written else None
        if path is None:
            if manifest_s is None:
                raise RejectedError("unknown_length", "no duration and no recording to check the codes")
            return None, manifest_s
        try:
            found_s = audio_duration_s(path)
        except UserError as error:
            raise RejectedError("unreadable_recording", str(error)) from None
        if manifest_s is not None and abs(found_s - manifest_s) > DURATION_TOLERANCE_S:
            reason = f"{path}: lasts {found_s:.2f} s, the manifest says {manifest_s:.2f} s"
            raise RejectedError("other_recording", reason)
        return path, found_s

    def _of_true_length(
        self, id: str, codes: NDArray[Any], duration_s: float, *, is_measured: bool
    ) -> NDArray[Any]:
        """Return the codes without those of padding; `is_measured` means a duration of the file itself."""
        num_true = max(0, math.floor((duration_s - LEAD_S["indextts2"]) * CODES_PER_SECOND + 1e-6))
        # + 1: a clip with an odd number of log-mel frames, encoded alone, got a code for half a pair.
        max_true = num_true + 1 + (0 if is_measured else MAX_ROUNDING_CODES)
        if len(codes) < num_true - MAX_CODES_SHORT:
            raise RejectedError(
                "codes_too_short", f"{len(codes)} codes for {duration_s:.2f} s, expected {num_true}"
            )
        if len(codes) > max_true:
            found = f"{id} ({len(codes)} codes for {duration_s:.2f} s, cut to {num_true})"
            self.findings.add("rows with codes of padding, cut off", found)
            codes = codes[:num_true]
        if len(codes) < MIN_CODES:
            raise RejectedError("too_short", f"{len(codes)} codes, the model needs {MIN_CODES}")
        longest = self.config.max_mel_tokens
        if len(codes) > longest:
            raise RejectedError("too_long", f"{len(codes)} codes, the model accepts {longest}")
        return codes

    def _check_text_ids(self, id: str, text: str, record: dict[str, object]) -> None:
        if self.tokenizer is None:
            return
        try:
            ids = self._array(record, "text_ids_path", (None,), np.integer)
        except RejectedError as error:
            self.findings.add("rows without text ids to compare", f"{id}: {error}")
            return
        if not _are_ids_of(self.tokenizer, ids.tolist(), text):
            self.findings.add(f"rows with text ids of another tokenizer than {self.tokenizer.path.name}", id)


def _are_ids_of(tokenizer: Tokenizer, ids: list[int], text: str) -> bool:
    """Return whether `tokenizer` may have produced `ids` from `text`; unknown letters are allowed."""
    if any(not 0 <= id < tokenizer.size for id in ids):
        return False
    known = [tokenizer.pieces[id] for id in ids if id != tokenizer.unknown_id]
    decoded, letters = text_key("".join(known)), text_key(text)
    rest = iter(letters)
    return len(decoded) >= MIN_DECODED * len(letters) and all(letter in rest for letter in decoded)


def _string(record: dict[str, object], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RejectedError("missing_field", f"{name} is {value!r}, it must be a string that is not blank")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RejectedError("missing_field", f"{name} contains half of a surrogate pair") from None
    return value


_DRIVE = re.compile("^[A-Za-z]:")


def find_moved(folder: Path, written: str) -> Path | None:
    """Return the file of `folder` for a path in its manifest, which may be of another machine, or None."""
    plain = _DRIVE.sub("", written.replace("\\", "/"))
    if "\0" in plain:
        return None
    parts = [part for part in plain.split("/") if part not in ("", ".")]
    tails = [Path(*parts[start:]) for start in range(len(parts))]  # with ever fewer of the leading folders
    as_written = [Path(plain)] if plain.startswith("/") else []
    inside = [folder / tail for tail in tails]
    # Recordings are in a sibling folder: amharic_dataset/audio next to processed_data/codes.
    beside = [folder.parent / tail for tail in tails if len(tail.parts) > 1]
    return next((path for path in (*as_written, *inside, *beside) if path.is_file()), None)
