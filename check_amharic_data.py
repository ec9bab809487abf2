"""Report on a manifest or on pairs from the terminal; exit with status 1 if they are not fit to train on."""

from collections.abc import Sequence

from indextts.command_line import parse, run
from indextts.commands import CheckData
from indextts.data.check import check


def main(argv: Sequence[str] | None = None) -> int:
    reports = check(parse(CheckData, argv))
    print("\n\n".join(map(str, reports)))
    return 1 if any(report.problems for report in reports) else 0


if __name__ == "__main__":
    run(main)
