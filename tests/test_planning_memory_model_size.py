"""Tests of `model_size` in indextts/planning/memory.py: the counts match real models."""

from dataclasses import replace
from pathlib import Path

import pytest

from indextts.models.checkpoint import read_file
from indextts.models.gpt.config import GPTConfig, load_config
from indextts.models.gpt.weights import ENCODERS, empty_model
from indextts.models.lora import LoraSettings, add_adapters, is_block_matrix
from indextts.planning.memory import model_size
from indextts.training.optim import TextChoice, select_trained
from indextts.training.saving import num_bytes
from tests.conftest import REPOSITORY
from tests.test_models_gpt_weights import PUBLISHED
from tests.tiny_gpt import TINY
from tests.tiny_run import BASE_SIZE, CONFIG, make_tiny_run

DEMO = load_config(REPOSITORY / "demo/checkpoints/config.yaml")


@pytest.mark.parametrize(
    ("config", "base_size"),
    [
        (TINY, TINY.number_text_tokens),
        (replace(TINY, number_text_tokens=20), 12),
        (replace(DEMO, number_text_tokens=3000, base="2.5"), DEMO.number_text_tokens),
        (PUBLISHED, PUBLISHED.number_text_tokens),
        (replace(PUBLISHED, number_text_tokens=24_000), 12_000),
        (replace(PUBLISHED, number_text_tokens=72_509, base="2.5"), 60_509),
    ],
    ids=["tiny", "tiny, extended", "demo, extended", "published", "published, extended", "2.5, extended"],
)
def test_the_model_size_counts_every_parameter(config: GPTConfig, base_size: int):
    model = empty_model(config)
    parameters = dict(model.named_parameters())
    trained = select_trained(model, base_size)
    size = model_size(config, base_size=base_size)
    encoders = sum(each.numel() for name, each in parameters.items() if name.startswith(ENCODERS))
    assert size.encoders == encoders
    assert size.gpt == sum(each.numel() for each in parameters.values()) - encoders
    assert size.tables == sum(buffer.numel() for buffer in model.buffers())
    assert size.trained == sum(each.numel() for each in trained.parameters.values())
    for targets in ("all", "attention", "mlp"):
        model = empty_model(config)
        add_adapters(model, LoraSettings(rank=4, alpha=8, targets=targets), lambda _: 0, {}, saved_scale=1.0)
        more = targets == "mlp"
        rows: TextChoice = "used" if more else "new"
        trained = select_trained(model, base_size, text_choice=rows, code_head=more)
        choice = {"train_text_rows": rows, "lora_code_head": more}
        size = model_size(config, base_size=base_size, lora_rank=4, lora_targets=targets, **choice)
        assert size.trained == size.saved == sum(each.numel() for each in trained.parameters.values())
        assert size.with_gradient == sum(p.numel() for p in model.parameters() if p.requires_grad)
        assert size.in_half == sum(p.numel() for name, p in parameters.items() if is_block_matrix(name))


def test_a_lora_checkpoint_of_rank_32_of_the_published_model_is_below_700_mb():
    config = replace(PUBLISHED, number_text_tokens=24_000)
    size = model_size(config, base_size=12_000, lora_rank=32)
    assert size.checkpoint_bytes("float32", 0.0) == pytest.approx(558e6, rel=0.002)


def test_a_checkpoint_of_the_published_model_has_the_measured_size():
    text = (REPOSITORY / "benchmarks/results/resume_time_2_cores.md").read_text(encoding="utf-8")
    assert "checkpoint of 7.83 GB" in text
    config = replace(PUBLISHED, number_text_tokens=24_000)
    assert model_size(config, base_size=12_000).checkpoint_bytes("float32", 0.0) == pytest.approx(
        7.83e9, rel=0.002
    )


@pytest.mark.parametrize("rank", [0, 4])
def test_a_written_checkpoint_has_the_computed_bytes_of_tensors(tmp_path: Path, rank: int):
    run = make_tiny_run(tmp_path)
    assert run.train(max_steps=1, lora_rank=rank) == 0
    content = read_file(run.output / "model_step1.pth")
    config = replace(CONFIG, number_text_tokens=BASE_SIZE + 320)
    counted = model_size(config, base_size=BASE_SIZE, lora_rank=rank)
    step_counters = 4 * len(content["optimizer"]["state"])
    written = num_bytes({name: content[name] for name in ("model", "optimizer")})
    assert written - step_counters == counted.checkpoint_bytes("float32", 0.0)
