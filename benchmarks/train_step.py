"""Valid tokens per second of a training step: the predecessor's and this project's, lever by lever.

    python -m benchmarks.train_step --size small --batch 32 --dtype float32

All variants run in one process, interleaved, on the same parameters, batches, arithmetic and dropout. What
counts as a token is a position that a sample needs; padding counts as nothing. `benchmarks/workload.py`
says which samples, and which operations MFU counts.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from benchmarks.steps import Stepper, Timing, Variant, interleave
from benchmarks.workload import (
    SIZES,
    Sample,
    build_model,
    config_of,
    git_commit,
    groups_of,
    machine,
    make_samples,
    num_padded,
    num_positions,
    peak_operations,
    useful_operations,
)
from indextts.models.gpt.config import GPTConfig

BFLOAT16, FLOAT32 = torch.bfloat16, torch.float32


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    device = torch.device(args.device)
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision("high")  # TF32 on a card that has it, for all variants
    dtype = getattr(torch, args.dtype)
    config = config_of(args.size, args.dropout)
    groups = groups_of(make_samples(config, args.batch * args.batches), args.batch)
    model = build_model(config, device).train()
    variants = [v for v in ladder(dtype) if not args.only or v.name in args.only]
    steppers = [Stepper(variant, model, groups) for variant in variants]
    share_moments(steppers)
    timings = interleave(steppers, args.passes)
    lines = report(args, device, config, groups, variants, timings)
    print("\n".join(lines))
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text("\n".join(lines) + "\n")
    return 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.train_step", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--batch", type=int, default=8, help="samples in a batch")
    parser.add_argument("--batches", type=int, default=1, help="batches in a pass")
    parser.add_argument(
        "--passes", type=int, default=3, help="timed passes of each variant, after one to warm up"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument(
        "--dropout", type=float, default=0.1, help="of both sides; 0 compares the losses exactly"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", action="append", default=[], help="the name of a variant; may be repeated")
    parser.add_argument("--output", type=Path, help="write the report there, too")
    return parser.parse_args(argv)


def ladder(dtype: torch.dtype) -> list[Variant]:
    """The predecessor, and one lever more in each line; last what the trainer does by default."""
    rungs = [
        Variant("reference", "reference", dtype, checkpointing=True),
        Variant("reference without checkpointing", "reference", dtype),
        Variant("our blocks, padded", "padded", dtype, fused=False),
        Variant("padding off", "packed", dtype, chunked=False, fused=False),
        Variant("losses in chunks", "packed", dtype, fused=False),
        Variant("fused AdamW", "packed", dtype),
    ]
    if dtype == FLOAT32:
        rungs.append(Variant("bfloat16", "packed", BFLOAT16))
    return rungs


def share_moments(steppers: Sequence[Stepper]) -> None:
    """Give all optimizers one set of moments: at the published size a set is 4 GB."""
    shared: dict[torch.Tensor, tuple[torch.Tensor, torch.Tensor]] = {}
    for stepper in steppers:
        for group in stepper.optimizer.param_groups:
            for parameter in group["params"]:
                if not parameter.requires_grad:
                    continue
                if parameter not in shared:
                    shared[parameter] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                exp_avg, exp_avg_sq = shared[parameter]
                # the fused step on a card counts its steps there
                place = parameter.device if group["fused"] else torch.device("cpu")
                stepper.optimizer.state[parameter] = {
                    "step": torch.zeros((), device=place),
                    "exp_avg": exp_avg,
                    "exp_avg_sq": exp_avg_sq,
                }


def report(
    args: argparse.Namespace,
    device: torch.device,
    config: GPTConfig,
    groups: Sequence[Sequence[Sample]],
    variants: Sequence[Variant],
    timings: Sequence[Timing],
) -> list[str]:
    """The measurement as Markdown."""
    valid = sum(num_positions(sample, config) for group in groups for sample in group)
    padded = sum(num_padded(group, config) for group in groups)
    peak = peak_operations(device)
    operations = sum(useful_operations(group, config) for group in groups)
    base = timings[0]
    lines = [
        f"# Training step, {args.size}, batch {args.batch}, {args.dtype}, dropout {args.dropout:g}",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, commit {git_commit()}; {machine(device)}",
        "",
        f"`python -m benchmarks.train_step {' '.join(given_arguments(args))}`: {len(groups)} batches a pass, "
        f"{valid} valid and {padded} padded positions ({padded / valid:.2f} times), {args.passes} passes, "
        "interleaved; the fastest pass counts.",
        "",
        "| variant | arithmetic | attention dropout | valid tokens/s | ratio | ratio by CPU time | "
        "median pass | peak memory | loss - reference |" + (" MFU |" if peak else ""),
        "|---" * (10 if peak else 9) + "|",
    ]
    for variant, timing in zip(variants, timings, strict=True):
        cells = [
            variant.name,
            str(variant.dtype).removeprefix("torch."),
            attention_dropout(variant, device, config),
            f"{timing.tokens_per_second:,.0f}",
            f"{timing.tokens_per_second / base.tokens_per_second:.2f}",
            f"{timing.tokens_per_cpu_second / base.tokens_per_cpu_second:.2f}",
            f"+{100 * timing.spread:.0f} %",
            f"{timing.peak_bytes / 2**30:.2f} GiB",
            f"{timing.loss - base.loss:+.1e}",
        ]
        if peak:
            cells.append(f"{100 * operations / min(timing.seconds) / peak:.1f} %")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def attention_dropout(variant: Variant, device: torch.device, config: GPTConfig) -> str:
    from indextts.models.gpt.attention import choose_backend

    if variant.kind != "packed":
        return f"{config.dropout:g}, SDPA"
    backend = choose_backend(device, variant.dtype, variant.backend)
    return f"{config.dropout if backend.has_dropout else 0:g}, {backend.name}"


def given_arguments(args: argparse.Namespace) -> list[str]:
    names = ("size", "batch", "batches", "passes", "dtype", "dropout", "device", "threads")
    given = [f"--{name} {getattr(args, name)}" for name in names]
    return given + [f"--only '{name}'" for name in args.only]


if __name__ == "__main__":
    sys.exit(main())
