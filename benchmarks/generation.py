"""Time per generated code with and without the key-value cache, and the memory of the cache.

    python -m benchmarks.generation --size small --codes 125 --codes 250 --codes 500

Both generate greedily from the same prompt and must choose the same codes. Without the cache every step
computes all positions again, so only the last steps of each length are computed that way.
"""

import statistics
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from benchmarks.frame import Benchmark, Took, publish, table, timed
from benchmarks.train_step import device_of
from benchmarks.workload import build_model, config_of
from indextts.commands.base import Device
from indextts.commands.terminal import parse, run
from indextts.models.gpt.decoder import Decoder, Prefix, code_position, make_prefix
from indextts.models.gpt.model import UnifiedVoice

TEXT_TOKENS = 40
CODES = [125, 250, 500]
HEADER = [
    "codes so far",
    "cached, CPU (ms)",
    "wall (ms)",
    "without, CPU (ms)",
    "wall (ms)",
    "ratio",
    "cache (MB)",
]


class Generation(Benchmark):
    """Time the generation of codes."""

    program: ClassVar[str] = "benchmarks.generation"
    size: Literal["tiny", "small", "published"] = Field("small", description="Size of the model.")
    codes: list[int] = Field(
        [], description="Number of codes at which steps are timed; 125, 250 and 500 by default."
    )
    steps: int = Field(5, ge=1, description="Timed steps at each length.")
    device: Device = Field("auto", description="Device.")
    threads: int = Field(0, ge=0, description="Threads of torch; 0 leaves its default.")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Generation, argv)
    device = device_of(command.device)
    if command.threads:
        torch.set_num_threads(command.threads)
    model = build_model(config_of(command.size, dropout=0.0), device).eval()
    lines = [
        f"One prompt of {TEXT_TOKENS} tokens, greedy, float32; median of {command.steps} steps.",
        "",
        *table(HEADER, rows(model, device, command.codes or CODES, command.steps)),
    ]
    publish(command, f"Generation with and without the cache, size {command.size}", lines, str(device))
    return 0


@torch.inference_mode()
def rows(
    model: UnifiedVoice, device: torch.device, lengths: Sequence[int], num_steps: int
) -> list[list[str]]:
    """Return one row per length, all from the same generation."""
    prefix = prompt(model, device)
    decoder = Decoder(model, "published")
    logits = decoder.start(prefix)
    codes: list[int] = []
    found = []
    for length in sorted(lengths):
        while len(codes) < length:
            codes.append(best_code(model, logits))
            logits = decoder.step(torch.tensor([[codes[-1]]], device=device))[:, 0]
        cached: list[Took] = []
        uncached: list[Took] = []
        for _ in range(num_steps):
            codes.append(best_code(model, logits))
            newest = torch.tensor([[codes[-1]]], device=device)
            stepped, took = timed(partial(decoder.step, newest), str(device))
            logits = stepped[:, 0]
            cached.append(took)
            expected, took = timed(partial(without_cache, model, prefix, codes), str(device))
            uncached.append(took)
            if best_code(model, logits) != best_code(model, expected):
                raise SystemExit(f"after {len(codes)} codes, the cached and uncached choices differ")
        times = [cpu_ms(cached), wall_ms(cached), cpu_ms(uncached), wall_ms(uncached)]
        ratio = times[3] / times[1] if device.type == "cuda" else times[2] / times[0]
        found.append(
            [str(length), *(f"{ms:.1f}" for ms in times), f"{ratio:.1f}", f"{decoder.cache_bytes / 1e6:.1f}"]
        )
    return found


def cpu_ms(took: Sequence[Took]) -> float:
    return 1000 * statistics.median(each.cpu_s for each in took)


def wall_ms(took: Sequence[Took]) -> float:
    return 1000 * statistics.median(each.wall_s for each in took)


def prompt(model: UnifiedVoice, device: torch.device) -> Prefix:
    generator = torch.Generator().manual_seed(1)
    config = model.config
    condition = torch.randn(1, config.prefix_length, config.model_dim, generator=generator).to(device)
    text = torch.randint(2, config.number_text_tokens, (TEXT_TOKENS,), generator=generator)
    return make_prefix(model, condition, [text])


def best_code(model: UnifiedVoice, logits: Tensor) -> int:
    """Return the best code other than start and stop, so that the generation continues."""
    logits = logits[0].clone()
    logits[[model.config.start_mel_token, model.config.stop_mel_token]] = -torch.inf
    return int(logits.argmax())


def without_cache(model: UnifiedVoice, prefix: Prefix, codes: Sequence[int]) -> Tensor:
    """Return the logits of the next code, with all positions computed again."""
    inputs = torch.tensor([[model.config.start_mel_token, *codes]], device=prefix.embedded.device)
    places = [0, *(code_position(number, "published") for number in range(1, len(codes) + 1))]
    embedded = model.embed_codes(inputs, torch.tensor(places, device=inputs.device))
    states = model.gpt(torch.cat([prefix.embedded, embedded], dim=1))[:, -1]
    logits: Tensor = model.mel_head(model.final_norm(states))
    return logits


if __name__ == "__main__":
    run(main)
