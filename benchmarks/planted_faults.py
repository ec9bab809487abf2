"""Faults that the check finds, and clean clips that it rejects: kinds of faults planted among clean clips.

    python -m benchmarks.planted_faults [--recordings FOLDER] [--before COMMIT] [--voices FILE] [--asr FOLDER]

1. A set of 400 clean clips (planted_clips.py) and 8 clips of each kind of fault (fault_kinds.py) is written.
2. With --before, the check of an earlier commit reads the set. The check of this tree reads it once for each
   layer, and keeps the results of the layers before: the signal, DNSMOS, with --voices the speakers' voices,
   with --asr the texts. --voices is the encoder of tests/ge2e.py, in place of CAM++;
   tests/espeak_recognizer.py trains a recognizer.
3. benchmarks/results/planted_faults.md contains what each found: rejected, only a warning that describes the
   fault, or missed; the clean clips that were rejected; and time and memory of each layer.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import soundfile
from pydantic import Field

from benchmarks.fault_kinds import KINDS, Bench, Kind
from benchmarks.frame import REPOSITORY, Benchmark, peak_bytes, publish, table
from benchmarks.planted_clips import Clip, Studio, read_recordings
from indextts.commands.terminal import parse, run
from indextts.data.manifest import Utterance, read_utterances, write_utterances
from indextts.data.quality.clips import measure_clips
from indextts.data.quality.files import CLIPS_NAME, read_known
from indextts.data.quality.voices import hear_voices
from indextts.errors import UserError
from indextts.system.json_lines import read_json_lines

CLEAN = "clean"


class PlantedFaults(Benchmark):
    """Count the planted faults that the check finds, and the clean clips that it rejects."""

    program: ClassVar[str] = "benchmarks.planted_faults"
    clean: int = Field(400, ge=1, description="Number of clean clips.")
    per_kind: int = Field(8, ge=1, description="Clips of each kind of fault.")
    seed: int = Field(13, description="Seed of all random choices.")
    recordings: Path | None = Field(
        None, description="Folder with metadata.csv whose recordings are up to half of the clean clips."
    )
    before: str = Field("", description="Earlier commit whose check is measured too.")
    kinds: list[str] = Field(
        [], description="Only the kinds whose names contain one of these; empty for all."
    )
    voices: Path | None = Field(
        None, description="Weights of the voice encoder of tests/ge2e.py, which compares the voices."
    )
    asr: str = Field("", description="Recognizer that compares texts with the speech.")
    folder: Path | None = Field(None, description="Folder for the set, which is kept.")


@dataclass(frozen=True)
class Found:
    """Result of a check for the clips of a kind."""

    num_rejected: int
    num_warned: int  # only with a warning that describes the fault
    reasons: Counter[str]

    @property
    def text(self) -> str:
        return f"{self.num_rejected} + {self.num_warned}" if self.num_warned else str(self.num_rejected)


@dataclass(frozen=True)
class Check:
    """Check of a tree or layer: what it found by the name of the kind, and what it cost.

    Args:
        cpu_s: processor time of the program, and of the encoder of the voices.
        peak_bytes: largest resident memory of a process of the program.
    """

    found: Mapping[str, Found]
    cpu_s: float
    peak_bytes: int


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(PlantedFaults, argv)
    with tempfile.TemporaryDirectory() as name:
        folder = command.folder or Path(name)
        manifest = write_set(command, folder)
        checks: dict[str, Check] = {}
        if command.before:
            with worktree(command.before, Path(name)) as tree:
                checks[f"before ({command.before})"] = run_check(tree, manifest, folder / "check-before")
        after = folder / "check-after"
        flags: list[str] = []
        checks["signal"] = run_check(REPOSITORY, manifest, after, ["--quality=fast"])
        checks["+ DNSMOS"] = run_check(REPOSITORY, manifest, after, flags)
        if (weights := command.voices) is not None:
            cpu_s, peak = store_voices_apart(manifest, after, weights)
            flags.append(f"--voice-encoder={weights.resolve()}")
            check = run_check(REPOSITORY, manifest, after, flags)
            checks["+ voices"] = replace(
                check, cpu_s=check.cpu_s + cpu_s, peak_bytes=max(check.peak_bytes, peak)
            )
        if command.asr:
            flags.append(f"--asr={Path(command.asr).resolve()}")
            checks["+ recognizer"] = run_check(REPOSITORY, manifest, after, flags)
        durations = [utterance.duration_s for utterance in read_utterances(manifest)]
    publish(command, "Planted faults", [*report(command, checks), *costs(checks, durations)])
    return 0


def chosen(command: PlantedFaults) -> list[Kind]:
    """Return the kinds of faults of `--kinds`."""
    return [k for k in KINDS if not command.kinds or any(part in k.name for part in command.kinds)]


def write_set(command: PlantedFaults, folder: Path) -> Path:
    """Write the clips and their manifest; the id of each begins with the name of its kind."""
    folder.mkdir(parents=True, exist_ok=True)
    studio = Studio(command.seed, folder)
    clean: list[Clip] = []
    if command.recordings is not None:
        clean += read_recordings(command.recordings, command.clean // 2)
    clean += [studio.clip() for _ in range(command.clean - len(clean))]
    named = [(CLEAN, clip) for clip in clean]
    bench = Bench(studio, clean)
    named += [
        (kind.name, kind.plant(studio.clip(), bench))
        for kind in chosen(command)
        for _ in range(command.per_kind)
    ]
    utterances = []
    for number, (kind, clip) in enumerate(named):
        clip = replace(clip, id=f"{kind}/{number}")
        path = folder / "audio" / f"{number:05d}.wav"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, clip.samples, clip.rate_hz)
        duration_s = len(clip.samples) / clip.rate_hz
        utterances.append(Utterance(clip.id, path.resolve(), clip.text, clip.speaker, duration_s))
    write_utterances(folder / "manifest.jsonl", utterances)
    return folder / "manifest.jsonl"


@contextmanager
def worktree(commit: str, folder: Path) -> Iterator[Path]:
    """Yield a checkout of an earlier commit of this repository."""
    tree = folder / "tree"
    git = ["git", "-C", str(REPOSITORY), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
    try:
        yield tree
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def store_voices_apart(manifest: Path, report_dir: Path, weights: Path) -> tuple[float, int]:
    """Run `store_voices` in a new process; return its processor time in s and its peak memory in bytes."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(store_voices, manifest, report_dir, weights).result()


