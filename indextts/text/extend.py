"""Append Amharic pieces to a SentencePiece BPE model, so that old text keeps its ids exactly.

    id 0 .. base - 1     the base's pieces, types and scores, untouched
    then                 every single letter: 291 of Amharic, every Ethiopic character of the texts, and where
                         they take little of the room the rest of the main block (ቐ, ፇ): else, one in an
                         unseen text makes its whole word unknown
    then                 merges learned from the texts, most frequent first, up to the target size

Only pieces of Ethiopic characters and the sign of a space are appended, so no other script is cut
differently. BPE joins the pair with the highest score first; so the merges' scores descend in the order in
which they were learned, below all of the base's, and the letters, which no pair makes, come below the merges.
"""

import io
import logging
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import sentencepiece

from indextts.errors import UserError
from indextts.text.ethiopic import ETHIOPIC_CHARACTERS, amharic_letters, is_ethiopic, main_block_letters
from indextts.text.normalizer_record import with_record
from indextts.text.tokenizer import WORD_START, Tokenizer, measure, parse_model
from indextts.text.vocabulary import SizeAdvice, advise_size

logger = logging.getLogger(__name__)

_BPE = 2  # SentencePiece's number for the model type
_NORMAL = 1  # and for the type of a piece
_FOREIGN = re.compile(f"[^{ETHIOPIC_CHARACTERS} ]+")
_APPENDABLE = re.compile(f"{WORD_START}*[{ETHIOPIC_CHARACTERS}]+{WORD_START}*")
_MAX_RARE_SHARE = 0.1  # of the pieces besides the letters that must be in
_PLACEHOLDER = "."
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
# The trainer stops the whole process at a word of 65,536 characters, and no piece is longer than 16.
_LONGEST_WORD = re.compile(r"(\S{256})(?=\S)")


@dataclass(frozen=True)
class Extension:
    """A base tokenizer and what it became."""

    base: Tokenizer
    extended: Tokenizer


