"""Find the speakers of clips without a speaker in the data: each group of similar voices is one speaker.

    voices.json    {"encoder": "6f1a...", "threshold": 0.5,          the groups were made with these
                    "names": {"voice_001": "almaz", "voice_002": "voice_002", "voice_003": "voice_001"}}
    voices.csv     a line per group, to listen to and compare
    voice_vectors.jsonl     the vectors (stored_results.py); its version is the sha256 of the weights. A
                            result belongs to recording, duration and file, which determine the sound:
                            base64 of V float16, or null without a voice to be heard

A user renames a group or merges groups in "names"; the next import applies it. The journal has the group of
each clip. New clips join a group or found new ones, and a group keeps its clips. Only another threshold or
encoder groups all clips again, and a new group takes the name of the old one with which it shares most clips.

Axes: S samples, V width of a vector, G groups.
"""

import base64
import csv
import io
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from indextts.data.importing.journal import AUDIO_FOLDER_NAME, Clip, Entry, Journal
from indextts.data.speaker_vectors import (
    SAMPLE_RATE_HZ,
    LoadEncoder,
    Vector,
    VectorOfClip,
    VoiceEncoder,
    add_results,
    grouped,
    means_of_groups,
    stacked,
    with_old_names,
)
from indextts.data.stored_results import StoredResults
from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.system.digest import file_sha256
from indextts.system.files import write_bytes
from indextts.system.yaml_files import problems_of

logger = logging.getLogger(__name__)

RECORD_NAME = "voices.json"
TABLE_NAME = "voices.csv"
VECTORS_NAME = "voice_vectors"
HEARD_S = 10.0  # of a clip: a longer sample costs time and hardly changes the vector
DEFAULT_THRESHOLD = 0.5  # for CAM++, not measured; 3D-Speaker merges up to 0.6 within a single recording

_MAX_NAME_CHARS = 64


def _checked_name(name: str) -> str:
    if not name.strip() or len(name) > _MAX_NAME_CHARS or not name.isprintable():
        raise ValueError(f"a name has 1 to {_MAX_NAME_CHARS} characters on one line")
    return name


