"""Train the IndexTTS2 GPT on pairs. What comes before torch is here; the loop is indextts/training/loop.py.

Importing torch takes seconds. Before that the program answers signals, refuses a folder that is in use, and
has begun to read the checkpoint.

Under torchrun there are several of these processes. The first one owns the run directory and writes its log
and exit.json; the others have a log of their own there, for what goes wrong.
"""

from indextts.system.signals import StopRequest

STOP = StopRequest(ends_process=True)
if __name__ == "__main__":
    STOP.listen()

import logging
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NoReturn

from indextts.commands.terminal import parse, run
from indextts.commands.train import Train
from indextts.errors import DISK_FULL, DISK_FULL_ERRNOS, UserError
from indextts.planning.restore_plan import plan_command
from indextts.runs.find_checkpoint import find_checkpoint
from indextts.runs.owner import prepare, run_lock
from indextts.system.files import write_json
from indextts.system.log_lines import log_for_rank, log_to_file
from indextts.training.distributed.torchrun import RankInfo

logger = logging.getLogger(__name__)

A_BUG = 1


def main(argv: Sequence[str] | None = None) -> int:
    with STOP if argv is None else StopRequest(ends_process=False) as stop:
        command = parse(Train, argv)
        place = RankInfo.from_environment()
        if command.plan:
            if place.is_main:
                print(plan_of(command, place.world_size))
            return 0
        prepare(command.output_dir)
        try:
            with run_lock(command.output_dir) if place.is_main else nullcontext():
                status = logged_run(command, place, stop)
        except UserError:
            raise
        except BaseException:
            if (
                place.world_size > 1
            ):  # it is in the log; the others must not wait for this process to fall apart
                leave(A_BUG)
            raise
    if place.world_size > 1:
        leave(status)
    return status


def logged_run(command: Train, place: RankInfo, stop: StopRequest) -> int:
    """Run the training with its log and exit.json in the run directory; return the exit status."""
    folder = command.output_dir
    if place.is_main:
        (folder / "exit.json").unlink(missing_ok=True)
        log_file = log_to_file(folder / place.log_name)
    else:
        log_file = log_for_rank(folder / place.log_name, place.rank)

    def write_exit(status: int, reason: str) -> None:
        if place.is_main:
            write_ending(folder, status, reason)

    try:
        with ThreadPoolExecutor(1) as reader:
            checkpoint = reader.submit(find_checkpoint, command) if place.is_main else None
            from indextts.training.distributed.ranks import process_group
            from indextts.training.loop import train  # torch

            with process_group(place, stop) as ranks:
                status = train(command, checkpoint, stop, ranks)
        write_exit(status, "finished" if status == 0 else "stopped")
    except UserError as error:
        logger.error("%s", error)
        write_exit(error.exit_status, str(error))
        return error.exit_status
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
            logger.error("%s: %s; make room on the disk and start again", folder, error.strerror)
            write_exit(DISK_FULL, str(error))
            return DISK_FULL
        logger.exception("[Error] The trainer broke off; this is a bug of ours")
        write_exit(A_BUG, f"{type(error).__name__}: {error}")
        raise
    finally:
        logging.getLogger().removeHandler(log_file)
        with suppress(OSError):  # of a full disk: the last lines are lost, the run's end stands
            log_file.close()
    return status


def leave(status: int) -> NoReturn:
    """End this process without taking the other ranks down, see `ranks.process_group`."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def plan_of(command: Train, num_processes: int) -> str:
    """Return what a start would do; a checkpoint without a meta file has to be opened for it."""
    text = plan_command(command, num_processes)
    if text is not None:
        return text
    from indextts.training.start import plan_from_weights

    return plan_from_weights(command, num_processes)


def write_ending(run_dir: Path, status: int, reason: str) -> None:
    try:
        write_json(run_dir / "exit.json", {"status": status, "reason": reason, "time": time.time()})
    except OSError as error:  # a full disk; the status itself reaches whoever waits for the process
        logger.warning("exit.json could not be written (%s)", error.strerror)


if __name__ == "__main__":
    run(main)
