"""Outlook of a training start, from its preflight: facts, blockers, losses and notes.

preflight problem   blocker, with a link to its field or to the tab that solves it
restart at step 0   loss: the start button asks for a second click
"""

import re
from collections.abc import Iterable, Sequence

from indextts.commands.train import Train
from indextts.data.feature_store import read_info
from indextts.data.manifest import stream_pairs
from indextts.errors import UserError
from indextts.planning.estimate import Estimate
from indextts.planning.preflight import Preflight, Problem
from indextts.planning.proposal import Proposal
from indextts.runs.restore_rows import RestoreRow, new_run_rows, refused_row, restore_rows, unknown_row
from indextts.system.amounts import shown_gib, shown_size
from indextts.webui.language import field_title, t, text_of
from indextts.webui.run_progress import duration
from indextts.webui.running.outlook import Notice, NoticeKind, Outlook
from indextts.webui.training.training_form import element_of

# What solves a problem, a tab or an element of this one, and its kind; by the id of its message.
SOLVED_BY: dict[str, tuple[str, NoticeKind]] = {
    "planning.no_pairs": ("#pairs", "missing"),
    "planning.no_pair_fits": ("#data", "problem"),
    "planning.no_tokenizer": ("#tokenizer", "missing"),
    "planning.unknown_pieces": ("#tokenizer", "problem"),
    "planning.no_base": ("#project", "missing"),
    "planning.in_use": ("#monitor", "problem"),
    "planning.epochs_done": ("#training/Train-epochs", "finished"),
    "planning.max_steps_done": ("#training/Train-max_steps", "finished"),
    "planning.disk_too_small": ("#training/Train-keep_checkpoints", "problem"),
    "planning.warmup_too_long": ("#training/Train-warmup_steps", "problem"),
    "planning.never_validates": ("#training/Train-val_interval", "problem"),
    "planning.never_saves": ("#training/Train-save_interval", "problem"),
    "planning.has_checkpoints": ("#training/train-resume", "problem"),
    "planning.nothing_to_resume": ("#training/train-resume", "problem"),
    "planning.incomplete": ("#training/train-checkpoints", "problem"),
}
TITLES = {
    "train-resume": "training.resume",
    "train-checkpoints": "training.checkpoints",
    "Launch-processes": "training.several_gpus",
}
BY_SUBJECT = {"resume": "train-checkpoints", "launch": "Launch-processes"}


def outlook_of(command: Train, found: Preflight, *, is_unknown: bool) -> Outlook:
    """Return the outlook of a start; `is_unknown` if only the weights decide what a resume restores."""
    losses, resumed, button = [], found.resumed, t("training.start_training")
    if resumed is not None and not resumed.continues:
        before, now = resumed.checkpoint.text_rows - 1, resumed.run.vocabulary.size
        values = {"step": f"{resumed.checkpoint.step:,}", "old": f"{before:,}", "new": f"{now:,}"}
        # only another vocabulary restarts a run; the text of the loss is what a second click confirms
        losses = [Notice(t("training.loses_steps", **values), "#tokenizer", t("tab.tokenizer"))]
        button = t("training.restart")
    elif resumed is not None:
        button = t("training.resume_at", step=f"{resumed.checkpoint.step:,}")
    return Outlook(
        facts=facts(found.estimate) if found.estimate else (),
        blockers=[notice(problem) for problem in found.problems],
        losses=losses,
        notes=list(_notes(command, found, is_unknown=is_unknown)),
        button=button,
    )


def running_outlook() -> Outlook:
    running = Notice(t("training.run_in_progress"), "#monitor", t("tab.monitor"), kind="finished")
    return Outlook(blockers=[running], notes=[Notice(t("training.while_running"))])


def invalid_outlook(error: UserError) -> Outlook:
    """Return the outlook of a form with invalid values: a blocker for each."""
    blockers = []
    for text in problem_texts(error):
        named, (_flag, _, rest) = element_of(text), text.partition(": ")
        path = t("training.resume_path")
        if named and text.startswith("--"):
            blockers.append(Notice(f"{named[1]}: {rest}", f"#training/{named[0]}", named[1]))
        elif text.startswith(path):
            blockers.append(Notice(text, "#training/train-resume-path", path))
        else:
            blockers.append(_linked(text))
    return Outlook(blockers=blockers)


def problem_texts(error: UserError) -> list[str]:
    """Return the problems of an invalid form, each from its flag on if it names one first."""
    text = str(error)
    start = re.search(r"(?:^|: )(--[a-z-]+: )", text)  # after "the project's settings of train: "
    return re.split(r"; (?=--[a-z])", text[start.start(1) :] if start else text)


def notice(problem: Problem) -> Notice:
    """Return a preflight problem with the link that solves it."""
    text, id = text_of(problem.message), problem.message.id
    text = text[:1].upper() + text[1:]
    if id in SOLVED_BY:
        link, kind = SOLVED_BY[id]
        return Notice(text, link, _title(link), kind)
    return _linked(text, BY_SUBJECT.get(problem.about, ""))


def _title(link: str) -> str:
    """Return the title of the tab or the element that a link leads to."""
    tab, _, element = link.removeprefix("#").partition("/")
    if not element:
        return t("outlook.open_tab", tab=t(f"tab.{tab}"))
    return t(TITLES[element]) if element in TITLES else field_title(Train, element.removeprefix("Train-"))


