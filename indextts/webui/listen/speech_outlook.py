"""Facts of a speech job before it starts: texts, checkpoints, voice, device and time. No Gradio here."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from indextts.commands.base import Command
from indextts.commands.speech import Synthesize
from indextts.projects.jobs.records import Job, list_jobs
from indextts.projects.project import Project
from indextts.webui.devices import device_shown
from indextts.webui.language import t
from indextts.webui.listen.saved_models import find_model
from indextts.webui.run_progress import duration

NUM_JOBS = 8  # earlier jobs that an estimate counts
STAGES = ("listen", "compare")
TEXT_FLAG = "--text="
CPU = "listen.cpu"
CPU_WHILE_TRAINING = "listen.cpu_while_training"
ABOUT = "listen.about"


def speech_facts(workspace: Path, project: Project, commands: Sequence[Command]) -> list[tuple[str, str]]:
    """Return the facts of the planned commands."""
    planned = [command for command in commands if isinstance(command, Synthesize)]
    first = planned[0]
    characters = sum(map(len, first.text))
    titles = [find_model(project, command.checkpoint.name).title for command in planned]
    facts = [(t("listen.texts"), f"{len(first.text):,}"), (t("listen.characters"), f"{characters:,}")]
    both = [t("listen.headers.checkpoint_a"), t("listen.headers.checkpoint_b")]
    facts += zip(both if len(titles) > 1 else [t("listen.checkpoint")], titles, strict=True)
    facts.append((t("listen.voice"), Path(first.voice).stem))
    if first.emotion_voice is not None:
        facts.append((t("listen.emotion_of"), first.emotion_voice.stem))
    facts.append((t("listen.device"), device_shown(workspace, first.device)))
    seconds = expected_seconds(list_jobs(project), len(planned), characters)
    if seconds is not None:
        facts.append((t("listen.time"), t(ABOUT, time=duration(seconds))))
    return facts


def expected_seconds(jobs: Iterable[Job], num_models: int, characters: int) -> float | None:
    """Return the expected seconds of a speech job, from a line fitted to earlier jobs; None without those.

    Args:
        jobs: newest first; those of other stages do not count.
    """
    alike = [job for job in jobs if job.stage in STAGES and len(job.argvs) == num_models]
    ended = [(_characters(job), job.seconds(job.ended)) for job in alike if job.ended and not job.exit_status]
    known = ended[:NUM_JOBS]
    if not known:
        return None
    lengths, times = [length for length, _ in known], [seconds for _, seconds in known]
    if len(set(lengths)) > 1:
        slope, start = statistics.linear_regression(lengths, times)
        if slope > 0 and start + slope * characters > 0:
            return start + slope * characters
    is_alike = min(lengths) / 2 <= characters <= 2 * max(lengths)
    return statistics.median(times) if is_alike else None


def _characters(job: Job) -> int:
    words = job.argvs[0] if job.argvs else ()
    return sum(len(word) - len(TEXT_FLAG) for word in words if word.startswith(TEXT_FLAG))
