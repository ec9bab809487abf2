from pathlib import Path

import numpy as np

from indextts.data.encoding import SORTED_CLIPS, BatchLimit, batches_of
from indextts.data.manifest import Utterance


def utterances(count: int) -> list[Utterance]:
    durations_s = np.random.default_rng(0).lognormal(1.7, 0.55, count)
    return [Utterance(str(n), Path(f"/{n}"), "ሀ", "a", float(s)) for n, s in enumerate(durations_s)]


def padded_s(batch: list[Utterance]) -> float:
    return len(batch) * max(utterance.duration_s for utterance in batch)


def test_a_batch_keeps_its_limit_with_padding_unless_it_is_one_clip():
    batches = list(batches_of(utterances(1000), BatchLimit(12)))
    assert any(len(batch) > 1 for batch in batches)
    for batch in batches:
        assert padded_s(batch) <= 12 or len(batch) == 1


def test_every_utterance_is_in_one_batch_and_not_far_from_its_place():
    everything = utterances(1000)
    order = [utterance.id for batch in batches_of(everything, BatchLimit(80)) for utterance in batch]
    assert sorted(order) == sorted(utterance.id for utterance in everything)
    assert {int(id) // SORTED_CLIPS for id in order[:SORTED_CLIPS]} == {0}


def test_most_of_a_batch_is_not_padding():
    everything = utterances(1000)
    total_s = sum(padded_s(batch) for batch in batches_of(everything, BatchLimit(80)))
    assert total_s < 1.1 * sum(utterance.duration_s for utterance in everything)


def test_without_a_limit_clips_are_alone_and_in_order():
    everything = utterances(20)
    assert list(batches_of(everything, BatchLimit(0))) == [[utterance] for utterance in everything]


def test_a_lowered_limit_applies_to_later_batches(caplog):
    limit = BatchLimit(60)
    batches = batches_of(utterances(300), limit)
    next(batches)
    limit.lower(60, "CUDA out of memory")
    limit.lower(80, "CUDA out of memory")  # of a batch that was begun before
    assert limit.seconds == 30
    next(batches)  # was being put together
    assert all(padded_s(batch) <= 30 or len(batch) == 1 for batch in batches)
    assert caplog.text.count("30.0 s per batch") == 1
