"""Overfit a few utterances of a project and speak them, to prove its set-up before a long training."""

from collections.abc import Sequence

from indextts.commands.app import ProveSetup
from indextts.commands.terminal import parse, run
from indextts.projects.proof import prove_setup


def main(argv: Sequence[str] | None = None) -> int:
    checks = prove_setup(parse(ProveSetup, argv))
    for check in checks:
        print(f"{'good' if check.is_good else 'BAD'}\t{check.message}")
    return 0 if checks[0].is_good else 1


if __name__ == "__main__":
    run(main)
