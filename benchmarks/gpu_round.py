"""Parts of `gpu_round.sh`: each measures one aspect of training on a GPU and appends rows to a file.

    numbers     losses and gradients of the GPU against the CPU, at a small size
    speed       packed steps for three token budgets, in bfloat16
    lora        the same with adapters of rank 64, as in the recipe, on frozen matrices in bfloat16
    reference   the predecessor's step on the same samples
    options     float32 with TF32, attention dropout, checkpointing, all logits at once: one budget
    compile     compiled blocks, with their compilation time, and their losses and gradients
    cached      the start of another process with the same blocks
    codes       generation of speech codes with three beams: 1 and 32 texts, float32 and half precision
    data        share of the time in which the training waits for its data loader
    profile     kernels of a step, and the number of device synchronisations
    table       all rows as Markdown

Each part runs in its own process, so a part that fails or runs out of memory does not lose the rows of the
rest.
"""

import json
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from benchmarks.frame import Benchmark, peak_bytes, publish, reset_peak, timed, wait_for_device
from benchmarks.frame import table as as_table
from benchmarks.steps import Stepper, Variant, clear_gradients
from benchmarks.stored import own_pair, write_store
from benchmarks.workload import (
    Sample,
    build_model,
    config_of,
    groups_within,
    make_samples,
    num_padded,
    num_positions,
    packed_batch,
    peak_operations,
    useful_operations,
)
from indextts.commands.sampling_options import Sampling
from indextts.commands.terminal import parse, run
from indextts.data.feature_store import FeatureStore
from indextts.data.pair_columns import PairColumns
from indextts.features.backend import CODES_PER_SECOND
from indextts.models.gpt.attention import BLOCKS, JAGGED, VARLEN, AttentionBackend, with_flash_attention_3
from indextts.models.gpt.generate import Prompt, generate, set_precision
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.packed import PackedBatch
from indextts.models.lora import LoraSettings, add_adapters, is_block_matrix
from indextts.training.batches import PairDataset, collate_packed
from indextts.training.loading import load_batches
from indextts.training.losses import packed_sums
from indextts.training.order import BatchPlan

BFLOAT16, FLOAT32 = torch.bfloat16, torch.float32
BUDGETS = {"tiny": (300, 600, 1200), "small": (4096, 8192, 16384), "published": (8192, 16384, 32768)}
WARM_UP = 5
NUM_KERNELS = 14  # in a profile
NUM_GROUPS = 12  # different batches of a measurement, used in turn
Part = Literal[
    "numbers",
    "speed",
    "lora",
    "reference",
    "options",
    "codes",
    "data",
    "profile",
    "compile",
    "cached",
    "table",
]


class GPURound(Benchmark):
    """Measure one part of the GPU round."""

    program: ClassVar[str] = "benchmarks.gpu_round"
    part: Part = Field(description="Part to measure, or table for the report.")
    rows: Path = Field(description="File that the rows are appended to.")
    device: str = Field("cuda", description="Device.")
    size: Literal["tiny", "small", "published"] = Field("published", description="Size of the model.")
    steps: int = Field(60, ge=1, description="Timed steps of each row of the part speed.")

    @property
    def command_line(self) -> str:
        return "benchmarks/gpu_round.sh"

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def budgets(self) -> tuple[int, int, int]:
        return BUDGETS[self.size]

    @property
    def middle(self) -> int:
        return self.budgets[1]

    def write(self, part: str, what: str, **values: str) -> None:
        """Append a row and print it."""
        with self.rows.open("a") as file:
            file.write(json.dumps({"part": part, "what": what, **values}) + "\n")
        print(
            f"{part}: {what}: " + ", ".join(f"{name} {value}" for name, value in values.items()), flush=True
        )


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(GPURound, argv)
    if command.part == "table":
        publish(command, f"GPU round, size {command.size}", table(command.rows), command.device)
        return 0
    torch.set_float32_matmul_precision("high")
    _, took = timed(lambda: PARTS[command.part](command))
    print(f"{command.part}: done in {took.wall_s:.0f} s", flush=True)
    return 0


