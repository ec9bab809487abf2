"""Build pairs of prompt and target utterances from a preprocessed manifest."""

from collections.abc import Sequence

from indextts.commands.data import BuildPairs
from indextts.commands.terminal import parse, run
from indextts.data.manifest import write_pairs
from indextts.data.pair_index import load_index
from indextts.data.pair_summary import summarise, write_summary
from indextts.data.pairs import build_pairs, log_left_out, read_voices
from indextts.data.report import log_hours
from indextts.data.review import read_reviewed
from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.text.bases import load_tokenizer


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(BuildPairs, argv)
    if args.output.resolve() == args.manifest.resolve():
        raise UserError(f"--output {args.output} is the manifest itself; choose another file")
    utterances = [utterance for _, utterance in read_reviewed(args.manifest)]
    result = build_pairs(
        utterances,
        args.pairs_per_target,
        args.seed,
        voices=read_voices(utterances, args.min_similarity),
        only=args.only,
        max_pairs=args.max_pairs,
        max_pairs_per_speaker=args.max_pairs_per_speaker,
        min_text_len=args.min_text_len,
        min_code_len=args.min_code_len,
    )
    log_left_out(result)
    targets = {pair.target_id for pair in result.pairs}
    used = [utterance for utterance in utterances if utterance.id in targets]
    left_out = counted(len(utterances) - len(used), "utterance")
    log_hours("Pairs", utterances, used, f"{left_out} in no pair as its target, counted above")
    summary = summarise(result)
    write_pairs(args.output, result.pairs)
    write_summary(args.output, summary)
    if args.tokenizer is not None:
        load_index(args.output, load_tokenizer(args.tokenizer))
    print(f"{args.output}: {summary}")
    return 0


if __name__ == "__main__":
    run(main)
