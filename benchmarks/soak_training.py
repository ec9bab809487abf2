"""Write the metrics and the log of a long training at a higher speed; soak.py runs it as a job.

The trainer's own writer writes the lines; the numbers are a falling curve with noise.
"""

import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from indextts.commands.base import Command
from indextts.commands.terminal import parse, run
from indextts.training.losses import LossMeans
from indextts.training.metrics import MetricsLog, Speed, TrainRates
from indextts.training.validate import Validation

LINE_S, VAL_S = 4.0, 300.0  # seconds of training between [Train] lines, and between validations
STEPS_PER_LINE = 10


class Replay(Command):
    """Write the log of a training."""

    program: ClassVar[str] = "benchmarks/soak_training.py"

    run_dir: Path = Field(Path())
    hours: float = 0.0  # a command line omits defaults; the real values must differ
    times: float = 0.0


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Replay, argv)
    command.run_dir.mkdir(parents=True, exist_ok=True)
    num_lines = int(command.hours * 3600 / LINE_S)
    log = MetricsLog(command.run_dir, part=1, step=0, epoch=0, total_steps=STEPS_PER_LINE * num_lines)
    draw = random.Random(0)
    began = time.monotonic()
    for number in range(1, num_lines + 1):
        time.sleep(max(0.0, began + number * LINE_S / command.times - time.monotonic()))
        loss = 1.5 + 4.0 * math.exp(-3.0 * number / num_lines) + draw.gauss(0.0, 0.05)
        means = LossMeans(loss + 1.0, loss, 1.0 / (1.0 + loss), loss + 2.0)
        speed = Speed(tokens_per_second=20_000.0 + draw.gauss(0.0, 300.0), data_wait=0.001)
        rates = TrainRates(lr=1e-4, grad_norm=1.0, speed=speed, num_skipped=0)
        log.train(STEPS_PER_LINE * number, 0, means, rates)
        if number % int(VAL_S / LINE_S) == 0:
            log.validation(STEPS_PER_LINE * number, 0, Validation(means, {}))
    log.close()
    return 0


if __name__ == "__main__":
    run(main)
