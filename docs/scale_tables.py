"""The computed tables of docs/scale.md, written into the page.

    python -m docs.scale_tables

The inputs are measured (the tables in benchmarks/results) or assumed (the constants below). Each table stands
between the comments `<!-- table: NAME -->` and `<!-- end of table -->`; the program replaces what is between
them.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.workload import NUM_BASE_PIECES, config_of
from indextts.planning.memory import model_size

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "benchmarks/results"
PAGE = REPOSITORY / "docs/scale.md"
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->\n)", re.DOTALL)

# Assumed: the rates of the data sheets in bytes a second, over what leaves a machine or NVLink inside of one.
NVLINK, FAST_PER_GPU, FAST_PER_MACHINE, SLOW_PER_MACHINE = LINKS = (
    "NVLink",
    "400 Gb/s per GPU",
    "400 Gb/s per machine",
    "100 Gb/s per machine",
)
BYTES_PER_S = dict(zip(LINKS, (450e9, 400e9, 50e9, 12.5e9), strict=True))
CLIP_S = 6.106  # the mean of the distribution of benchmarks/workload.py
PAIRS_PER_TARGET = 2
DOLLARS_PER_GPU_HOUR = 3
RECORDING_BYTES_PER_S = 24_000 * 2
CODES_PER_S = 50
FP32_PER_S, AMP_PER_S = 27e12, 346e12  # operations of one GPU
GPU_HOURS_BETWEEN_FAILURES = 50_700
FAILURE_NOTICED_S = 60.0

# Measured; each is read again from its table by tests/test_docs.py.
FEATURE_MB_PER_HOUR = 51.8
OPERATIONS_PER_POSITION = 2.99e9
OPERATIONS_PER_S_OF_SPEECH = 59.6e9
SAVE_S, RESTART_S = 0.23, 12.7
SAVE_INTERVAL_S = 147.0  # 1,000 steps on eight GPUs

TOKENS = 16_384
GRADIENT_BYTES = 4 * model_size(config_of("published", 0.0), base_size=NUM_BASE_PIECES).trained


@dataclass(frozen=True)
class Measured:
    """The numbers of benchmarks/results that the tables start from."""

    step_ms: dict[int, float]  # by tokens
    tokens_per_s: float
    positions_per_pair: float


def measured() -> Measured:
    """Read the measured numbers from their tables."""
    speed = _result("gpu_round_h200.md")
    steps = re.findall(r"\| speed \| packed, (\d+) tokens \| ([\d,]+) \| [\d.]+ % \| ([\d.]+) \|", speed)
    return Measured(
        step_ms={int(tokens): float(ms) for tokens, _, ms in steps},
        tokens_per_s=next(float(rate.replace(",", "")) for tokens, rate, _ in steps if int(tokens) == TOKENS),
        positions_per_pair=float(re.findall(r"([\d.]+) in the mean", _result("imbalance.md"))[0]),
    )


def all_reduce_ms(gpus: int, link: str | None) -> float:
    """Return the time of a ring all_reduce of the gradients; none on one GPU."""
    return 0.0 if link is None else 1000 * 2 * (gpus - 1) / gpus * GRADIENT_BYTES / BYTES_PER_S[link]


def pairs_per_epoch(hours: float) -> float:
    return PAIRS_PER_TARGET * 3600 * hours / CLIP_S


def epoch_s(numbers: Measured, hours: float, gpus: int = 1, link: str | None = None, micro: int = 1) -> float:
    """Return the seconds of an epoch with `micro` micro-batches per step and all_reduce."""
    longer = 1 + all_reduce_ms(gpus, link) / numbers.step_ms[TOKENS] / micro
    return longer * pairs_per_epoch(hours) * numbers.positions_per_pair / numbers.tokens_per_s / gpus


def epoch_table(numbers: Measured) -> str:
    hours = (200, 2000, 10_000)
    positions = [pairs_per_epoch(each) * numbers.positions_per_pair for each in hours]
    eight = [epoch_s(numbers, each, 8, NVLINK) for each in hours]
    many = [epoch_s(numbers, each, 64, FAST_PER_GPU) for each in hours]
    alone = [epoch_s(numbers, each) for each in hours]
    return table(
        ("", *(f"{each:,} h" for each in hours), ""),
        [
            ("codes", *(_large(3600 * each * CODES_PER_S) for each in hours), "computed, 50 per second"),
            (
                "recordings",
                *(_bytes(3600 * each * RECORDING_BYTES_PER_S) for each in hours),
                "computed: 24 kHz, 16 bit, uncompressed",
            ),
            (
                "features",
                *(_bytes(each * FEATURE_MB_PER_HOUR * 1e6) for each in hours),
                "computed from measured",
            ),
            (
                "pairs per epoch",
                *(_large(pairs_per_epoch(each)) for each in hours),
                "computed, two prompts for each target",
            ),
            ("positions per epoch", *map(_large, positions), "computed"),
            (
                "operations per epoch",
                *(f"{each * OPERATIONS_PER_POSITION:.1e}".replace("e+", "e") for each in positions),
                "computed",
            ),
            (
                "epoch, 1 H200",
                *map(_duration, alone),
                f"computed from measured, {numbers.tokens_per_s:,.0f} tokens per second",
            ),
            (f"epoch, 8 H200, {NVLINK}", *map(_duration, eight), "computed, with the all_reduce"),
            (f"epoch, 64 H200, {FAST_PER_GPU}", *map(_duration, many), "computed, the same"),
        ],
    )


def features_table(numbers: Measured) -> str:
    operations = OPERATIONS_PER_S_OF_SPEECH * 3600 * 10_000
    names = {
        FP32_PER_S: ("float32, the default", "40 % of the 67e12 of the data sheet, without TensorFloat-32"),
        AMP_PER_S: ("`--amp`", "35 % of 989e12, as the training step reaches"),
    }
    return table(
        ("", "operations per second of one GPU", "1 GPU", "8 GPUs", "64 GPUs"),
        [
            (
                name,
                f"{speed / 1e12:.0f}e12, assumed: {why}",
                *(_duration(operations / speed / gpus) for gpus in (1, 8, 64)),
            )
            for speed, (name, why) in names.items()
        ],
    )


def all_reduce_table(numbers: Measured) -> str:
    step_ms = numbers.step_ms[TOKENS]
    rows = []
    for gpus, link in [(8, NVLINK), *((gpus, link) for gpus in (16, 64) for link in LINKS[1:])]:
        taken = all_reduce_ms(gpus, link)
        rows.append(
            (
                str(gpus),
                link,
                f"{taken:.1f} ms" if taken < 20 else f"{taken:.0f} ms",
                f"{step_ms + taken:.0f} ms",
                f"{100 * taken / step_ms:.0f} %",
                f"{gpus * step_ms / (step_ms + taken):.1f}",
                *(f"{math.ceil(taken / numbers.step_ms[tokens] / 0.05)}" for tokens in (TOKENS, 2 * TOKENS)),
            )
        )
    heads = ("GPUs", "slowest link", "all_reduce", "step of 16,384 tokens per GPU", "longer by")
    limits = ("micro-batches per step for less than 5 %", "the same with 32,768 tokens")
    return table((*heads, "equivalent GPUs", *limits), rows)


def imbalance_table(numbers: Measured) -> str:
    found = {tuple(row[:2]): row[2:] for row in _rows("imbalance.md", "Imbalance of a step")}
    rows = []
    for share in dict.fromkeys(share for share, _ in found):
        cells = [share.replace("samples", "pairs")]
        for ranks in ("8", "64"):
            plain, _, balanced, worst, *_ = found[share, ranks]
            cells += [plain, f"{balanced} ({worst})"]
        rows.append(cells)
    heads = [
        f"{ranks} ranks, {how}" for ranks in (8, 64) for how in ("contiguous", "load-balanced (worst step)")
    ]
    return table(("batch per rank", *heads), rows)


def slow_ranks_table(numbers: Measured) -> str:
    rows = [
        (row[0].replace("card", "GPU"), *(row[column] for column in (2, 3, 5, 6)))
        for row in _rows("imbalance.md", "Slow ranks")
    ]
    micro = "with 4 micro-batches per step"
    return table(("slowdown", "8 ranks", micro, "64 ranks", micro), rows)


def batch_table(numbers: Measured) -> str:
    step_ms = numbers.step_ms
    low, high = min(step_ms), max(step_ms)
    per_token = (step_ms[high] - step_ms[low]) / (high - low)
    rows = []
    for gpus, tokens, link in (
        (1, TOKENS, None),
        (8, TOKENS, NVLINK),
        (64, TOKENS, FAST_PER_GPU),
        (8, 1468, NVLINK),
    ):
        pairs = gpus * tokens / numbers.positions_per_pair
        alone = step_ms.get(tokens, step_ms[low] + per_token * (tokens - low))
        step = f"{alone + all_reduce_ms(gpus, link):.0f} ms" + (f", {link}" if gpus == 64 else "")
        rows.append(
            (
                str(gpus),
                f"{tokens:,}",
                _significant(pairs),
                _significant(pairs_per_epoch(10_000) / pairs),
                step,
            )
        )
    return table(("GPUs", "tokens per GPU", "pairs per step", "steps per epoch of 10,000 h", "step"), rows)


def failure_table(numbers: Measured) -> str:
    rows = []
    for name, hours in (
        ("1 GPU", GPU_HOURS_BETWEEN_FAILURES),
        ("8 GPUs", GPU_HOURS_BETWEEN_FAILURES / 8),
        ("64 GPUs", GPU_HOURS_BETWEEN_FAILURES / 64),
        ("8 GPUs, machine reclaimed once a day", 24),
        ("64 GPUs, each of 8 machines reclaimed once a day", 3),
    ):
        interval_s = math.sqrt(2 * SAVE_S * 3600 * hours)
        lost = [
            SAVE_S / each + (each / 2 + RESTART_S + FAILURE_NOTICED_S) / (3600 * hours)
            for each in (interval_s, SAVE_INTERVAL_S)
        ]
        shown = [f"{100 * each:.2f} %" if each < 0.0025 else f"{100 * each:.1f} %" for each in lost]
        rows.append((name, _significant(hours), _interval(interval_s), *shown))
    heads = ("hours between failures", "best interval", "lost at it", "lost at 1,000 steps (147 s)")
    return table(("", *heads), rows)


def cost_table(numbers: Measured) -> str:
    rows = []
    for name, gpus, link, micro in (
        ("1 GPU", 1, None, 1),
        (f"8 GPUs, {NVLINK}", 8, NVLINK, 1),
        (f"8 GPUs, {NVLINK}, 2 micro-batches per step", 8, NVLINK, 2),
        *((f"64 GPUs, {link}", 64, link, 1) for link in LINKS[1:]),
    ):
        hours = 3 * epoch_s(numbers, 10_000, gpus, link, micro) / 3600
        gpu_hours = gpus * hours
        rows.append(
            (
                name,
                f"{hours:.2f}" if hours < 2 else f"{hours:.1f}",
                f"{gpu_hours:.1f}" if gpu_hours < 100 else f"{gpu_hours:.0f}",
                f"{DOLLARS_PER_GPU_HOUR * gpu_hours:.0f}",
            )
        )
    return table(("three epochs of 10,000 h", "hours", "GPU hours", "at 3 dollars (assumed)"), rows)


TABLES: dict[str, Callable[[Measured], str]] = {
    "epoch": epoch_table,
    "features": features_table,
    "all_reduce": all_reduce_table,
    "imbalance": imbalance_table,
    "slow_ranks": slow_ranks_table,
    "batch": batch_table,
    "failures": failure_table,
    "cost": cost_table,
}


def filled(page: str) -> str:
    """Return the page with every table written again."""
    numbers = measured()
    return BLOCK.sub(lambda block: f"{block[1]}{TABLES[block[2]](numbers)}{block[3]}", page)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    rule = "|---" * len(head) + "|"
    lines = [f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in (head, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"


def _result(name: str) -> str:
    return (RESULTS / name).read_text(encoding="utf-8")


def _rows(name: str, section: str) -> list[list[str]]:
    """Return the cells of the first table of a section of a result, without its head."""
    part = _result(name).split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def _significant(value: float) -> str:
    """Return a count with three significant digits at most: 44.7 -> 45, 11,792,000 -> 11,800,000."""
    return f"{float(f'{value:.3g}'):,.0f}"


def _large(value: float) -> str:
    if value >= 1e9:
        return f"{value / 1e9:.3g} billion"
    return f"{value / 1e6:.3g} million" if value >= 1e6 else f"{value / 1e6:.2f} million"


def _bytes(value: float) -> str:
    return f"{value / 1e12:.2f} TB" if value >= 1e12 else f"{value / 1e9:.3g} GB"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    hours, minutes = seconds / 3600, seconds / 60
    if hours < 1:
        return f"{minutes:.1f} min" if minutes < 12 else f"{minutes:.0f} min"
    return f"{hours:.2f} h" if hours < 1.5 else f"{hours:.1f} h" if hours < 12 else f"{hours:.0f} h"


def _interval(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
