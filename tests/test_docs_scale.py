"""The arithmetic of docs/scale.md, done again from the tables that it names."""

import math
import re

import pytest

from benchmarks.workload import NUM_BASE_PIECES, config_of
from indextts.planning.memory import model_size
from tests.conftest import REPOSITORY

TEXT = (REPOSITORY / "docs/scale.md").read_text(encoding="utf-8")
RESULTS = REPOSITORY / "benchmarks/results"
GRADIENT_BYTES = 4 * model_size(config_of("published", 0.0), base_size=NUM_BASE_PIECES).trained
BANDWIDTHS = {
    "NVLink": 450e9,
    "400 Gb/s a card": 400e9,
    "400 Gb/s a machine": 50e9,
    "100 Gb/s a machine": 12.5e9,
}
SECONDS_OF_A_CLIP = 6.106  # the mean of the distribution of benchmarks/workload.py
TOKENS = 16_384


def rows(section: str, which: int = 0, text: str = TEXT) -> list[list[str]]:
    """The cells of a table of a section, without its head."""
    part = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    table = [block.strip() for block in part.split("\n\n") if block.lstrip().startswith("|")][which]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def number(text: str) -> float:
    return float(re.findall(r"[\d.,]+", text)[0].replace(",", ""))


def shown(text: str, value: float) -> bool:
    """Whether the number in `text` is `value`, as exactly as it is written."""
    digits = re.findall(r"[\d.,]+", text)[0].replace(",", "")
    decimals = len(digits.partition(".")[2])
    step = (
        10.0**-decimals
        if "." in digits or len(digits) < 3
        else 10.0 ** (len(digits) - len(digits.rstrip("0")))
    )
    return abs(float(digits) - value) <= 0.51 * step


@pytest.fixture(scope="module")
def steps_ms() -> dict[int, float]:
    """What steps take on one card, by their tokens."""
    text = (RESULTS / "gpu_round_h200.md").read_text(encoding="utf-8")
    found = re.findall(r"\| speed \| packed, (\d+) tokens \| [\d,]+ \| [\d.]+ % \| ([\d.]+) \|", text)
    return {int(tokens): float(ms) for tokens, ms in found}


@pytest.fixture(scope="module")
def tokens_per_s() -> float:
    text = (RESULTS / "gpu_round_h200.md").read_text(encoding="utf-8")
    return number(re.findall(rf"packed, {TOKENS} tokens \| ([\d,]+) \|", text)[0])


def positions_of_a_pair() -> float:
    text = (RESULTS / "imbalance.md").read_text(encoding="utf-8")
    return number(re.findall(r"([\d.]+) in the mean", text)[0])


def sum_s(cards: int, link: str) -> float:
    return 2 * (cards - 1) / cards * GRADIENT_BYTES / BANDWIDTHS[link]


def test_measured_numbers_are_those_of_their_tables(steps_ms: dict[int, float]):
    measured = " ".join(cell for row in rows("What it is built on") for cell in row)
    for name, patterns in {
        "gpu_round_h200.md": [
            r"packed, \d+ tokens \| ([\d,]+) \| [\d.]+ % \| [\d.]+ \| [\d.]+ \| [\d.]+ GiB \| varlen"
        ],
        "resume_time_h200.md": [r"checkpoint of ([\d.]+) GB", r"\| resume \| [\d.]+ \| ([\d.]+)"],
        "feature_store_2_cores.md": [r"store, float16 \| \d+ \| [\d.]+ \| ([\d.]+)"],
        "imbalance.md": [r"([\d.]+) in the mean", r"([\d.]+e9) operations"],
    }.items():
        text = (RESULTS / name).read_text(encoding="utf-8")
        for pattern in patterns:
            found = re.findall(pattern, text)
            assert found, pattern
            assert [value for value in found[:3] if value not in measured] == []
    assert " / ".join(f"{ms}" for ms in steps_ms.values()) in measured
    assert shown("2.11 GB", GRADIENT_BYTES / 1e9)


def test_an_epoch_is_as_long_as_its_pairs(tokens_per_s: float, steps_ms: dict[int, float]):
    table = {row[0]: row[1:4] for row in rows("10,000 hours")}
    for column, hours in enumerate((200, 2000, 10_000)):
        pairs = 2 * 3600 * hours / SECONDS_OF_A_CLIP
        positions = pairs * positions_of_a_pair()
        assert shown(table["pairs of an epoch"][column], pairs / 1e6)
        scale = 1e9 if "billion" in table["positions of an epoch"][column] else 1e6
        assert shown(table["positions of an epoch"][column], positions / scale)
        assert float(table["operations of an epoch"][column]) == pytest.approx(positions * 2.99e9, rel=0.02)
        units = {"h": 3600, "min": 60, "s": 1}
        for name, cards, link in (
            ("1 H200", 1, None),
            ("8 H200, NVLink", 8, "NVLink"),
            ("64 H200, 400 Gb/s a card", 64, "400 Gb/s a card"),
        ):
            text = table[f"epoch, {name}"][column]
            longer = 1 + (1000 * sum_s(cards, link) / steps_ms[TOKENS] if link else 0)
            assert shown(text, longer * positions / tokens_per_s / cards / units[text.split()[-1]])


