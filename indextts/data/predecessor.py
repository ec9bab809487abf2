r"""Read folders of the predecessor and find their known defects.

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
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indextts.data.encoding import MIN_CODES
from indextts.data.manifest import Utterance
from indextts.data.recordings import DURATION_TOLERANCE_S
from indextts.data.report import Findings
from indextts.errors import UserError
from indextts.features.audio import audio_duration_s
from indextts.features.backend import CODES_PER_SECOND, LEAD_S
from indextts.system.json_lines import read_json_lines_or_errors
from indextts.text.ethiopic import text_key
from indextts.text.languages import AMHARIC
from indextts.text.tokenizer import Tokenizer

UTTERANCE_FILES = ("train_manifest.jsonl", "val_manifest.jsonl")
MAX_CODES_SHORT = DURATION_TOLERANCE_S * CODES_PER_SECOND
MAX_ROUNDING_CODES = 1  # durations in manifests may be rounded
MIN_DECODED = 0.5  # share of a text's letters: unknown pieces are missing in the decoded text


@dataclass(frozen=True)
class Limits:
    """Limits of the model: codes from 0 to `num_codes` - 1, latents of (`num_latents`, `model_dim`)."""

    num_codes: int = 8192
    max_codes: int = 1815
    num_latents: int = 32
    model_dim: int = 1280


@dataclass(frozen=True)
class OldUtterance:
    """A row with valid features.

    Args:
        utterance: without features; its recording may be missing.
        codes: (T,), cut to the true length; condition: (K, D); emo_vec: (D,).
    """

    utterance: Utterance
    codes: NDArray[np.int64]
    condition: NDArray[np.float32]
    emo_vec: NDArray[np.float32]


@dataclass(frozen=True)
class RejectedRow:
    """A skipped row; `line` is FILE:NUMBER."""

    line: str
    id: str
    audio: str
    code: str
    reason: str


class RejectedError(Exception):
    """An unusable row: `code` is one word for counting, the message has the details."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass
class OldFolder:
    """A folder of the predecessor; `utterances` fills `findings` and `rejected`.

    Args:
        tokenizer: the tokenizer to compare text ids with; None to skip the comparison.
        findings: all damage by kind, including that of usable rows.
        rejected: the rows that `utterances` skipped.
    """

    folder: Path
    limits: Limits = field(default_factory=Limits)
    tokenizer: Tokenizer | None = None
    findings: Findings = field(default_factory=Findings)
    rejected: list[RejectedRow] = field(default_factory=list)

    @property
    def manifests(self) -> list[Path]:
        """Return the existing manifests of utterances.

        Raises:
            UserError: there are none.
        """
        found = [self.folder / name for name in UTTERANCE_FILES if (self.folder / name).is_file()]
        if not found:
            raise UserError(
                f"{self.folder}: contains neither {' nor '.join(UTTERANCE_FILES)}; use the folder that the "
                "predecessor's preprocessing wrote"
            )
        return found

    def utterances(self) -> Iterator[OldUtterance]:
        """Yield the valid rows, in the order of the files; append the rest to `rejected`."""
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
                    self.rejected.append(RejectedRow(line, id, audio, error.code, str(error)))
                    self.findings.add(f"rows skipped ({error.code})", f"{line} {error}")

    def _read(self, line: str, record: dict[str, object], first_line: dict[str, str]) -> OldUtterance:
        """Return a row with its features.

        Raises:
            RejectedError: the features may be corrupt, or may not belong to the row's recording.
        """
        id, text, speaker = (_string(record, name) for name in ("id", "text", "speaker"))
        if first_line.setdefault(id, line) != line:
            raise RejectedError("duplicate_id", f"{first_line[id]} already has the id {id!r}")
        codes = self._array(record, "codes_path", (None,), np.integer)
        condition = self._array(
            record, "condition_path", (self.limits.num_latents, self.limits.model_dim), np.floating
        )
        emo_vec = self._array(record, "emo_vec_path", (self.limits.model_dim,), np.floating)
        if len(codes) and not 0 <= codes.min() <= codes.max() < self.limits.num_codes:
            found = f"codes from {codes.min()} to {codes.max()}, not within 0 to {self.limits.num_codes - 1}"
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
        utterance = Utterance(
            id=id,
            audio=audio or self.folder.resolve() / (written if isinstance(written, str) else f"{id}.wav"),
            text=text,
            speaker=speaker,
            duration_s=duration_s,
            language=str(record.get("language") or AMHARIC),
            recording=_recording_name(record),
        )
        return OldUtterance(
            utterance, codes.astype(np.int64), condition.astype(np.float32), emo_vec.astype(np.float32)
        )

    def _array(
        self, record: dict[str, object], name: str, shape: tuple[int | None, ...], kind: type
    ) -> NDArray[Any]:
        """Return the array in a file of the row.

        Args:
            shape: the required shape; None for any length.
            kind: numpy's class of the required type.
        """
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
        """Return the row's recording, None if it is missing, and its duration in seconds.

        Raises:
            RejectedError: the duration is unknown, or the recording is not the encoded one.
        """
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
        """Return the codes of the recording, without those of padding.

        Args:
            is_measured: whether the duration is that of the file, not that of the manifest.
        """
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
        if len(codes) > self.limits.max_codes:
            raise RejectedError("too_long", f"{len(codes)} codes, the model accepts {self.limits.max_codes}")
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


def _recording_name(record: dict[str, object]) -> str | None:
    for name in ("recording", "source_file"):
        value = record.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return None


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
