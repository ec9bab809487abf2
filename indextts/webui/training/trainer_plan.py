"""What a start of the trainer would do: from the meta file at once, or from the trainer itself. No Gradio."""

import os
import subprocess
import sys
import tempfile

from indextts.commands.base import Command
from indextts.commands.terminal import to_argv
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.planning.restore_plan import plan_command
from indextts.projects.pipeline import REPOSITORY
from indextts.webui.language import t

PLAN_TIMEOUT_S = 300

NO_ANSWER = "the trainer has not said within {seconds} s what it would do; try again later"


def restore_plan(command: Command, num_processes: int = 1) -> str:
    """Return what this start of so many processes would do, by the function of the trainer's --plan.

    Where that needs a look at weights, the trainer is asked in a process of its own: the page never loads
    what opens them.

    Raises:
        UserError: the start is refused; with the trainer's own sentence.
    """
    at_once = plan_command(command, num_processes) if isinstance(command, Train) else None
    return ask_trainer(command, num_processes) if at_once is None else at_once


def ask_trainer(command: Command, num_processes: int = 1) -> str:
    """Return what the trainer's --plan prints in the first of so many processes."""
    environment = dict(os.environ)
    if num_processes > 1:  # what torchrun would set; a plan joins nobody
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
        said, wrong = answer.read().strip().splitlines(), problem.read().strip().splitlines()
    if status:
        raise UserError(wrong[-1].removeprefix("[Error] ") if wrong else f"the trainer ended with {status}")
    return "\n".join(line for line in said if not line.startswith("["))  # without the log
