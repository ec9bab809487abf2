"""Check that tokenizer, config, base checkpoint and texts match; exit with status 1 if they do not."""

from collections.abc import Sequence

from indextts.commands.data import VerifyTraining
from indextts.commands.terminal import parse, run
from indextts.data.review import read_reviewed_speech
from indextts.models.checkpoint import text_rows
from indextts.models.gpt.config import load_config
from indextts.projects.default_paths import with_default_tokenizer
from indextts.text.bases import base_tokenizer, load_tokenizer
from indextts.text.verify import verify
from indextts.text.vocabulary import advise_size


def main(argv: Sequence[str] | None = None) -> int:
    args = with_default_tokenizer(parse(VerifyTraining, argv))
    assert args.tokenizer is not None
    base_path = base_tokenizer(args.base_checkpoint)
    texts, hours = read_reviewed_speech(args.manifest)
    report = verify(
        load_tokenizer(args.tokenizer),
        base=load_tokenizer(base_path) if base_path.exists() else None,
        base_text_rows=text_rows(args.base_checkpoint),
        config_text_tokens=load_config(args.config).number_text_tokens,
        texts=texts,
        max_unknown_percent=args.max_unknown_percent,
        advice=advise_size(hours) if hours else None,
    )
    print(report)
    return 1 if report.problems else 0


if __name__ == "__main__":
    run(main)
