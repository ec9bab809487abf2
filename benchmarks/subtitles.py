"""Faults of subtitles: how many clips are kept, how many of them are right, and what the import says.

Clips of one person are joined, with pauses of 0.3 to 1.2 s; the borders of the cues are off by up to 0.2 s.
`before` cuts at the cues as they are written, `after` moves them first as an import does. A clip is right if
it contains the speech of its texts and of no other. Clips that are not kept are listed in rejected.jsonl.

Three, four or six cues are all of a short recording, `files` of which are tried; chords are 10 dB below the
speech. Divided sentences have two cues, at a pause near the middle or in the speech.
"""

import csv
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.cleaning import plant
from benchmarks.frame import REPOSITORY, Benchmark, publish, table
from indextts.commands.terminal import parse, run
from indextts.data.aligning.cue_timing import fitted_cues
from indextts.data.aligning.subtitle_cuts import plan_cuts
from indextts.data.importing.items import Passage
from indextts.data.silences import Limits
from indextts.features.audio import load_audio
from indextts.features.vad import SAMPLE_RATE_HZ, Span, find_speech

RECORDING_S = 180.0
PATH = Path("talk.srt")
SHIFTS_S = (0.3, 0.6, 1.2, 2.5, 5.0, 12.0, 30.0, -0.6, -1.2, -5.0, -30.0)
PAIRS = ((24, 23.976), (23.976, 24), (25, 24), (24, 25), (25, 23.976), (23.976, 25))
RATES = {f"{one} : {other}": one / other for one, other in PAIRS}
Times = NDArray[np.float64]


class Subtitles(Benchmark):
    """Plant faults in the subtitles of joined recordings and count right and wrong clips."""

    program: ClassVar[str] = "benchmarks.subtitles"
    folder: list[Path] = Field(description="Folders with metadata.tsv (file, text, speaker).")
    output: Path | None = Field(REPOSITORY / "docs/lab/subtitles.md", description="Results file.")


@dataclass(frozen=True)
class Recording:
    """Places and texts of the clips, and the spans with speech."""

    times: Times
    texts: list[str]
    speech: list[Span]
    duration_s: float

    def without(self, start_s: float, end_s: float) -> "Recording":
        """Return the recording with a part cut out in a pause; its texts stay in the subtitles."""
        spans = [span for span in self.speech if span.end_s <= start_s or span.start_s >= end_s]
        moved = [(end_s - start_s) * (span.start_s >= end_s) for span in spans]
        speech = [Span(s.start_s - by, s.end_s - by) for s, by in zip(spans, moved, strict=True)]
        times = self.times - (end_s - start_s) * (self.times[:, :1] >= end_s - 0.2)
        times[(self.times[:, 0] >= start_s) & (self.times[:, 0] < end_s - 0.2)] = -1  # not spoken
        return Recording(times, self.texts, speech, self.duration_s - end_s + start_s)

    def part(self, first: int, count: int) -> "Recording":
        """Return a recording of some of the clips."""
        times = self.times[first : first + count]
        start, end = times[0, 0] - 0.2, times[-1, 1] + 0.2
        inside = [span for span in self.speech if start < span.start_s < end]
        speech = [Span(span.start_s - start, span.end_s - start) for span in inside]
        return Recording(times - start, self.texts[first : first + count], speech, end - start)

    def divided(self) -> "Recording":
        """Return the recording with two texts for each."""
        pauses = np.array([span.end_s for span in self.speech])
        middles = self.times.mean(axis=1)
        near = pauses[np.abs(pauses - middles[:, None]).argmin(axis=1)]
        middles = np.where(np.abs(near - middles) < 0.8, near + 0.05, middles)
        times = np.stack([self.times[:, 0], middles, middles, self.times[:, 1]], axis=1).reshape(-1, 2)
        return replace(self, times=times, texts=[f"{text} {half}" for text in self.texts for half in "12"])

    def is_right(self, clip: Passage) -> bool:
        first, last = self.times.T
        in_clip = self._spoken(np.maximum(first, clip.start_s), np.minimum(last, clip.end_s))
        places = np.flatnonzero(in_clip > 0.2)
        missing = self._spoken(*self.times[places].T) - in_clip[places]
        return clip.text == " ".join(self.texts[place] for place in places) and missing.sum() < 0.15

    def _spoken(self, starts: Times, ends: Times) -> Times:
        spans = np.array([(span.start_s, span.end_s) for span in self.speech])
        common = np.minimum(ends[:, None], spans[:, 1]) - np.maximum(starts[:, None], spans[:, 0])
        return np.asarray(np.maximum(0, common).sum(axis=1))


