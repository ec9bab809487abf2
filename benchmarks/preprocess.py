"""Clips per second and hours of audio per hour of preprocessing, stage by stage and as a whole.

    python -m benchmarks.preprocess [--size published] [--device cuda] [--clips 200] [--output FILE]

preprocess_stages.py says what is measured. Without a card at the published size: 5 GB of memory.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    # here, because every process that reads recordings imports this file, and is measured
    from benchmarks.preprocess_stages import as_markdown, measure

    parser = argparse.ArgumentParser(prog="python -m benchmarks.preprocess")
    parser.add_argument("--size", choices=("tiny", "small", "published"), default="small")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--clips", type=int, default=100)
    parser.add_argument("--output", type=Path, help="file for the table")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        rows, notes = measure(Path(folder), args.size, args.device, args.clips)
    table = as_markdown(args.size, args.device, args.clips, rows, notes)
    print(table)
    if args.output:
        args.output.write_text(table, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
