"""Samples are dealt so that every rank has about as much to do, each sample once."""

import subprocess
import sys

import numpy as np
import pytest

from indextts.training.distributed.sharding import Balance, costs_of, deal, imbalance


def lengths_of_speech(num_samples: int, seed: int) -> np.ndarray:
    """Positions of utterances of about 2 to 20 s: a long tail, as recordings have it."""
    drawn = np.random.default_rng(seed).lognormal(mean=5.8, sigma=0.45, size=num_samples)
    return drawn.clip(120, 1400).astype(np.int64)


@pytest.mark.parametrize(("num_samples", "num_ranks"), [(0, 3), (1, 4), (3, 4), (7, 2), (64, 4), (512, 64)])
def test_every_sample_goes_to_one_rank(num_samples, num_ranks):
    shares = deal(lengths_of_speech(num_samples, 1).tolist(), num_ranks)
    assert len(shares) == num_ranks
    assert sorted(index for share in shares for index in share) == list(range(num_samples))


def test_one_rank_keeps_the_order():
    assert deal([3.0, 9.0, 1.0, 9.0], 1) == [[0, 1, 2, 3]]


def test_the_longest_stands_alone_beside_the_many_short_ones():
    assert deal([1, 1, 8, 2, 2, 2], 2) == [[2], [0, 1, 3, 4, 5]]


def test_equal_costs_are_dealt_alike_in_every_process():
    program = (
        "from indextts.training.distributed.sharding import deal; print(deal([5.0] * 10 + [2.5] * 5, 4))"
    )
    printed = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert printed == {f"{deal([5.0] * 10 + [2.5] * 5, 4)}\n"}


@pytest.mark.parametrize("num_ranks", [2, 8, 64])
def test_no_rank_has_more_than_the_mean_and_one_sample(num_ranks):
    for seed in range(20):
        costs = costs_of(lengths_of_speech(3 * num_ranks, seed), model_dim=1280)
        loads = [costs[share].sum() for share in deal(costs.tolist(), num_ranks)]
        assert max(loads) <= costs.sum() / num_ranks + costs.max()


@pytest.mark.parametrize("num_ranks", [2, 8, 64])
def test_ranks_with_eight_samples_each_wait_less_than_a_hundredth(num_ranks):
    found, by_turns = [], []
    for seed in range(20):
        costs = costs_of(lengths_of_speech(8 * num_ranks, seed), model_dim=1280)
        found.append(imbalance([costs[share].sum() for share in deal(costs.tolist(), num_ranks)]))
        by_turns.append(imbalance([costs[rank::num_ranks].sum() for rank in range(num_ranks)]))
    assert np.mean(found) < 1.01 < np.mean(by_turns)


def test_attention_makes_a_long_sample_cost_more_than_its_positions():
    short, long = costs_of(np.array([100, 1000]), model_dim=1280)
    assert 10 < long / short < 11
    assert long == pytest.approx(1000 * (1 + 1000 / 15360))


def test_loads_that_are_equal_have_no_imbalance():
    assert imbalance([2.0, 2.0]) == 1.0
    assert imbalance([3.0, 1.0]) == 1.5
    assert imbalance([0.0, 0.0]) == 1.0


def test_dealing_is_done_without_torch():
    program = "import sys, indextts.training.distributed.sharding; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_balance_is_of_the_steps_since_it_was_read():
    balance = Balance()
    assert balance.read() == 1.0
    balance.add([3.0, 1.0])
    balance.add([4.0, 4.0])
    assert balance.read() == pytest.approx(7 / 6)
    balance.add([2.0, 2.0])
    assert balance.read() == 1.0
