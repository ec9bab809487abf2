"""Append Amharic pieces to a SentencePiece model from the terminal."""

from collections.abc import Sequence

from indextts.commands import ExtendTokenizer, parse, run
from indextts.errors import UserError
from indextts.review import read_reviewed_texts
from indextts.text.extend import describe, extend_file


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(ExtendTokenizer, argv)
    if args.output_model.resolve() in [manifest.resolve() for manifest in args.manifests]:
        raise UserError(f"--output-model {args.output_model} is one of the manifests; name another file")
    texts = [text for manifest in args.manifests for text in read_reviewed_texts(manifest)]
    extension = extend_file(args.base_model, texts, args.output_model, args.target_size)
    print(describe(extension, texts))
    return 0


if __name__ == "__main__":
    run(main)