# --- parts --------------------------------------------------------------------------------------------


def numbers(this: GPURound) -> None:
    """Compare one step's losses and gradients with the CPU's, in float32, without dropout and TF32."""
    torch.set_float32_matmul_precision("highest")
    size = "tiny" if this.size == "tiny" else "small"
    config = config_of(size, dropout=0.0)
    batch = packed_batch(make_samples(config, 6), config)
    cpu = gradients(build_model(config, torch.device("cpu")), batch, FLOAT32, BLOCKS)
    cases = [(BLOCKS, FLOAT32)]
    if this.on_gpu:
        cases += [(JAGGED, FLOAT32), (JAGGED, BFLOAT16), (VARLEN, BFLOAT16), (VARLEN, torch.float16)]
    else:
        cases += [(BLOCKS, BFLOAT16)]
    state = build_model(config, torch.device("cpu")).state_dict()
    for backend, dtype in cases:
        model = build_model(config, torch.device(this.device))
        model.load_state_dict(state)
        try:
            found = gradients(model, batch, dtype, backend)
        except RuntimeError as error:  # this torch or GPU does not have the backend
            this.write("numbers", f"{backend.name} {shown(dtype)}", failed=str(error).splitlines()[0][:120])
            continue
        write_differences(this, f"{backend.name} {shown(dtype)}", found, cpu)


Numbers = tuple[tuple[float, float], dict[str, Tensor]]


def write_differences(this: GPURound, what: str, found: Numbers, wanted: Numbers) -> None:
    """Write a row with the largest difference of the losses, and of the gradients."""
    losses = max(abs(a - b) for a, b in zip(found[0], wanted[0], strict=True))
    worst = max(relative_error(found[1][key], gradient) for key, gradient in wanted[1].items())
    this.write("numbers", what, loss_difference=f"{losses:.1e}", gradient_difference=f"{worst:.1e}")


def gradients(
    model: UnifiedVoice, batch: PackedBatch, dtype: torch.dtype, backend: AttentionBackend
) -> Numbers:
    """Return text and code loss, and the gradients of their sum, on the CPU."""
    device = next(model.parameters()).device
    model.train().zero_grad()
    with torch.autocast(device.type, dtype, enabled=dtype != FLOAT32):
        sums = packed_sums(model, batch.to(device), backend, 1)
    text, mel = sums.text_nats / sums.text_tokens, sums.mel_nats / sums.mel_tokens
    (text + mel).backward()  # type: ignore[no-untyped-call]
    found = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
    return (text.item(), mel.item()), found


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """Return the norm of the difference over that of `wanted`, for the bias of keys rounding alone."""
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-6))


def speed(this: GPURound) -> None:
    """Measure time and memory of packed steps at three budgets."""
    config = config_of(this.size, dropout=0.1)
    model = build_model(config, torch.device(this.device)).train()
    for budget in this.budgets:
        time_steps(this, "speed", Variant("packed", "packed", BFLOAT16), model, budget, this.steps)


