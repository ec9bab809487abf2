r"""Folders of the predecessor: reading them, and finding their known damage. No torch here.

Axes: T codes, K latents, D model width.

    FOLDER/                      usually processed_data/ or preprocessed_amharic/
      train_manifest.jsonl       id, audio_path, text, speaker, language, duration, text_ids_path, text_len,
      val_manifest.jsonl         codes_path, code_len, condition_path, condition_len, emo_vec_path
      train_pairs.jsonl          pairs of them; also val_pairs, gpt_pairs_train, gpt_pairs_val
      codes/ID.npy               int32 (T,), 50 a second; T is often that of the longest clip of a batch
      condition/ID.npy           float32 (K, D)
      emo_vec/ID.npy             float32 (D,)
      text_ids/ID.npy            int32, of some tokenizer; not used, since ids are made from text
      .preprocessing_progress.txt   ids that were done

A row is rejected if its features are not certain to be those of its recording: see `_Rows.read`. Codes beyond
the recording's end are cut off, which leaves the right number of codes. The last of them, and the
conditioning, were still computed beside padding and are not exactly those of the clip alone.

Where the files of a folder are that was written on another machine.

A path in such a manifest is relative or absolute, of Linux or of Windows, and may begin with folders that are
not there any more: D:\work\processed_data\codes\a.npy is codes/a.npy of the folder.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indextts.data.manifest import DEFAULT_LANGUAGE, Utterance
from indextts.data.recordings import DURATION_TOLERANCE_S
from indextts.data.report import Findings
from indextts.errors import UserError
from indextts.features.audio import audio_duration_s
from indextts.system.json_lines import read_json_lines, read_json_lines_or_errors
from indextts.text.ethiopic import text_key
from indextts.text.tokenizer import Tokenizer

UTTERANCE_FILES = ("train_manifest.jsonl", "val_manifest.jsonl")
PAIR_FILES = ("train_pairs.jsonl", "val_pairs.jsonl", "gpt_pairs_train.jsonl", "gpt_pairs_val.jsonl")
PROGRESS_FILE = ".preprocessing_progress.txt"
CODES_PER_SECOND = 50
LEAD_S = 0.015  # of a clip, before its first code; as indextts/features/backend.py, which needs torch
MIN_CODES = 3  # the conformer's first convolution is 3 feature vectors wide
MAX_CODES_SHORT = DURATION_TOLERANCE_S * CODES_PER_SECOND
ROUNDED_OFF = 1  # code: durations in manifests may be rounded
MIN_DECODED = 0.5  # of a text's letters: unknown pieces are missing in what ids are decoded to


@dataclass(frozen=True)
class Limits:
    """What the model takes: codes from 0 to `num_codes` - 1, latents of (`num_latents`, `model_dim`)."""

    num_codes: int = 8192
    max_codes: int = 1815
    num_latents: int = 32
    model_dim: int = 1280


@dataclass(frozen=True)
class OldUtterance:
    """A row whose features are sound.

    Args:
        utterance: without features; its recording may be gone.
        codes: (T,), cut to the true length; condition: (K, D); emo_vec: (D,).
    """

    utterance: Utterance
    codes: NDArray[np.int64]
    condition: NDArray[np.float32]
    emo_vec: NDArray[np.float32]


@dataclass(frozen=True)
class RejectedRow:
    """A row that is left out; `line` is FILE:NUMBER."""

    line: str
    id: str
    audio: str
    code: str
    reason: str


class RejectedError(Exception):
    """A row cannot be used: `code` is one word for counting, the text says what was found."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass
