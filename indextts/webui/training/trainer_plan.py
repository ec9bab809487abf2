"""Restore plan as the trainer's `--plan` prints it, for checkpoints whose meta file does not suffice.

The page never loads torch, so a trainer process reads the weights.
"""

import os
import subprocess
import sys
import tempfile

from indextts.commands.terminal import to_argv
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.planning.plan_from_meta import describe_restore
from indextts.projects.project import REPOSITORY
from indextts.webui.language import t

PLAN_TIMEOUT_S = 300
NO_ANSWER = "training.no_answer"


def restore_plan(command: Train, num_processes: int = 1) -> str:
    """Return the restore plan of this start; from the meta file if it suffices, else from the trainer.

    Raises:
        UserError: the trainer refuses the start, with its message.
    """
    at_once = describe_restore(command, num_processes)
    return ask_trainer(command, num_processes) if at_once is None else at_once


def ask_trainer(command: Train, num_processes: int = 1) -> str:
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
