"""Check from the terminal that tokenizer, config, base checkpoint and texts fit; exit status 1 if not."""

from collections.abc import Sequence

from indextts.checkpoint import text_rows
from indextts.commands import VerifyTraining, parse, run
from indextts.gpt.config import load_config
from indextts.review import read_reviewed_texts
from indextts.text.tokenizer import Tokenizer
from indextts.text.verify import verify


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(VerifyTraining, argv)
    base_tokenizer = args.base_checkpoint.with_name("bpe.model")
    report = verify(
        Tokenizer.load(args.tokenizer),
        base=Tokenizer.load(base_tokenizer) if base_tokenizer.exists() else None,
        base_text_rows=text_rows(args.base_checkpoint),
        config_text_tokens=load_config(args.config).number_text_tokens,
        texts=[text for manifest in args.manifest for text in read_reviewed_texts(manifest)],
        max_unknown_percent=args.max_unknown_percent,
    )
    print(report)
    return 1 if report.problems else 0


if __name__ == "__main__":
    run(main)