def test_features_take_the_operations_that_were_counted():
    counted = (RESULTS / "preprocess_published_2_cores.md").read_text(encoding="utf-8")
    each = float(re.findall(r"takes ([\d.]+)e9 operations", counted)[0])
    assert f"takes {each}e9 operations" in TEXT
    for name, speed, *times in rows("Making the features"):
        hours = 1e9 * each * 3600 * 10_000 / float(re.findall(r"\d+e12", speed)[0]) / 3600
        for cards, text in zip((1, 8, 64), times, strict=True):
            assert shown(text, hours / cards * {"h": 1, "min": 60}[text.split()[-1]]), name


def test_the_network_costs_what_the_formula_says(steps_ms: dict[int, float]):
    step_ms = steps_ms[TOKENS]
    table = rows("The sum of gradients")
    assert len(table) == 7
    for cards, link, sums, step, longer, worth, micro_batches in table:
        taken_ms = 1000 * sum_s(int(cards), link)
        assert shown(sums, taken_ms)
        assert shown(step, step_ms + taken_ms)
        assert shown(longer, 100 * taken_ms / step_ms)
        assert shown(worth, int(cards) * step_ms / (step_ms + taken_ms))
        assert int(micro_batches) == math.ceil(taken_ms / step_ms / 0.05)
    with_more_tokens = [
        math.ceil(1000 * sum_s(int(row[0]), row[1]) / steps_ms[32_768] / 0.05) for row in table
    ]
    assert f"the last column is {', '.join(map(str, with_more_tokens))}." in TEXT


def test_the_simulated_numbers_are_those_of_its_table():
    simulated = (RESULTS / "imbalance.md").read_text(encoding="utf-8")
    found = {(row[0], row[1]): row[2:] for row in rows("Imbalance of a step", text=simulated)}
    for share, *shown_cells in rows("Balance and slow ranks"):
        wanted: list[str] = []
        for ranks in ("8", "64"):
            plain, _, dealt, worst, *_ = found[share.replace("pairs", "samples"), ranks]
            wanted += [plain, f"{dealt} ({worst})"]
        assert shown_cells == wanted
    slow = {row[0]: row[1:] for row in rows("Slow ranks", text=simulated)}
    for name, *shown_cells in rows("Balance and slow ranks", which=1):
        assert shown_cells == [slow[name][column] for column in (1, 2, 4, 5)]
    assert len(rows("Balance and slow ranks", which=1)) == len(slow)


def test_failures_cost_what_the_formula_says():
    for name, hours, best, lost, lost_by_default in rows("Checkpoints and failures"):
        between_s = 3600 * number(hours)
        interval_s = math.sqrt(2 * 0.23 * between_s)
        assert shown(best, interval_s / {"h": 3600, "min": 60, "s": 1}[best.split()[-1]]), name
        for text, each_s in ((lost, interval_s), (lost_by_default, 147.0)):
            assert shown(text, 100 * (0.23 / each_s + (each_s / 2 + 72.7) / between_s)), name


def test_the_price_is_that_of_the_hours(steps_ms: dict[int, float], tokens_per_s: float):
    alone_h = 3 * 2 * 10_000 / SECONDS_OF_A_CLIP * positions_of_a_pair() / tokens_per_s
    for name, hours, card_hours, dollars in rows("What it costs"):
        what, _, rest = name.partition(", ")
        link = rest.partition(",")[0]
        cards, micro_batches = int(what.split()[0]), 2 if "2 micro-batches" in name else 1
        longer = 1 + (1000 * sum_s(cards, link) / steps_ms[TOKENS] / micro_batches if link else 0)
        assert shown(hours, alone_h * longer / cards), name
        assert shown(card_hours, alone_h * longer), name
        assert shown(dollars, 3 * alone_h * longer), name


def test_the_batch_is_that_of_all_cards(steps_ms: dict[int, float]):
    pairs_of_an_epoch = 2 * 3600 * 10_000 / SECONDS_OF_A_CLIP
    for cards, tokens, pairs, steps, step in rows("The batch"):
        of_a_step = int(cards) * number(tokens) / positions_of_a_pair()
        assert shown(pairs, of_a_step)
        assert number(steps) == pytest.approx(pairs_of_an_epoch / of_a_step, rel=0.002)
        if number(tokens) == TOKENS:
            link = {"1": None, "8": "NVLink", "64": "400 Gb/s a card"}[cards]
            assert shown(step, steps_ms[TOKENS] + (1000 * sum_s(int(cards), link) if link else 0))
