"""IndexTTS-2.0 and 2.5 on the demo's 256 clips: tokens per word, sequence length, step time and memory.

    python -m benchmarks.two_bases --corpus=corpus.tsv --ranks=multilingual_zh_ja_yue_char_del.tiktoken

1. The tokenizers learn their pieces from the corpus. The base tokenizer of 2.0 is the demo's: it has no
   Amharic piece either, so the pieces of the language are the same.
2. Lengths, operations and memory on a GPU are computed for all clips, at the published size.
3. Steps of a smaller model with random weights are measured: bfloat16, dropout, AdamW with a learning rate of
   0. The codes are random too; only their number is that of the clip. `--size published` needs 16 GB.
"""

import json
import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from benchmarks.fertility import HELD_OUT_EVERY, read_corpus
from benchmarks.frame import Benchmark, peak_bytes, publish, table, timed
from benchmarks.reference import MEL_WEIGHT, TEXT_WEIGHT
from benchmarks.workload import NUM_BASE_PIECES, SIZES, build_model, config_of, operations, positions
from demo.make_demo import DEMO
from indextts.commands.bases import BASE_2_0, FEATURES_PER_SECOND
from indextts.commands.terminal import parse, run
from indextts.models.gpt.attention import choose_backend
from indextts.models.gpt.config import GPTConfig
from indextts.models.gpt.packed import Ints, PackedBatch, pack
from indextts.planning.memory import gpu_memory, model_size
from indextts.system.amounts import shown_size
from indextts.text.bases import load_tokenizer
from indextts.text.extend import extend_file, reserve_file
from indextts.text.tokenizer import Tokenizer, measure
from indextts.training.loop import clip_and_step
from indextts.training.losses import packed_sums
from indextts.training.optim import build_optimizer, select_trained

COMPUTED_BATCH = 32  # clips of the micro-batch whose memory on a GPU is computed


class TwoBases(Benchmark):
    """Compare the bases on the same clips."""

    program: ClassVar[str] = "benchmarks.two_bases"
    corpus: Path = Field(
        description="Texts to learn pieces from: one per line, or a table with a column text."
    )
    ranks: Path = Field(description="The published .tiktoken file of IndexTTS-2.5.")
    pieces: int = Field(4000, ge=1, description="Appended pieces.")
    size: str = Field("small", description=f"Model size of the measured steps: {', '.join(SIZES)}.")
    batch: int = Field(8, ge=1, description="Clips of a measured step.")
    steps: int = Field(32, ge=1, description="Measured steps, spread evenly over the clips.")


@dataclass(frozen=True)
class Case:
    """A base with a tokenizer, and the lengths of all clips in tokens and codes.

    Args:
        num_text, num_codes: (S,) each.
        base_size: tokens whose rows are frozen, if there are more.
    """

    name: str
    tokenizer: Tokenizer
    tokens_per_word: float
    num_text: Ints
    num_codes: Ints
    config: GPTConfig
    base_size: int

    @property
    def lengths(self) -> Ints:
        """Return the positions of each clip (S,)."""
        return positions(self.num_text, self.num_codes, self.config)