class OldFolder:
    """A folder of the predecessor; read it once, then see what was found.

    Args:
        tokenizer: to tell whether text ids come from it; None if nobody asks.
        findings: all damage by kind, of rows that are used too.
        rejected: the rows that `utterances` left out.
    """

    folder: Path
    limits: Limits = field(default_factory=Limits)
    tokenizer: Tokenizer | None = None
    findings: Findings = field(default_factory=Findings)
    rejected: list[RejectedRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._paths = MovedPaths(self.folder.resolve())

    @property
    def manifests(self) -> list[Path]:
        """Return the manifests of utterances that are there.

        Raises:
            UserError: there is none.
        """
        found = [self.folder / name for name in UTTERANCE_FILES if (self.folder / name).is_file()]
        if not found:
            raise UserError(
                f"{self.folder}: has neither {' nor '.join(UTTERANCE_FILES)}, give the folder that the "
                "predecessor's preprocessing wrote"
            )
        return found

    def utterances(self) -> Iterator[OldUtterance]:
        """Yield the rows that are sound, in the order of the files; the others are in `rejected`."""
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
                    self.findings.add(f"rows are left out ({error.code})", f"{line} {error}")
        self._check_progress(first_line.keys())
        self._check_pairs(first_line.keys())

    def _read(self, line: str, record: dict[str, object], first_line: dict[str, str]) -> OldUtterance:
        """Return a row with its features.

        Raises:
            RejectedError: they are not certain to be whole, and of the row's recording.
        """
        id, text, speaker = (_string(record, name) for name in ("id", "text", "speaker"))
        if first_line.setdefault(id, line) != line:
            raise RejectedError("duplicate_id", f"id {id!r} is already that of {first_line[id]}")
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
                raise RejectedError("not_finite", f"{name} has values that are no numbers")
        if record.get("code_len") != len(codes):
            found = f"{id}: code_len {record.get('code_len')}, the file has {len(codes)}"
            self.findings.add("rows give another number of codes than their file has", found)
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
            language=str(record.get("language") or DEFAULT_LANGUAGE),
            recording=_recording_name(record),
        )
        return OldUtterance(
            utterance, codes.astype(np.int64), condition.astype(np.float32), emo_vec.astype(np.float32)
        )

    def _array(
        self, record: dict[str, object], name: str, shape: tuple[int | None, ...], kind: type
    ) -> NDArray[Any]:
        """Return the array of a file that the row names.

        Args:
            shape: what it must have; None stands for any length.
            kind: numpy's class of its type.
        """
        written = _string(record, name)
        path = self._paths.find(written)
        if path is None:
            raise RejectedError("missing_file", f"{name} {written} is neither there nor in the folder")
        try:
            array: NDArray[Any] = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise RejectedError("unreadable_file", f"{path}: {' '.join(str(error).split())}") from None
        fits = isinstance(array, np.ndarray) and len(array.shape) == len(shape)
        if not fits or any(want not in (None, have) for want, have in zip(shape, array.shape, strict=True)):
            wanted = ", ".join("any" if length is None else str(length) for length in shape)
            raise RejectedError("wrong_shape", f"{path}: {getattr(array, 'shape', None)}, not ({wanted})")
        if not np.issubdtype(array.dtype, kind):
            raise RejectedError("wrong_type", f"{path}: {array.dtype}, not {kind.__name__}")
        return array

    def _recording(self, record: dict[str, object]) -> tuple[Path | None, float]:
        """Return the row's recording, None if it is not there, and its duration in seconds.

        Raises:
            RejectedError: no duration is known, or the recording is not the one that was encoded.
        """
        value = record.get("duration")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        said_s = float(value) if is_number and 0 < value < math.inf else None  # type: ignore[arg-type, operator]
        written = record.get("audio_path")
        path = self._paths.find(written) if isinstance(written, str) and written else None
        if path is None:
            if said_s is None:
                raise RejectedError("unknown_length", "neither a duration nor a recording to check the codes")
            return None, said_s
        try:
            found_s = audio_duration_s(path)
        except UserError as error:
            raise RejectedError("unreadable_recording", str(error)) from None
        if said_s is not None and abs(found_s - said_s) > DURATION_TOLERANCE_S:
            raise RejectedError(
                "other_recording", f"{path}: lasts {found_s:.2f} s, {said_s:.2f} s when it was encoded"
            )
        return path, found_s

    def _of_true_length(
        self, id: str, codes: NDArray[Any], duration_s: float, *, is_measured: bool
    ) -> NDArray[Any]:
        """Return the codes of the recording, without those of padding.

        Args:
            is_measured: the duration is that of the file, not what a manifest says.
        """
        num_true = max(0, math.floor((duration_s - LEAD_S) * CODES_PER_SECOND + 1e-6))
        # alone, a clip with an odd number of log-mel frames got a code for half a pair
        num_most = num_true + 1 + (0 if is_measured else ROUNDED_OFF)
        if len(codes) < num_true - MAX_CODES_SHORT:
            raise RejectedError(
                "codes_too_short", f"{len(codes)} codes for {duration_s:.2f} s, which need {num_true}"
            )
        if len(codes) > num_most:
            found = f"{id} ({len(codes)} codes for {duration_s:.2f} s, cut to {num_true})"
            self.findings.add("rows had codes of padding, which are cut off", found)
            codes = codes[:num_true]
        if len(codes) < MIN_CODES:
            raise RejectedError("too_short", f"{len(codes)} codes, the model needs {MIN_CODES}")
        if len(codes) > self.limits.max_codes:
            raise RejectedError("too_long", f"{len(codes)} codes, the model takes {self.limits.max_codes}")
        return codes

    def _check_text_ids(self, id: str, text: str, record: dict[str, object]) -> None:
        if self.tokenizer is None:
            return
        try:
            ids = self._array(record, "text_ids_path", (None,), np.integer)
        except RejectedError as error:
            self.findings.add("rows have no text ids to compare", f"{id}: {error}")
            return
        if not _are_ids_of(self.tokenizer, ids.tolist(), text):
            self.findings.add(f"rows have text ids that are not those of {self.tokenizer.path.name}", id)

    def _check_progress(self, ids: Any) -> None:
        path = self.folder / PROGRESS_FILE
        if path.is_file():
            for done in path.read_text(encoding="utf-8", errors="replace").split("\n"):
                if done.strip() and done.strip() not in ids:
                    self.findings.add(f"ids of {PROGRESS_FILE} are in no manifest", done.strip())

    def _check_pairs(self, ids: Any) -> None:
        """Look at the pairs files; they are not used, pairs are made anew."""
        for path in (self.folder / name for name in PAIR_FILES):
            if not path.is_file():
                continue
            seen: set[object] = set()
            for number, record in read_json_lines_or_errors(path):
                line = f"{path.name}:{number}"
                if isinstance(record, UserError):
                    self.findings.add("lines of pairs are broken", line)
                    continue
                prompt, target = record.get("prompt_id"), record.get("target_id")
                if prompt == target:
                    self.findings.add("pairs have one utterance as prompt and target", f"{line} {target}")
                if prompt not in ids or target not in ids:
                    self.findings.add("pairs name utterances that are in no manifest", line)
                if str(record.get("id")) in seen:
                    self.findings.add("pairs have the id of an earlier one", f"{line} {record.get('id')}")
                seen.add(str(record.get("id")))


