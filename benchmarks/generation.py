"""Time per generated code with the cache of keys and values and without it, and the cache's memory.

    python -m benchmarks.generation --size small --codes 125 250 500

Both ways choose the best code at every step from the same prompt and must choose the same ones. Without the
cache every step computes all positions anew, so only the last steps of each length are computed that way:
each costs as much as a step at that length does.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.workload import SIZES, build_model, config_of, git_commit, machine
from indextts.models.gpt.decoder import Decoder, Prefix, code_position, make_prefix
from indextts.models.gpt.model import UnifiedVoice

TEXT_TOKENS = 40


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.generation", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--codes", type=int, nargs="+", default=[125, 250, 500], help="lengths to look at")
    parser.add_argument("--steps", type=int, default=5, help="steps timed at each length")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", type=Path, help="write the report there, too")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    config = config_of(args.size, dropout=0.0)
    model = build_model(config, device).eval()
    lines = [
        f"# Generation with and without the cache, size {args.size}",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {machine(device)}, {git_commit()}; one prompt of {TEXT_TOKENS} "
        f"tokens, greedy, float32, {args.threads} threads, the median of {args.steps} steps"
        + (", in milliseconds of CPU." if device.type == "cpu" else "."),
        "",
        "| codes so far | with cache (ms) | without (ms) | ratio | cache (MB) |",
        "|---|---|---|---|---|",
        *rows(model, device, args.codes, args.steps),
    ]
    print("\n".join(lines))
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text("\n".join(lines) + "\n")
    return 0


@torch.inference_mode()
def rows(model: UnifiedVoice, device: torch.device, lengths: Sequence[int], num_steps: int) -> list[str]:
    """One line for each length; a generation goes through all of them."""
    prefix = prompt(model, device)
    decoder = Decoder(model, "published")
    scores = decoder.start(prefix)
    codes: list[int] = []
    found = []
    for length in sorted(lengths):
        while len(codes) < length:
            codes.append(best_code(model, scores))
            scores = decoder.step(torch.tensor([codes[-1]], device=device))
        cached, anew = [], []
        for _ in range(num_steps):
            codes.append(best_code(model, scores))
            cached.append(timed(lambda: decoder.step(torch.tensor([codes[-1]], device=device)), device))
            anew.append(timed(lambda: without_cache(model, prefix, codes), device))
            scores, other = cached[-1][1], anew[-1][1]
            if best_code(model, scores) != best_code(model, other):
                raise SystemExit(f"with and without the cache disagree after {len(codes)} codes")
        with_s, without_s = median([s for s, _ in cached]), median([s for s, _ in anew])
        megabytes = decoder.cache_bytes / 1e6
        found.append(
            f"| {length} | {1000 * with_s:.1f} | {1000 * without_s:.1f} | {without_s / with_s:.1f} "
            f"| {megabytes:.1f} |"
        )
    return found


def prompt(model: UnifiedVoice, device: torch.device) -> Prefix:
    generator = torch.Generator().manual_seed(1)
    config = model.config
    condition = torch.randn(1, config.prefix_length, config.model_dim, generator=generator).to(device)
    text = torch.randint(2, config.number_text_tokens, (TEXT_TOKENS,), generator=generator)
    return make_prefix(model, condition, [text])


def best_code(model: UnifiedVoice, scores: Tensor) -> int:
    """The best code that is no start or stop, so that the generation goes on."""
    scores = scores[0].clone()
    scores[[model.config.start_mel_token, model.config.stop_mel_token]] = -torch.inf
    return int(scores.argmax())


def without_cache(model: UnifiedVoice, prefix: Prefix, codes: Sequence[int]) -> Tensor:
    """Scores of the next code, everything computed anew."""
    inputs = torch.tensor([[model.config.start_mel_token, *codes]], device=prefix.embedded.device)
    places = [0, *(code_position(number, "published") for number in range(1, len(codes) + 1))]
    embedded = model.embed_codes(inputs, torch.tensor(places, device=inputs.device))
    states = model.gpt(torch.cat([prefix.embedded, embedded], dim=1))[:, -1]
    scores: Tensor = model.mel_head(model.final_norm(states))
    return scores


def timed(function: Callable[[], Tensor], device: torch.device) -> tuple[float, Tensor]:
    """The seconds that a call takes, and its result; on a CPU its own seconds, whoever else computes."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    started = clock()
    result = function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - started, result


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    sys.exit(main())
