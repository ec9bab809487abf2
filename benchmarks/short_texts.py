"""Lengths of spoken texts of one and two words, against the same texts by the demo's synthesiser.

    python -m benchmarks.short_texts --folder PROJECT [--seeds 20] [--asr RECOGNIZER]

PROJECT is the demo after its training (tools/run_pipeline.py --demo --until train). The texts are the first
word or the first two words of sentences of the demo, spread over the set. espeak-ng speaks each in the voice
of the prompt, which gives the expected length. Without --asr nothing is rendered: the codes give the length.

With --asr, a recognizer (tests/espeak_recognizer.py) hears each sound, and what espeak-ng speaks. A word is
kept if at least half of its letters are heard at their place. The chance is how many first words would be
kept in the sounds of the next text.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import soxr
import torch
from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, publish, table
from demo.make_demo import SAMPLE_RATE_HZ, VOICES, read_lines, speak, trimmed
from indextts.commands.speech import Synthesize
from indextts.commands.terminal import parse, run
from indextts.data.manifest import read_utterances
from indextts.features.recognizers.loading import load_recognizer
from indextts.projects.project import Project
from indextts.speech.evaluation.judge import has_loops
from indextts.speech.synthesis.renderer import Segment
from indextts.speech.synthesis.segments import generate_segments
from indextts.speech.synthesis.synthesize import load_tts, resolve_sampling
from indextts.text.transcripts import matches, scored

NUM_TEXTS = 30
TOO_SHORT, TOO_LONG = 0.6, 1.6  # of the expected length
CPU = torch.device("cpu")
HEADER = ("texts", "sounds", "length", "10 % to 90 %", "too short", "too long", "no stop", "loop")
HEARD = ("texts", "by", "sounds", "first word kept", "last word kept", "chance", "letters heard / meant")


class ShortTexts(Benchmark):
    """Measure the lengths of short texts."""

    program: ClassVar[str] = "benchmarks.short_texts"
    folder: Path = Field(description="Folder of the trained demo project.")
    seeds: int = Field(20, ge=1, description="Seeds of each text.")
    asr: Path | None = Field(None, description="Folder of a recognizer that hears the sounds.")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(ShortTexts, argv)
    project = Project(command.folder)
    torch.set_num_threads(1)
    longest = {u.speaker: u for u in sorted(read_utterances(project.manifest), key=lambda u: u.duration_s)}
    prompts = [str(longest[voice.speaker].audio) for voice in VOICES]
    given = Synthesize(
        checkpoint=project.run_dir, features=project.preprocessed / "features", voice=prompts[0]
    )
    tts = load_tts(given, project.run_dir, CPU)
    sampling = resolve_sampling(given, tts.renderer.name)
    voices = [tts.read_voice(Path(prompt)) for prompt in prompts]
    rate = tts.trained.gpt.config.of_base.codes_per_second
    recognizer = load_recognizer(command.asr, CPU, "am") if command.asr else None
    rows, heard = [], []
    for kind, texts in kinds_of_texts().items():
        seeds = command.seeds if len(texts[0].split()) <= 2 else max(1, command.seeds // 5)
        lines = [
            tts.line(text, voices[number % len(voices)], seed)
            for number, text in enumerate(texts)
            for seed in range(seeds)
        ]
        spoken = generate_segments(tts.trained, lines, sampling, tts.renderer.num_codes)
        groups = [spoken[number * seeds : (number + 1) * seeds] for number in range(len(texts))]
        recorded = [trimmed(speak(text, VOICES[number % len(VOICES)])) for number, text in enumerate(texts)]
        expected = [len(samples) / SAMPLE_RATE_HZ * rate for samples in recorded]
        rows.append([kind, *measured(groups, expected, rate)])
        if recognizer is None:
            continue
        references = [line.voice.reference for line in lines]
        given_segments = [
            (segment, one) for each, one in zip(spoken, references, strict=True) for segment in each
        ]
        for name, sounds in (("espeak-ng", recorded), ("demo", tts.renderer.render(given_segments))):
            resampled = [soxr.resample(one, SAMPLE_RATE_HZ, recognizer.sample_rate_hz) for one in sounds]
            transcripts = recognizer.transcribe([one.astype(np.float32) for one in resampled])
            heard.append([kind, name, *kept(texts, transcripts)])
    lines_of_heard = ["", *table(HEARD, heard)] if heard else []
    publish(command, "Short texts", [*table(HEADER, rows), *lines_of_heard])
    return 0


def kinds_of_texts() -> dict[str, list[str]]:
    """Return the texts of each row of the table."""
    sentences = read_lines(REPOSITORY / "demo/sentences.txt")
    sentences = sentences[:: len(sentences) // NUM_TEXTS][:NUM_TEXTS]
    words = {
        "one word": [text.split()[:1] for text in sentences[::2]],
        "two words": [text.split()[:2] for text in sentences[1::2]],
    }
    bare = {kind: [" ".join(each).rstrip("።፣?!፤ ") for each in texts] for kind, texts in words.items()}
    stopped = {f"{kind} and ።": [f"{text}።" for text in texts] for kind, texts in bare.items()}
    return {**bare, **stopped, "sentences": sentences}


def kept(texts: Sequence[str], transcripts: Sequence[str]) -> list[str]:
    """Return the cells of a row; `transcripts` has as many for each text, one after the other."""
    words = [[letters for word in text.split() if (letters := scored(word))] for text in texts]
    seeds = len(transcripts) // len(texts)
    shifted = [*transcripts[seeds:], *transcripts[:seeds]]
    meant = [words[number // seeds] for number in range(len(transcripts))]

    def share(of: int, said: Sequence[str]) -> str:
        found = [is_kept(each, of, text) for each, text in zip(meant, said, strict=True)]
        return f"{100 * sum(found) / len(found):.1f} %"

    ratio = sum(map(len, map(scored, transcripts))) / sum(len("".join(each)) for each in meant)
    cells = [share(0, transcripts), share(-1, transcripts), share(0, shifted)]
    return [f"{len(transcripts)}", *cells, f"{ratio:.2f}"]


def is_kept(words: Sequence[str], number: int, transcript: str) -> bool:
    """Return whether half of the letters of the first (0) or last (-1) of `words` are heard."""
    text, size = "".join(words), len(words[number])
    start = 0 if number == 0 else len(text) - size
    heard = sum(start <= place < start + size for place, _ in matches(text, scored(transcript)))
    return 2 * heard >= size


def length(segments: Sequence[Segment]) -> int:
    return sum(len(each.codes) for each in segments)


def measured(
    groups: Sequence[Sequence[tuple[Segment, ...]]], expected: Sequence[float], rate: int
) -> list[str]:
    """Return the cells of a row.

    Args:
        expected: codes of each text.
        rate: codes of a second.
    """
    every = [(each, codes) for group, codes in zip(groups, expected, strict=True) for each in group]
    ratios = sorted(length(each) / codes for each, codes in every)
    shares = [
        sum(ratio < TOO_SHORT for ratio in ratios),
        sum(ratio > TOO_LONG for ratio in ratios),
        sum(not all(segment.has_stopped for segment in each) for each, _ in every),
        sum(has_loops(each, rate) for each, _ in every),
    ]
    edges = [ratios[round(share * (len(ratios) - 1))] for share in (0.5, 0.1, 0.9)]
    spread = f"{edges[1]:.2f} to {edges[2]:.2f}"
    return [f"{len(every)}", f"{edges[0]:.2f}", spread, *(f"{100 * n / len(every):.1f} %" for n in shares)]


if __name__ == "__main__":
    run(main)
