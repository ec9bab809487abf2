"""Publish an exported model on the Hugging Face Hub; --dry-run prints what would be sent."""

from collections.abc import Sequence

from indextts.commands.speech import PublishModel
from indextts.commands.terminal import parse, run


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(PublishModel, argv)
    from indextts.speech.publishing.publish import publish  # torch loads slowly; wrong flags fail first

    for line in publish(command):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    run(main)
