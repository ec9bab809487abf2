"""Run all stages of a project: data, tokenizer, preprocess, pairs, train, export."""

from collections.abc import Sequence

from indextts.commands.app import RunPipeline
from indextts.commands.terminal import parse, run
from indextts.projects.pipeline import run_pipeline, table


def main(argv: Sequence[str] | None = None) -> int:
    results = run_pipeline(parse(RunPipeline, argv))
    print(table(results))
    return results[-1].status


if __name__ == "__main__":
    run(main)
