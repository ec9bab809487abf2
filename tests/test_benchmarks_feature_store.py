"""Tests of benchmarks/feature_store.py and opening.py."""

import pytest

from benchmarks import feature_store
from benchmarks.opening import measured
from indextts.data.feature_store import FeatureStore
from indextts.data.manifest import read_pairs

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_the_report_compares_every_format(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(feature_store, "COLD_READS", 5)
    monkeypatch.setattr(feature_store, "REPEATS", 1)
    output = tmp_path / "table.md"
    arguments = ["--clips=8", "--reads=5", "--open=300", f"--folder={tmp_path}", f"--output={output}"]
    assert feature_store.main(arguments) == 0
    table = output.read_text()
    assert capsys.readouterr().out.strip() == table.strip()
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in table.splitlines()}
    assert float(rows["store, float16"][4]) < 0.6 < 0.9 < float(rows["store, float32"][4]) < 1.1
    assert int(rows[".npy files"][1]) == 24
    for latents, most in (("float16", 2**-11), ("bfloat16", 2**-8)):
        assert most / 8 < float(rows[latents][2]) < most
    assert list(tmp_path.iterdir()) == [output]


def test_every_kind_of_file_can_be_opened(tmp_path):
    store, utterances, pairs = feature_store.write_many(tmp_path, 300)
    for what, path in (("store", store), ("utterances", utterances), ("pairs", pairs), ("lookup", pairs)):
        assert measured(what, path)["cpu_s"] > 0
    opened = FeatureStore.open(store)
    assert len(opened.keys) == 300
    assert all(each.target_key in opened and each.prompt_key in opened for each in read_pairs(pairs))
