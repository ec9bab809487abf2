"""Kernels of a block and bytes that they read and write, of plain steps and of the compiled graph, counted.

    python -m benchmarks.count_operations

A GPU starts a kernel for each operation that torch dispatches, and for each fused group of operations in the
compiled graph. Most of them do little but read and write memory, so kernels and bytes say what compiling
saves where no GPU is at hand. The counts are those of a block in bfloat16 on the CPU, without dropout,
forward and backward: two blocks less one. The compiler fuses slightly differently for a GPU.

Bytes are b1 * T * D + b2 * D * D for T positions and width D; two sequence lengths give b1 and b2.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.frame import Benchmark, publish, table
from indextts.commands.terminal import parse, run
from indextts.models.gpt.attention import BLOCKS, Segments
from indextts.models.gpt.gpt2 import GPT2, Attend

WIDTH, HEADS = 256, 4
LENGTHS = ((300, 212), (1200, 848))  # of the samples: T = 512 and 2,048
KINDS = ("products", "attention", "other")


class CountOperations(Benchmark):
    """Count the kernels and bytes of a block."""

    program: ClassVar[str] = "benchmarks.count_operations"


@dataclass(frozen=True)
class Counts:
    """Kernels by kind, and bytes read and written by all of them."""

    kernels: Counter[str]
    num_bytes: int

    def __sub__(self, other: "Counts") -> "Counts":
        kernels = Counter({kind: self.kernels[kind] - other.kernels[kind] for kind in KINDS})
        return Counts(kernels, self.num_bytes - other.num_bytes)


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(CountOperations, argv)
    rows = []
    for name, count in (("plain", count_plain), ("compiled", count_compiled)):
        blocks = [count_block(count, lengths) for lengths in LENGTHS]
        per_position, per_weight = bytes_of(blocks)
        kernels = [str(blocks[0].kernels[kind]) for kind in KINDS]
        rows.append([name, *kernels, f"{per_position:.0f}", f"{per_weight:.0f}"])
    header = ["step", *KINDS, "bytes per position and column", "bytes per D x D"]
    publish(command, "Kernels and bytes of a block", table(header, rows), "cpu")
    return 0


def count_block(count: Callable[[GPT2, Segments], Counts], lengths: tuple[int, ...]) -> Counts:
    """Return the counts of one block: those of two blocks less those of one."""
    offsets = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
    one, two = (count(model_of(layers), Segments(lengths, offsets)) for layers in (1, 2))
    return two - one


def bytes_of(blocks: Sequence[Counts]) -> tuple[float, float]:
    """Return the bytes per position and column, and those per D x D."""
    (few, many), (start, end) = (sum(lengths) for lengths in LENGTHS), (each.num_bytes for each in blocks)
    per_position = (end - start) / ((many - few) * WIDTH)
    return per_position, (start - per_position * few * WIDTH) / WIDTH**2


def model_of(layers: int) -> GPT2:
    model = GPT2(WIDTH, layers, HEADS, dropout=0.0).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.02)
    return model


def count_plain(model: GPT2, segments: Segments) -> Counts:
    """Count the operations that torch dispatches."""
    counter = _Counter()
    with counter:
        _step(model, model.forward, segments)
    return Counts(counter.kernels, counter.num_bytes)


def count_compiled(model: GPT2, segments: Segments) -> Counts:
    """Count the calls in the generated code."""
    from torch._inductor import config, metrics
    from torch._inductor.compile_fx import inductor_metrics_log
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    metrics.reset()
    inductor_metrics_log.setLevel(logging.INFO)  # else no bytes are counted
    inductor_metrics_log.propagate = False
    model.compile_blocks(sum(segments.lengths))
    with config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
        _, codes = run_and_get_code(lambda: _step(model, model.compiled_states, segments))
    kernels: Counter[str] = Counter()
    for code in codes:
        kernels["other"] += len(re.findall(r"^ +cpp_fused\w*\(", code, re.MULTILINE))
        kernels["products"] += len(re.findall(r"^ +extern_kernels\.", code, re.MULTILINE))
        kernels["attention"] += len(re.findall(r"= torch\.ops\.indextts\.block_attention", code))
    return Counts(kernels, metrics.num_bytes_accessed)


def _step(model: GPT2, states: Callable[[Tensor, Attend], Tensor], segments: Segments) -> None:
    assert BLOCKS.bind_operator is not None
    x = torch.randn(sum(segments.lengths), WIDTH, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = states(x, BLOCKS.bind_operator(segments))
    y.sum().backward()  # type: ignore[no-untyped-call]
    model.zero_grad()


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations; views and the allocation of memory are no kernels."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels: Counter[str] = Counter()
        self.num_bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        if func.is_view or "empty" in name:
            return result
        kind = "attention" if "attention" in name else "products" if name.endswith("mm") else "other"
        self.kernels[kind] += 1
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
        self.num_bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return result


if __name__ == "__main__":
    run(main)
