"""Check a manifest or pairs from the terminal; exit with status 1 if they have problems."""

from collections.abc import Sequence

from indextts.commands.data import CheckData
from indextts.commands.terminal import parse, run
from indextts.data.check import check
from indextts.projects.default_paths import with_default_paths


def main(argv: Sequence[str] | None = None) -> int:
    reports = check(with_default_paths(parse(CheckData, argv)))
    print("\n\n".join(map(str, reports)))
    return 1 if any(report.problems for report in reports) else 0


if __name__ == "__main__":
    run(main)
