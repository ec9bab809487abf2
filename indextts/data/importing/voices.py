"""Find the speakers of clips without a speaker in the data: each group of similar voices is one speaker.

    voices.json    {"encoder": "6f1a...", "threshold": 0.5,          the groups were made with these
                    "names": {"voice_001": "almaz", "voice_002": "voice_002", "voice_003": "voice_001"}}
    voices.csv     a line per group, to listen to and compare

A user renames a group or merges groups in "names"; the next import applies it. The journal has the group of
each clip. New clips join a group or found new ones, and a group keeps its clips. Only another threshold or
encoder groups all clips again, and a new group takes the name of the old one with which it shares most clips.

The groups are those of agglomerative clustering with average linkage on the cosine distance. scikit-learn
needs the matrix of all distances, 40 GB for 100,000 clips. So BLOCK_SIZE vectors are clustered at a time, and
each group of a block joins the nearest group of the blocks before it. The mean distance of all pairs of two
groups is 1 minus the product of their mean vectors, so no other matrix is needed.

Axes: N vectors or groups, S width of a vector, G groups.
"""

import csv
import io
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from indextts.data.importing.journal import AUDIO_FOLDER_NAME, Clip, Entry, Journal
from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.system.files import write_bytes
from indextts.system.yaml_files import problems_of

logger = logging.getLogger(__name__)

RECORD_NAME = "voices.json"
TABLE_NAME = "voices.csv"
DEFAULT_THRESHOLD = 0.5  # for CAM++, not measured; 3D-Speaker merges up to 0.6 within a single recording
MIN_CLIP_S = 1.5  # the vector of a shorter clip is too uncertain to found a group or to shape one
_PREFIX = "voice_"

_MAX_NAME_CHARS = 64

BLOCK_SIZE = 4_000

Vector = NDArray[np.float32]  # (S,)
Vectors = NDArray[np.float32]  # (N, S)
Labels = NDArray[np.int64]
VectorOfClip = Mapping[str, Vector]  # by the id of the clip, of those with a voice to be heard


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
        """Return the speaker of a group, following merges.

        Raises:
            UserError: groups are merged in a circle.
        """
        seen = [voice]
        while (name := self.names.get(seen[-1], seen[-1])) != seen[-1]:
            if name in seen:
                raise UserError(f"{file}: {' -> '.join([*seen, name])} is a circle; name one of them")
            seen.append(name)
        return seen[-1]


class VoiceRow(BaseModel, frozen=True):
    """Line of voices.csv, whose columns are the fields.

    Args:
        clips: their number.
        closest: the most similar other group, at the mean cosine distance `distance`; "" if there is none.
        sample_1, sample_2, sample_3: files of the clips nearest to the group's mean, in the dataset folder or
            linked; "" if there are fewer.
        farthest: the file of the clip farthest from it, where a wrong clip shows first.
    """

    voice: str
    speaker: str
    clips: int
    minutes: float
    closest: str
    distance: Annotated[float | None, BeforeValidator(lambda value: None if value == "" else value)]
    sample_1: str
    sample_2: str
    sample_3: str
    farthest: str


def voice_clips(journal: Journal) -> Iterator[tuple[Entry, Clip]]:
    """Yield the clips whose speaker is found by the voice."""
    for entry in journal.entries.values():
        for clip in entry.clips:
            if clip.voice is not None or not clip.speaker:
                yield entry, clip


def group_voices(
    journal: Journal, vectors: VectorOfClip, record: VoicesRecord, encoder: str, threshold: float
) -> VoicesRecord:
    """Set the groups of the clips in the journal; return the new record, without writing anything.

    Args:
        encoder: the digest of the encoder's weights.
        threshold: largest mean cosine distance of clips in one group; 0 for that of the record.
    """
    threshold = threshold or record.threshold or DEFAULT_THRESHOLD
    clips = [clip for _, clip in voice_clips(journal)]
    before = {clip.id: clip.voice for clip in clips if clip.voice is not None}
    named = {voice: name for voice, name in record.names.items() if voice != name}
    taken = {*named, *named.values()}
    if before and record.threshold is not None and (encoder, threshold) != (record.encoder, record.threshold):
        text = "%s: grouping all %s again, because the threshold or the encoder changed (threshold %g)"
        logger.warning(text, journal.folder / RECORD_NAME, counted(len(clips), "clip"), threshold)
        voices = _with_old_names(_grouped(clips, vectors, threshold, {}, ()), before, taken)
    else:
        voices = _grouped(clips, vectors, threshold, before, taken)
    moved = {
        clip.id: replace(clip, voice=voices.get(clip.id), speaker=clip.speaker if clip.id in voices else "")
        for clip in clips
    }
    for name, entry in journal.entries.items():
        journal.entries[name] = replace(entry, clips=tuple(moved.get(clip.id, clip) for clip in entry.clips))
    names = {voice: voice for voice in voices.values()} | named
    return VoicesRecord(encoder=encoder, threshold=threshold, names=dict(sorted(names.items())))


def read_record(folder: Path) -> VoicesRecord:
    """Return the record of a dataset; an empty one without groups.

    Raises:
        UserError: voices.json is invalid, or merges groups in a circle.
    """
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
    """Write voices.json and voices.csv if they changed; without groups, neither.

    Raises:
        OSError: a file cannot be written.
    """
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
    """Return the lines of voices.csv with the current names of voices.json; none without groups.

    Raises:
        UserError: voices.json or voices.csv is invalid.
    """
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
    names, means = _means(voices, vectors)
    members: dict[str, list[Clip]] = {}
    for clip in clips:
        members.setdefault(voices[clip.id], []).append(clip)
    rows = []
    for index, voice in enumerate(names):
        between = means @ means[index]  # (G,)
        between[index] = -np.inf
        closest = int(between.argmax())
        heard = [clip for clip in members[voice] if clip.id in vectors]
        likeness = _stacked([clip.id for clip in heard], vectors) @ means[index]  # (clips,)
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


