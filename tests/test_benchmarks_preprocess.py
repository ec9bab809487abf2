"""Tests of the benchmarks of preprocessing and published sizes, at tiny sizes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors import safe_open

from benchmarks import preprocess, preprocess_stages, published_size
from benchmarks.speech_models import SIZES, on_meta
from indextts.data.encoding import reproducible_math
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
    assert stages == {
        ("indextts2", "decode and resample"),
        ("indextts2", "log-mel"),
        ("indextts2", "reading"),
        ("indextts2", "w2v-BERT"),
        ("indextts2", "codec"),
        ("indextts2", "conditioning and emotion"),
        ("indextts2", "writing"),
        ("indextts2", "whole"),
        ("builtin", "decode and resample"),
        ("builtin", "reading"),
        ("builtin", "log-mel bands"),
        ("builtin", "codec"),
        ("builtin", "conditioning and emotion"),
        ("builtin", "writing"),
        ("builtin", "whole"),
    }
    assert re.search(r"bfloat16 changes [\d.]+ % of [\d,]+ codes", table)
    assert re.search(r"takes [\d.]+e9 operations", table)
    assert re.search(r"split changes [\d.]+ % of [\d,]+ codes", table)
    assert all(f"--encoder-precision {name}" in table for name in ("tf32", "split"))


def test_the_operations_of_the_speech_encoder_are_its_products_with_weights():
    encoder = preprocess_stages.make_encoder("indextts2", "small", torch.device("cpu"))
    bench = preprocess_stages._Bench("indextts2", encoder, [], torch.device("cpu"))
    with reproducible_math():
        counted = bench.operations()
    width, inner, layers = 256, 1024, 17
    linear = 2 * (4 * width * inner + 4 * width**2 + 3 * width**2 + 31 * width)  # feed-forward twice, ...
    assert counted["w2v-BERT"] / (50 * layers * linear) == pytest.approx(1, abs=0.35)  # attention on top
    assert all(0 < each < counted["w2v-BERT"] for name, each in counted.items() if name != "w2v-BERT")


@pytest.mark.slow
def test_the_programs_run_from_recordings_to_steps(tmp_path, capsys):
    flags = ["--size=tiny", "--steps=1", f"--folder={tmp_path}/made", f"--output={tmp_path}/table.md"]
    assert published_size.main(flags) == 0
    lines = (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [
        "tools/preprocess_data.py",
        "tools/build_gpt_prompt_pairs.py",
        "tools/build_gpt_prompt_pairs.py",
        "trainers/train_gpt_v2.py",
    ]
    for row in rows:
        _, _, _, own, resident, cpu_s, _ = row.split("|")
        assert 0 < float(own) < float(resident)
        assert float(cpu_s) > 0
    assert not list((tmp_path / "made").iterdir())  # gigabytes at the published size


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "IndexTTS-2"
    published_size.write_base(folder, SIZES["tiny"])
    return folder


def test_the_files_have_the_published_names_and_layers(base):
    assert {str(path.relative_to(base)) for path in base.rglob("*") if path.is_file()} == {
        "config.yaml",
        "gpt.pth",
        "bpe.model",
        "wav2vec2bert_stats.pt",
        "w2v-bert-2.0/config.json",
        "w2v-bert-2.0/preprocessor_config.json",
        "w2v-bert-2.0/model.safetensors",
        "semantic_codec/model.safetensors",
    }
    with safe_open(base / "w2v-bert-2.0/model.safetensors", framework="pt") as file:
        names = set(file.keys())
    assert "masked_spec_embed" in names
    assert len({name.split(".")[2] for name in names if name.startswith("encoder.layers.")}) == 24
    assert set(yaml.safe_load((base / "config.yaml").read_text())) == {"gpt", "semantic_codec"}


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


def test_random_weights_are_reproducible(base, tmp_path):
    published_size.write_base(tmp_path / "again", SIZES["tiny"])
    one, two = (torch.load(folder / "gpt.pth", weights_only=True) for folder in (base, tmp_path / "again"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert float(one["conditioning_encoder.embed.pos_enc.pe"].abs().max()) == 1.0


def test_readers_of_the_benchmark_import_no_torch():
    program = "import sys, benchmarks.preprocess; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY).returncode == 0


def test_readers_of_the_tool_import_no_torch():
    program = "import sys, tools.preprocess_data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY).returncode == 0
