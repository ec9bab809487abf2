"""Transcribe recordings whose texts are known, and kill the transcription at random moments.

    python -m benchmarks.transcription --texts FILE --asr FOLDER --asr FOLDER --minutes 60 --kills 20

espeak-ng speaks sentences of FILE in several voices, with pauses (raw_speech.py). tools/transcribe.py cuts
them and two recognizers transcribe the clips. tests/espeak_recognizer.py trains recognizers; those of
different voices and words share fewer mistakes. The report says

- the character error rate of each recognizer, and how many of its wrong letters the other has wrong too;
- precision: the share of the letters of kept transcripts that are what was said, homophones merged; and the
  share of kept transcripts without any wrong letter;
- yield: the share of the speech that is kept;
- beside it, the first recognizer alone: on all clips, and on as many of those it is most sure of.

Then the same command is killed with SIGKILL at random moments and started again until it ends, in a new
folder each time, until there were enough kills. The result has to be equal to that of a run without a kill,
with each clip transcribed once. Exits with status 1 if it is not.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar

from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, Took, publish, table
from benchmarks.raw_speech import VOICES, RawRecording, make_recordings, usable_sentences
from indextts.commands.data import Transcribe
from indextts.commands.terminal import parse, run, to_argv
from indextts.data.manifest import Utterance, read_utterances
from indextts.data.transcribing.agreement import AgreementReport
from indextts.system.amounts import counted
from indextts.text.ethiopic import text_key
from indextts.text.transcripts import edit_distance, letters_kept, scored

TIMEOUT_S = 3600.0
KILLED_WITHIN = 0.25  # of the time of a transcription without a kill: it takes some starts
MAX_STARTS = 200  # of a transcription that is killed again and again
COMPARED = ("manifest.jsonl", "agreement.json")


class Transcription(Benchmark):
    """Measure precision and yield of a transcription, and kill it at random moments."""

    program: ClassVar[str] = "benchmarks.transcription"
    texts: Path = Field(REPOSITORY / "demo/sentences.txt", description="File with sentences to speak.")
    asr: list[Path] = Field(min_length=2, max_length=2, description="Folders of two recognizers.")
    minutes: float = Field(60, gt=0, description="Minutes of speech.")
    kills: int = Field(20, ge=0, description="Number of kills.")
    seed: int = Field(1, description="Random seed of sentences, pauses and moments.")
    folder: Path | None = Field(None, description="Working folder; a temporary one by default.")


@dataclass(frozen=True)
class Judged:
    """A clip with what was said in it: wrong letters of both readings, by their places in what was said."""

    utterance: Utterance
    said: str
    edits: int
    wrong: frozenset[int]
    other_edits: int
    other_wrong: frozenset[int]

    @property
    def is_kept(self) -> bool:
        return not self.utterance.is_doubtful


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Transcription, argv)
    folder = command.folder or Path(tempfile.mkdtemp(prefix="transcription_"))
    sentences = usable_sentences(command.texts, command.seed, writable_letters(command.asr))
    recordings = make_recordings(folder / "speech", sentences, command.minutes, command.seed)
    whole = folder / "whole"
    started, before_s = time.monotonic(), children_s()
    status = start(command, folder, whole).wait(TIMEOUT_S)
    took = Took(time.monotonic() - started, children_s() - before_s)
    if status:
        print(f"PROBLEM: exit status {status}, see {whole}.log")
        return 1
    report = AgreementReport.read(whole)
    assert report is not None
    judged = judge(read_utterances(whole / "manifest.jsonl"), recordings)
    kills, runs, problems = kill_runs(command, folder, whole, took.wall_s)
    lines = [
        *table(["", ""], facts(report, judged, took)),
        "",
        *table(
            ["transcripts", "share of the speech", "clips", "letters right", "clips without a wrong letter"],
            precisions(judged),
        ),
        "",
        "```",
        *str(report).splitlines()[2:],
        "```",
        "",
        *table(
            ["", ""],
            [
                ["kills", str(kills)],
                [
                    "transcriptions that ended equal to the one without a kill",
                    f"{runs - len(problems)} of {runs}",
                ],
                ["problems", str(len(problems))],
            ],
        ),
    ]
    publish(command, f"{command.minutes:g} minutes of speech, transcribed and killed {kills} times", lines)
    for problem in problems:
        print(f"PROBLEM: {problem}")
    return 1 if problems else 0


def writable_letters(recognizers: Sequence[Path]) -> set[str]:
    """Return the letters that all recognizers have, homophones merged."""
    vocabularies = [json.loads((path / "vocab.json").read_text("utf-8")) for path in recognizers]
    return set.intersection(*({text_key(token) for token in found} for found in vocabularies))


def start(command: Transcription, folder: Path, output: Path) -> subprocess.Popen[bytes]:
    """Start the transcription as a process of its own."""
    transcribe = Transcribe(
        source=[folder / "speech"], asr=[str(path) for path in command.asr], output_dir=output, device="cpu"
    )
    argv = [sys.executable, str(REPOSITORY / Transcribe.program), *to_argv(transcribe)]
    with Path(f"{output}.log").open("ab") as log:
        return subprocess.Popen(
            argv,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
        )


def judge(utterances: Sequence[Utterance], recordings: Sequence[RawRecording]) -> list[Judged]:
    """Return the clips with what was said in them: the sentences whose middle is in the clip."""
    said_in = {recording.path.stem: recording.said for recording in recordings}
    judged = []
    for utterance in utterances:
        start_s = int(utterance.id.rpartition("_")[2]) / 1000
        end_s = start_s + utterance.duration_s
        inside = [s for s in said_in[utterance.speaker] if start_s < (s.start_s + s.end_s) / 2 < end_s]
        said = scored(" ".join(sentence.text for sentence in inside))
        assert utterance.provenance is not None
        heard, other = scored(utterance.text), scored(utterance.provenance.other)
        everything = frozenset(range(len(said)))
        judged.append(
            Judged(
                utterance,
                said,
                edit_distance(said, heard),
                everything - letters_kept(said, heard),
                edit_distance(said, other),
                everything - letters_kept(said, other),
            )
        )
    return judged


def children_s() -> float:
    """Return the processor time of the ended child processes."""
    times = os.times()
    return times.children_user + times.children_system


def facts(report: AgreementReport, judged: Sequence[Judged], took: Took) -> list[list[str]]:
    """Return what was measured about the recordings and the recognizers."""
    letters = sum(len(each.said) for each in judged)
    first, second = report.recognizers
    shared = sum(len(each.wrong & each.other_wrong) for each in judged)
    wrong = sum(len(each.wrong) for each in judged)
    other_wrong = sum(len(each.other_wrong) for each in judged)
    return [
        ["recordings", f"{len(VOICES)}, one voice each: {', '.join(name for name, _, _ in VOICES)}"],
        ["clips", f"{len(judged)}, {report.hours:.2f} hours, {letters:,} letters"],
        [f"character error rate of {first}", f"{100 * sum(e.edits for e in judged) / letters:.1f} %"],
        [f"character error rate of {second}", f"{100 * sum(e.other_edits for e in judged) / letters:.1f} %"],
        [
            f"wrong letters of {first} that {second} has wrong too",
            f"{100 * shared / max(1, wrong):.0f} %",
        ],
        [
            f"wrong letters of {second} that {first} has wrong too",
            f"{100 * shared / max(1, other_wrong):.0f} %",
        ],
        ["wrong letters of both that are shared", f"{200 * shared / max(1, wrong + other_wrong):.0f} %"],
        ["chosen limit of the disagreement", f"{100 * (report.limit or 0):.1f} % of the letters"],
        ["time without a kill", f"{took.wall_s:.0f} s, of the processor {took.cpu_s:.0f} s"],
    ]


def precisions(judged: Sequence[Judged]) -> list[list[str]]:
    """Return the rows of precision: what is kept, and the first recognizer alone."""
    kept = [each for each in judged if each.is_kept]
    kept_s = sum(each.utterance.duration_s for each in kept)
    sure, sure_s = [], 0.0
    for each in sorted(judged, key=lambda each: -(_score(each) or 0.0)):
        if sure_s < kept_s:
            sure.append(each)
            sure_s += each.utterance.duration_s
    rows = (
        ("kept: both agree", kept),
        ("the first alone, as much of what it is most sure of", sure),
        ("the first alone, everything", judged),
    )
    total_s = sum(each.utterance.duration_s for each in judged)
    return [[name, *_precision(chosen, total_s)] for name, chosen in rows]


def _score(judged: Judged) -> float | None:
    return judged.utterance.provenance.score if judged.utterance.provenance is not None else None


def _precision(chosen: Sequence[Judged], total_s: float) -> list[str]:
    seconds = sum(each.utterance.duration_s for each in chosen)
    letters = max(1, sum(len(each.said) for each in chosen))
    right = 1 - sum(each.edits for each in chosen) / letters
    exact = sum(each.edits == 0 for each in chosen) / max(1, len(chosen))
    return [
        f"{100 * seconds / total_s:.0f} %",
        str(len(chosen)),
        f"{100 * right:.2f} %",
        f"{100 * exact:.1f} %",
    ]


def kill_runs(command: Transcription, folder: Path, whole: Path, took_s: float) -> tuple[int, int, list[str]]:
    """Return the number of kills and of transcriptions, and what is wrong with those."""
    chance, kills, runs = Random(command.seed), 0, 0
    latest_s = KILLED_WITHIN * took_s
    problems: list[str] = []
    while kills < command.kills and not problems:
        runs += 1
        output = folder / f"killed{runs}"
        for _ in range(MAX_STARTS):
            process = start(command, folder, output)
            try:
                status = process.wait(chance.uniform(0, latest_s) if kills < command.kills else TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
                continue
            problems += [f"exit status {status}, see {output}.log"] if status else differences(whole, output)
            break
        print(f"{kills} of {command.kills} kills, {counted(runs, 'transcription')}", flush=True)
    return kills, runs, problems


def differences(whole: Path, output: Path) -> list[str]:
    """Return how the result of a killed transcription differs from that of one without a kill."""
    problems = [
        f"{output / name} differs"
        for name in COMPARED
        if (output / name).read_bytes() != (whole / name).read_bytes()
    ]
    clips = [
        {path.name: path.read_bytes() for path in (place / "audio").iterdir()} for place in (whole, output)
    ]
    if clips[0] != clips[1]:
        problems.append(f"{output}: other clips, {len(clips[1])} in place of {len(clips[0])}")
    for path in sorted((whole / "measured").iterdir()):
        results = [_results(place / "measured" / path.name) for place in (whole, output)]
        if results[0] != results[1] or max(results[1].values(), default=1) > 1:
            problems.append(f"{output}/measured/{path.name}: results are missing, repeated or different")
    return problems


def _results(path: Path) -> Counter[str]:
    """Return how often each result is in a file; a line that a kill cut off is none."""
    found: Counter[str] = Counter()
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found[json.dumps(json.loads(line), sort_keys=True)] += 1
        except ValueError:
            continue
    return found


if __name__ == "__main__":
    run(main)