def _grouped(
    clips: Sequence[Clip],
    vectors: VectorOfClip,
    threshold: float,
    before: Mapping[str, str],
    taken: Iterable[str],
) -> dict[str, str]:
    """Return the groups of the clips that have one, by the ids of the clips.

    Args:
        before: the groups of earlier imports, which stay.
        taken: other names that new groups do not get.
    """
    heard = [clip for clip in clips if clip.id in vectors]
    is_long = {clip.id: clip.duration >= MIN_CLIP_S for clip in heard}
    new = [id for id in is_long if id not in before]
    fresh = [id for id in new if is_long[id]]
    known = {id: voice for id, voice in before.items() if is_long.get(id)}
    free = _free_names({*before.values(), *taken})
    for start in range(0, len(fresh), BLOCK_SIZE):
        block = fresh[start : start + BLOCK_SIZE]
        rows = _stacked(block, vectors)
        labels = cluster(rows, threshold)
        nearest_of = _nearest_voices(group_means(rows, labels), known, vectors, threshold)
        named = [name or next(free) for name in nearest_of]
        known |= {id: named[label] for id, label in zip(block, labels, strict=True)}
    short = [id for id in new if not is_long[id]]
    near = _nearest_voices(_stacked(short, vectors), known, vectors, threshold)
    return {**before, **known, **{id: name for id, name in zip(short, near, strict=True) if name is not None}}


def _with_old_names(
    voices: Mapping[str, str], before: Mapping[str, str], taken: Iterable[str]
) -> dict[str, str]:
    """Return the groups of clips under the names of the old groups with which they share most clips."""
    shared = Counter((voice, before[id]) for id, voice in voices.items() if id in before)
    names: dict[str, str] = {}
    given: set[str] = set()
    for (voice, old), _ in shared.most_common():
        if voice not in names and old not in given:
            names[voice] = old
            given.add(old)
    free = _free_names({*before.values(), *taken})
    names |= {voice: next(free) for voice in sorted(set(voices.values()) - names.keys())}
    return {id: names[voice] for id, voice in voices.items()}


def _free_names(taken: Iterable[str]) -> Iterator[str]:
    """Yield names for new groups, with the numbers after those that are taken."""
    numbers = (voice.removeprefix(_PREFIX) for voice in taken if voice.startswith(_PREFIX))
    last = max((int(number) for number in numbers if number.isdecimal()), default=0)
    return (f"{_PREFIX}{number:03d}" for number in count(last + 1))


def _nearest_voices(
    rows: Vectors, voices: Mapping[str, str], vectors: VectorOfClip, threshold: float
) -> list[str | None]:
    """Return the nearest group of each row of vectors, None if it is farther than the threshold.

    Args:
        rows: (N, S).
        voices: the groups of clips, by the ids of the clips.
    """
    names, means = _means(voices, vectors)
    if not names:
        return [None] * len(rows)
    found: list[str | None] = []
    for start in range(0, len(rows), BLOCK_SIZE):
        likeness = rows[start : start + BLOCK_SIZE] @ means.T  # (block, G)
        is_near = 1 - likeness.max(axis=1) <= threshold
        numbers = likeness.argmax(axis=1)
        found += [names[number] if near else None for number, near in zip(numbers, is_near, strict=True)]
    return found


def _means(voices: Mapping[str, str], vectors: VectorOfClip) -> tuple[list[str], Vectors]:
    """Return the groups with a vector, and their mean vectors: (G, S)."""
    ids = [id for id in voices if id in vectors]
    names, labels = np.unique([voices[id] for id in ids], return_inverse=True)
    return names.tolist(), group_means(_stacked(ids, vectors), labels)


def _stacked(ids: Sequence[str], vectors: VectorOfClip) -> Vectors:
    """Return the vectors of clips: (N, S)."""
    return np.stack([vectors[id] for id in ids]) if ids else np.zeros((0, 0), np.float32)


def cluster(vectors: Vectors, threshold: float) -> Labels:
    """Return the number of each vector's group, from 0 in descending size, then by first vectors: (N,).

    Args:
        vectors: (N, S), of length 1.
        threshold: largest mean distance of groups that are merged, below 1.
    """
    from sklearn.cluster import AgglomerativeClustering  # takes a second, and most imports do without it

    if len(vectors) < 2:  # scikit-learn refuses these
        return np.zeros(len(vectors), np.int64)
    clustering = AgglomerativeClustering(
        n_clusters=None, metric="cosine", linkage="average", distance_threshold=threshold
    )
    _, first, labels, sizes = np.unique(
        clustering.fit_predict(vectors), return_index=True, return_inverse=True, return_counts=True
    )
    return np.argsort(np.lexsort((first, -sizes)))[labels]


def group_means(vectors: Vectors, labels: Labels) -> Vectors:
    """Return the mean vector of each group: (G, S); no number below G is unused."""
    counts = np.bincount(labels)
    means: Vectors = np.zeros((len(counts), vectors.shape[1]), np.float32)
    np.add.at(means, labels, vectors)
    means /= counts[:, None]
    return means
