"""Tests of benchmarks/feature_store.py: it runs, and its tables have what they say."""

import sys

import pytest

from benchmarks import feature_store
from benchmarks.opening import measured
from indextts.data.feature_store import FeatureStore
from indextts.data.manifest import read_pairs


@pytest.mark.slow
def test_the_benchmark_reads_what_it_wrote_in_every_form(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(feature_store, "COLD_READS", 5)
    monkeypatch.setattr(feature_store, "TURNS", 1)
    output = tmp_path / "table.md"
    arguments = ["--clips=8", "--reads=5", "--open=300", f"--folder={tmp_path}", f"--output={output}"]
    monkeypatch.setattr(sys, "argv", ["feature_store", *arguments])
    assert feature_store.main() == 0
    table = output.read_text()
    assert capsys.readouterr().out.strip() == table.strip()
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in table.splitlines()}
    assert float(rows["store, float16"][4]) < 0.6 < 0.9 < float(rows["store, float32"][4]) < 1.1
    assert int(rows[".npy files"][1]) == 24
    for latents, most in (("float16", 2**-11), ("bfloat16", 2**-8)):
        assert most / 8 < float(rows[latents][2]) < most
    assert list(tmp_path.iterdir()) == [output]


def test_what_is_opened_is_what_is_there(tmp_path):
    store, utterances, pairs = feature_store.write_many(tmp_path, 300)
    for what, path in (("store", store), ("utterances", utterances), ("pairs", pairs), ("lookup", pairs)):
        assert measured(what, str(path))["seconds"] > 0
    opened = FeatureStore.open(store)
    assert len(opened.keys) == 300
    assert all(each.target_key in opened and each.prompt_key in opened for each in read_pairs(pairs))
