"""Tests of indextts/models/gpt/packed.py and attention.py: packed samples are computed alone."""

import importlib
import sys
import warnings
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention import current_flash_attention_impl, restore_flash_attention_impl

from demo.make_base_checkpoint import random_model
from indextts.models.gpt.attention import (
    BLOCKS,
    JAGGED,
    VARLEN,
    AttentionBackend,
    Segments,
    with_flash_attention_3,
)
from indextts.models.gpt.gpt2 import causal_attention
from indextts.models.gpt.model import GPTBatch, UnifiedVoice
from indextts.models.gpt.packed import PackedBatch, pack
from indextts.training.losses import LossSums, batch_sums
from tests.conformance import gradients_of, single_row
from tests.reference_vectors import Vectors, read_vectors
from tests.tiny_gpt import TINY, tiny_batch

FLOAT32, BFLOAT16 = torch.float32, torch.bfloat16


def packed(batch: GPTBatch, rows: list[int], config=TINY) -> PackedBatch:
    return pack(
        [batch.text_ids[row, : batch.text_lengths[row]].numpy() for row in rows],
        [batch.codes[row, : batch.code_lengths[row]].numpy() for row in rows],
        batch.condition[rows],
        batch.emo_vec[rows],
        config,
        None if batch.languages is None else batch.languages[rows],
    )


def alone(model: UnifiedVoice, batch: GPTBatch) -> LossSums:
    """The sums over all rows, each computed without the others and without padding."""
    rows = [batch_sums(model, single_row(batch, row), BLOCKS, 7) for row in range(len(batch.text_ids))]
    total = rows[0]
    for sums in rows[1:]:
        total = total + sums
    return total


def weighted(sums: LossSums) -> Tensor:
    return 0.2 * sums.text_nats / sums.text_tokens + 0.8 * sums.mel_nats / sums.mel_tokens


@pytest.fixture(params=["gpt_a", "gpt25_a"])
def vectors(shared: Path, request: pytest.FixtureRequest) -> Vectors:
    return read_vectors(shared / "vectors" / request.param)


def test_the_losses_equal_those_of_each_sample_alone_in_the_published_code(vectors: Vectors):
    model = vectors.model(vectors.config)
    for row, (text_loss, mel_loss) in enumerate(vectors.arrays["single_sample_losses"]):
        batch = packed(vectors.batch(), [row], vectors.config)
        means = batch_sums(model, batch, BLOCKS, 7).means()
        assert means.text_loss == pytest.approx(text_loss, abs=1e-5)
        assert means.mel_loss == pytest.approx(mel_loss, abs=1e-5)


@pytest.mark.parametrize("recompute", [False, True])
def test_losses_and_gradients_are_the_sums_over_samples_alone(vectors: Vectors, recompute: bool):
    model = vectors.model(replace(vectors.config, dropout=0.0)).train()
    model.gpt.recompute = recompute
    batch = vectors.batch()
    sums = batch_sums(model, packed(batch, list(range(len(batch.text_ids))), vectors.config), BLOCKS, 7)
    expected = alone(model, batch)
    for name, value in vars(expected).items():
        torch.testing.assert_close(getattr(sums, name), value, rtol=1e-6, atol=1e-5)
    found, wanted = gradients_of(weighted(sums), model), gradients_of(weighted(expected), model)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def test_dropout_repeats_with_its_seed_and_acts_on_attention_too():
    model = random_model(TINY, seed=0).train()
    batch = packed(tiny_batch(), [0, 1])

    def loss(seed: int) -> float:
        torch.manual_seed(seed)
        return float(batch_sums(model, batch, BLOCKS, 7).mel_nats.detach())

    assert loss(1) == loss(1) != loss(2)
    for block in model.gpt.h:
        block.attn.dropout, block.mlp.dropout = 0.0, 0.0
    model.gpt.dropout = 0.0
    assert loss(1) == loss(2)
    attend = BLOCKS.bind(batch.segments)
    q, k, v = torch.randn(3, 30, 2, 8, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(attend(q, k, v, 0.5), attend(q, k, v, 0.0))


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
def test_blocks_equal_the_attention_of_each_sample(dtype: torch.dtype):
    lengths = (3, 130, 64, 1, 200)  # below, above and at the size of a block
    offsets = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(3, sum(lengths), 2, 16, generator=generator).to(dtype).requires_grad_()
    weights = torch.randn(sum(lengths), 2, 16, generator=generator)
    attended = BLOCKS.bind(Segments(lengths, offsets))(*qkv, 0.0)
    exact = qkv.detach().float().requires_grad_()
    parts = [causal_attention(*part[:, None], 0.0)[0] for part in exact.split(lengths, dim=1)]
    expected = torch.cat(parts)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == FLOAT32 else {"rtol": 0.02, "atol": 0.03}
    torch.testing.assert_close(attended.float(), expected, **tolerance)
    (found,) = torch.autograd.grad((attended * weights).sum(), qkv)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), exact)
    torch.testing.assert_close(found.float(), wanted, **tolerance)