def lora(this: GPURound) -> None:
    """Measure time and memory of packed steps with adapters at three budgets."""
    model = build_model(config_of(this.size, dropout=0.1), torch.device(this.device)).train()
    for name, parameter in model.named_parameters():
        if is_block_matrix(name):
            parameter.data = parameter.data.to(BFLOAT16)
    add_adapters(model, LoraSettings(rank=64, alpha=128, targets="all"), lambda _: 0, {}, saved_scale=1.0)
    for budget in this.budgets:
        variant = Variant("LoRA of rank 64", "packed", BFLOAT16)
        time_steps(this, "lora", variant, model, budget, max(2, this.steps // 3))


def reference(this: GPURound) -> None:
    """Measure the predecessor's step on the samples of each budget, with and without attention dropout."""
    config = config_of(this.size, dropout=0.1)
    model = build_model(config, torch.device(this.device)).train()
    steps = max(2, this.steps // 5)
    variant = Variant("reference", "reference", BFLOAT16, checkpointing=True)
    for budget in this.budgets:
        time_steps(this, "reference", variant, model, budget, steps)
    variant = replace(variant, name="reference, no attention dropout", attention_dropout=0.0)
    time_steps(this, "reference", variant, model, this.middle, steps)


def options(this: GPURound) -> None:
    """Measure the packed step at the middle budget with one setting changed at a time."""
    config = config_of(this.size, dropout=0.1)
    model = build_model(config, torch.device(this.device)).train()
    plain = Variant("packed", "packed", BFLOAT16)
    variants = [
        replace(plain, name="checkpointing", checkpointing=True),
        replace(plain, name="all logits at once", chunked=False),
        replace(plain, name="AdamW not fused", fused=False),
        replace(plain, name="clipping in a pass of its own", clips_apart=True),
        replace(plain, name="float32, TF32", dtype=FLOAT32),
        replace(plain, name="padded", kind="padded"),
    ]
    if this.on_gpu:
        variants.insert(0, replace(plain, name="attention dropout 0.1", backend=JAGGED))
    steps = max(2, this.steps // 3)
    for variant in variants:
        time_steps(this, "options", variant, model, this.middle, steps)
    if not this.on_gpu:
        return
    flash_3 = with_flash_attention_3(VARLEN)  # last: the whole process uses it from here on
    if flash_3 is VARLEN:
        this.write("options", "FlashAttention 3", failed="no package flash_attn_interface, or no Hopper GPU")
    else:
        time_steps(this, "options", replace(plain, name=flash_3.name), model, this.middle, steps)


def compiled(this: GPURound) -> None:
    """Measure compiled steps at the two largest budgets, and compare their numbers with the CPU's.

    The first step of a row includes the compilation.
    """
    model = build_model(config_of(this.size, dropout=0.1), torch.device(this.device)).train()
    for budget in this.budgets[:0:-1]:
        model.gpt.compile_blocks(budget)
        time_steps(this, "compile", Variant("compiled", "packed", BFLOAT16), model, budget, this.steps)
    del model
    config = config_of("tiny" if this.size == "tiny" else "small", dropout=0.0)
    batch = packed_batch(make_samples(config, 6), config)
    model = build_model(config, torch.device("cpu"))
    wanted = gradients(model, batch, FLOAT32, BLOCKS)
    backend = VARLEN if this.on_gpu else BLOCKS
    model.to(this.device).gpt.compile_blocks(batch.num_positions + 100)
    found = gradients(model, batch, BFLOAT16, backend)
    write_differences(this, f"compiled {backend.name} bfloat16", found, wanted)


def cached(this: GPURound) -> None:
    """Measure the first step of a process after `compile`, which finds the compiled blocks in the cache."""
    model = build_model(config_of(this.size, dropout=0.1), torch.device(this.device)).train()
    model.gpt.compile_blocks(this.middle)
    variant = Variant("compiled before", "packed", BFLOAT16)
    time_steps(this, "cached", variant, model, this.middle, max(2, this.steps // 6))


def codes(this: GPURound) -> None:
    """Generate codes for 1 and 32 texts; the first, shorter generation of each is not measured."""
    config = config_of(this.size, dropout=0.0)
    model = build_model(config, torch.device(this.device)).eval().requires_grad_(False)
    model.mel_head.bias.data[config.stop_mel_token] = -1e4  # it never stops by itself
    generator = torch.Generator().manual_seed(1)
    prompts = [
        Prompt(
            torch.randn(config.num_latents, config.model_dim, generator=generator).to(this.device),
            torch.randn(config.model_dim, generator=generator).to(this.device),
            torch.randint(2, config.number_text_tokens, (40,), generator=generator).to(this.device),
            seed,
        )
        for seed in range(32)
    ]
    sampling = Sampling(max_codes=min(300, 5 * this.steps))
    short = sampling.model_copy(update={"max_codes": 10})
    for dtype in (FLOAT32, BFLOAT16, torch.float16) if this.on_gpu else (FLOAT32, BFLOAT16):
        set_precision(model, dtype)
        for number in (1, 32):
            generate(model, prompts[:number], short)
            reset_peak(this.device)
            found, took = timed(partial(generate, model, prompts[:number], sampling), this.device)
            seconds = sum(len(each.codes) for each in found) / CODES_PER_SECOND
            this.write(
                "codes",
                f"{number} texts, {shown(dtype)}",
                ms_per_step=f"{1000 * took.wall_s / sampling.max_codes:.2f}",
                seconds_per_second_of_speech=f"{took.wall_s / seconds:.4f}",
                peak_gb=f"{peak_bytes(this.device) / 1e9:.2f}",
            )


def data(this: GPURound) -> None:
    """Train from a feature store through the trainer's loader; measure how long the loop waits for it."""
    config = config_of(this.size, dropout=0.1)
    model = build_model(config, torch.device(this.device)).train()
    samples = make_samples(config, max(64, 2 * this.steps * this.middle // 360 // 2))
    batch_size = max(1, this.middle // 360)
    with tempfile.TemporaryDirectory() as folder:
        dataset = stored(samples, Path(folder) / "features")
        for num_workers in (0, 2):
            plan = BatchPlan(dataset.lengths, 0, batch_size, 0, epoch=0, samples_done=0)
            collate = partial(collate_packed, config=config)
            batches = iter(load_batches(dataset, plan, num_workers, collate))
            stepper = Stepper(Variant("packed", "packed", BFLOAT16), model, [samples[:batch_size]])
            waited = 0.0
            for number in range(this.steps + WARM_UP):
                if number == WARM_UP:
                    wait_for_device(this.device)
                    waited, started = 0.0, time.perf_counter()
                asked = time.perf_counter()
                batch = next(batches).batch
                assert isinstance(batch, PackedBatch)
                stepper.packed[0] = batch
                waited += time.perf_counter() - asked
                stepper.step(0)
            wait_for_device(this.device)
            seconds = time.perf_counter() - started
            this.write(
                "data",
                f"{num_workers} workers, {batch_size} samples",
                host_waits=f"{100 * waited / seconds:.2f} %",
                ms_per_step=f"{1000 * seconds / this.steps:.1f}",
            )


def profile(this: GPURound) -> None:
    """List the kernels of a step, ours and the predecessor's, and count device synchronisations."""
    config = config_of(this.size, dropout=0.1)
    model = build_model(config, torch.device(this.device)).train()
    groups = groups_for(this, model, this.middle)
    packed = Variant("packed", "packed", BFLOAT16)
    reference = Variant("reference", "reference", BFLOAT16, checkpointing=True)
    for variant in (packed, reference):
        profile_steps(this, Stepper(variant, model, groups))


def profile_steps(this: GPURound, stepper: Stepper) -> None:
    """Write a row for each of the kernels that take the most time in three steps."""
    for number in range(WARM_UP):
        stepper.step(number % stepper.num_batches)
    if this.on_gpu:
        this.write("profile", f"{stepper.variant.name}: host waits per step", calls=str(host_waits(stepper)))
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(
        activities=[activity.CPU, *([activity.CUDA] if this.on_gpu else [])]
    ) as profiler:
        for number in range(3):
            stepper.step(number % stepper.num_batches)
        wait_for_device(this.device)
    events = [event for event in profiler.key_averages() if own_time(event, this.on_gpu) > 0]
    total = sum(own_time(event, this.on_gpu) for event in events)
    for event in sorted(events, key=lambda event: own_time(event, this.on_gpu), reverse=True)[:NUM_KERNELS]:
        this.write(
            "profile",
            f"{stepper.variant.name}: {event.key[:90]}",
            share=f"{100 * own_time(event, this.on_gpu) / total:.1f} %",
            calls_per_step=f"{event.count / 3:.0f}",
            ms_per_step=f"{own_time(event, this.on_gpu) / 3000:.2f}",
        )


PARTS: dict[str, Callable[[GPURound], None]] = {
    "numbers": numbers,
    "speed": speed,
    "lora": lora,
    "reference": reference,
    "options": options,
    "codes": codes,
    "data": data,
    "profile": profile,
    "compile": compiled,
    "cached": cached,
}


# --- helpers ------------------------------------------------------------------------------------------


def groups_for(this: GPURound, model: UnifiedVoice, budget: int) -> list[list[Sample]]:
    """Return the batches of a budget: the same for every variant."""
    samples = make_samples(model.config, max(16, NUM_GROUPS * budget // 250))
    return groups_within(samples, model.config, budget)[:NUM_GROUPS]


def time_steps(
    this: GPURound, part: str, variant: Variant, model: UnifiedVoice, budget: int, steps: int
) -> None:
    """Time `steps` steps of a variant without synchronising in between, and write a row."""
    groups = groups_for(this, model, budget)
    torch.manual_seed(0)
    started = time.perf_counter()
    try:
        stepper = Stepper(variant, model, groups)
        float(stepper.step(0))
        first_s = time.perf_counter() - started
        for number in range(1, 1 + min(WARM_UP, steps)):
            stepper.step(number % len(groups))
        wait_for_device(this.device)
        reset_peak(this.device)
        started = time.perf_counter()
        for number in range(steps):
            stepper.step(number % len(groups))
        wait_for_device(this.device)
        seconds = time.perf_counter() - started
    except RuntimeError as error:  # out of memory, or this torch or GPU does not have a kernel
        clear_gradients(model)
        this.write(part, f"{variant.name}, {budget} tokens", failed=str(error).splitlines()[0][:120])
        return
    done = list(islice(cycle(groups), steps))
    tokens = sum(num_positions(sample, model.config) for group in done for sample in group)
    padded = sum(num_padded(group, model.config) for group in done)
    operations = sum(useful_operations(group, model.config) for group in done)
    peak = peak_operations(torch.device(this.device))
    this.write(
        part,
        f"{variant.name}, {budget} tokens",
        valid_tokens_per_s=f"{tokens / seconds:,.0f}",
        mfu=f"{100 * operations / seconds / peak:.1f} %" if peak else "-",
        ms_per_step=f"{1000 * seconds / steps:.1f}",
        padded_over_valid=f"{padded / tokens:.2f}",
        peak_memory=f"{peak_bytes(this.device) / 2**30:.1f} GiB",
        attention=stepper.attention,
        arithmetic=shown(variant.dtype),
        first_step_s=f"{first_s:.1f}",
        steps=str(steps),
    )


def stored(samples: Sequence[Sample], folder: Path) -> PairDataset:
    """Return the samples as a dataset over a feature store in `folder`; every utterance is its own prompt."""
    store = write_store(folder, samples)
    pairs = [own_pair(store, number, len(sample.codes)) for number, sample in enumerate(samples)]
    columns = PairColumns.of(pairs, [sample.text_ids for sample in samples])
    return PairDataset(columns, {store: FeatureStore.open(store)})


def host_waits(stepper: Stepper) -> int:
    """Return the number of calls in one step that make the host wait for the GPU."""
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stepper.step(0)
    torch.cuda.set_sync_debug_mode("default")
    found = [warning for warning in caught if "synchroniz" in str(warning.message)]
    places = Counter(f"{warning.filename}:{warning.lineno}" for warning in found)
    for place, count in places.most_common(8):
        print(f"{stepper.variant.name} waits {count} times: {place}", flush=True)
    return len(found)


def own_time(event: Any, on_gpu: bool) -> float:
    """Return the microseconds in the event itself."""
    if on_gpu:  # kernels only: host calls and named ranges repeat their kernels' time
        is_range = getattr(event, "is_user_annotation", False) or event.key.startswith("Optimizer.")
        is_kernel = event.device_type == torch._C._autograd.DeviceType.CUDA and not is_range
        return float(event.self_device_time_total) if is_kernel else 0.0
    return float(event.self_cpu_time_total)


def shown(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def table(path: Path) -> list[str]:
    """Return all rows as Markdown: a table for each run of rows with the same columns."""
    lines: list[str] = []
    for columns, rows in groupby(map(json.loads, path.read_text().splitlines()), key=list):
        header = [column.replace("_", " ") for column in columns]
        lines += [*as_table(header, [[str(value) for value in row.values()] for row in rows]), ""]
    return lines


if __name__ == "__main__":
    run(main)
