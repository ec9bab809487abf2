"""Append Amharic pieces to a tokenizer from the terminal."""

from collections.abc import Sequence

from indextts.commands.data import ExtendTokenizer
from indextts.commands.terminal import parse, run
from indextts.data.review import read_reviewed_speech
from indextts.errors import UserError
from indextts.text.extend import describe, describe_options, extend_file, reserve_file, store_options
from indextts.text.readings import typed_options
from indextts.text.size_summary import summarize, write_summary
from indextts.text.vocabulary import advise_size


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(ExtendTokenizer, argv)
    if args.output_model.resolve() in [manifest.resolve() for manifest in args.manifests]:
        raise UserError(f"--output-model {args.output_model} is one of the manifests; choose another file")
    texts, hours = read_reviewed_speech(args.manifests)
    options = typed_options(args)
    if args.keep_pieces:
        print(describe_options(store_options(args.output_model, options), texts))
        return 0
    if args.pieces == "reserved":
        extension = reserve_file(args.base_model, texts, args.output_model, options)
    else:
        advice = advise_size(hours)
        extension = extend_file(
            args.base_model,
            texts,
            args.output_model,
            args.target_size,
            advice,
            options,
            only_letters=args.pieces == "letters",
        )
    extended = extension.extended
    summary = summarize(extended, extended.appended_ids(extension.base.size).start, texts)
    write_summary(args.output_model, summary)
    print(describe(extension, texts))
    return 0


if __name__ == "__main__":
    run(main)
