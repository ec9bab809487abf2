"""Tokens per word and rare pieces of a tokenizer with 1,000 to 12,000 appended pieces.

    python -m benchmarks.fertility --corpus=corpus.tsv        # from the repository root
    python -m benchmarks.fertility --corpus=corpus.tsv --base-model=multilingual_zh_ja_yue_char_del.tiktoken

1. Every tenth text is held out.
2. For each size, the base tokenizer is extended on the other texts and verified on the held-out texts.
3. A base with reserved tokens is also measured with pieces in their place.

The demo's base has a few hundred English pieces; its size does not affect Amharic, which gets its own pieces.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from benchmarks.frame import Benchmark, Took, publish, table, timed
from demo.make_demo import DEMO
from indextts.commands.terminal import parse, run
from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.text.bases import load_tokenizer
from indextts.text.byte_level import ByteLevelTokenizer
from indextts.text.ethiopic import is_ethiopic
from indextts.text.extend import extend_file, reserve_file
from indextts.text.tokenizer import Tokenizer, measure
from indextts.text.verify import MIN_COUNT, verify

BASE = DEMO / "checkpoints/bpe.model"
HELD_OUT_EVERY = 10


HEADER = ["appended pieces", "tokens per word", "merged", "rare", "unknown", "extend, CPU s", "verify, CPU s"]
WORDS_PER_HOUR = 8400
SIZES = [1000, 2000, 4000, 8000, 12_000]


class Fertility(Benchmark):
    """Measure tokens per word and rare pieces by the number of appended pieces."""

    program: ClassVar[str] = "benchmarks.fertility"
    corpus: Path = Field(description="Text file with one text per line, or a table with a column text.")
    sizes: list[int] = Field([], description="Appended pieces; 1,000 to 12,000 by default.")
    base_model: Path = Field(BASE, description="Base tokenizer; that of the demo by default.")

    @property
    def name(self) -> str:
        return (
            "fertility"
            if self.base_model == BASE
            else f"fertility_{load_tokenizer(self.base_model).base.name}"
        )


@dataclass(frozen=True)
class Row:
    """Measurements of one size; `kind` is that of the pieces, as in the flag --pieces."""

    kind: str
    num_appended: int
    tokens_per_word: float
    merged_tokens_per_word: float
    num_rare: int
    num_unknown_ethiopic: int
    num_problems: int
    extending: Took
    verifying: Took

    def cells(self) -> list[str]:
        return [
            f"{self.num_appended:,}" + ("" if self.kind == "appended" else f" {self.kind}"),
            f"{self.tokens_per_word:.2f}",
            f"{self.merged_tokens_per_word:.2f}",
            f"{self.num_rare:,} ({100 * self.num_rare / self.num_appended:.0f} %)",
            str(self.num_unknown_ethiopic),
            f"{self.extending.cpu_s:.1f}",
            f"{self.verifying.cpu_s:.1f}",
        ]


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Fertility, argv)
    texts = read_corpus(command.corpus)
    held_out = texts[::HELD_OUT_EVERY]
    learned = [text for number, text in enumerate(texts) if number % HELD_OUT_EVERY]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "extended.model"
        for size in command.sizes or SIZES:
            rows.append(measure_size(command.base_model, size, learned, held_out, path))
            print(rows[-1], flush=True)
        if isinstance(load_tokenizer(command.base_model), ByteLevelTokenizer):
            rows.append(measure_reserved(command.base_model, learned, held_out, path))
    lines = describe(load_tokenizer(command.base_model), learned, held_out, rows)
    publish(command, "Tokens per word and rare pieces by size", lines)
    return 0


def read_corpus(path: Path) -> list[str]:
    """Return the texts of a file: its lines, or the column `text` of a tab-separated table."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--corpus {path}: not readable ({error}); use a text file in UTF-8") from None
    header = lines[0].split("\t") if lines else []
    if "text" in header:
        column = header.index("text")
        lines = [line.split("\t")[column] for line in lines[1:]]
    texts = [line for line in lines if line.strip()]
    if len(texts) < HELD_OUT_EVERY:
        raise UserError(
            f"--corpus {path}: {counted(len(texts), 'text')}; use at least {HELD_OUT_EVERY}, one in "
            f"{HELD_OUT_EVERY} is held out"
        )
    return texts


def measure_size(
    base_model: Path, num_pieces: int, learned: Sequence[str], held_out: Sequence[str], path: Path
) -> Row:
    """Extend the base by `num_pieces` and measure the result."""
    size = load_tokenizer(base_model).size + num_pieces

    def extended(options: Mapping[str, Any]) -> Tokenizer:
        return extend_file(base_model, learned, path, size, None, options).extended

    return measure_pieces("appended", extended, base_model, learned, held_out)


def measure_reserved(base_model: Path, learned: Sequence[str], held_out: Sequence[str], path: Path) -> Row:
    """Put pieces in place of the reserved tokens and measure the result."""

    def extended(options: Mapping[str, Any]) -> Tokenizer:
        return reserve_file(base_model, learned, path, options).extended

    return measure_pieces("reserved", extended, base_model, learned, held_out)


def measure_pieces(
    kind: str,
    make: Callable[[Mapping[str, Any]], Tokenizer],
    base_model: Path,
    learned: Sequence[str],
    held_out: Sequence[str],
) -> Row:
    """Measure the tokenizer that `make` returns for the given normaliser options."""
    base = load_tokenizer(base_model)
    extended, extending = timed(lambda: make({}))
    appended = extended.appended_ids(base.size)
    report, verifying = timed(
        lambda: verify(extended, base, base.size + 1, base.size, held_out, max_unknown_percent=100)
    )
    on_learned, on_held_out = measure(extended, learned), measure(extended, held_out)
    merged = make({"homophones": "strict"})
    return Row(
        kind=kind,
        num_appended=len(appended),
        tokens_per_word=on_held_out.tokens_per_word,
        merged_tokens_per_word=measure(merged, held_out).tokens_per_word,
        num_rare=sum(on_learned.tokens[token] < MIN_COUNT for token in appended),
        num_unknown_ethiopic=sum(n for char, n in on_held_out.unknown_characters if is_ethiopic(char)),
        num_problems=len(report.problems),
        extending=extending,
        verifying=verifying,
    )


def describe(
    base: Tokenizer, learned: Sequence[str], held_out: Sequence[str], rows: Sequence[Row]
) -> list[str]:
    """Return the legend and the table."""
    on_learned, on_held_out = measure(base, learned), measure(base, held_out)
    has_every_letter = base.unknown_id < 0
    without = f"; without new pieces {on_held_out.tokens_per_word:.2f}" if has_every_letter else ""
    return [
        f"* Learned from {len(learned):,} texts with {on_learned.num_words:,} words, about "
        f"{on_learned.num_words / WORDS_PER_HOUR:.0f} hours of speech; held out: {len(held_out):,} texts "
        f"with {on_held_out.num_words:,} words",
        "* Tokens per word: on the held-out texts, with punctuation and Latin letters among the tokens"
        f"{without}; merged: with `--homophones strict`",
        f"* Rare: appended pieces with fewer than {MIN_COUNT} occurrences in the training texts; training "
        "hardly changes their rows",
        "* Unknown: Ethiopic characters of the held-out texts that the tokenizer does not know",
        "",
        *table(HEADER, [row.cells() for row in rows]),
    ]


if __name__ == "__main__":
    run(main)
