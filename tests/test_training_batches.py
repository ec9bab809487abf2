"""Tests of indextts/training/batches.py: which samples, in which order."""

import torch

from indextts.training.batches import Sample as TrainingSample
from indextts.training.batches import (
    Unreadable,
    collate_padded,
    collate_readable,
    epoch_order,
    grouped,
    mix,
    too_many,
)


def test_each_epoch_has_every_sample_once_in_an_order_of_its_own():
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


def test_groups_are_full_but_for_the_epochs_last():
    assert list(grouped(range(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]  # type: ignore[arg-type, comparison-overlap]


def test_seeds_differ_with_every_part_and_fit_a_generator():
    seeds = {mix(1, "order", 2), mix(2, "order", 1), mix(1, "dropout", 2), mix(1, "order", 3)}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_batch_knows_its_true_lengths():
    def sample(num_text: int, num_codes: int) -> TrainingSample:
        return TrainingSample(
            "id", torch.arange(num_text), torch.arange(num_codes), torch.zeros(2, 4), torch.zeros(4)
        )

    batch = collate_padded([sample(3, 5), sample(1, 7)])
    assert batch.text_ids.shape == (2, 3)
    assert batch.codes.shape == (2, 7)
    assert batch.text_lengths.tolist() == [3, 1]
    assert batch.code_lengths.tolist() == [5, 7]
    assert (batch.num_text, batch.num_mel) == (3 + 1 + 1 + 1, 5 + 1 + 7 + 1)


def test_a_sample_that_cannot_be_read_is_named_and_takes_nobodys_place():
    sample = TrainingSample("a", torch.arange(3), torch.arange(5), torch.zeros(2, 4), torch.zeros(4))
    unreadable = Unreadable("b", "the disk")
    mixed = collate_readable([unreadable, sample], collate_padded)
    assert mixed.batch is not None
    assert mixed.batch.num_samples == 1
    assert mixed.ids == ("b", "a")
    assert mixed.unreadable == (unreadable,)
    assert collate_readable([unreadable], collate_padded).batch is None


def test_a_batch_is_split_into_rows_with_their_own_padding():
    samples = [
        TrainingSample(str(n), torch.arange(n), torch.arange(2 * n), torch.zeros(2, 4), torch.full((4,), n))
        for n in (5, 2, 3)
    ]
    batch = collate_padded(samples)
    first, second = batch.split(2)
    assert first.text_ids.shape == (2, 5)
    assert second.text_ids.tolist() == [[0, 1, 2]]
    assert second.codes.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert second.emo_vec.tolist() == [[3, 3, 3, 3]]


def test_how_many_unusable_samples_are_too_many():
    assert not too_many(10, 20)
    assert too_many(11, 20)
    assert not too_many(100, 10_000)
    assert too_many(101, 10_000)
