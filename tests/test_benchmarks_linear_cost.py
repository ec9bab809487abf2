"""Tests of benchmarks/linear_cost.py: its batches are the trainer's, and its tables say what was measured."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from benchmarks import linear_cost
from benchmarks.linear_cost import batches_of, clips_of, linear_operations, make_dataset
from benchmarks.workload import config_of, num_positions

CONFIG = config_of("tiny", dropout=0.1)


@pytest.fixture(autouse=True)
def _keep_settings():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


def test_an_epoch_of_a_store_has_each_utterance_once_with_the_features_that_were_written(tmp_path: Path):
    dataset = make_dataset(tmp_path, CONFIG, count=20)
    batches = batches_of(dataset, CONFIG, size=4, epoch=0)
    seen = Counter(id for _ in range(5) for id in next(batches).ids)
    assert seen == {pair.id: 1 for pair in dataset.pairs}
    sample = dataset[3]
    [store] = dataset.stores.values()
    assert torch.equal(sample.condition, torch.from_numpy(store.condition(linear_cost.key(4))))
    assert int(dataset.lengths[3]) == CONFIG.prefix_length + len(sample.text_ids) + 2 + len(sample.codes) + 1


@pytest.mark.parametrize(("duration_s", "count"), [(2, 6), (5, 3), (30, 1)])
def test_clips_of_one_length_fill_the_budget_and_there_is_always_one(duration_s: float, count: int):
    clips = clips_of(CONFIG, duration_s, budget=1000)
    assert len(clips) == count
    assert {len(clip.codes) for clip in clips} == {duration_s * 50}
    assert (
        count == 1 or 1000 - num_positions(clips[0], CONFIG) < count * num_positions(clips[0], CONFIG) <= 1000
    )


def test_without_attention_the_operations_of_a_token_differ_by_the_share_of_the_prefix_alone():
    config = config_of("small", dropout=0.0)
    short, long = (linear_operations(clips_of(config, s, 4000), config) for s in (2, 30))
    assert 1 < long / short < 1.1


def test_the_tables_have_a_row_for_each_size_and_ratios_to_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    output = tmp_path / "table.md"
    argv = "--utterances 6 12 --clips-s 1 2 --clip-size tiny --budget 200 --batch 2 --batches 1 --passes 1"
    assert linear_cost.main([*argv.split(), f"--folder={tmp_path}", f"--output={output}"]) == 0
    table = output.read_text()
    assert table == capsys.readouterr().out
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    store, clips = rows[1:3], rows[4:6]
    assert [row[0] for row in store] == ["6", "12"]
    assert [row[0] for row in clips] == ["1 s", "2 s"]
    for first, second, columns in ((*store, ((2, 3), (4, 5))), (*clips, ((3, 4),))):
        for value, ratio in columns:
            assert first[ratio] == "1.000"
            wanted = float(second[value]) / float(first[value])
            assert float(second[ratio]) == pytest.approx(wanted, rel=0.03, abs=0.01)
    assert list(tmp_path.iterdir()) == [output]
