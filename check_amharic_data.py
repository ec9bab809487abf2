"""Report on a manifest or on pairs from the terminal; exit with status 1 if there are problems."""

from collections.abc import Sequence

from indextts.commands import CheckData, parse, run
from indextts.data.check import check_manifest, check_pairs, check_split
from indextts.errors import UserError


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(CheckData, argv)
    if args.train_manifest is None and args.train_pairs is None and args.val_pairs is None:
        raise UserError("nothing to check, give --train-manifest, --train-pairs or --val-pairs")
    reports = []
    if args.train_manifest is not None:
        reports.append(check_manifest(args.train_manifest))
    if args.train_pairs is not None:
        reports.append(check_pairs(args.train_pairs, args.train_manifest))
    if args.val_pairs is not None:
        reports.append(check_pairs(args.val_pairs))
    if args.train_pairs is not None and args.val_pairs is not None:
        reports.append(check_split(args.train_pairs, args.val_pairs))
    print("\n\n".join(map(str, reports)))
    return 1 if any(report.problems for report in reports) else 0


if __name__ == "__main__":
    run(main)
