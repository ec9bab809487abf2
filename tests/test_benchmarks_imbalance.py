"""Tests of benchmarks/imbalance.py: it deals as the trainer does, and counts what it says."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import imbalance
from benchmarks.imbalance import CONFIG, Loads, Share, balanced, contiguous, loads, times_seen
from benchmarks.stragglers import SLOWDOWNS
from benchmarks.workload import (
    config_of,
    draw_lengths,
    make_samples,
    operations,
    positions,
    useful_operations,
)

SAMPLES, TOKENS = Share(batch_size=8), Share(batch_tokens=4096)


@pytest.fixture(scope="module")
def lengths() -> np.ndarray:
    return positions(*draw_lengths(3001), CONFIG)


def test_lengths_without_content_are_distributed_as_those_of_the_other_benchmarks():
    samples = make_samples(config_of("tiny", dropout=0.0), 4000)
    num_text, num_codes = draw_lengths(40_000, seed=1)
    for drawn, wanted in (
        (num_text, [len(sample.text_ids) for sample in samples]),
        (num_codes, [len(sample.codes) for sample in samples]),
        (num_text / num_codes, [len(sample.text_ids) / len(sample.codes) for sample in samples]),
    ):
        quantiles = [0.05, 0.25, 0.5, 0.75, 0.95]
        assert np.quantile(drawn, quantiles) == pytest.approx(np.quantile(wanted, quantiles), rel=0.06)
    assert (num_codes.min(), num_codes.max()) == (100, 750)


def test_operations_of_each_sample_sum_to_those_of_a_batch():
    config = config_of("tiny", dropout=0.0)
    samples = make_samples(config, 5)
    each = [useful_operations([sample], config) for sample in samples]
    assert sum(each) == pytest.approx(useful_operations(samples, config))


@pytest.mark.parametrize("share", [SAMPLES, TOKENS])
def test_all_work_of_the_micro_batches_is_on_some_rank(share: Share, lengths: np.ndarray):
    work = lengths.astype(float) ** 2
    batches = [batch for batch, _ in zip(share.plan(lengths, 4), range(20), strict=False)]
    for deal_out in (balanced, contiguous(share)):
        found = loads(lengths, work, share, 4, 20, deal_out)
        assert found.work.shape == (20, 4)
        assert found.work.sum(1) == pytest.approx([work[batch].sum() for batch in batches])
        assert found.most_positions > max(lengths[batch].sum() for batch in batches) / 4


def test_contiguous_pieces_are_the_order_itself(lengths: np.ndarray):
    for share, num_samples in ((SAMPLES, 32), (TOKENS, 45)):
        pieces = contiguous(share)(lengths[:num_samples], 4)
        assert [index for piece in pieces for index in piece] == list(range(num_samples))
    assert {len(piece) for piece in contiguous(SAMPLES)(lengths[:32], 4)} == {8}
    assert len(contiguous(SAMPLES)(lengths[:3], 4)) == 4  # an epoch's end, with less than a sample each


@pytest.mark.parametrize("num_ranks", [8, 64])
@pytest.mark.parametrize("share", [SAMPLES, TOKENS])
def test_dealing_leaves_less_than_three_percent_where_contiguous_pieces_leave_more(
    share: Share, num_ranks: int
):
    num_text, num_codes = draw_lengths(20_000)
    lengths, work = positions(num_text, num_codes, CONFIG), operations(num_text, num_codes, CONFIG)
    dealt = loads(lengths, work, share, num_ranks, 20, balanced)
    plain = loads(lengths, work, share, num_ranks, 20, contiguous(share))
    assert dealt.imbalance < 0.03 < 0.05 < plain.imbalance
    assert dealt.worst >= dealt.imbalance


def test_a_small_step_weighs_as_little_as_it_takes_and_is_not_the_worst():
    work = np.array([[100.0, 100.0], [110.0, 90.0], [10.0, 0.0]])
    found = Loads(work, np.array([True, True, False]), 0, 0.0)
    assert found.imbalance == pytest.approx((100 + 110 + 10) / (100 + 100 + 5) - 1)
    assert found.worst == pytest.approx(0.1)


def test_what_is_left_of_an_epoch_is_no_whole_step(lengths: np.ndarray):
    found = loads(lengths, lengths.astype(float), SAMPLES, 4, 100, balanced)
    assert np.flatnonzero(~found.is_whole).tolist() == [93]  # 3,001 = 93 x 32 + 25


@pytest.mark.parametrize("share", [SAMPLES, TOKENS])
@pytest.mark.parametrize("ranks", [[4], [1, 8, 3], [64, 2]])
def test_every_sample_is_seen_once_whatever_the_number_of_ranks(
    share: Share, ranks: list[int], lengths: np.ndarray
):
    assert np.array_equal(times_seen(lengths, share, ranks), np.ones(len(lengths)))


def test_a_sample_that_is_dealt_to_nobody_or_twice_is_noticed(
    lengths: np.ndarray, monkeypatch: pytest.MonkeyPatch
):
    def wrong(costs: list[float], num_ranks: int) -> list[list[int]]:
        shares = [list(range(rank, len(costs), num_ranks)) for rank in range(num_ranks)]
        shares[0][0] = shares[1][0]
        return shares

    monkeypatch.setattr(imbalance, "assign_samples", wrong)
    seen = times_seen(lengths, SAMPLES, [4])
    assert (seen.min(), seen.max()) == (0, 2)


def test_the_tables_have_a_row_for_each_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    output = tmp_path / "table.md"
    argv = "--steps 8 --samples 500 --ranks 2 4 --batch-sizes 4 --batch-tokens 3000 --straggler-tokens 3000"
    assert imbalance.main([*argv.split(), f"--output={output}"]) == 0
    text = output.read_text()
    assert text == capsys.readouterr().out
    balance, slow, once = (
        [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")][1:]
        for part in text.split("## ")[1:]
    )
    assert [row[:2] for row in balance] == [
        [share, ranks] for ranks in ("2", "4") for share in ("4 samples", "3,000 tokens")
    ]
    assert [row[0] for row in slow] == list(SLOWDOWNS)
    assert {(row[-3], row[-2], row[-1]) for row in once} == {("500", "1", "1")}
    largest = max(float(row[4].removesuffix(" %")) for row in balance)
    assert f"over all steps, is {largest:.2f} %" in text
