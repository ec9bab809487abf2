from itertools import islice

import numpy as np
import pytest
import torch

from indextts.training.order import (
    BatchPlan,
    derive_seed,
    epoch_order,
    epoch_size,
    in_batches,
    partition_ends,
)

LENGTHS = np.random.default_rng(0).integers(120, 900, 400)


def plan(epoch: int = 0, samples_done: int = 0, **changes: int) -> BatchPlan:
    settings = {"seed": 7, "batch_size": 8, "batch_tokens": 4000, **changes}
    return BatchPlan(LENGTHS, **settings, epoch=epoch, samples_done=samples_done)


def epochs(these: BatchPlan, number: int) -> list[list[list[int]]]:
    """Return the batches of the first epochs, by their marks."""
    found: list[list[list[int]]] = [[]]
    for batch, is_last in zip(these, these.epoch_end_flags(), strict=False):
        found[-1].append(batch)
        if is_last:
            if len(found) == number:
                return found
            found.append([])
    raise AssertionError("a plan has no end")


def test_each_epoch_has_every_sample_once_in_its_own_order():
    orders = [epoch_order(50, seed=1, epoch=epoch) for epoch in range(3)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders} | {tuple(range(50))}) == 4


def test_an_order_is_a_function_of_seed_and_epoch():
    assert epoch_order(50, seed=1, epoch=2) == epoch_order(50, seed=1, epoch=2)
    assert epoch_order(50, seed=1, epoch=2) != epoch_order(50, seed=2, epoch=2)


def test_the_order_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    epoch_order(50, seed=1, epoch=0)
    assert torch.equal(torch.get_rng_state(), state)


def test_seeds_differ_with_every_part_and_fit_a_generator():
    seeds = {
        derive_seed(1, "order", 2),
        derive_seed(2, "order", 1),
        derive_seed(1, "dropout", 2),
        derive_seed(1, "order", 3),
    }
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("batch_tokens", [0, 2700, 4000, 50_000, 10**9])
def test_every_epoch_has_each_sample_once_in_its_order(batch_tokens: int):
    for epoch, batches in enumerate(epochs(plan(batch_tokens=batch_tokens), 3)):
        assert [sample for batch in batches for sample in batch] == epoch_order(400, 7, epoch)


@pytest.mark.parametrize("batch_tokens", [2700, 4000, 50_000, 10**9])
def test_batches_keep_the_budget_and_have_the_computed_number(batch_tokens: int):
    these = plan(batch_tokens=batch_tokens)
    for batches in epochs(these, 3):
        assert len(batches) == these.size.num_batches(these.batch_size, batch_tokens)
        assert all(0 < LENGTHS[batch].sum() <= batch_tokens for batch in batches)


def test_batches_of_a_budget_fill_most_of_it():
    for batches in epochs(plan(batch_tokens=20_000), 3):
        filled = [LENGTHS[batch].sum() for batch in batches]
        assert sum(filled) / len(filled) > 0.85 * 20_000


def test_after_an_interruption_the_remaining_batches_follow():
    first, second = epochs(plan(), 2)
    for number in (1, 5, len(first) - 1):
        done = sum(map(len, first[:number]))
        rest = epochs(plan(samples_done=done), 2)
        assert rest == [first[number:], second]


def test_a_position_within_a_batch_leaves_its_other_samples():
    first = epochs(plan(), 1)[0]
    rest = epochs(plan(samples_done=len(first[0]) + 1), 1)[0]
    assert rest == [first[1][1:], *first[2:]]


def test_a_change_from_size_to_budget_loses_no_sample():
    done = 8 * 11
    order = epoch_order(400, 7, 0)
    rest = epochs(plan(samples_done=done), 1)[0]
    assert order[:done] + [sample for batch in rest for sample in batch] == order


def test_a_plan_can_be_iterated_any_number_of_times():
    these = plan()
    assert list(islice(these, 100)) == list(islice(these, 100))


def test_a_completed_epoch_is_not_repeated():
    assert epochs(plan(epoch=2), 1) == [epochs(plan(), 3)[2]]


def test_parts_end_at_samples_and_have_about_equal_lengths():
    assert partition_ends(np.array([5, 5, 5, 5]), 2) == [2, 4]
    assert partition_ends(np.array([1, 9, 5, 5]), 2) == [2, 4]
    assert partition_ends(np.array([6, 6, 6]), 1) == [3]


def test_batches_of_a_size_end_with_a_smaller_one():
    assert in_batches(range(7), 3) == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_size_counts_samples_and_positions():
    size = epoch_size(np.array([3, 9, 4]))
    assert (size.num_samples, size.num_positions, size.longest) == (3, 16, 9)
