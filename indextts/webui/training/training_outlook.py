"""Outlook of a training start: estimate, blocking problems, restore plan and checkpoints. No Gradio here.

The restore plan comes from the meta file, or from the trainer if it depends on the weights.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path

from indextts.commands.base import Command
from indextts.commands.terminal import to_argv
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.planning.estimate import Estimate
from indextts.planning.hardware import MachineFacts
from indextts.planning.plan_from_meta import describe_restore
from indextts.planning.preflight import Preflight, Problem
from indextts.planning.presets import Preset
from indextts.planning.proposal import Proposal
from indextts.planning.resume_table import ResumeRow, resume_rows
from indextts.projects.project import REPOSITORY, Project
from indextts.runs.owner import is_training
from indextts.system.amounts import shown_gib, shown_size
from indextts.webui.language import field_title, t, text_of
from indextts.webui.monitor.progress import duration
from indextts.webui.view_versions import files_version

HEADERS = [
    "training.headers.checkpoint",
    "training.headers.step",
    "training.headers.epoch",
    "training.headers.saved",
    "training.headers.validation_mel_loss",
    "training.headers.complete",
    "training.headers.tokenizer_fits",
]

STEPS = "training.steps"
STEPS_SAMPLED = "training.steps_sampled"
SHARED_STEP = "training.processes_share_a_step"
STEPS_LEFT = "training.steps_left"
TIME = "training.time"
TIME_UNKNOWN = "training.time_unknown"
TIME_NONE = "training.time_none"
DISK = "training.disk"
DISK_COUNTED = "training.disk_counted"
GPU_MEMORY = "training.gpu_memory"
GPU_MEMORY_SCALED = "training.gpu_memory_scaled"
EACH_GPU = "training.each_gpu"
EACH_HOST = "training.each_host"
HOST_MEMORY = "training.host_memory"
MEMORY_EXCEEDED = "training.memory_exceeded"
LEFT_OUT = "training.left_out"

NEW_RUN = "training.new_run"
PLAN_NEEDS_WEIGHTS = "training.plan_needs_weights"
WARMUP_TOO_LONG = "training.warmup_too_long"
BLOCKED = "training.blocked"
READY = "training.ready"
FROM_PRESET = "training.from_preset"
PROPOSED = "training.proposed"
NO_GPU = "training.no_gpu"
WITH_GPU = "training.with_gpu"
CHECKPOINT_GONE = "training.checkpoint_gone"


def preflight_version(project: Project) -> str:
    """Return a version that changes with the input files and with the end of a trainer."""
    files = (
        project.run_dir,
        project.pairs("train"),
        project.pairs("val"),
        project.tokenizer,
        project.config,
        project.base_checkpoint,
    )
    return f"{files_version(*files)} {is_training(project.run_dir)}"


def plan_of(command: Train, preflight: Preflight) -> str:
    """Return the restore plan as far as the meta file tells; "" if a problem blocks the start."""
    if preflight.resumed is not None:
        return str(preflight.resumed)
    if any(problem.about == "resume" for problem in preflight.problems):
        return ""
    if command.resume:
        return t(PLAN_NEEDS_WEIGHTS)
    if preflight.estimate is None:
        return ""
    total = preflight.estimate.total_steps
    text = t(NEW_RUN, path=command.base_checkpoint, steps=f"{total:,}")
    if command.warmup_steps <= total:
        return text
    return f"{text}\n{t(WARMUP_TOO_LONG, warmup=f'{command.warmup_steps:,}', steps=f'{total:,}')}"


def problems_html(problems: Sequence[Problem]) -> str:
    """Return the problems that block a start as a list, or that it is ready."""
    if not problems:
        return f'<p class="ready">✓ {escape(t(READY))}</p>'
    items = "".join(f"<li>{escape(text_of(problem.message))}</li>" for problem in problems)
    return f'<div class="blocked" role="alert"><p>{escape(t(BLOCKED))}</p><ul>{items}</ul></div>'


def estimate_html(found: Estimate | None) -> str:
    """Return the estimate of a training run as a list; "" if it is unknown."""
    if found is None:
        return ""
    rows = [
        (t("training.rows.steps"), [_steps(found)]),
        (t("training.rows.time"), [_time(found)]),
        (t("training.rows.disk"), [_disk(found)]),
        (t("training.rows.memory"), [_memory(found), *([] if found.fits_memory else [t(MEMORY_EXCEEDED)])]),
    ]
    if found.automatic:
        rows.append((t("training.rows.automatic"), automatic_lines(found.automatic)))
    if found.num_processes > 1:
        together = {"count": found.num_processes, "micro_steps": found.command.grad_accumulation}
        rows[0][1].append(t(SHARED_STEP, **together))
    if found.pairs.num_left_out:
        rows[0][1].append(t(LEFT_OUT, count=found.pairs.num_left_out))
    cells = "".join(
        f"<dt>{escape(name)}</dt><dd>{'<br>'.join(map(escape, lines))}</dd>" for name, lines in rows
    )
    return f'<dl class="estimate">{cells}</dl>'


def preset_html(preset: Preset) -> str:
    """Return the source of a preset."""
    return f"<p>{escape(t(FROM_PRESET, label=t(preset.label), source=text_of(preset.source)))}</p>"


def proposal_html(proposal: Proposal, machine: MachineFacts) -> str:
    """Return the reasons of a proposal."""
    gpu = machine.gpu
    if gpu is None:
        whose = t(NO_GPU, cores=machine.num_cores)
    else:
        whose = t(WITH_GPU, gpu=gpu.name, there=shown_gib(gpu.memory_bytes), cores=machine.num_cores)
    items = "".join(f"<li>{escape(line)}</li>" for line in automatic_lines(proposal))
    return f"<p>{escape(t(PROPOSED, machine=whose))}</p><ul>{items}</ul>"


def automatic_lines(proposal: Proposal) -> list[str]:
    """Return the automatic settings with their reasons, a line for each reason."""
    return [
        f"{', '.join(_setting(name, proposal.fields[name]) for name in names)}: {text_of(reason)}"
        for names, reason in proposal.by_reason()
    ]


def _setting(name: str, value: object) -> str:
    shown = t(("forms.off", "forms.on")[value]) if isinstance(value, bool) else f"{value:,}"
    return f"{field_title(Train, name)} {shown}"


def checkpoint_rows(command: Train) -> list[list[str]]:
    """Return the rows of the table of checkpoints."""
    return [_row(row) for row in resume_rows(command)]


def checkpoint_of_row(command: Train, name: str) -> Path:
    """Return the checkpoint of a table row.

    Args:
        name: the first column, as the page sent it.

    Raises:
        UserError: the row no longer exists.
    """
    for row in resume_rows(command):
        if _names(row) == name:
            return row.path
    raise UserError(t(CHECKPOINT_GONE, name=name))


def _row(row: ResumeRow) -> list[str]:
    return [
        _names(row),
        "" if row.step is None else f"{row.step:,}",
        "" if row.epoch is None else str(row.epoch),
        time.strftime("%Y-%m-%d %H:%M", time.localtime(row.saved)),
        "" if row.mel_loss is None else f"{row.mel_loss:.4f}",
        text_of(row.validity),
        text_of(row.why),
    ]


def _names(row: ResumeRow) -> str:
    others = [name.removesuffix(".pth") for name in row.names if name != row.path.name]
    return f"{row.path.name} ({', '.join(others)})" if others else row.path.name


def _steps(found: Estimate) -> str:
    values = {
        "steps": f"{found.total_steps:,}",
        "epoch": f"{found.steps_per_epoch:,}",
        "pairs": f"{found.pairs.size.num_samples:,}",
        "samples": f"{found.samples_per_step:.0f}",
        "positions": f"{found.positions_per_step:,.0f}",
    }
    line = t(STEPS_SAMPLED if found.pairs.is_sampled else STEPS, **values)
    if not found.first_step:
        return line
    numbers = {"left": found.steps_left, "first": found.first_step + 1, "last": found.total_steps}
    return f"{line}; {t(STEPS_LEFT, **{name: f'{n:,}' for name, n in numbers.items()})}"


def _time(found: Estimate) -> str:
    if not found.steps_left:
        return t(TIME_NONE)
    if found.pace is None or found.seconds is None:
        return t(TIME_UNKNOWN, steps=f"{found.command.log_interval:,}")
    return t(TIME, duration=duration(found.seconds), source=text_of(found.pace.source))


def _disk(found: Estimate) -> str:
    disk = found.disk
    return t(
        DISK if disk.is_measured else DISK_COUNTED,
        count=disk.num_at_most,
        each=shown_size(disk.checkpoint_bytes),
        needed=shown_size(disk.needed_bytes),
        free=shown_size(disk.free_bytes),
    )


def _memory(found: Estimate) -> str:
    if found.num_processes > 1:
        template = EACH_GPU if found.is_on_gpu else EACH_HOST
    elif not found.is_on_gpu:
        template = HOST_MEMORY
    else:
        template = GPU_MEMORY if found.memory.is_measured else GPU_MEMORY_SCALED
    return t(
        template,
        needed=shown_gib(found.memory.peak),
        there=shown_gib(found.available_memory),
        precision=found.precision,
    )


PLAN_TIMEOUT_S = 300

NO_ANSWER = "training.no_answer"


def restore_plan(command: Command, num_processes: int = 1) -> str:
    """Return the restore plan of this start, as the trainer's --plan prints it.

    If the plan depends on weights, a trainer process computes it, because the page never loads torch.

    Raises:
        UserError: the trainer refuses the start, with its message.
    """
    at_once = describe_restore(command, num_processes) if isinstance(command, Train) else None
    return ask_trainer(command, num_processes) if at_once is None else at_once


def ask_trainer(command: Command, num_processes: int = 1) -> str:
    """Return the output of the trainer's --plan on rank 0."""
    environment = dict(os.environ)
    if num_processes > 1:  # set by torchrun otherwise; a plan joins no process group
        environment |= {"RANK": "0", "WORLD_SIZE": str(num_processes)}
    argv = [sys.executable, str(REPOSITORY / command.program), *to_argv(command), "--plan"]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as answer, tempfile.TemporaryFile("w+") as problem:
        try:
            status = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=problem,
                timeout=PLAN_TIMEOUT_S,
                env=environment,
            ).returncode
        except subprocess.TimeoutExpired:
            raise UserError(t(NO_ANSWER, seconds=PLAN_TIMEOUT_S)) from None
        answer.seek(0)
        problem.seek(0)
        output, errors = answer.read().strip().splitlines(), problem.read().strip().splitlines()
    if status:
        raise UserError(errors[-1].removeprefix("[Error] ") if errors else f"the trainer ended with {status}")
    return "\n".join(line for line in output if not line.startswith("["))  # without the log
