"""Write the metrics and the log of a training of some hours, so many times faster; soak.py runs it as a job.

The lines are written by the trainer's own writer; the numbers are a falling curve with noise.
"""

import argparse
import math
import random
import time
from pathlib import Path

from indextts.system.log_lines import log_to_stdout
from indextts.training.losses import LossMeans
from indextts.training.metrics import MetricsLog, Speed, TrainRates
from indextts.training.validate import Validation

LINE_S, VAL_S = 4.0, 300.0  # seconds of training between [Train] lines, and between validations
STEPS_PER_LINE = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--hours", type=float, required=True)
    parser.add_argument("--times", type=float, required=True)
    args = parser.parse_args()
    log_to_stdout()
    args.run_dir.mkdir(parents=True, exist_ok=True)
    num_lines = int(args.hours * 3600 / LINE_S)
    log = MetricsLog(args.run_dir, part=1, step=0, epoch=0, total_steps=STEPS_PER_LINE * num_lines)
    draw = random.Random(0)
    began = time.monotonic()
    for number in range(1, num_lines + 1):
        time.sleep(max(0.0, began + number * LINE_S / args.times - time.monotonic()))
        loss = 1.5 + 4.0 * math.exp(-3.0 * number / num_lines) + draw.gauss(0.0, 0.05)
        means = LossMeans(loss + 1.0, loss, 1.0 / (1.0 + loss), loss + 2.0)
        speed = Speed(tokens_per_second=20_000.0 + draw.gauss(0.0, 300.0), data_wait=0.001)
        rates = TrainRates(lr=1e-4, grad_norm=1.0, speed=speed, num_skipped=0)
        log.train(STEPS_PER_LINE * number, 0, means, rates)
        if number % int(VAL_S / LINE_S) == 0:
            log.validation(STEPS_PER_LINE * number, 0, Validation(means, {}))
    log.close()


if __name__ == "__main__":
    main()
