"""Tests of indextts/planning/memory.py: counts match real models, estimates match measured peaks."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from indextts.models.checkpoint import read_file
from indextts.models.gpt.config import GPTConfig, load_config
from indextts.models.gpt.weights import ENCODERS, empty_model
from indextts.models.lora import LoraSettings, add_adapters, is_block_matrix
from indextts.planning.memory import CPU_FACTORS, CPU_SOURCE, SOURCE, memory_need, model_size
from indextts.training.optim import TextChoice, select_trained
from indextts.training.saving import num_bytes
from tests.conftest import REPOSITORY
from tests.test_models_gpt_weights import PUBLISHED
from tests.tiny_gpt import TINY
from tests.tiny_run import BASE_SIZE, make_tiny_run

CONFIG = replace(PUBLISHED, number_text_tokens=24_000)
SIZE = model_size(CONFIG, base_size=12_000)
STATE = SIZE.state_bytes("float32", 0.0)
ROWS = {  # the row's name in the table: positions, half precision, recomputed, padded
    "packed, 8192 tokens": (8192, True, False, False),
    "packed, 16384 tokens": (16384, True, False, False),
    "packed, 32768 tokens": (32768, True, False, False),
    "checkpointing, 16384 tokens": (16384, True, True, False),
    "float32, TF32, 16384 tokens": (16384, False, False, False),
    "padded, 16384 tokens": (round(16384 * 2.03), True, False, True),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_formula_is_within_2_percent_of_the_measured_peaks(name: str):
    positions, is_half, recomputes, is_padded = ROWS[name]
    [line] = [line for line in (REPOSITORY / SOURCE).read_text().splitlines() if f"| {name} |" in line]
    [peak] = re.findall(r"([\d.]+) GiB", line)
    need = memory_need(
        CONFIG,
        SIZE,
        positions=positions,
        is_half=is_half,
        recomputes=recomputes,
        is_padded=is_padded,
        accumulates=False,
        state_bytes=STATE,
    )
    assert need.peak / 2**30 == pytest.approx(float(peak), rel=0.02)


def packed(**changes: bool) -> dict[str, bool]:
    return {"is_half": True, "recomputes": False, "is_padded": False, "accumulates": False, **changes}


@pytest.mark.parametrize("accumulates", [False, True])
def test_the_largest_fitting_micro_batch_fits_and_a_larger_one_does_not(accumulates: bool):
    need = memory_need(CONFIG, SIZE, positions=0, **packed(accumulates=accumulates), state_bytes=STATE)
    budget = 20 << 30
    most = need.positions_within(budget)
    assert need.at(most) <= budget < need.at(most + 2)
    assert need.positions_within(4 << 30) == 0


def test_without_a_gpu_the_encoders_and_the_save_copy_are_added():
    host = memory_need(CONFIG, SIZE, on_gpu=False, positions=2000, **packed(is_half=False), state_bytes=STATE)
    text = (REPOSITORY / "benchmarks/results/published_size_2_cores.md").read_text(encoding="utf-8")
    [measured_gb] = re.findall(r"train_gpt_v2.py` \| [\d.]+ \| ([\d.]+) \|", text)
    # 3 steps and one save behind them, when no activations were left
    assert host.fixed / 1e9 == pytest.approx(float(measured_gb), rel=0.02)


def test_cpu_activations_are_within_a_third_of_the_measured_ones():
    text = (REPOSITORY / CPU_SOURCE).read_text(encoding="utf-8")
    rows = re.findall(r"\| (float32|bfloat16) \| (yes|no) \| (\d+) \| .* \| (\d+) \|$", text, re.MULTILINE)
    assert len(rows) == 8
    for dtype, recomputes, layers, measured in rows:
        factor = CPU_FACTORS[dtype == "bfloat16", recomputes == "yes"]
        config = replace(CONFIG, layers=int(layers))
        assert factor.per_position(config) / config.model_dim == pytest.approx(float(measured), rel=0.34)


def test_the_memory_table_of_the_speed_page_follows_the_formula():
    text = (REPOSITORY / "docs/lab/speed.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    [assumed] = [[float(cell) for cell in row[1:]] for row in rows if row[0] == "assumed GiB"]
    shown = {
        row[0]: row[1:]
        for row in rows
        if re.match("default|`--(opt|ema|grad|lora)", row[0]) and len(row) == 7
    }
    assert len(shown) == 7
    for name, cells in shown.items():
        size = model_size(CONFIG, base_size=12_000, lora_rank=32) if "--lora-rank 32" in name else SIZE
        moments, decay = "bfloat16" if "bfloat16" in name else "float32", 0.999 if "ema" in name else 0.0
        need = memory_need(
            CONFIG,
            size,
            positions=0,
            state_bytes=size.state_bytes(moments, decay),
            **packed(recomputes="--grad-checkpointing" in name),
        )
        fitting = [need.positions_within((gib - 1) * 2**30) // 100 * 100 for gib in assumed]
        assert cells == [f"{each:,}" if each else "no" for each in fitting], name
        if "GiB before" in name or re.search(r"\(([\d.]+) GiB\)", name):
            assert f"{need.fixed / 2**30:.1f} GiB" in name


DEMO = load_config(REPOSITORY / "demo/checkpoints/config.yaml")


@pytest.mark.parametrize(
    ("config", "base_size"),
    [
        (TINY, TINY.number_text_tokens),
        (replace(TINY, number_text_tokens=20), 12),
        (replace(DEMO, number_text_tokens=3000, base="2.5"), DEMO.number_text_tokens),
        (PUBLISHED, PUBLISHED.number_text_tokens),
        (CONFIG, 12_000),
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
    size = model_size(CONFIG, base_size=12_000, lora_rank=32)
    assert size.checkpoint_bytes("float32", 0.0) == pytest.approx(558e6, rel=0.002)


def test_a_checkpoint_of_the_published_model_has_the_measured_size():
    text = (REPOSITORY / "benchmarks/results/resume_time_2_cores.md").read_text(encoding="utf-8")
    assert "checkpoint of 7.83 GB" in text
    assert SIZE.checkpoint_bytes("float32", 0.0) == pytest.approx(7.83e9, rel=0.002)


@pytest.mark.parametrize("rank", [0, 4])
def test_a_written_checkpoint_has_the_computed_bytes_of_tensors(tmp_path: Path, rank: int):
    run = make_tiny_run(tmp_path)
    assert run.train(max_steps=1, lora_rank=rank) == 0
    content = read_file(run.output / "model_step1.pth")
    config = replace(TINY, number_text_tokens=BASE_SIZE + 320, max_text_tokens=60)
    counted = model_size(config, base_size=BASE_SIZE, lora_rank=rank)
    step_counters = 4 * len(content["optimizer"]["state"])
    written = num_bytes({name: content[name] for name in ("model", "optimizer")})
    assert written - step_counters == counted.checkpoint_bytes("float32", 0.0)