def extend_file(
    base_model: Path,
    texts: Sequence[str],
    output_model: Path,
    target_size: int,
    advice: SizeAdvice | None = None,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> Extension:
    """Write the base tokenizer, extended by what `texts` teach, to `output_model`.

    Args:
        target_size: pieces in all; 0 for what is advised.
        advice: None if nobody knows the hours of speech.
        options: of the normaliser, where not as the base's record or the defaults say.

    Raises:
        UserError: the base, the texts or the target size do not do, or the file cannot be written.
    """
    _refuse_overwriting(base_model, output_model)
    base, advice = _load(base_model, options), advice or advise_size(None)
    if target_size == 0:
        logger.info("The size is chosen: %d base pieces and %s", base.size, advice)
        target_size = base.size + advice.num_pieces
    elif objection := advice.objection(target_size - base.size):
        logger.warning("--target-size %d: %s", target_size, objection)
    model = extend(base_model, texts, target_size, options)
    _write(output_model, model)
    return Extension(base, Tokenizer(model, output_model))


def extend(
    base_model: Path, texts: Iterable[str], target_size: int, options: Mapping[str, Any] = NO_OPTIONS
) -> bytes:
    """Return a serialized SentencePiece model: the base's pieces, then letters and merges of `texts`.

    How the base normalises texts, which are learned from as it does, is recorded in the model.

    The same input gives the same bytes. Where the texts give fewer merges than the target size has room for,
    the model is smaller, and the log says so.

    Raises:
        UserError: the base is no BPE model, the texts hold no Ethiopic, or the target size has no room for
            the letters.
    """
    base = _load(base_model, options)
    if base.proto.trainer_spec.model_type != _BPE:
        raise UserError(
            f"{base_model}: this is not a BPE model; extending works with BPE only, as in bpe.model"
        )
    learned_from = [_FOREIGN.sub(_PLACEHOLDER, base.words(text)) for text in texts]
    letters = _missing_letters(base, learned_from)
    room = target_size - base.size - len(letters)
    rare = sorted(set(main_block_letters()) - set(base.pieces) - set(letters))
    if len(rare) <= room * _MAX_RARE_SHARE:
        letters, room = letters + rare, room - len(rare)
    if room < 0:
        raise UserError(
            f"--target-size {target_size} is too small: the base has {base.size} pieces and {len(letters)} "
            f"letters are missing in it, so the least that works is {base.size + len(letters)}"
        )
    merges = _merges(base, learned_from, room)
    if len(merges) < room:
        logger.warning(
            "The tokenizer gets %d pieces instead of %d: the texts give no more (texts: %d, merges: %d)",
            target_size - room + len(merges),
            target_size,
            len(learned_from),
            len(merges),
        )
    return with_record(_appended(base.proto, letters, merges), base.options.record)


def describe(extension: Extension, texts: Sequence[str]) -> str:
    """Return what the extension did to `texts`, as lines for people."""
    base, extended = extension.base, extension.extended
    before, after = measure(base, texts), measure(extended, texts)
    num_appended = extended.size - base.size
    num_used = sum(token >= base.size for token in after.tokens)
    sample = next(text for text in texts if text.strip())
    lines = [
        f"tokenizer:       {extended.path}",
        f"base pieces:     {base.size}",
        f"pieces now:      {extended.size}",
        f"appended:        {num_appended}, of which the texts use {num_used}",
        f"unknown before:  {before.unknown_percent:.3f} % of {before.num_tokens} tokens",
        f"unknown now:     {after.unknown_percent:.3f} % of {after.num_tokens} tokens",
        f"tokens per word: {after.tokens_per_word:.2f} over {after.num_words} words",
        f"normaliser:      {extended.options.summary} ({extended.options.fingerprint})",
        f"fingerprint:     {extended.vocabulary.fingerprint}",
        f"sample:          {' '.join(extended.encode_pieces(sample))}",
    ]
    return "\n".join(lines)


def _load(base_model: Path, options: Mapping[str, Any]) -> Tokenizer:
    """Return the base with `options` of the normaliser in the place of its own."""
    base = Tokenizer.load(base_model)
    return Tokenizer(base.model_bytes, base_model, base.options.model_copy(update=dict(options)))


def _missing_letters(base: Tokenizer, texts: Sequence[str]) -> list[str]:
    """Return the single characters that the base needs for Amharic and for `texts`, by code point."""
    in_texts = {char for char in set().union(*texts) if is_ethiopic(char)}
    if not in_texts:
        raise UserError(
            f"none of the {len(texts)} texts holds an Ethiopic letter; give manifests of Amharic recordings"
        )
    return sorted(in_texts.union(amharic_letters()) - set(base.pieces))


def _merges(base: Tokenizer, texts: Sequence[str], limit: int) -> list[str]:
    """Return up to `limit` pieces of several characters that the base lacks, in the order they are learned.

    Args:
        base: gives the settings for spaces, and the pieces to leave out.
        texts: words of Ethiopic characters, everything else replaced by the placeholder. What is foreign can
            never be joined to Ethiopic, so this changes no merge; it keeps foreign pairs from using up the
            number of merges that has to be named in advance.
        limit: merges wanted.
    """
    known = set(base.pieces)
    # Besides the limit: what the base knows already, and the placeholder behind the sign of a space.
    num_left_out = sum(bool(_APPENDABLE.fullmatch(piece)) for piece in known) + 1
    model = _train(base.proto, texts, limit + num_left_out)
    # Once every word is one piece, the trainer goes on with pairs that no longer occur. A piece that no text
    # gives would stay a random row: the last one that is found in the texts ends the list.
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    found = {token for ids in processor.encode(list(texts)) for token in ids}
    pieces = [str(piece.piece) for piece in model.pieces]
    is_merge = [len(piece) > 1 and bool(_APPENDABLE.fullmatch(piece)) for piece in pieces]
    end = max((token + 1 for token in found if is_merge[token]), default=0)
    merges = [piece for token, piece in enumerate(pieces[:end]) if is_merge[token] and piece not in known]
    return merges[:limit]


def _train(base: Any, texts: Sequence[str], num_merges: int) -> Any:
    """Return a BPE ModelProto of `texts`: `<unk>`, merges in the order they are learned, characters."""
    short_worded = [_LONGEST_WORD.sub(r"\1 ", text) for text in texts]
    num_characters = len(set().union(*texts)) + 1  # the sign of a space
    num_merges = min(num_merges, sum(map(len, texts)))  # texts have no more, SentencePiece counts in 32 bits
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(short_worded),
        model_writer=writer,
        model_type="bpe",
        vocab_size=1 + num_characters + num_merges,
        hard_vocab_limit=False,  # fewer pieces where the texts give no more
        character_coverage=1.0,
        max_sentence_length=2**30,  # the default leaves out longer lines
        normalization_rule_name="identity",  # the base's own rules were applied already
        add_dummy_prefix=base.normalizer_spec.add_dummy_prefix,
        remove_extra_whitespaces=base.normalizer_spec.remove_extra_whitespaces,
        treat_whitespace_as_suffix=base.trainer_spec.treat_whitespace_as_suffix,
        unk_id=0,
        bos_id=-1,
        eos_id=-1,
        pad_id=-1,
        minloglevel=2,
    )
    return parse_model(writer.getvalue())


def _appended(proto: Any, letters: Sequence[str], merges: Sequence[str]) -> bytes:
    """Return `proto` with the letters and merges appended, serialized."""
    below = math.floor(min(piece.score for piece in proto.pieces)) - 1
    for rank, letter in enumerate(letters):
        proto.pieces.add(piece=letter, type=_NORMAL, score=below - len(merges) - rank)
    for rank, merge in enumerate(merges):
        proto.pieces.add(piece=merge, type=_NORMAL, score=below - rank)
    proto.trainer_spec.vocab_size = len(proto.pieces)
    return bytes(proto.SerializeToString(deterministic=True))


def _refuse_overwriting(base_model: Path, output_model: Path) -> None:
    same = output_model.resolve() == base_model.resolve()
    if same or (output_model.exists() and base_model.exists() and output_model.samefile(base_model)):
        raise UserError(
            f"--output-model {output_model} is the base tokenizer, which stays as it is; name another file"
        )


def _write(path: Path, content: bytes) -> None:
    """Write a file aside and rename it, so that no reader ever finds half of it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"--output-model {path}: cannot be written ({error.strerror}); name a file in a folder of yours"
        ) from None