class VoicesRecord(BaseModel):
    """Content of voices.json; `threshold` is None before the first grouping."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: str = ""
    threshold: float | None = None
    names: dict[str, Annotated[str, AfterValidator(_checked_name)]] = {}

    def speaker(self, voice: str, file: Path) -> str:
        """Return the speaker of a group, following merges; a UserError if they form a circle."""
        seen = [voice]
        while (name := self.names.get(seen[-1], seen[-1])) != seen[-1]:
            if name in seen:
                circle = " -> ".join([*seen, name])
                raise UserError(
                    f"{file}: groups are merged in a circle ({circle}); give one of them the name of a person"
                )
            seen.append(name)
        return seen[-1]


class VoiceRow(BaseModel, frozen=True):
    """Line of voices.csv, whose columns are the fields."""

    voice: str
    speaker: str
    clips: int
    minutes: float
    closest: str  # the most similar other group, at the mean cosine distance `distance`; "" if there is none
    distance: Annotated[float | None, BeforeValidator(lambda value: None if value == "" else value)]
    sample_1: str  # files of the clips nearest to the mean of the group; "" if there are fewer
    sample_2: str
    sample_3: str
    farthest: str  # the file of the clip farthest from it, where a wrong clip shows first


def voice_clips(journal: Journal) -> Iterator[tuple[Entry, Clip]]:
    """Yield the clips whose speaker is found by the voice."""
    for entry in journal.entries.values():
        for clip in entry.clips:
            if clip.voice is not None or not clip.speaker:
                yield entry, clip


def require_encoder(path: Path) -> None:
    """Raise a UserError if the weights of the encoder do not exist."""
    if not path.is_file():
        raise UserError(
            f"{path}: --speaker-from voices needs this file; download it with tools/download_checkpoints.py "
            f"--what speech --output-dir {path.parent.parent}, or pass --voice-encoder FILE"
        )


def read_vectors(journal: Journal, encoder: str) -> dict[str, Vector]:
    """Return the stored vectors of clips without a name in the data, by id; `encoder` is a digest."""
    known = _stored(journal, encoder).known
    found = ((clip.id, known.get(_key(entry, clip))) for entry, clip in voice_clips(journal))
    return {id: vector for id, vector in found if vector is not None}


def add_vectors(journal: Journal, weights: Path, load_encoder: LoadEncoder, num_workers: int) -> None:
    """Compute and store the missing vectors; a UserError for unusable weights or an unwritable file."""
    audio = {_key(entry, clip): journal.audio / clip.audio for entry, clip in voice_clips(journal)}
    with _stored(journal, file_sha256(weights)) as stored:
        add_results(stored, audio, lambda: load_encoder(weights), _encoded, num_workers)


def _stored(journal: Journal, encoder: str) -> StoredResults:
    return StoredResults(journal.folder, VECTORS_NAME, encoder, kept=_decoded, folder_name="")


def _key(entry: Entry, clip: Clip) -> str:
    return f"{entry.sha256} {clip.duration} {clip.audio}"


def _encoded(encode: VoiceEncoder, samples: NDArray[np.float32]) -> str | None:
    vector = encode(samples[: round(HEARD_S * SAMPLE_RATE_HZ)])
    return None if vector is None else base64.b64encode(vector.astype(np.float16).tobytes()).decode()


def _decoded(text: str | None) -> Vector | None:
    """Return a stored vector at length 1, which float16 has rounded."""
    if text is None:
        return None
    vector = np.frombuffer(base64.b64decode(text), np.float16).astype(np.float32)
    return vector / np.linalg.norm(vector)


def group_voices(
    journal: Journal, vectors: VectorOfClip, record: VoicesRecord, encoder: str, threshold: float
) -> VoicesRecord:
    """Set the groups of the clips in the journal; return the new record, without writing anything.

    Args:
        threshold: largest mean cosine distance of clips in one group; 0 for that of the record.
    """
    threshold = threshold or record.threshold or DEFAULT_THRESHOLD
    clips = [clip for _, clip in voice_clips(journal)]
    durations = {clip.id: clip.duration for clip in clips}
    before = {clip.id: clip.voice for clip in clips if clip.voice is not None}
    named = {voice: name for voice, name in record.names.items() if voice != name}
    taken = {*named, *named.values()}
    if before and record.threshold is not None and (encoder, threshold) != (record.encoder, record.threshold):
        text = "%s: grouping all %s again, because the threshold or the encoder changed (threshold %g)"
        logger.warning(text, journal.folder / RECORD_NAME, counted(len(clips), "clip"), threshold)
        voices = with_old_names(grouped(durations, vectors, threshold, {}, ()), before, taken)
    else:
        voices = grouped(durations, vectors, threshold, before, taken)
    moved = {
        clip.id: replace(clip, voice=voices.get(clip.id), speaker=clip.speaker if clip.id in voices else "")
        for clip in clips
    }
    for name, entry in journal.entries.items():
        journal.entries[name] = replace(entry, clips=tuple(moved.get(clip.id, clip) for clip in entry.clips))
    names = {voice: voice for voice in voices.values()} | named
    return VoicesRecord(encoder=encoder, threshold=threshold, names=dict(sorted(names.items())))


def read_record(folder: Path) -> VoicesRecord:
    """Return the record of a dataset, empty without groups; a UserError if it is invalid or circular."""
    path = folder / RECORD_NAME
    try:
        record = VoicesRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return VoicesRecord()
    except ValidationError as error:
        raise UserError(
            f"{path}: {problems_of(error)[0]}; correct it, or delete the file and lose the names"
        ) from None
    for voice in record.names:
        record.speaker(voice, path)
    return record


def rename_voice(folder: Path, voice: str, name: str) -> None:
    """Set the speaker of a group in voices.json; the next import applies it.

    Raises:
        UserError: there is no such group, the name is invalid, or groups would be merged in a circle.
    """
    record = read_record(folder)
    if voice not in record.names:
        raise UserError(f"{folder / RECORD_NAME}: no voice {voice}; choose one of the table")
    try:
        _checked_name(name)
    except ValueError as error:
        raise UserError(f"{name!r}: {error}; choose another name") from None
    renamed = record.model_copy(update={"names": record.names | {voice: name}})
    for each in renamed.names:
        renamed.speaker(each, folder / RECORD_NAME)
    write_bytes(folder / RECORD_NAME, renamed.model_dump_json(indent=1).encode() + b"\n")


def with_renamed(record: VoicesRecord, before: VoicesRecord, now: VoicesRecord) -> VoicesRecord:
    """Return a record with the names that changed from `before` to `now`; the next import applies them."""
    renamed = {voice: name for voice, name in now.names.items() if before.names.get(voice) != name}
    return record.model_copy(update={"names": record.names | renamed})


def set_speakers(journal: Journal, record: VoicesRecord) -> None:
    """Set the speakers of all grouped clips in the journal."""
    path = journal.folder / RECORD_NAME
    for name, entry in journal.entries.items():
        clips = tuple(
            replace(clip, speaker=record.speaker(clip.voice, path)) if clip.voice is not None else clip
            for clip in entry.clips
        )
        journal.entries[name] = replace(entry, clips=clips)


def write_voices(journal: Journal, vectors: VectorOfClip, record: VoicesRecord) -> None:
    """Write voices.json and voices.csv if they changed; without groups, neither."""
    if not record.names:
        return
    rows = table_rows(journal, vectors, record)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(VoiceRow.model_fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.model_dump() for row in rows)
    content = record.model_dump_json(indent=1).encode() + b"\n"
    for path, new in ((RECORD_NAME, content), (TABLE_NAME, text.getvalue().encode())):
        file = journal.folder / path
        if not file.is_file() or file.read_bytes() != new:
            write_bytes(file, new)
            logger.info("%s: %s", file, counted(len(rows), "voice"))


def read_rows(folder: Path) -> list[VoiceRow]:
    """Return the lines of voices.csv with current names, none without groups; a UserError if invalid."""
    record, names, path = read_record(folder), folder / RECORD_NAME, folder / TABLE_NAME
    if not path.is_file():
        return []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [VoiceRow.model_validate(line) for line in csv.DictReader(file)]
    except (ValueError, csv.Error):
        raise UserError(
            f"{path}: not as the import wrote it; delete it, and the next import writes it again"
        ) from None
    return [row.model_copy(update={"speaker": record.speaker(row.voice, names)}) for row in rows]


def table_rows(journal: Journal, vectors: VectorOfClip, record: VoicesRecord) -> list[VoiceRow]:
    """Return a row for each group with a vector, in descending number of clips."""
    clips = [clip for _, clip in voice_clips(journal) if clip.voice is not None]
    voices = {clip.id: clip.voice for clip in clips if clip.voice is not None}
    names, means = means_of_groups(voices, vectors)
    members: dict[str, list[Clip]] = {}
    for clip in clips:
        members.setdefault(voices[clip.id], []).append(clip)
    rows = []
    for index, voice in enumerate(names):
        between = means @ means[index]  # (G,)
        between[index] = -np.inf
        closest = int(between.argmax())
        heard = [clip for clip in members[voice] if clip.id in vectors]
        likeness = stacked([clip.id for clip in heard], vectors) @ means[index]  # (clips,)
        files = [
            heard[number].audio if heard[number].is_link else f"{AUDIO_FOLDER_NAME}/{heard[number].audio}"
            for number in np.argsort(-likeness, kind="stable")
        ]
        rows.append(
            VoiceRow(
                voice=voice,
                speaker=record.speaker(voice, journal.folder / RECORD_NAME),
                clips=len(members[voice]),
                minutes=round(sum(clip.duration for clip in members[voice]) / 60, 1),
                closest=names[closest] if len(names) > 1 else "",
                distance=round(1 - float(between[closest]), 3) if len(names) > 1 else None,
                sample_1=files[0],
                sample_2=files[1] if len(files) > 1 else "",
                sample_3=files[2] if len(files) > 2 else "",
                farthest=files[-1],
            )
        )
    return sorted(rows, key=lambda row: (-row.clips, row.voice))
