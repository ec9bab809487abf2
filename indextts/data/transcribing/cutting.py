"""Cut recordings without texts into clips at their pauses.

    OUTPUT_DIR/
      measured/cuts.jsonl           a result for each recording, so that a killed run cuts none twice:
                                    {"clips": [{"id": "talk_07_000012340", "audio": "talk_07_000012340.flac",
                                                "duration": 6.2, "sha256": "..."}, ...],
                                     "lost": {"no_pause": [1, 17.4]}}     number and seconds by reason
      audio/talk_07_000012340.flac  a clip, named after its recording and its start in milliseconds

    speech    ==== ===  ======     == =====     ========       ==
    clips    [                ]   [        ]   [        ]     (too short)

A pause between sentences always separates clips. A longer part is divided at its longest pause until its
parts fit; a part that is too short joins its neighbour. Speech without a pause for longer than a clip may
last is left out.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import soundfile
from pydantic import TypeAdapter

from indextts.data.importing.items import AUDIO_SUFFIXES, Passage, cut_id, distinct, file_name, files_below
from indextts.data.progress import Progress
from indextts.data.silences import PADDING_S, Limits
from indextts.data.stored_results import StoredResults
from indextts.errors import UserError
from indextts.features.decoding import as_readable, find_speech_in_file, write_parts
from indextts.features.vad import Span
from indextts.system.digest import file_sha256
from indextts.system.files import file_stamp
from indextts.system.process_pool import map_in_threads
from indextts.system.processes import num_cores

AUDIO_NAME = "audio"
VERSION = 1  # raise it when the rules change, to cut again
SENTENCE_PAUSE_S = 0.4
MAX_JOINED_PAUSE_S = 1.5  # within a clip that was joined from parts that are too short


@dataclass(frozen=True)
class Recording:
    """A recording to cut, and its unique name."""

    id: str
    path: Path
    speaker: str


@dataclass(frozen=True, slots=True)
class CutClip:
    """A clip of a recording; `audio` is the name of its file in audio/."""

    id: str
    audio: str
    duration: float
    sha256: str


@dataclass(frozen=True)
class CutRecording:
    """Clips of a recording, and number and seconds of the speech that is in none, by reason.

    Reasons: `no_pause`, `too_short`, and `unreadable` (without seconds).
    """

    clips: list[CutClip]
    lost: dict[str, list[float]]


CUT_RECORDING = TypeAdapter(CutRecording)


def find_recordings(sources: Sequence[Path], speaker: str, speaker_from: str) -> list[Recording]:
    """Return the recordings of files and folders, sorted within each, with unique names.

    Args:
        speaker: of all recordings; "" for one by `speaker_from`: the folder, or the recording itself.

    Raises:
        UserError: a source does not exist, or there are no recordings.
    """
    found: list[Recording] = []
    taken: set[str] = set()
    for source in sources:
        if not source.exists():
            raise UserError(f"--source {source}: no such file or folder; check the path")
        root = source if source.is_dir() else source.parent
        files = files_below(source) if source.is_dir() else [source]
        for path in sorted(each for each in files if each == source or each.suffix.lower() in AUDIO_SUFFIXES):
            relative = path.relative_to(root)
            id = "_".join([*relative.parts[:-1], relative.stem])
            if id in taken:
                id = distinct(id, hashlib.sha256(str(path.resolve()).encode()).hexdigest())
            taken.add(id)
            folder = path.resolve().parent.name
            found.append(Recording(id, path, speaker or (folder if speaker_from == "folder" else id)))
    if not found:
        shown = ", ".join(map(str, sources))
        raise UserError(f"--source {shown}: no recordings; pass recordings or folders with them")
    return found


def plan_clips(
    speech: Sequence[Span], duration_s: float, limits: Limits
) -> tuple[list[Passage], list[tuple[str, float]]]:
    """Return the clips of a recording in order, and reason and seconds of each part that is in none."""
    parts = [part for group in _sentences(speech) for part in _divided(group, limits.max_s)]
    cuts, lost = [], []
    edges = list(
        pairwise([0.0, *(time for span in speech for time in (span.start_s, span.end_s)), duration_s])
    )
    before = {start: (end + start) / 2 for end, start in edges[::2]}  # the middle of the silence
    after = {end: (end + start) / 2 for end, start in edges[::2]}
    for part in _joined(parts, limits):
        start = max(part[0].start_s - PADDING_S, before[part[0].start_s])
        end = min(part[-1].end_s + PADDING_S, after[part[-1].end_s])
        if end - start > limits.max_s:
            lost.append(("no_pause", end - start))
        elif end - start < limits.min_s:
            lost.append(("too_short", end - start))
        else:
            cuts.append(Passage(start, end, "", 0))
    return cuts, lost


_Part = Sequence[Span]


def _sentences(speech: Sequence[Span]) -> Iterator[_Part]:
    part: list[Span] = []
    for span in speech:
        if part and span.start_s - part[-1].end_s >= SENTENCE_PAUSE_S:
            yield part
            part = []
        part.append(span)
    if part:
        yield part


def _divided(part: _Part, max_s: float) -> list[_Part]:
    """Return a part in parts that fit with their padding, or that have no pause."""
    if len(part) == 1 or part[-1].end_s - part[0].start_s + 2 * PADDING_S <= max_s:
        return [part]
    pauses = [after.start_s - before.end_s for before, after in pairwise(part)]
    place = 1 + pauses.index(max(pauses))
    return [*_divided(part[:place], max_s), *_divided(part[place:], max_s)]


def _joined(parts: Sequence[_Part], limits: Limits) -> list[_Part]:
    """Return the parts in order, with those that are too short joined to a neighbour where both fit."""
    joined: list[list[Span]] = []
    for part in parts:
        before = joined[-1] if joined else None
        if before is not None:
            shortest = min(part[-1].end_s - part[0].start_s, before[-1].end_s - before[0].start_s)
            fits = part[-1].end_s - before[0].start_s + 2 * PADDING_S <= limits.max_s
            is_near = part[0].start_s - before[-1].end_s <= MAX_JOINED_PAUSE_S
            if shortest + 2 * PADDING_S < limits.min_s and fits and is_near:
                before.extend(part)
                continue
        joined.append(list(part))
    return list(joined)


def cut_recordings(
    recordings: Sequence[Recording], folder: Path, limits: Limits, num_workers: int
) -> list[CutRecording]:
    """Return the recordings in order with their clips, new or kept; a UserError for an unwritable folder."""
    version = f"{VERSION} {limits.min_s} {limits.max_s}"
    with StoredResults(folder, "cuts", version, kept=CUT_RECORDING.validate_python) as stored:
        keys = [_key(recording) for recording in recordings]
        todo = {
            key: recording
            for key, recording in zip(keys, recordings, strict=True)
            if key not in stored.known
            or not all((folder / AUDIO_NAME / clip.audio).is_file() for clip in stored.known[key].clips)
        }
        progress = Progress("Cutting", len(todo), noun="recordings")
        cuts = map_in_threads(partial(_cut, folder, limits), todo.values(), num_workers or num_cores())
        for key, cut in zip(todo, cuts, strict=True):
            stored.add(key, asdict(cut))
            progress.advance()
        return [stored.known[key] for key in keys]


def lost_amounts(cut: Sequence[CutRecording]) -> dict[str, tuple[int, float]]:
    """Return number and seconds of what is in no clip, by reason."""
    found: dict[str, tuple[int, float]] = {}
    for recording in cut:
        for reason, (count, lost_s) in recording.lost.items():
            before, seconds = found.get(reason, (0, 0.0))
            found[reason] = before + int(count), seconds + lost_s
    return found


def _key(recording: Recording) -> str:
    """Return what the clips of a recording depend on, besides the limits."""
    stamp = file_stamp(recording.path)
    return f"{recording.id} {stamp.num_bytes} {stamp.mtime_ns} {recording.path.resolve()}"


def _cut(folder: Path, limits: Limits, recording: Recording) -> CutRecording:
    """Write the clips of a recording, in place of those that a killed run left."""
    decoded = folder / f".decoded-{file_name(recording.id, '.flac')}"
    readable = as_readable(recording.path, decoded)
    if isinstance(readable, tuple) and readable[0] == "channels":
        # Two people with a channel each usually take turns, and the clips are cut between the turns.
        readable = as_readable(recording.path, decoded, "mean")
    if isinstance(readable, tuple):
        return CutRecording([], {f"unreadable: {readable[1]}": [1, 0.0]})
    try:
        speech, duration_s = find_speech_in_file(readable.path)
        cuts, lost = plan_clips(speech, duration_s, limits)
        ids = [cut_id(recording.id, cut.start_s) for cut in cuts]
        names = [file_name(id, ".flac") for id in ids]
        spans = [Span(cut.start_s, cut.end_s) for cut in cuts]
        durations = write_parts(readable.path, spans, [folder / AUDIO_NAME / name for name in names])
    except (soundfile.LibsndfileError, OSError) as error:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise UserError(f"{folder}: {error.strerror}; check the folder and the disk") from None
        return CutRecording([], {f"unreadable: {error}": [1, 0.0]})
    finally:
        decoded.unlink(missing_ok=True)
    digests = [file_sha256(folder / AUDIO_NAME / name) for name in names]
    clips = [CutClip(*each) for each in zip(ids, names, durations, digests, strict=True)]
    found: dict[str, list[float]] = {}
    for reason, seconds in lost:
        count, total_s = found.get(reason, [0, 0.0])
        found[reason] = [count + 1, round(total_s + seconds, 3)]
    return CutRecording(clips, found)
