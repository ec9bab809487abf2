import pytest
import torch

from indextts.training.batches import Sample as TrainingSample
from indextts.training.batches import (
    Unreadable,
    collate_for,
    collate_padded,
    group_batches,
    is_too_many,
)
from indextts.training.loading import collate_readable
from tests.tiny_gpt import TINY


def test_only_the_last_group_of_an_epoch_may_be_smaller():
    ends = [False, False, False, False, True, False, False, True]
    assert list(group_batches(range(8), ends, 3)) == [[0, 1, 2], [3, 4], [5, 6, 7]]  # type: ignore[arg-type, comparison-overlap]


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


@pytest.mark.parametrize("padding", ["none", "reference"])
def test_an_unreadable_sample_is_named_and_not_replaced(padding: str):
    collate = collate_for(padding, TINY)
    sample = TrainingSample("a", torch.arange(3), torch.arange(5), torch.zeros(2, 4), torch.zeros(4))
    unreadable = Unreadable("b", "the disk")
    mixed = collate_readable([unreadable, sample], collate)
    assert mixed.batch is not None
    assert mixed.batch.num_samples == 1
    assert mixed.ids == ("b", "a")
    assert mixed.unreadable == (unreadable,)
    assert collate_readable([unreadable], collate).batch is None


def test_parts_of_a_padded_batch_keep_its_text_padding():
    """The codes of a row see the padding of its text; nothing sees that of the codes."""
    samples = [
        TrainingSample(str(n), torch.arange(n), torch.arange(2 * n), torch.zeros(2, 4), torch.full((4,), n))
        for n in (5, 2, 3)
    ]
    batch = collate_padded(samples)
    first, second = batch.split(2 * batch.num_positions // 3)
    assert first.text_ids.shape == (2, 5)
    assert first.text_lengths.tolist() == [5, 2]
    assert second.text_ids.tolist() == [[0, 1, 2, 0, 0]]
    assert second.text_lengths.tolist() == [3]
    assert second.codes.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert second.emo_vec.tolist() == [[3, 3, 3, 3]]
    assert [(part.num_samples, part.num_text, part.num_mel) for part in (first, second)] == [
        (2, 6 + 3, 11 + 5),
        (1, 4, 7),
    ]


def test_the_limit_of_unusable_samples_depends_on_the_size_of_the_set():
    assert not is_too_many(10, 20)
    assert is_too_many(11, 20)
    assert not is_too_many(100, 10_000)
    assert is_too_many(101, 10_000)
