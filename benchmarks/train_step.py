"""Valid tokens per second of a training step: the predecessor's and this project's, change by change.

    python -m benchmarks.train_step --size small --batch 32 --dtype float32

All variants run in one process, interleaved, on the same parameters, batches, precision and dropout. A token
is a position that a sample needs; padding does not count. `benchmarks/workload.py` defines the samples and
the operations that MFU counts.
"""

import logging
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field

from benchmarks.frame import Benchmark, publish, table
from benchmarks.steps import Stepper, Timing, Variant, time_variants
from benchmarks.workload import (
    Sample,
    build_model,
    config_of,
    groups_of,
    make_samples,
    num_padded,
    num_positions,
    peak_operations,
    useful_operations,
)
from indextts.commands.base import Device
from indextts.commands.terminal import parse, run
from indextts.models.gpt.config import GPTConfig
from indextts.training.run import has_native_bfloat16

logger = logging.getLogger(__name__)

BFLOAT16, FLOAT32 = torch.bfloat16, torch.float32


class TrainStep(Benchmark):
    """Compare the speed of training steps."""

    program: ClassVar[str] = "benchmarks.train_step"
    size: Literal["tiny", "small", "published"] = Field("small", description="Size of the model.")
    batch: int = Field(8, ge=1, description="Samples in a batch.")
    batches: int = Field(1, ge=1, description="Batches in a pass.")
    passes: int = Field(3, ge=1, description="Timed passes of each variant, after a warm-up pass.")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="Arithmetic.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout; 0 compares the losses exactly.")
    device: Device = Field("auto", description="Device.")
    threads: int = Field(0, ge=0, description="Threads of torch; 0 leaves its default.")
    only: list[str] = Field([], description="Name of a variant to run; repeat for several.")

    @property
    def name(self) -> str:
        return f"train_step_{self.size}_{self.batch}_{self.dtype}"


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(TrainStep, argv)
    device = device_of(command.device)
    if command.dtype == "bfloat16" and not has_native_bfloat16(device):
        logger.warning("--dtype bfloat16: %s has no native bfloat16; emulation is far slower", device)
    if command.threads:
        torch.set_num_threads(command.threads)
    torch.set_float32_matmul_precision("high")  # TF32 on a GPU that has it, for all variants
    config = config_of(command.size, command.dropout)
    groups = groups_of(make_samples(config, command.batch * command.batches), command.batch)
    model = build_model(config, device).train()
    variants = ladder(getattr(torch, command.dtype))
    variants = [variant for variant in variants if not command.only or variant.name in command.only]
    steppers = [Stepper(variant, model, groups) for variant in variants]
    share_moments(steppers)
    timings = time_variants(steppers, command.passes)
    title = (
        f"Training step, {command.size}, batch {command.batch}, {command.dtype}, dropout {config.dropout:g}"
    )
    publish(command, title, report(command, config, groups, steppers, timings), str(device))
    return 0


def device_of(name: str) -> torch.device:
    return torch.device(
        "cuda" if name == "auto" and torch.cuda.is_available() else name.replace("auto", "cpu")
    )


def ladder(dtype: torch.dtype) -> list[Variant]:
    """Return the predecessor's step, then steps with one more change each; last is the trainer's default."""
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
    """Give all optimizers the same moments: at the published size a set takes 4 GB."""
    shared: dict[torch.Tensor, tuple[torch.Tensor, torch.Tensor]] = {}
    for stepper in steppers:
        for group in stepper.optimizer.param_groups:
            for parameter in group["params"]:
                if not parameter.requires_grad:
                    continue
                if parameter not in shared:
                    shared[parameter] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                exp_avg, exp_avg_sq = shared[parameter]
                # the fused kernel counts its steps on the GPU
                place = parameter.device if group["fused"] else torch.device("cpu")
                stepper.optimizer.state[parameter] = {
                    "step": torch.zeros((), device=place),
                    "exp_avg": exp_avg,
                    "exp_avg_sq": exp_avg_sq,
                }


def report(
    command: TrainStep,
    config: GPTConfig,
    groups: Sequence[Sequence[Sample]],
    steppers: Sequence[Stepper],
    timings: Sequence[Timing],
) -> list[str]:
    """Return the measurement as Markdown."""
    valid = sum(num_positions(sample, config) for group in groups for sample in group)
    padded = sum(num_padded(group, config) for group in groups)
    peak = peak_operations(steppers[0].device)
    operations = sum(useful_operations(group, config) for group in groups)
    base = timings[0]
    header = ["variant", "arithmetic", "attention", "valid tokens/s", "ratio", "ratio by CPU time"]
    header += ["median pass", "peak memory", "loss - reference", *(["MFU"] if peak else [])]
    rows = []
    for stepper, timing in zip(steppers, timings, strict=True):
        cells = [
            stepper.variant.name,
            str(stepper.variant.dtype).removeprefix("torch."),
            stepper.attention,
            f"{timing.tokens_per_second:,.0f}",
            f"{timing.tokens_per_second / base.tokens_per_second:.2f}",
            f"{timing.tokens_per_cpu_second / base.tokens_per_cpu_second:.2f}",
            f"+{100 * timing.spread:.0f} %",
            f"{timing.peak_bytes / 2**30:.2f} GiB",
            f"{timing.loss - base.loss:+.1e}",
        ]
        if peak:
            cells.append(f"{100 * operations / timing.fastest_s / peak:.1f} %")
        rows.append(cells)
    return [
        f"Batches per pass: {len(groups)}, with {valid} valid and {padded} padded positions "
        f"({padded / valid:.2f} times). Passes: {command.passes}, interleaved; the fastest counts.",
        "",
        *table(header, rows),
    ]


if __name__ == "__main__":
    run(main)
