import numpy as np
import pytest

from indextts.training.order import BatchPlan, derive_seed, epoch_permutation, in_batches

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
    orders = [epoch_permutation(50, seed=1, epoch=epoch).tolist() for epoch in range(3)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders} | {tuple(range(50))}) == 4


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
        assert [sample for batch in batches for sample in batch] == epoch_permutation(400, 7, epoch).tolist()


@pytest.mark.parametrize("batch_tokens", [2700, 4000, 50_000, 10**9])
def test_batches_keep_the_budget_and_have_the_computed_number(batch_tokens: int):
    these = plan(batch_tokens=batch_tokens)
    for batches in epochs(these, 3):
        assert len(batches) == these.size.num_batches(these.batch_size, batch_tokens)
        assert all(0 < LENGTHS[batch].sum() <= batch_tokens for batch in batches)


def test_after_an_interruption_the_remaining_batches_follow():
    first, second = epochs(plan(), 2)
    for number in (1, 5, len(first) - 1):
        done = sum(map(len, first[:number]))
        rest = epochs(plan(samples_done=done), 2)
        assert rest == [first[number:], second]


def test_a_position_within_a_batch_leaves_its_other_samples():
    first = epochs(plan(), 1)[0]
    assert epochs(plan(samples_done=len(first[0]) + 1), 1)[0] == [first[1][1:], *first[2:]]


def test_a_change_from_size_to_budget_loses_no_sample():
    done = 8 * 11
    order = epoch_permutation(400, 7, 0).tolist()
    rest = epochs(plan(samples_done=done), 1)[0]
    assert order[:done] + [sample for batch in rest for sample in batch] == order


def test_batches_of_a_size_end_with_a_smaller_one():
    assert in_batches(range(7), 3) == [[0, 1, 2], [3, 4, 5], [6]]