@dataclass(frozen=True)
class Steps:
    """Measured steps of a case; their processor time, since other programs change the wall clock.

    Attributes:
        memory: resident memory that the model, its optimizer and the steps added, in bytes.
    """

    cpu_s: float
    memory: int
    count: int
    num_positions: int


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(TwoBases, argv)
    lines = (DEMO / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    clips: list[dict[str, Any]] = [json.loads(line) for line in lines]
    cases = make_cases(command, clips)
    measured = []
    for case in cases:
        measured.append(steps_of(case, clips, command))
        print(case.name, measured[-1], flush=True)
    report = [
        f"* {len(clips)} clips, {sum(clip['duration'] for clip in clips):.0f} s of speech; "
        f"{command.pieces:,} appended pieces, {len(cases[2].tokenizer.reserved):,} reserved ones",
        "* Positions of a clip: the speaker condition and two rows, the text with start and stop, the codes "
        "with start",
        "* Computed at the published size: operations, forward and backward; memory on a GPU in bfloat16 "
        "with weights and optimizer, by the formula of the trainer",
        f"* Steps: {measured[0].count} of {command.batch} clips each, {command.size} size, on the CPU in "
        "bfloat16; the text tables are a larger part of a smaller model",
        "",
        *report_table(cases, measured),
    ]
    publish(command, "IndexTTS-2.0 and 2.5 on the same 256 clips", report)
    return 0


def make_cases(command: TwoBases, clips: Sequence[dict[str, Any]]) -> list[Case]:
    """Return the tokenizers of both bases with the lengths of the clips."""
    corpus = read_corpus(command.corpus)
    learned = [text for number, text in enumerate(corpus) if number % HELD_OUT_EVERY]
    texts = [clip["text"] for clip in clips]
    durations_s = np.array([clip["duration"] for clip in clips])
    older, newer = DEMO / "checkpoints" / BASE_2_0.tokenizer_file, command.ranks

    def case(name: str, tokenizer: Tokenizer, num_published: int, num_new: int) -> Case:
        base = tokenizer.base
        num_features = np.floor(durations_s * FEATURES_PER_SECOND).astype(np.int64)
        config = config_of("published", dropout=0.1)
        return Case(
            name=f"{base.title}, {name}",
            tokenizer=tokenizer,
            tokens_per_word=measure(tokenizer, texts).tokens_per_word,
            num_text=np.array([len(tokenizer.encode(text)) for text in texts]),
            num_codes=-(-num_features // base.features_per_code),  # the codec keeps an odd last feature
            config=replace(config, base=base.name, number_text_tokens=num_published + num_new),
            base_size=num_published,
        )

    with tempfile.TemporaryDirectory() as folder:

        def extended(path: Path) -> Tokenizer:
            target_size = load_tokenizer(path).size + command.pieces
            return extend_file(path, learned, Path(folder) / path.name, target_size).extended

        reserved = reserve_file(newer, learned, Path(folder) / f"reserved{newer.suffix}").extended
        published = load_tokenizer(newer)
        num_kept = reserved.appended_ids(published.size).start
        return [
            case("appended pieces", extended(older), NUM_BASE_PIECES, command.pieces),
            case("appended pieces", extended(newer), published.size, command.pieces),
            case("reserved pieces", reserved, num_kept, published.size - num_kept),
            case("no new pieces", published, published.size, 0),
        ]


def steps_of(case: Case, clips: Sequence[dict[str, Any]], command: TwoBases) -> Steps:
    """Measure the steps of a case in a process of its own, whose memory has nothing of the other cases."""
    shape = config_of(command.size, dropout=0.1)
    config = replace(case.config, model_dim=shape.model_dim, layers=shape.layers, heads=shape.heads)
    starts = range(0, len(clips) - command.batch + 1, command.batch)
    chosen = starts[:: max(1, len(starts) // command.steps)][: command.steps]
    batches = [make_batch(case, clips, range(start, start + command.batch), config) for start in chosen]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.two_bases"])  # the processes share one import
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measure_steps, config, case.base_size, batches).result()


def measure_steps(config: GPTConfig, base_size: int, batches: Sequence[PackedBatch]) -> Steps:
    """Take training steps; a step before them loads the kernels."""
    torch.manual_seed(0)
    device = torch.device("cpu")
    before = peak_bytes()
    model = build_model(config, device).train()
    trained = select_trained(model, base_size)
    optimizer = build_optimizer(trained, weight_decay=0.01)
    backend = choose_backend(device, torch.bfloat16, None)

    def step(batch: PackedBatch) -> None:
        with torch.autocast(device.type, torch.bfloat16):
            sums = packed_sums(model, batch, backend, base_size)
            loss = TEXT_WEIGHT * sums.text_nats / batch.num_text + MEL_WEIGHT * sums.mel_nats / batch.num_mel
        loss.backward()  # type: ignore[no-untyped-call]
        clip_and_step(trained, optimizer, 0.0, max_norm=1.0, loss=loss)

    def all_steps() -> None:
        for batch in batches:
            step(batch)

    step(batches[0])
    _, took = timed(all_steps)
    num_positions = sum(batch.num_positions for batch in batches)
    return Steps(took.cpu_s, peak_bytes() - before, len(batches), num_positions)


def make_batch(case: Case, clips: Sequence[dict[str, Any]], numbers: range, config: GPTConfig) -> PackedBatch:
    """Pack the clips `numbers` with random codes and speaker conditions."""
    random, row = np.random.default_rng(numbers.start), case.tokenizer.language_row
    return pack(
        [np.array(case.tokenizer.encode(clips[number]["text"])) for number in numbers],
        [random.integers(0, config.start_mel_token, case.num_codes[number]) for number in numbers],
        torch.randn(len(numbers), *config.condition_shape),
        torch.randn(len(numbers), config.model_dim),
        config,
        None if row is None else torch.full((len(numbers),), row),
    )


def report_table(cases: Sequence[Case], measured: Sequence[Steps]) -> list[str]:
    """Return a column per case and a row per quantity; in brackets the ratio to the first case."""
    rows = []

    def add(name: str, values: Sequence[float], shown: Callable[[float], str]) -> None:
        rows.append([name, *(f"{shown(value)} ({value / values[0]:.2f})" for value in values)])

    add("tokens per word", [case.tokens_per_word for case in cases], "{:.2f}".format)
    add("text tokens of a clip", [case.num_text.mean() for case in cases], "{:.1f}".format)
    add("codes of a clip", [case.num_codes.mean() for case in cases], "{:.1f}".format)
    add("positions before the text", [case.config.prefix_length for case in cases], "{:.0f}".format)
    add("positions of a clip", [case.lengths.mean() for case in cases], "{:.1f}".format)
    add("positions of the longest clip", [case.lengths.max() for case in cases], "{:.0f}".format)
    add("operations of a clip, 1e12", [computed_operations(case) / 1e12 for case in cases], "{:.2f}".format)
    memory = [computed_memory(case) for case in cases]
    add(f"memory on a GPU, {COMPUTED_BATCH} clips", memory, lambda size: shown_size(round(size)))
    add("memory of the steps", [m.memory for m in measured], lambda size: shown_size(round(size)))
    add("a step, processor time", [m.cpu_s / m.count for m in measured], "{:.1f} s".format)
    add(
        "a position, processor time",
        [1000 * m.cpu_s / m.num_positions for m in measured],
        "{:.2f} ms".format,
    )
    return table(["mean over the clips (ratio)", *(case.name for case in cases)], rows)


def computed_operations(case: Case) -> float:
    """Return the operations of forward and backward of a clip, the mean over all."""
    return float(operations(case.num_text, case.num_codes, case.config).mean())


def computed_memory(case: Case) -> int:
    """Return the memory in bytes of a run on a GPU, by the formula of `indextts/planning/memory.py`."""
    size = model_size(case.config, base_size=case.base_size)
    need = gpu_memory(
        case.config,
        size,
        positions=round(COMPUTED_BATCH * float(case.lengths.mean())),
        is_half=True,
        recomputes=False,
        is_padded=False,
        accumulates=True,
        state_bytes=size.state_bytes("float32", 0.0),
    )
    return need.peak


if __name__ == "__main__":
    run(main)