def joined(folder: Path, rows: Sequence[dict[str, str]]) -> tuple[Recording, Recording]:
    """Return the recording, and with music."""
    random, at, parts, found = np.random.default_rng(0), 1.0, [np.zeros(SAMPLE_RATE_HZ, np.float32)], []
    for row in {row["text"]: row for row in rows}.values():
        samples = load_audio(folder / row["file"], SAMPLE_RATE_HZ)
        found.append((at, at + len(samples) / SAMPLE_RATE_HZ, row["text"]))
        pause = np.zeros(int(random.uniform(0.3, 1.2) * SAMPLE_RATE_HZ), np.float32)
        parts += [samples, pause]
        at += (len(samples) + len(pause)) / SAMPLE_RATE_HZ
        if at > RECORDING_S:
            break
    sound = np.concatenate(parts)
    sound += random.normal(0, 1e-4, len(sound)).astype(np.float32)
    times, texts = np.array([each[:2] for each in found]), [each[2] for each in found]
    alone = Recording(times, texts, find_speech(sound), at)
    return alone, replace(alone, speech=find_speech(plant("music", 10, sound, [])))


def faults(right: Recording, with_music: Recording) -> Iterator[tuple[str, Recording, Times, list[str]]]:
    """Yield the name, the recording, and the times and texts of the cues."""
    random = np.random.default_rng(1)

    def off(times: Times, by_s: float = 0.2) -> Times:
        return np.asarray(times + random.uniform(-by_s, by_s, times.shape))

    cues, divided = off(right.times), right.divided()
    halves = off(divided.times, 0.15)
    halves[:-1, 1] = np.where(divided.times[:-1, 1] == divided.times[1:, 0], halves[1:, 0], halves[:-1, 1])
    half, some = np.arange(len(cues))[:, None] >= len(cues) // 2, random.random((len(cues), 1)) < 0.5
    other = np.sort(random.uniform(0, right.duration_s, some.shape), axis=0)
    for name, times in {
        "none": cues,
        "none, borders off by up to 0.3 s": off(right.times, 0.3),
        "none, each cue until the next": np.stack([cues[:, 0], np.append(cues[1:, 0], cues[-1, 1])], axis=1),
        **{f"shifted by {shift_s:+.1f} s": cues + shift_s for shift_s in SHIFTS_S},
        **{f"frame rates {name}": cues * rate for name, rate in RATES.items()},
        "frame rates 25 : 23.976 and +1.2 s": cues * RATES["25 : 23.976"] + 1.2,
        "second half by +1.2 s": cues + 1.2 * half,
        "second half by -5.0 s": cues - 5.0 * half,
        "single cues, half of them, by +1.2 s": cues + 1.2 * some,
        "single cues, half of them, by +3.0 s": cues + 3.0 * some,
        "of another recording": other + np.array([0.0, 3.0]),
    }.items():
        yield name, right, times, right.texts
    first, last = len(cues) // 2, len(cues) // 2 + 4
    cut = right.without(*(right.times[[first, last], 0] - 0.1).tolist())
    yield "four sentences cut out", cut, cues, right.texts
    yield "none, divided sentences", divided, halves, divided.texts
    yield "divided sentences, shifted by +1.2 s", divided, halves + 1.2, divided.texts
    yield "none, music", with_music, cues, right.texts
    yield "shifted by +1.2 s, music", with_music, cues + 1.2, right.texts
    yield "of another recording, music", with_music, other + np.array([0.0, 3.0]), right.texts
    for count in (3, 4, 6):
        for first in range(0, len(cues) - 2 * count, count):
            short, foreign = right.part(first, count), right.part(len(cues) - first - count, count)
            times, some = off(short.times), random.permutation(count)[:, None] < count // 2
            for name, changed in {
                "none": times,
                "shifted by +1.2 s": times + 1.2,
                "half of them by +1.2 s": times + 1.2 * some,
                "half of them by +3.0 s": times + 3.0 * some,
            }.items():
                yield f"{count} cues: {name}", short, changed, short.texts
            yield f"{count} cues: of another recording", short, off(foreign.times), ["?"] * count


def kept(right: Recording, cues: Sequence[Passage]) -> NDArray[np.int64]:
    plan = plan_cuts(PATH, cues, right.speech, right.duration_s, Limits(1.0, 20.0))
    clips = [item for item in plan if isinstance(item, Passage)]
    return np.array([len(clips), sum(map(right.is_right, clips))])


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Subtitles, argv)
    said: list[str] = []
    logging.getLogger("indextts").addHandler(handler := logging.Handler())
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    counts, words = dict[str, NDArray[np.int64]](), dict[str, str]()
    for folder in command.folder:
        with (folder / "metadata.tsv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        for speaker in dict.fromkeys(row["speaker"] for row in rows):
            both = joined(folder, [row for row in rows if row["speaker"] == speaker])
            for name, sound, times, texts in faults(*both):
                named = zip(times.tolist(), texts, strict=True)
                cues = [Passage(start, end, text, 1) for (start, end), text in sorted(named) if start >= 0]
                said.clear()
                after, _ = fitted_cues(PATH, cues, sound.speech, sound.duration_s)
                found = [1, *kept(sound, cues), *kept(sound, after), not after]
                counts[name] = counts.get(name, 0) + np.array(found, np.int64)
                words[name] = said[0].removeprefix("talk.srt: ")[:60] if said else words.get(name, "")
    header = ["fault", "files", "kept before", "right", "kept after", "right", "refused", "it says"]
    shown = [[name, *map(str, count.tolist()), words[name]] for name, count in counts.items()]
    publish(command, "Subtitles that do not fit", [str(__doc__), *table(header, shown)])
    return 0


if __name__ == "__main__":
    run(main)