def is_old_folder(folder: Path) -> bool:
    """Tell whether the first line of a manifest in `folder` is one of the predecessor's."""
    for name in UTTERANCE_FILES:
        if (folder / name).is_file():
            try:
                return "codes_path" in next(read_json_lines(folder / name))[1]
            except UserError:
                return False
    return False


def _are_ids_of(tokenizer: Tokenizer, ids: list[int], text: str) -> bool:
    """Tell whether `ids` can be what `tokenizer` makes of `text`, some letters being unknown to it."""
    if any(not 0 <= id < tokenizer.size for id in ids):
        return False
    known = [tokenizer.pieces[id] for id in ids if id != tokenizer.unknown_id]
    decoded, letters = text_key("".join(known)), text_key(text)
    rest = iter(letters)
    return len(decoded) >= MIN_DECODED * len(letters) and all(letter in rest for letter in decoded)


def _string(record: dict[str, object], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RejectedError("missing_field", f"{name} is {value!r}, it must be a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RejectedError("missing_field", f"{name} has half a character") from None
    return value


def _recording_name(record: dict[str, object]) -> str | None:
    for name in ("recording", "source_file"):
        value = record.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return None


_DRIVE = re.compile("^[A-Za-z]:")


class MovedPaths:
    """Finds files of `folder`; what was learned about one path is tried first for its neighbours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._found_in: dict[str, Path] = {}  # written folder -> real folder

    def find(self, written: str) -> Path | None:
        """Return the file that a manifest calls `written`, None if there is none."""
        plain = _DRIVE.sub("", written.replace("\\", "/"))
        if "\0" in plain:
            return None
        written_folder, _, name = plain.rpartition("/")
        known = self._found_in.get(written_folder)
        if known is not None and (known / name).is_file():
            return known / name
        for candidate in self._candidates(plain):
            if candidate.is_file():
                self._found_in[written_folder] = candidate.parent
                return candidate
        return None

    def _candidates(self, plain: str) -> list[Path]:
        """Return where to look: as written, then with ever fewer of its first folders."""
        parts = [part for part in plain.split("/") if part not in ("", ".")]
        tails = [Path(*parts[start:]) for start in range(len(parts))]
        as_written = [Path(plain)] if plain.startswith("/") else []
        inside = [self.folder / tail for tail in tails]
        # recordings lie beside: amharic_dataset/audio and processed_data/codes
        beside = [self.folder.parent / tail for tail in tails if len(tail.parts) > 1]
        return [*as_written, *inside, *beside]