def _linked(text: str, element: str = "") -> Notice:
    """Return a message with a link to the field that it names, else to `element`."""
    if named := element_of(text):
        return Notice(text, f"#training/{named[0]}", named[1])
    link = f"#training/{element}"
    return Notice(text, link, _title(link)) if element else Notice(text)


def plan_rows(command: Train, found: Preflight) -> list[RestoreRow]:
    """Return the restore plan as far as it is known without the weights; empty before a start is possible."""
    refusals = [
        refused_row(text_of(problem.message))
        for problem in found.problems
        if problem.about == "resume" and notice(problem).kind != "finished"
    ]
    if found.resumed is not None:
        return [*refusals, *restore_rows(found.resumed)]
    if refusals:
        return refusals
    if command.resume:
        return [unknown_row()]
    if any(notice(problem).kind == "missing" for problem in found.problems):
        return []
    total_steps = found.estimate.total_steps if found.estimate else None
    return new_run_rows(command.base_checkpoint, total_steps, command.warmup_steps, command.rewarm)


def facts(found: Estimate) -> Sequence[tuple[str, str]]:
    """Return names and values of an estimate; a finished training needs nothing more."""
    steps = (t("training.rows.steps"), _steps(found))
    if not found.steps_left:
        return [steps]
    needed = shown_size(found.disk.needed_bytes)
    rows = [
        steps,
        (t("training.rows.step"), _step(found)),
        (t("training.rows.time"), _time(found)),
        (t("training.rows.disk"), t("training.disk", needed=needed, free=shown_size(found.disk.free_bytes))),
        (t("training.gpu_memory" if found.facts.machine.gpu else "training.host_memory"), _memory(found)),
    ]
    if found.facts.settings.val_manifest:
        rows.insert(-2, (t("training.rows.samples"), _samples(found)))
    if found.facts.num_processes > 1:
        together = {"count": found.facts.num_processes, "micro_steps": found.facts.settings.grad_accumulation}
        rows.append((t("training.rows.processes"), t("training.processes_share_a_step", **together)))
    return rows


def _notes(command: Train, found: Preflight, *, is_unknown: bool) -> Iterable[Notice]:
    if is_unknown:
        yield Notice(t("training.plan_unknown"), "#training/train-read", t("training.read_checkpoint"))
    if uses_builtin_backend(command):
        yield Notice(t("listen.builtin_sound"), "#preprocess", t("tab.preprocess"))
    if found.estimate is None:
        return
    if not found.estimate.fits_memory:
        name = "batch_tokens"
        yield Notice(t("training.memory_exceeded"), f"#training/Train-{name}", field_title(Train, name))
    if found.estimate.facts.pairs.num_left_out:
        yield Notice(t("training.left_out", count=f"{found.estimate.facts.pairs.num_left_out:,}"))


def uses_builtin_backend(command: Train) -> bool:
    """Return whether the features are those of the built-in backend, which is for trying only."""
    try:
        first = next(stream_pairs(command.train_files[0].path), None)
        return first is not None and read_info(first[0].features).backend == "builtin"
    except (UserError, OSError):  # the preflight reports it
        return False


def automatic_lines(proposal: Proposal) -> list[str]:
    """Return the automatic settings with their reasons, a line for each reason."""
    return [
        f"{', '.join(_setting(name, proposal.fields[name]) for name in names)}: {text_of(reason)}"
        for names, reason in proposal.by_reason()
    ]


def _setting(name: str, value: object) -> str:
    shown = t(("forms.off", "forms.on")[value]) if isinstance(value, bool) else f"{value:,}"
    return f"{field_title(Train, name)} {shown}"


def _steps(found: Estimate) -> str:
    if found.first_step:
        return t("training.steps_left", left=f"{found.steps_left:,}", last=f"{found.total_steps:,}")
    values = {"steps": f"{found.total_steps:,}", "epoch": f"{found.steps_per_epoch:,}"}
    return t("training.steps_sampled" if found.facts.pairs.is_sampled else "training.steps", **values)


def _step(found: Estimate) -> str:
    values = {
        "samples": f"{found.samples_per_step:.0f}",
        "positions": f"{found.positions_per_step:,.0f}",
        "pairs": f"{found.facts.pairs.size.num_samples:,}",
    }
    return t("training.a_step", **values)


def _time(found: Estimate) -> str:
    if found.pace is None or found.seconds is None:
        return t("training.time_unknown", steps=f"{found.facts.settings.log_interval:,}")
    return t("training.time", duration=duration(found.seconds), source=text_of(found.pace.source))


def _samples(found: Estimate) -> str:
    settings = found.facts.settings
    if not 0 < settings.listen_interval <= found.total_steps:
        return t("training.no_samples")
    percent = 100 * settings.listen_share
    return t(
        "training.samples", count=settings.listen_sentences, steps=settings.listen_interval, percent=percent
    )


def _memory(found: Estimate) -> str:
    template = (
        ("training.each_gpu" if found.facts.machine.gpu else "training.each_host")
        if found.facts.num_processes > 1
        else "training.memory"
    )
    needed, there = shown_gib(found.memory.peak), shown_gib(found.available_memory)
    return t(template, needed=needed, there=there, precision=found.facts.precision)
