"""Train the IndexTTS2 GPT on pairs; the loop is in indextts/training/loop.py.

Importing torch takes seconds. Before that, this program handles signals, refuses a run directory that is in
use, and starts reading the checkpoint.

Under torchrun, rank 0 owns the run directory and writes its log and exit.json. Each other rank writes its
errors to a log file of its own there.
"""

from indextts.system.signals import StopRequest

STOP = StopRequest(ends_process=True)
if __name__ == "__main__":
    STOP.listen()

import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NoReturn

from indextts.commands.terminal import parse, run
from indextts.commands.train import Train
from indextts.errors import DISK_FULL, DISK_FULL_ERRNOS, UserError
from indextts.runs.directory import CheckpointMeta
from indextts.runs.find_checkpoint import find_checkpoint
from indextts.runs.owner import prepare, run_lock
from indextts.system.files import write_json
from indextts.system.log_lines import log_for_rank, log_to_file
from indextts.training.distributed.torchrun import RankInfo, log_name

logger = logging.getLogger(__name__)

INTERNAL_ERROR = 1


def main(argv: Sequence[str] | None = None) -> int:
    with STOP if argv is None else StopRequest(ends_process=False) as stop:
        command = parse(Train, argv)
        info = RankInfo.from_environment()
        if command.plan:
            if info.is_main:
                print(plan_of(command, info.world_size))
            return 0
        prepare(command.output_dir)
        try:
            with run_lock(command.output_dir) if info.is_main else nullcontext():
                status = logged_run(command, info, stop)
        except UserError:
            raise
        except BaseException:
            if info.world_size > 1:  # the error is logged; the other ranks must not wait for the clean-up
                exit_now(INTERNAL_ERROR)
            raise
    if info.world_size > 1:
        exit_now(status)
    return status


def logged_run(command: Train, info: RankInfo, stop: StopRequest) -> int:
    """Run the training with its log and exit.json in the run directory; return the exit status."""
    folder = command.output_dir
    if info.is_main:
        (folder / "exit.json").unlink(missing_ok=True)
        log_file = log_to_file(folder / log_name(info.rank))
    else:
        log_file = log_for_rank(folder / log_name(info.rank), info.rank)

    def write_exit(status: int, reason: str) -> None:
        if info.is_main:
            write_ending(folder, status, reason)

    has_imported = threading.Event()

    def recover(path: Path) -> CheckpointMeta | None:
        has_imported.wait()  # two threads that import torch at the same time may see parts of it
        from indextts.models.checkpoint import recover_meta

        return recover_meta(path)

    try:
        with ThreadPoolExecutor(1) as reader:
            checkpoint = None
            if info.is_main:
                checkpoint = reader.submit(find_checkpoint, command.resume, folder, recover)
            try:
                from indextts.training.distributed.ranks import process_group
                from indextts.training.loop import train  # torch
            finally:
                has_imported.set()

            with process_group(info, stop) as ranks:
                status = train(command, checkpoint, stop, ranks)
        write_exit(status, "finished" if status == 0 else "stopped")
    except UserError as error:
        logger.error("%s", error)
        write_exit(error.exit_status, str(error))
        return error.exit_status
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
            logger.error("%s: %s; free disk space and start again", folder, error.strerror)
            write_exit(DISK_FULL, str(error))
            return DISK_FULL
        logger.exception("[Error] The trainer failed: internal error; please report it with the log")
        write_exit(INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        raise
    finally:
        logging.getLogger().removeHandler(log_file)
        with suppress(OSError):  # full disk: the last lines are lost, but the exit status is right
            log_file.close()
    return status


def exit_now(status: int) -> NoReturn:
    """Exit without destroying the process group, see `ranks.process_group`."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def plan_of(command: Train, num_processes: int) -> str:
    """Return the restore plan of the start's own code, which knows the threads and the device too."""
    from indextts.training.resume import plan_from_weights

    return plan_from_weights(command, num_processes)


def write_ending(run_dir: Path, status: int, reason: str) -> None:
    try:
        write_json(run_dir / "exit.json", {"status": status, "reason": reason, "time": time.time()})
    except OSError as error:  # full disk; the parent process still gets the exit status
        logger.warning("Cannot write exit.json (%s)", error.strerror)


if __name__ == "__main__":
    run(main)
