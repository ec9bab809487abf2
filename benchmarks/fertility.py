"""Tokens per word and rare pieces of a tokenizer with 1,000 to 12,000 appended pieces.

    python -m benchmarks.fertility --corpus=corpus.tsv        # from the repository root

1. Every tenth text is held out.
2. For each size, the demo's base tokenizer is extended on the other texts and verified on the held-out texts.
3. benchmarks/results/fertility.md contains the table.

The demo's base has a few hundred English pieces; its size does not affect Amharic, which gets its own pieces.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from benchmarks.frame import Benchmark, Took, publish, table, timed
from demo.make_demo import DEMO
from indextts.commands.terminal import parse, run
from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.text.ethiopic import is_ethiopic
from indextts.text.extend import extend_file
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


@dataclass(frozen=True)
class Row:
    """Measurements of one size."""

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
            f"{self.num_appended:,}",
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
        for size in command.sizes or SIZES:
            rows.append(measure_size(size, learned, held_out, Path(folder) / "extended.model"))
            print(rows[-1], flush=True)
    publish(command, "Tokens per word and rare pieces by size", describe(learned, held_out, rows))
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


def measure_size(num_pieces: int, learned: Sequence[str], held_out: Sequence[str], path: Path) -> Row:
    """Extend the base by `num_pieces` and measure the result."""
    base = Tokenizer.load(BASE)
    size = base.size + num_pieces
    extended, extending = timed(lambda: extend_file(BASE, learned, path, size).extended)
    report, verifying = timed(
        lambda: verify(extended, base, base.size + 1, base.size, held_out, max_unknown_percent=100)
    )
    merged = extend_file(BASE, learned, path, size, None, {"homophones": "strict"}).extended
    on_learned, on_held_out = measure(extended, learned), measure(extended, held_out)
    return Row(
        num_appended=extended.size - base.size,
        tokens_per_word=on_held_out.tokens_per_word,
        merged_tokens_per_word=measure(merged, held_out).tokens_per_word,
        num_rare=sum(on_learned.tokens[token] < MIN_COUNT for token in range(base.size, extended.size)),
        num_unknown_ethiopic=sum(n for char, n in on_held_out.unknown_characters if is_ethiopic(char)),
        num_problems=len(report.problems),
        extending=extending,
        verifying=verifying,
    )


def describe(learned: Sequence[str], held_out: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return the legend and the table."""
    base = Tokenizer.load(BASE)
    on_learned, on_held_out = measure(base, learned), measure(base, held_out)
    return [
        f"* Learned from {len(learned):,} texts with {on_learned.num_words:,} words, about "
        f"{on_learned.num_words / WORDS_PER_HOUR:.0f} hours of speech; held out: {len(held_out):,} texts "
        f"with {on_held_out.num_words:,} words",
        "* Tokens per word: on the held-out texts, with punctuation and Latin letters among the tokens; "
        "merged: with `--homophones strict`",
        f"* Rare: appended pieces with fewer than {MIN_COUNT} occurrences in the training texts; training "
        "hardly changes their rows",
        "* Unknown: Ethiopic characters of the held-out texts that the tokenizer does not know",
        "",
        *table(HEADER, [row.cells() for row in rows]),
    ]


if __name__ == "__main__":
    run(main)
