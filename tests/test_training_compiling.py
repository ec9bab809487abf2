"""Tests of compiled blocks: one graph for all steps, the same losses and gradients, an exact resume."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partialmethod
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.utils import counters

from demo.make_base_checkpoint import random_model
from indextts.models.gpt.attention import BLOCKS, VARLEN, AttentionBackend, Segments
from indextts.models.gpt.gpt2 import GPT2, Attend
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.packed import PackedBatch, pack
from indextts.models.lora import LoraSettings, add_adapters
from indextts.runs.schedule import EpochSize
from indextts.training import compiling
from indextts.training import run as run_module
from indextts.training.losses import packed_sums
from tests.run_checks import problems_at_end
from tests.tiny_gpt import TINY
from tests.tiny_run import TinyRun, make_tiny_run, signalled_in_step

# torch's compiler imports parts that torch deprecates, and reads the gradient of every tensor
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]

LENGTH = 128
# samples of (text tokens, codes): 3 latents and 5 more positions each
BATCHES = (
    [(3, 5), (1, 1), (4, 2), (2, 9), (7, 3)],
    [(9, 20), (5, 26), (8, 15)],
    [(4, 30), (8, 25), (5, 28)],
    [(2, 30), (6, 28), (1, 4), (3, 14)],
)


@pytest.fixture(autouse=True)
def own_compiler(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what other tests compiled, and keep away from the user's cache."""
    folder = tmp_path_factory.getbasetemp() / "compiled"
    monkeypatch.setenv(compiling.CACHE_VARIABLE, str(folder))
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def batches() -> list[PackedBatch]:
    random = np.random.default_rng(0)
    found = []
    for samples in BATCHES:
        texts = [random.integers(2, 12, num_text) for num_text, _ in samples]
        codes = [random.integers(0, 8, num_codes) for _, num_codes in samples]
        condition = torch.randn(
            len(samples), TINY.num_latents, TINY.model_dim, generator=torch.Generator().manual_seed(1)
        )
        found.append(pack(texts, codes, condition, condition[:, 0], TINY))
    return found


def model_of() -> UnifiedVoice:
    return random_model(replace(TINY, dropout=0.0), seed=0).train()


def masked(segments: Segments) -> Attend:
    """Attention with a mask of all positions, which a graph can contain on a CPU too."""
    sample = torch.repeat_interleave(torch.arange(len(segments.lengths)), segments.offsets.diff())
    mask = (sample[:, None] == sample).tril()

    def attend(q: Tensor, k: Tensor, v: Tensor, _dropout: float) -> Tensor:
        heads_first = (each.transpose(0, 1) for each in (q, k, v))
        return F.scaled_dot_product_attention(*heads_first, attn_mask=mask).transpose(0, 1)

    return attend


MASKED = AttentionBackend("masked", has_dropout=False, can_compile=True, bind=masked)


def losses_and_gradients(
    model: UnifiedVoice,
    batch: PackedBatch,
    backend: AttentionBackend = MASKED,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:
    model.zero_grad()
    with torch.random.fork_rng():
        torch.manual_seed(5)
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            sums = packed_sums(model, batch, backend, 7)
    (0.2 * sums.text_nats + 0.8 * sums.mel_nats).backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"text": sums.text_nats.detach(), "mel": sums.mel_nats.detach()} | gradients


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    """Compare norms: the gradient of some biases is rounding alone."""
    assert found.keys() == expected.keys()
    for name, wanted in expected.items():
        assert (found[name] - wanted).norm() <= tolerance * wanted.norm().clamp(min=1e-3), name


@pytest.mark.parametrize(
    ("rank", "length"),
    [
        (0, LENGTH),
        pytest.param(4, LENGTH, marks=pytest.mark.long),
        pytest.param(0, 0, marks=pytest.mark.long),
    ],
)
def test_one_graph_computes_all_batches_as_without_it(rank: int, length: int):
    model = model_of()
    model.gpt.recompute = True
    if rank:
        add_adapters(
            model, LoraSettings(rank=rank, alpha=2 * rank, targets="all"), lambda _: 0, {}, saved_scale=1.0
        )
        for name, parameter in model.named_parameters():
            if name.endswith(".adapter.b"):
                # not a constant: the norm after the block removes it, and gradients of rounding errors remain
                torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(0))
            parameter.requires_grad_(".adapter." in name or name.startswith("text_"))
    expected = [losses_and_gradients(model, batch) for batch in batches()]
    model.gpt.compile_blocks(length, "aot_eager")
    for batch, wanted in zip(batches(), expected, strict=True):
        assert LENGTH // 2 < batch.num_positions < LENGTH
        assert_same(losses_and_gradients(model, batch), wanted, 1e-5)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)], ids=["float32", "bfloat16"]
)
def test_generated_code_computes_the_losses_and_gradients_of_torch(dtype: torch.dtype, tolerance: float):
    model = random_model(replace(TINY, dropout=0.0, layers=1), seed=0).train()  # for the compiler's sake
    expected = [losses_and_gradients(model, batch, dtype=dtype) for batch in batches()]
    model.gpt.compile_blocks(LENGTH)
    for batch, wanted in zip(batches(), expected, strict=True):
        assert_same(losses_and_gradients(model, batch, dtype=dtype), wanted, tolerance)


