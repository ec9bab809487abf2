"""Tests of benchmarks/imbalance.py: it shards as the trainer does."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import imbalance
from benchmarks.imbalance import (
    CONFIG,
    SLOWDOWNS,
    Loads,
    Share,
    balanced,
    contiguous,
    cost,
    loads,
    times_seen,
)
from benchmarks.workload import (
    config_of,
    draw_lengths,
    make_samples,
    operations,
    positions,
    useful_operations,
)
from indextts.errors import UserError

pytestmark = pytest.mark.long

SAMPLES, TOKENS = Share(batch_size=8), Share(batch_tokens=4096)


@pytest.fixture(scope="module")
def lengths() -> np.ndarray:
    return positions(*draw_lengths(3001), CONFIG)


def test_drawn_lengths_are_distributed_as_those_of_the_samples():
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
    for shard in (balanced, contiguous(share)):
        found = loads(lengths, work, share, 4, 20, shard)
        assert found.work.shape == (20, 4)
        assert found.work.sum(1) == pytest.approx([work[batch].sum() for batch in batches])
        assert found.most_positions > max(lengths[batch].sum() for batch in batches) / 4


def test_contiguous_parts_follow_the_order(lengths: np.ndarray):
    for share, num_samples in ((SAMPLES, 32), (TOKENS, 45)):
        pieces = contiguous(share)(lengths[:num_samples], 4)
        assert [index for piece in pieces for index in piece] == list(range(num_samples))
    assert {len(piece) for piece in contiguous(SAMPLES)(lengths[:32], 4)} == {8}
    assert len(contiguous(SAMPLES)(lengths[:3], 4)) == 4  # an epoch's end, with less than a sample each


@pytest.mark.parametrize("num_ranks", [8, 64])
@pytest.mark.parametrize("share", [SAMPLES, TOKENS])
def test_balancing_leaves_less_than_three_percent_where_contiguous_parts_leave_more(
    share: Share, num_ranks: int
):
    num_text, num_codes = draw_lengths(20_000)
    lengths, work = positions(num_text, num_codes, CONFIG), operations(num_text, num_codes, CONFIG)
    sharded = loads(lengths, work, share, num_ranks, 20, balanced)
    plain = loads(lengths, work, share, num_ranks, 20, contiguous(share))
    assert sharded.imbalance < 0.03 < 0.05 < plain.imbalance
    assert sharded.worst >= sharded.imbalance


def test_an_incomplete_step_has_a_small_weight_and_is_not_the_worst():
    work = np.array([[100.0, 100.0], [110.0, 90.0], [10.0, 0.0]])
    found = Loads(work, np.array([True, True, False]), 0, 0.0)
    assert found.imbalance == pytest.approx((100 + 110 + 10) / (100 + 100 + 5) - 1)
    assert found.worst == pytest.approx(0.1)


def test_the_rest_of_an_epoch_is_an_incomplete_step(lengths: np.ndarray):
    found = loads(lengths, lengths.astype(float), SAMPLES, 4, 100, balanced)
    assert np.flatnonzero(~found.is_complete).tolist() == [93]  # 3,001 = 93 x 32 + 25


@pytest.mark.parametrize("share", [SAMPLES, TOKENS])
@pytest.mark.parametrize("ranks", [[4], [1, 8, 3], [64, 2]])
def test_every_sample_is_seen_once_whatever_the_number_of_ranks(
    share: Share, ranks: list[int], lengths: np.ndarray
):
    assert np.array_equal(times_seen(lengths, share, ranks), np.ones(len(lengths)))


def test_a_sample_assigned_to_no_rank_or_two_ranks_is_detected(
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
    argv = "--steps 8 --samples 500 --ranks 2 --ranks 4 --batch-sizes 4 --batch-tokens 3000"
    assert imbalance.main([*argv.split(), "--straggler-tokens=3000", f"--output={output}"]) == 0
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
    assert f"{largest:.2f} %, below 3 %" in text or f"{largest:.2f} %, NOT below 3 %" in text


def test_a_straggler_share_that_is_not_simulated_is_refused():
    with pytest.raises(UserError, match="--straggler-tokens: 5"):
        imbalance.main(["--straggler-tokens=5"])


def test_slow_ranks_cost_the_expected_maximum_of_their_slowdowns():
    even = {num_ranks: np.ones((4000, num_ranks)) for num_ranks in (8, 64)}
    expected = {8: 1.4236, 64: 2.3437}  # expected maximum of as many standard normal values
    for num_ranks, work in even.items():
        assert cost(work, SLOWDOWNS["none"], 1) == 0
        assert cost(work, SLOWDOWNS["one rank always 10 % slower"], 1) == pytest.approx(0.1)
        drawn = cost(work, SLOWDOWNS["each micro-batch of each rank, log-normal 2 %"], 1)
        assert drawn == pytest.approx(0.02 * expected[num_ranks], rel=0.04)
        averaged = cost(work, SLOWDOWNS["each micro-batch of each rank, log-normal 2 %"], 4)
        assert averaged == pytest.approx(drawn / 2, rel=0.04)
        constant = cost(work, SLOWDOWNS["each GPU its own speed, log-normal 2 %"], 4)
        assert constant == pytest.approx(0.02 * expected[num_ranks], rel=0.15)  # 40 clusters
        rare = cost(work, SLOWDOWNS["one micro-batch of a rank in 1,000 takes twice as long"], 1)
        assert rare == pytest.approx(1 - 0.999**num_ranks, rel=0.3)