def test_the_gradient_of_dropped_attention_is_that_of_its_own_forward_pass():
    lengths = (70, 5)
    qkv = torch.randn(3, 75, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    attend = BLOCKS.bind(Segments(lengths, torch.tensor([0, 70, 75], dtype=torch.int32)))

    def with_seed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(3)
        return attend(q, k, v, 0.25)[::7]

    with torch.random.fork_rng():
        # scores and softmax are float32, so that differences of 1e-4 still tell right from wrong
        assert torch.autograd.gradcheck(
            with_seed, tuple(qkv.requires_grad_()), eps=1e-3, atol=2e-3, rtol=1e-2, nondet_tol=0.0
        )


FLASH_3 = """
import torch
kernels = torch.library.Library("flash_attn_3", "DEF")
kernels.define("fwd(Tensor q) -> Tensor")
kernels.define("bwd(Tensor q) -> Tensor")
"""


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")  # torch's, about replaced kernels
def test_flash_attention_3_is_used_where_its_package_and_a_hopper_gpu_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A stand-in for the package registers kernels; torch imports and activates it as the real one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device=None: (9, 0))
    assert with_flash_attention_3(VARLEN) is VARLEN  # not installed
    package = tmp_path / "flash_attn_interface.py"
    package.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert with_flash_attention_3(VARLEN) is VARLEN  # without kernels
    assert "FA3" in caplog.text
    package.write_text(FLASH_3)
    monkeypatch.delitem(sys.modules, "flash_attn_interface")
    importlib.invalidate_caches()
    try:
        assert with_flash_attention_3(JAGGED) is JAGGED
        assert current_flash_attention_impl() is None
        assert "FlashAttention 3" in with_flash_attention_3(VARLEN).name
        assert current_flash_attention_impl() == "FA3"
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device=None: (8, 0))
        assert with_flash_attention_3(VARLEN) is VARLEN
    finally:
        restore_flash_attention_impl()
        sys.modules.pop("flash_attn_interface", None)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("backend", "dtype"), [(BLOCKS, FLOAT32), (JAGGED, FLOAT32), (JAGGED, BFLOAT16), (VARLEN, BFLOAT16)]
)
def test_a_gpu_computes_the_same_as_the_cpu(backend: AttentionBackend, dtype: torch.dtype):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    model = random_model(replace(TINY, dropout=0.0), seed=0).train()
    batch = packed(tiny_batch(), [0, 1])
    expected = batch_sums(model, batch, BLOCKS, 7)
    model.cuda()
    with warnings.catch_warnings(), torch.autocast("cuda", dtype, enabled=dtype != FLOAT32):
        warnings.simplefilter("ignore")  # nested tensors announce themselves as a prototype
        sums = batch_sums(model, batch.to("cuda"), backend, 7)
    tolerance = 1e-3 if dtype == FLOAT32 else 5e-2
    torch.testing.assert_close(sums.mel_nats.cpu(), expected.mel_nats, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("max_positions", "sizes"),
    [(1, [1, 1, 1, 1, 1]), (26, [2, 1, 1, 1]), (39, [2, 2, 1]), (40, [3, 2]), (77, [5]), (1000, [5])],
)
def test_a_split_batch_equals_packing_its_samples(max_positions: int, sizes: list[int]):
    random = np.random.default_rng(0)
    lengths = [(3, 5), (1, 1), (4, 2), (2, 9), (7, 3)]
    texts = [random.integers(2, 12, num_text) for num_text, _ in lengths]
    codes = [random.integers(0, 8, num_codes) for _, num_codes in lengths]
    condition, emo_vec = torch.randn(5, TINY.num_latents, TINY.model_dim), torch.randn(5, TINY.model_dim)
    languages = torch.tensor([75, 0, 105, 3, 7])
    full = pack(texts, codes, condition, emo_vec, TINY, languages)
    assert list(full.lengths) == [16, 10, 14, 19, 18]
    parts = full.split(max_positions, TINY)
    assert [part.num_samples for part in parts] == sizes
    for start, size, part in zip(np.cumsum([0, *sizes[:-1]]), sizes, parts, strict=True):
        own = slice(start, start + size)
        expected = pack(texts[own], codes[own], condition[own], emo_vec[own], TINY, languages[own])
        for field in fields(expected):
            mine, other = getattr(part, field.name), getattr(expected, field.name)
            same = mine == other if field.name == "lengths" else torch.equal(mine, other)
            assert same, field.name
