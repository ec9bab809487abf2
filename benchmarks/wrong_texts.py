"""Wrong texts that the check finds without a recognizer: planted faults, and right texts that are flagged.

The sounds are measured once; the check of another case reads the stored measures.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, publish, table
from indextts.commands.data import CheckData
from indextts.commands.terminal import parse, run
from indextts.data.check import check
from indextts.data.manifest import Utterance, read_utterances, write_utterances

OF_TEXTS = {"too_slow", "too_fast", "wrong_text", "odd_length", "misplaced_text"}
ONLY_WARNED = {"slow", "fast"}
SHOWN = 260  # characters of a problem


class WrongTexts(Benchmark):
    """Plant wrong texts and count what the check says about them."""

    program: ClassVar[str] = "benchmarks.wrong_texts"
    human: Path = Field(description="Folder with metadata.tsv and wrong_texts.tsv of one person.")
    folder: Path = Field(Path("benchmarks/runs/wrong_texts"), description="Folder of the checked manifests.")


@dataclass(frozen=True)
class Case:
    """Clips with planted faults; `wrong` are the places of the wrong texts."""

    name: str
    clips: Sequence[Utterance]
    wrong: Sequence[int]


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(WrongTexts, argv)
    right, published = (human_clips(command.human, name) for name in ("metadata.tsv", "wrong_texts.tsv"))
    demo = read_utterances(REPOSITORY / "demo/manifest.jsonl")
    is_wrong = [place for place, clip in enumerate(right) if clip.text != published[place].text]
    human = [*planted("a man", right), Case("a man, the publisher's texts", published, is_wrong)]
    rows, said = [], []
    for case in [*human, *planted("demo", demo)]:
        row, problems = measured(case, command.folder / case.name.partition(",")[0].replace(" ", "_"))
        rows.append(row)
        said += [f"* {case.name}", *(f"    * {line[:SHOWN]}" for line in problems or ["No problems"])]
    header = ["texts", "wrong", "of them rejected", "or warned of", "right ones rejected", "or warned of"]
    shown = ["Shares of clips that are flagged for their text or its length.", "", *table(header, rows)]
    publish(
        command, "Wrong texts, found without a recognizer", [*shown, "", "## What the check says", "", *said]
    )
    return 0


def human_clips(folder: Path, name: str) -> list[Utterance]:
    """Return the clips of metadata.tsv with the texts of the file `name`."""

    def lines(name: str) -> list[dict[str, str]]:
        text = (folder / name).read_text(encoding="utf-8").splitlines()
        return list(csv.DictReader(text, delimiter="\t", quoting=csv.QUOTE_NONE))

    texts = {line["file"]: line["text"] for line in lines(name)}
    duration_s = {line["file"]: float(line["seconds"]) for line in lines("metadata.tsv")}
    return [Utterance(Path(f).stem, folder / f, texts[f], "man", s) for f, s in duration_s.items()]


def planted(name: str, clips: Sequence[Utterance]) -> list[Case]:
    """Return the right texts and the faults."""
    chance, num = np.random.default_rng(0), len(clips)
    texts = [clip.text for clip in clips]
    tenth = sorted(chance.choice(num, num // 10, replace=False).tolist())
    halves = {place: texts[place][: len(texts[place]) // 2] for place in range(num)}
    middle, file = range(num // 2, num), range(num // 4, num // 4 + num // 8)
    faults: dict[str, dict[int, str]] = {
        "right": {},
        "shifted by a row from the middle on": {place: texts[place - 1] for place in middle},
        "shuffled": dict(enumerate(chance.permutation(texts).tolist())),
        "one file of eight with the texts of another": {p: texts[p + len(file)] for p in file},
        "10 % of the rows exchanged": dict(
            zip(tenth, [texts[place] for place in np.roll(tenth, 1)], strict=True)
        ),
        "10 % of the texts cut in half": {place: halves[place] for place in tenth},
        "all texts cut in half": halves,
    }
    return [
        Case(
            f"{name}, {fault}",
            [replace(clip, text=new.get(place, clip.text)) for place, clip in enumerate(clips)],
            [place for place, text in new.items() if text != texts[place]],
        )
        for fault, new in faults.items()
    ]


def measured(case: Case, folder: Path) -> tuple[list[str], list[str]]:
    """Return the row of a case, and the problems of its check."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "manifest.jsonl"
    write_utterances(manifest, case.clips)
    [report] = check(CheckData(train_manifest=manifest, report_dir=folder / "check", quality="fast"))
    lines = (folder / "check/clips.jsonl").read_text(encoding="utf-8").splitlines()
    reasons: list[set[Any]] = [{flag["reason"] for flag in json.loads(line)["flags"]} for line in lines]
    right = sorted(set(range(len(lines))) - set(case.wrong))
    cells = [case.name, f"{len(case.wrong)}"]
    for places in (case.wrong, right):
        for wanted in (OF_TEXTS, OF_TEXTS | ONLY_WARNED):
            found = sum(bool(reasons[place] & wanted) for place in places)
            cells.append(f"{100 * found / len(places):.1f} %" if places else "")
    return cells, report.problems


if __name__ == "__main__":
    run(main)
