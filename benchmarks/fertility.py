"""How long texts become, and how often pieces are seen, with 1,000 to 12,000 appended pieces.

    python -m benchmarks.fertility --corpus=corpus.tsv        # from the repository root

1. every tenth text is held out
2. for each size: the demo's base tokenizer extended by the other texts, verified on the held-out ones
3. benchmarks/results/fertility.md: the table

The demo's base knows a few hundred English pieces; its size does not matter to Amharic, which gets pieces of
its own only.
"""

import os
import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import ClassVar

import sentencepiece
from pydantic import Field

from demo.make_demo import DEMO
from indextts.commands.base import Command
from indextts.commands.terminal import parse, run
from indextts.errors import UserError
from indextts.text.ethiopic import is_ethiopic
from indextts.text.extend import extend_file
from indextts.text.tokenizer import Tokenizer, measure
from indextts.text.verify import RARE, verify

RESULTS = Path(__file__).parent / "results/fertility.md"
BASE = DEMO / "checkpoints/bpe.model"
HELD_OUT_EVERY = 10


class Fertility(Command):
    """Measure tokens per word and rare pieces by size; writes benchmarks/results/fertility.md."""

    program: ClassVar[str] = "benchmarks/fertility.py"
    corpus: Path = Field(description="A text a line; of a table with a header and tabs, the column text.")
    sizes: list[int] = Field([1000, 2000, 4000, 8000, 12_000], description="Appended pieces to try.")
    output: Path = Field(RESULTS, description="The page to write.")


@dataclass(frozen=True)
class Row:
    """What one size gave; `seconds` of the processor are for extending and for verifying."""

    num_appended: int
    tokens_per_word: float
    merged_tokens_per_word: float
    num_rare: int
    num_unknown_ethiopic: int
    num_problems: int
    seconds: tuple[float, float]


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Fertility, argv)
    texts = read_corpus(command.corpus)
    held_out = texts[::HELD_OUT_EVERY]
    learned = [text for number, text in enumerate(texts) if number % HELD_OUT_EVERY]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in command.sizes:
            rows.append(measure_size(size, learned, held_out, Path(folder) / "extended.model"))
            print(rows[-1], flush=True)
    page = describe(command, learned, held_out, rows)
    command.output.parent.mkdir(parents=True, exist_ok=True)
    command.output.write_text(page, encoding="utf-8")
    print(page)
    return 0


def read_corpus(path: Path) -> list[str]:
    """Return the texts of a file: its lines, or the column `text` of a table."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--corpus {path}: cannot be read ({error}); give a text file in UTF-8") from None
    header = lines[0].split("\t") if lines else []
    if "text" in header:
        column = header.index("text")
        lines = [line.split("\t")[column] for line in lines[1:]]
    texts = [line for line in lines if line.strip()]
    if len(texts) < HELD_OUT_EVERY:
        raise UserError(
            f"--corpus {path}: {len(texts)} texts are too few to hold one in {HELD_OUT_EVERY} out"
        )
    return texts


def measure_size(num_pieces: int, learned: Sequence[str], held_out: Sequence[str], path: Path) -> Row:
    """Return what a base extended by `num_pieces` is like."""
    base = Tokenizer.load(BASE)
    started = time.process_time()
    extended = extend_file(BASE, learned, path, base.size + num_pieces).extended
    extended_at = time.process_time()
    report = verify(extended, base, base.size + 1, base.size, held_out, max_unknown_percent=100)
    verified_at = time.process_time()
    merged = extend_file(BASE, learned, path, base.size + num_pieces, None, {"homophones": "strict"}).extended
    on_learned, on_held_out = measure(extended, learned), measure(extended, held_out)
    return Row(
        num_appended=extended.size - base.size,
        tokens_per_word=on_held_out.tokens_per_word,
        merged_tokens_per_word=measure(merged, held_out).tokens_per_word,
        num_rare=sum(on_learned.tokens[token] < RARE for token in range(base.size, extended.size)),
        num_unknown_ethiopic=sum(n for char, n in on_held_out.unknown_characters if is_ethiopic(char)),
        num_problems=len(report.problems),
        seconds=(extended_at - started, verified_at - extended_at),
    )


def describe(command: Fertility, learned: Sequence[str], held_out: Sequence[str], rows: Sequence[Row]) -> str:
    """Return the page."""
    on_learned, on_held_out = (measure(Tokenizer.load(BASE), texts) for texts in (learned, held_out))
    lines = [
        "# Tokens per word and rare pieces by size",
        "",
        f"`python -m benchmarks.fertility --corpus={command.corpus.name}`, written by that program.",
        "",
        f"* {date.today().isoformat()}, {platform.machine()}, {os.cpu_count()} processors, Python "
        f"{platform.python_version()}, sentencepiece {sentencepiece.__version__}",
        f"* learned from {len(learned):,} texts with {on_learned.num_words:,} words, about "
        f"{on_learned.num_words / 8400:.0f} hours when spoken; held out: {len(held_out):,} texts with "
        f"{on_held_out.num_words:,} words",
        "* tokens per word: on the held-out texts, marks and Latin letters among the tokens; merged: with "
        "`--homophones strict`",
        f"* rare: appended pieces with fewer than {RARE} occurrences in the texts learned from, whose rows a "
        "training hardly teaches",
        "* unknown: Ethiopic characters of the held-out texts that the tokenizer does not know",
        "",
        "| appended pieces | tokens per word | merged | rare | unknown | extend, CPU s | verify, CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        rare = f"{row.num_rare:,} ({100 * row.num_rare / row.num_appended:.0f} %)"
        lines.append(
            f"| {row.num_appended:,} | {row.tokens_per_word:.2f} | {row.merged_tokens_per_word:.2f} | {rare} "
            f"| {row.num_unknown_ethiopic} | {row.seconds[0]:.1f} | {row.seconds[1]:.1f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run(main)