@pytest.mark.long
def test_variable_length_attention_is_part_of_one_graph(monkeypatch: pytest.MonkeyPatch):
    """The kernels of flash attention, which only a GPU has, are computed with `blocks`."""
    longest = []

    def forward(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, _k: Tensor, max_q: int, *_rest, **_more):
        lengths = tuple(offsets.diff().tolist())
        longest.append((max_q, max(lengths)))
        out = BLOCKS.bind(Segments(lengths, offsets))(q, k, v, 0.0).contiguous()
        nothing = torch.empty(0)
        return out, torch.zeros(q.shape[1], q.shape[0]), nothing, nothing, nothing

    def backward(gradient, q, k, v, _out, _lse, offsets, *_rest, **_more):
        with torch.enable_grad():
            qkv = [each.detach().requires_grad_() for each in (q, k, v)]
            attended = BLOCKS.bind(Segments(tuple(offsets.diff().tolist()), offsets))(*qkv, 0.0)
            return tuple(each.contiguous() for each in torch.autograd.grad(attended, qkv, gradient))

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", forward)
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_backward", backward)
    model = model_of()
    expected = [losses_and_gradients(model, batch) for batch in batches()]
    model.gpt.compile_blocks(LENGTH, "aot_eager")
    for batch, wanted in zip(batches(), expected, strict=True):
        assert_same(losses_and_gradients(model, batch, VARLEN), wanted, 1e-5)
    assert counters["stats"]["unique_graphs"] == 1
    assert longest == [(max(batch.lengths),) * 2 for batch in batches() for _ in range(TINY.layers)]


@pytest.mark.parametrize(("length", "tail"), [(8, ()), (9, (1,)), (13, (5,)), (20, (5, 5, 2))])
def test_the_tail_is_cut_into_segments_of_at_most_the_longest_sample(length: int, tail: tuple[int, ...]):
    segments = Segments((3, 5), torch.tensor([0, 3, 8], dtype=torch.int32)).with_tail(length)
    assert segments.lengths == (3, 5, *tail)
    assert segments.offsets.tolist() == [0, *accumulate(segments.lengths)]
    assert segments.offsets.dtype == torch.int32


def test_the_graph_is_for_training_steps_that_fill_more_than_half_of_it():
    gpt = GPT2(dim=8, layers=1, heads=1, dropout=0.0)
    assert gpt.graph_length(70) is None
    gpt.compile_blocks(128, "aot_eager")
    assert [gpt.graph_length(number) for number in (64, 65, 128, 129)] == [None, 128, 128, None]
    with torch.no_grad():
        assert gpt.graph_length(70) is None
    assert gpt.eval().graph_length(70) is None
    gpt.train().compile_blocks(0, "aot_eager")
    assert [gpt.graph_length(number) for number in (1, 70)] == [1, 70]


@pytest.mark.parametrize(("batch_tokens", "length"), [(16384, 15_616), (0, 0), (900, 512)])
def test_the_graph_has_the_length_of_a_mean_batch_and_half_of_the_longest_sample(
    batch_tokens: int, length: int
):
    size = EpochSize(num_samples=1000, num_positions=302_000, longest=800)
    assert compiling.graph_length(size, batch_tokens) == length


COMPILED = {"compile": True, "batch_size": None, "batch_tokens": 150, "grad_accumulation": 1, "max_steps": 6}


plain_compilation = GPT2.compile_blocks


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyRun:
    quick = partialmethod(GPT2.compile_blocks, backend="aot_eager")
    monkeypatch.setattr(GPT2, "compile_blocks", quick)
    monkeypatch.setattr(run_module, "choose_backend", lambda *_: MASKED)
    return make_tiny_run(tmp_path / "tiny", dropout=0.0)


def resumed_after(run: TinyRun, step: int) -> list[str]:
    """Return the differences between an uninterrupted run and one that was stopped after `step`."""
    other = run.folder / "resumed"
    assert run.train(**COMPILED) == 0
    with signalled_in_step(step):
        assert run.train(**COMPILED | {"output_dir": other}) == 143
    assert run.train(**COMPILED | {"output_dir": other}, resume="auto") == 0
    return problems_at_end(run.output, other, run.folder / "base/gpt.pth")


@pytest.mark.long
def test_a_resumed_run_with_compiled_blocks_is_bit_identical(run: TinyRun, monkeypatch: pytest.MonkeyPatch):
    assert resumed_after(run, 2) == []
    assert "Compiled the blocks in" in run.log
    assert "--compile is off" not in run.log


@pytest.mark.long
def test_a_run_whose_compilation_fails_is_a_run_without(run: TinyRun, monkeypatch: pytest.MonkeyPatch):
    plain = run.folder / "plain"
    assert run.train(**COMPILED | {"compile": False, "output_dir": plain}) == 0

    def failing(_graph: object, _inputs: object) -> None:
        raise ValueError("no compiler here")

    monkeypatch.setattr(GPT2, "compile_blocks", partialmethod(plain_compilation, backend=failing))
    assert run.train(**COMPILED) == 0
    assert "no compiler here" in run.log
    weights = [
        torch.load(folder / "latest.pth", weights_only=True)["model"] for folder in (plain, run.output)
    ]
    assert all(torch.equal(weights[1][name], tensor) for name, tensor in weights[0].items())


def test_a_run_that_cannot_be_compiled_says_why_and_trains(run: TinyRun, monkeypatch: pytest.MonkeyPatch):
    assert run.train(**COMPILED | {"padding": "reference", "max_steps": 1}) == 0
    monkeypatch.setattr(run_module, "choose_backend", lambda *_: BLOCKS)  # of a CPU
    assert run.train(**COMPILED | {"padding": "none", "max_steps": 2}, resume="auto") == 0
    lines = [line for line in run.log.splitlines() if "--compile is off" in line]
    assert ["--padding" in line for line in lines] == [True, False]
    assert "'blocks'" in lines[1]
