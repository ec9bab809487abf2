"""Kill imports from the Hugging Face hub at random moments, and check that nothing is lost or repeated.

    python -m benchmarks.hub_kills --kills 30

A local server behaves like the hub and has an audiofolder of recordings of random lengths. Imports of it run
as processes of their own. Each is killed with SIGKILL at a random moment and started again with the same
command, until it ends; then the next one starts in a new folder, until all kills are done. The checks:

- After every kill, each line of an existing manifest has its recording.
- At the end, the manifest has every utterance once, with the published bytes as its recording.
- No partial file is left.
- The server has sent no byte more than about twice: a kill may lose what was on its way.

Exits with status 1 if there were problems: prints them and keeps their folders.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import ClassVar

import numpy as np
import soundfile
from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, publish, table, timed
from indextts.commands.data import ImportDataset
from indextts.commands.terminal import parse, run
from indextts.data.importing.hub import dataset_folder
from indextts.data.importing.hub_listing import LISTING_NAME
from indextts.system.amounts import counted, shown_size
from tests.hub_server import Hub, dataset, serve
from tests.waiting import wait_until

NAME = "almaz/voices"
TIMEOUT_S = 300.0
MAX_SENT = 2.2  # times the size of the data set
MAX_STARTS = 100  # of an import that is killed again and again


class HubKills(Benchmark):
    """Kill imports from the hub at random moments."""

    program: ClassVar[str] = "benchmarks.hub_kills"
    kills: int = Field(30, ge=1, description="Number of kills.")
    clips: int = Field(300, ge=2, description="Number of recordings in the data set.")
    seed: int = Field(1, description="Random seed of the moments and recordings.")
    folder: Path | None = Field(None, description="Working folder; a temporary one by default.")


@dataclass
class Tally:
    """Counts over all imports."""

    kills: int = 0
    imports: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    sent: list[float] = field(default_factory=list)  # of each import, in sizes of the data set
    problems: list[str] = field(default_factory=list)


@dataclass
class Moments:
    """Moments of kills in seconds after the start: one in five before the listing, the others after it."""

    chance: Random
    listing_s: float
    end_s: float = 0.0

    def draw(self) -> float:
        if self.chance.random() < 0.2:
            return self.chance.uniform(0, self.listing_s)
        return self.chance.uniform(self.listing_s, self.end_s)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(HubKills, argv)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="hub_kills_"))
    files = recordings(arguments.clips, Random(arguments.seed))
    with serve({}, {NAME: dataset(files)}) as hub:
        hub.page_size = 1000
        tally, took = timed(lambda: run_imports(hub, files, folder, arguments))
    size = sum(map(len, files.values()))
    lines = [*table(["", ""], rows(arguments, tally, size)), "", f"Duration: {took.wall_s / 60:.1f} min."]
    publish(arguments, f"Imports from the hub killed at {tally.kills} random moments", lines)
    for problem in tally.problems:
        print(f"PROBLEM: {problem}")
    if not tally.problems and arguments.folder is None:
        shutil.rmtree(folder)
    return 1 if tally.problems else 0


def recordings(num_clips: int, chance: Random) -> dict[str, bytes]:
    """Return an audiofolder of noise with lengths of 0.2 to 10 s."""
    rows = ["file_name,transcription,speaker_id"]
    files = {}
    for number in range(num_clips):
        noise = np.random.default_rng(chance.getrandbits(32)).normal(0, 0.1, chance.randint(4_800, 240_000))
        wav = io.BytesIO()
        soundfile.write(wav, noise, 24_000, format="WAV")
        files[f"train/{number % 7}/{number}.wav"] = wav.getvalue()
        rows.append(f"{number % 7}/{number}.wav,ሰላም {number},speaker{number % 3}")
    table = {"train/metadata.csv": "\n".join(rows).encode(), "README.md": b"---\nlicense: cc0-1.0\n---\n"}
    return files | table


def run_imports(hub: Hub, files: dict[str, bytes], folder: Path, arguments: HubKills) -> Tally:
    """Import once without a kill, then kill imports until there were enough kills."""
    chance, tally = Random(arguments.seed), Tally()
    started = time.monotonic()
    process = start(hub, folder / "reference")
    wait_until(listing(folder / "reference").is_file, process=process)
    moments = Moments(chance, time.monotonic() - started)
    process.wait(TIMEOUT_S)
    moments.end_s = time.monotonic() - started
    tally.problems += problems_of(folder / "reference", files)
    print(f"uninterrupted: {moments.end_s:.1f} s, listing after {moments.listing_s:.1f} s", flush=True)
    while tally.kills < arguments.kills and not tally.problems:
        tally.imports += 1
        project = folder / f"import{tally.imports}"
        hub.num_sent.clear()
        kill_until_done(hub, project, arguments.kills - tally.kills, moments, tally)
        tally.sent.append(hub.num_sent.total() / sum(map(len, files.values())))
        if tally.sent[-1] > MAX_SENT:
            tally.problems.append(f"{project}: {tally.sent[-1]:.2f} times the data set was downloaded")
        tally.problems += problems_of(project, files)
        print(f"{tally.kills} of {arguments.kills} kills, {counted(tally.imports, 'import')}", flush=True)
        if not tally.problems:
            shutil.rmtree(project)
    return tally


def kill_until_done(hub: Hub, project: Path, max_kills: int, moments: Moments, tally: Tally) -> None:
    """Start an import and kill it at random moments until it ends by itself."""
    kills = 0
    for _ in range(MAX_STARTS):
        process = start(hub, project)
        try:
            status = process.wait(moments.draw() if kills < max_kills else TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            tally.kills += 1
            tally.phases[phase_of(project)] += 1
            tally.problems += broken_lines(project)
            continue
        if status:
            tally.problems.append(f"{project}: exit status {status}, see {project}.log")
        return


def start(hub: Hub, project: Path) -> subprocess.Popen[bytes]:
    """Start the import as a process with an environment of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    env = {**kept, "HF_ENDPOINT": hub.url, "HF_HOME": f"{project}.hf", "NO_PROXY": "127.0.0.1,localhost"}
    argv = [sys.executable, str(REPOSITORY / ImportDataset.program), f"--hub={NAME}"]
    with Path(f"{project}.log").open("ab") as log:
        return subprocess.Popen(
            [*argv, f"--output-dir={project / 'dataset'}"],
            env={**env, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
        )


def listing(project: Path) -> Path:
    return dataset_folder(project / "dataset", NAME, "") / LISTING_NAME


def phase_of(project: Path) -> str:
    """Return what a killed import was doing."""
    if (project / "dataset/manifest.jsonl").is_file():
        return "after the manifest was written"
    if (project / "dataset/imported.jsonl").is_file():
        return "while recordings were imported"
    if not listing(project).is_file():
        return "before the listing"
    is_complete = json.loads(listing(project).read_bytes())["is_complete"]
    return "between download and import" if is_complete else "while files were downloaded"


def broken_lines(project: Path) -> list[str]:
    """Return the utterances of a manifest without their recording."""
    manifest = project / "dataset/manifest.jsonl"
    if not manifest.is_file():
        return []
    lines = map(json.loads, manifest.read_text(encoding="utf-8").splitlines())
    return [f"{manifest}: {line['id']}" for line in lines if not (manifest.parent / line["audio"]).is_file()]


def problems_of(project: Path, files: dict[str, bytes]) -> list[str]:
    """Return what is wrong with a finished import."""
    manifest = project / "dataset/manifest.jsonl"
    if not manifest.is_file():
        return [f"{manifest} is missing, see {project}.log"]
    lines = [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines()]
    published = {f"ሰላም {Path(name).stem}": content for name, content in files.items() if "wav" in name}
    found = Counter(line["text"] for line in lines)
    problems = [f"{project}: {text} is there {found[text]} times" for text in published if found[text] != 1]
    problems += [
        f"{project}: {line['id']} has other bytes"
        for line in lines
        if (manifest.parent / line["audio"]).read_bytes() != published.get(line["text"])
    ]
    return problems + [f"{path} is left" for path in project.rglob(".tmp-*")]


def rows(arguments: HubKills, tally: Tally, size: int) -> list[list[str]]:
    """Return the counts as rows of a table."""
    phases = ", ".join(f"{count} {phase}" for phase, count in tally.phases.most_common()) or "none"
    return [
        ["data set", f"{counted(arguments.clips, 'recording')}, {shown_size(size)}"],
        ["kills", str(tally.kills)],
        ["- by phase", phases],
        [
            "imports that ended with every utterance once",
            f"{tally.imports - len(tally.problems)} of {tally.imports}",
        ],
        ["bytes sent, in sizes of the data set, largest", f"{max(tally.sent, default=0):.2f}"],
        ["problems", str(len(tally.problems))],
    ]


if __name__ == "__main__":
    run(main)
