from collections import Counter
from pathlib import Path

import pytest

from indextts.data.manifest import Pair
from indextts.data.pair_summary import read_summary, summarise, summary_path, write_summary
from indextts.data.pairs import PairsResult
from indextts.errors import UserError


def pair(target: str, prompt: str, speaker: str, target_s: float, prompt_s: float) -> Pair:
    codes = round(50 * target_s)
    id = f"{target}__{prompt}"
    features = Path("/features/f.json")
    return Pair(id, speaker, prompt, target, "ሰላም", codes, target_s, prompt_s, features, prompt, target)


PAIRS = [
    pair("a1", "a2", "almaz", 3600, 4),
    pair("a1", "a3", "almaz", 3600, 6),
    pair("a2", "a3", "almaz", 1800, 6),
    pair("b1", "b2", "በለጠ", 900, 12),
]


def test_hours_are_those_of_different_targets_and_pairs_are_counted_by_speaker():
    summary = summarise(PairsResult(PAIRS, [], [], Counter()))
    assert (summary.num_pairs, summary.num_targets) == (4, 3)
    found = [(s.speaker, s.num_pairs, s.target_hours) for s in summary.speakers]
    assert found == [("almaz", 3, 1.5), ("በለጠ", 1, 0.25)]


def test_histograms_count_every_prompt_and_each_target_once():
    summary = summarise(PairsResult(PAIRS, [], [], Counter()))
    assert sum(summary.prompt_s.counts) == 4
    assert (summary.prompt_s.minimum, summary.prompt_s.median, summary.prompt_s.maximum) == (4, 6, 12)
    assert sum(summary.target_s.counts) == 3
    assert (summary.prompt_uses.minimum, summary.prompt_uses.maximum) == (1, 2)


def test_a_summary_is_read_as_it_was_written_and_a_corrupt_one_is_named(tmp_path):
    pairs = tmp_path / "train_pairs.jsonl"
    with pytest.raises(UserError, match=r"\.json: "):
        read_summary(pairs)
    write_summary(pairs, summarise(PairsResult(PAIRS, [], [], Counter())))
    assert read_summary(pairs) == summarise(PairsResult(PAIRS, [], [], Counter()))
    summary_path(pairs).write_text('{"num_pairs": 1}')
    with pytest.raises(UserError, match=r"\.json: num_targets"):
        read_summary(pairs)


def test_what_other_voices_cost_and_short_texts_are_counted_by_speaker():
    cosines = {"almaz": [0.9, 0.2, 0.4, 0.8], "lost": [0.1]}
    lost = Counter(almaz=2, lost=9)
    summary = summarise(
        PairsResult(PAIRS, [], [], Counter(), min_similarity=0.5, similarities=cosines, without_similar=lost)
    )
    found = [(s.speaker, s.num_pairs, s.unlike_percent, s.num_without) for s in summary.speakers]
    assert found == [("almaz", 3, 50.0, 2), ("በለጠ", 1, None, 0), ("lost", 0, 100.0, 9)]
    assert (summary.unlike_percent, summary.num_short) == (60.0, 3)
    assert sum(summary.similarity.counts) == 5
