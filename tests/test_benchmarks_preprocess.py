"""Tests of the benchmarks of preprocessing and published sizes, at tiny sizes."""

import json
import re
import subprocess
import sys

import pytest

from benchmarks import preprocess
from benchmarks.speech_models import SIZES, on_meta
from indextts.features.semantic_codec import SemanticCodec
from indextts.models.gpt.weights import empty_model
from tests.conftest import REPOSITORY
from tests.processor import needs_bfloat16_attention

pytestmark = pytest.mark.long


@pytest.mark.slow
@needs_bfloat16_attention
def test_every_stage_of_both_backends_has_a_row(tmp_path, capsys):
    flags = ["--size=tiny", "--clips=2", f"--output={tmp_path}/table.md"]
    assert preprocess.main(flags) == 0
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert table in capsys.readouterr().out
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith(("| indextts2", "| builtin"))]
    stages = {(row[0].removeprefix("| "), re.split("[,:] ", row[1])[0]) for row in rows}
    shared = {"decode and resample", "reading", "codec", "conditioning and emotion", "writing", "whole"}
    for backend, own in (("indextts2", {"log-mel", "w2v-BERT"}), ("builtin", {"log-mel bands"})):
        assert {stage for of_backend, stage in stages if of_backend == backend} == shared | own


def test_the_published_size_has_the_published_tensors(shared):
    size = SIZES["published"]
    keys = shared / "vectors/published_keys"
    for name, model in (
        ("gpt", empty_model(size.gpt)),
        ("semantic_codec", on_meta(lambda: SemanticCodec(size.codec))),
    ):
        wanted = json.loads((keys / f"{name}.json").read_text())
        found = {key: [list(t.shape), str(t.dtype)[6:]] for key, t in model.state_dict().items()}
        assert found == wanted
    config = size.encoder_config(24)
    assert (config.hidden_size, config.num_attention_heads, config.intermediate_size) == (1024, 16, 4096)
    assert (config.left_max_position_embeddings, config.right_max_position_embeddings) == (64, 8)


def test_readers_of_the_tool_import_no_torch():
    program = "import sys, tools.preprocess_data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY).returncode == 0
