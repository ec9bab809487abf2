"""One man's Amharic from recordings to a voice: every stage is a program of the project.

    python -m examples.human_amharic.run --recordings DIR --folder OUT [--minutes 30]

    OUT/
      metadata.tsv, project.yaml    the chosen recordings, and the settings of project.yaml with their path
      human_amharic/                the project: import, check, tokenizer, features, pairs, training, export
      dev.jsonl, evaluation/        the dev sentences, spoken by the last checkpoint
      programs.log                  output of the programs

DIR has metadata.tsv with the columns file, text, speaker, license, source, split and seconds; the split is
train or dev. Nothing is chosen by the dev sentences: the last checkpoint speaks, not the best. The same
command resumes: a stage that is done is skipped, and a training goes on from its last checkpoint.
"""

import csv
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import yaml
from pydantic import Field

from indextts.commands.app import RunPipeline
from indextts.commands.base import Command
from indextts.commands.speech import Evaluate
from indextts.commands.terminal import parse, run, to_argv
from indextts.data.manifest import read_utterances, write_utterances
from indextts.errors import UserError
from indextts.system.files import write_bytes

SETTINGS = Path(__file__).with_name("project.yaml")
REPOSITORY = SETTINGS.parents[2]
TABLE = "metadata.tsv"
LAST = "human_amharic/training_output/latest.pth"


class HumanAmharic(Command):
    """Train a voice on one man's recordings, and let it speak sentences that it has not seen."""

    program: ClassVar[str] = "examples.human_amharic.run"
    recordings: Path = Field(description="Folder with metadata.tsv and the recordings.")
    folder: Path = Field(description="Folder for everything that is made; the same folder resumes.")
    minutes: float = Field(0, ge=0, description="Minutes of recordings to train on; 0 takes all.")
    max_steps: int = Field(0, ge=0, description="Steps of the training; 0 takes those of project.yaml.")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(HumanAmharic, argv)
    folder = command.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    write_project(command, folder)
    log = folder / "programs.log"
    start(RunPipeline(workspace=folder, config=folder / SETTINGS.name, max_steps=command.max_steps), log)
    last, report = folder / LAST, folder / "evaluation/report.md"
    if not report.exists() or report.stat().st_mtime < last.stat().st_mtime:
        # all of them, also those that the check rejects for training
        utterances = read_utterances(folder / "human_amharic/dataset/manifest.jsonl")
        write_utterances(folder / "dev.jsonl", [each for each in utterances if each.split == "val"])
        evaluate = Evaluate(
            checkpoint=[last],
            manifest=folder / "dev.jsonl",
            output_dir=report.parent,
            num_clips=0,
            max_codes=500,  # 20 s, as long as the longest recording
            seeds=1,
            device="cpu",
        )
        start(evaluate, log)
    print(report.read_text("utf-8"))
    return 0


def read_table(recordings: Path) -> list[dict[str, str]]:
    """Return the rows of metadata.tsv, each with the path of its recording as file."""
    with (recordings / TABLE).open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [{**row, "file": str(recordings.resolve() / row["file"])} for row in rows]


def write_project(command: HumanAmharic, folder: Path) -> None:
    """Write the chosen rows and the project's settings; unchanged files stay, so that no stage repeats."""
    rows = read_table(command.recordings)
    chosen = [row for row in rows if row["split"] == "dev"]
    left_s = 60 * command.minutes or float("inf")
    for row in rows:
        if row["split"] == "train" and left_s > 0:
            chosen.append(row)
            left_s -= float(row["seconds"])
    lines = ["\t".join(values) for values in (rows[0], *(row.values() for row in chosen))]
    settings = yaml.safe_load(SETTINGS.read_text("utf-8"))
    settings["base"] = str((SETTINGS.parent / settings["base"]).resolve())
    settings["data"]["source"] = [str(folder / TABLE)]
    settings["export"]["checkpoint"] = str(folder / LAST)
    texts = {TABLE: "\n".join(lines) + "\n", SETTINGS.name: yaml.safe_dump(settings, sort_keys=False)}
    for name, text in texts.items():
        if not (folder / name).exists() or (folder / name).read_text("utf-8") != text:
            write_bytes(folder / name, text.encode())


def start(command: Command, log: Path) -> None:
    """Run a program of the project.

    Raises:
        UserError: it failed.
    """
    with log.open("a") as output:
        argv = [sys.executable, str(REPOSITORY / command.program), *to_argv(command)]
        status = subprocess.run(argv, cwd=REPOSITORY, stdout=output, stderr=output).returncode
    if status:
        raise UserError(f"{command.program} failed with status {status}, see {log}")


if __name__ == "__main__":
    run(main)