def store_voices(manifest: Path, report_dir: Path, weights: Path) -> tuple[float, int]:
    """Store the vectors of another encoder where the check finds them, so that it does not load CAM++.

    Returns:
        Processor time of this process in s, and its peak memory in bytes.
    """
    from tests.ge2e import GE2E  # imported here because it imports torch

    utterances = list(read_utterances(manifest))
    clips = measure_clips(utterances, read_known(report_dir), num_workers=1)
    hear_voices(utterances, clips, weights, report_dir, GE2E)
    return time.process_time(), peak_bytes()


def run_check(tree: Path, manifest: Path, report_dir: Path, flags: Sequence[str] = ()) -> Check:
    """Return what the check of a tree finds, and what it costs."""
    program = [sys.executable, "check_amharic_data.py", "--train-manifest", str(manifest)]
    process = subprocess.Popen([*program, "--report-dir", str(report_dir), *flags], cwd=tree)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1: the set has problems, as intended
        raise UserError(f"{tree}: the check ended with status {process.returncode}")
    flags_of: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for _, record in read_json_lines(report_dir / CLIPS_NAME):
        flags_of[str(record["id"]).rpartition("/")[0]].append(record)
    found = {kind.name: found_of(flags_of[kind.name], kind.reasons) for kind in KINDS if flags_of[kind.name]}
    found = {CLEAN: found_of(flags_of[CLEAN], None), **found}
    return Check(found, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def found_of(records: Sequence[Mapping[str, Any]], reasons: Sequence[str] | None) -> Found:
    """Return the counts of a kind; every warning counts if `reasons` is None."""
    names = [[flag["reason"] for flag in record["flags"]] for record in records]
    rejected = [record["verdict"] == "rejected" for record in records]
    warned = [
        any(reasons is None or name in reasons for name in found) and not is_rejected
        for found, is_rejected in zip(names, rejected, strict=True)
    ]
    return Found(sum(rejected), sum(warned), Counter(name for found in names for name in found))


def report(command: PlantedFaults, checks: Mapping[str, Check]) -> list[str]:
    """Return the tables: each kind with the result of each check, and the clean clips."""
    kinds = chosen(command)
    total = command.per_kind * len(kinds)
    lines = [
        f"{command.clean} clean clips, {total} clips with {len(kinds)} kinds of faults. A cell is the number "
        f"of {command.per_kind} clips that are rejected, + those that only have a warning that describes the "
        "fault and sorts them into the review. Each layer of the check is added to those on its left; the "
        "last columns are those of the complete check.",
        "",
    ]
    *_, complete = checks.values()
    rows = [
        [
            kind.name,
            *(check.found[kind.name].text for check in checks.values()),
            str(complete.found[kind.name].num_rejected),
            str(complete.found[kind.name].num_warned),
            common(complete.found[kind.name].reasons),
        ]
        for kind in kinds
    ]
    all_found = [check.found for check in checks.values()]
    sums = [sum(f[k.name].num_rejected + f[k.name].num_warned for k in kinds) for f in all_found]
    rows.append(["**found of all**", *(f"**{number} of {total}**" for number in sums), "", "", ""])
    for title, of in (("clean clips rejected", "num_rejected"), ("clean clips with warnings", "num_warned")):
        counts = [getattr(found[CLEAN], of) for found in all_found]
        cells = [f"{count} of {command.clean} ({100 * count / command.clean:.1f} %)" for count in counts]
        rows.append([title, *cells, "", "", ""])
    return lines + table(["fault", *checks, "rejected", "only warned", "reasons"], rows)


def costs(checks: Mapping[str, Check], durations: Sequence[float]) -> list[str]:
    """Return the table of the time and memory of each check, for clips of these durations in s."""
    layers = [check for name, check in checks.items() if not name.startswith("before")]
    together = Check({}, sum(c.cpu_s for c in layers), max(c.peak_bytes for c in layers))
    rows = [
        [name, f"{c.cpu_s:.0f}", f"{sum(durations) / c.cpu_s:.0f}", f"{c.peak_bytes / 2**20:.0f}"]
        for name, c in {**checks, "all layers": together}.items()
    ]
    header = ["check", "processor time (s)", "hours of audio per core hour", "peak memory of a process (MB)"]
    about = (
        f"Cost for {len(durations):,} clips ({sum(durations) / 3600:.2f} hours of audio), without stored "
        "results of the layer. The time of a layer is that of this layer and of the start."
    )
    return ["", about, "", *table(header, rows)]


def common(reasons: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in reasons.most_common(4))


if __name__ == "__main__":
    run(main)
