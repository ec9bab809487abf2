"""Append the pieces of a language to a SentencePiece BPE model; texts of the base keep their ids exactly.

    id 0 .. base - 1     the pieces, types and scores of the base, unchanged
    then                 single letters: the alphabet of the language and every letter of its script in the
                         texts, because an unknown letter in a new text makes its whole word unknown. For a
                         language in Ethiopic script also every Ethiopic character of the texts and, if they
                         take little of the space, the rest of the main block (ቐ, ፇ)
    then                 merges learned from the texts, most frequent first, up to the target size

All appended pieces consist of the space sign and characters of the language's script; of Latin and Chinese
characters, the scripts of the published models, only those that the base lacks. So English and Chinese are
cut as before, and a language whose letters the base has, such as Swahili, gets no piece. BPE joins the pair
with the highest score first. So the scores of the merges descend in learned order, below those of the base,
and the letters, which no pair produces, come below the merges.
"""

import io
import logging
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import sentencepiece

from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.text.ethiopic import ETHIOPIC_CHARACTERS, main_block_letters
from indextts.text.languages import Language, find_language, own_letters, scripts_of
from indextts.text.tokenizer import WORD_START, Tokenizer, parse_model, with_record

logger = logging.getLogger(__name__)

_BPE = 2  # SentencePiece model type
_NORMAL = 1  # SentencePiece piece type
_BASE_SCRIPTS = frozenset(["Latn", "Hani"])  # of the published models
_MAX_RARE_SHARE = 0.1  # of the pieces besides the required letters
_PLACEHOLDER = "."
# The SentencePiece trainer aborts the process at a word of 65,536 characters; no piece is longer than 16.
_LONGEST_WORD = re.compile(r"(\S{256})(?=\S)")


def extended_pieces(base: Tokenizer, texts: Iterable[str], target_size: int) -> bytes:
    """Return a serialized SentencePiece model: the pieces of the base, then letters and merges of `texts`.

    The model records the normaliser options of the base, which also apply to `texts`. If the texts provide
    fewer merges than requested, the model is smaller and a warning is logged.

    Raises:
        UserError: the base is not a BPE model, the texts contain no letter of the language, or the target
            size is too small for the letters.
    """
    if base.proto.trainer_spec.model_type != _BPE:
        raise UserError(f"{base.path}: not a BPE model; only BPE models such as bpe.model can be extended")
    texts = list(texts)
    words = [base.words(text) for text in texts]
    letters = missing_letters(base, texts, words)
    language = find_language(base.options.language)
    characters = _appendable_characters(base, language, words)
    if not characters:
        logger.info("The base has every letter of %s, so no piece was appended", language.name)
        return with_record(base.model_bytes, base.options.record)
    is_ethiopic = "Ethi" in language.scripts
    foreign = re.compile(f"[^{characters} ]+")
    training_texts = [foreign.sub(_PLACEHOLDER, text) for text in words]
    space = target_size - base.size - len(letters)
    rare = sorted(set(main_block_letters()) - set(base.pieces) - set(letters)) if is_ethiopic else []
    if len(rare) <= space * _MAX_RARE_SHARE:
        letters, space = letters + rare, space - len(rare)
    if space < 0:
        raise UserError(
            f"--target-size {target_size} is too small for the {base.size} pieces of the base and "
            f"{len(letters)} missing letters; use at least {base.size + len(letters)}"
        )
    appendable = re.compile(f"{WORD_START}*[{characters}]+{WORD_START}*")
    merges = _merges(base, training_texts, appendable, space)
    if len(merges) < space:
        logger.warning(
            "The tokenizer has only %d of %d pieces; the texts provide no more (texts: %d, merges: %d)",
            target_size - space + len(merges),
            target_size,
            len(training_texts),
            len(merges),
        )
    return with_record(_appended(base.proto, letters, merges), base.options.record)


def missing_letters(base: Tokenizer, texts: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the single characters of the language and of the texts that the base lacks, by code point.

    Args:
        texts: as written; the spoken form of numbers has letters in any text.
        words: the normalised texts.

    Raises:
        UserError: no text has a letter of the language.
    """
    language = find_language(base.options.language)
    if not own_letters(language, texts):
        raise UserError(
            f"no letter of {language.name} in {counted(len(texts), 'text')} of the manifests; use recordings "
            "in that language, or set the ISO 639 code of theirs with --language"
        )
    in_texts = own_letters(language, words)
    if "Ethi" in language.scripts:
        in_texts |= set(ETHIOPIC_CHARACTERS) & set().union(*words)
    return sorted(in_texts.union(language.letters) - set(base.pieces))


def _appendable_characters(base: Tokenizer, language: Language, texts: Sequence[str]) -> str:
    """Return the characters of appended pieces, for the character class of a regular expression."""
    if "Ethi" in language.scripts:
        return re.escape(ETHIOPIC_CHARACTERS)
    known = set(base.pieces)
    found = own_letters(language, texts).union(language.letters)
    found = {char for char in found if char not in known or _BASE_SCRIPTS.isdisjoint(scripts_of(char))}
    return re.escape("".join(sorted(found)))


def _merges(base: Tokenizer, texts: Sequence[str], appendable: re.Pattern[str], limit: int) -> list[str]:
    """Return up to `limit` pieces of several characters that the base lacks, in learned order.

    Args:
        texts: words of missing characters, with everything else replaced by the placeholder. Foreign
            characters never join them, so this changes no merge; it only keeps foreign pairs from using up
            the number of merges, which SentencePiece needs in advance.
    """
    known = set(base.pieces)
    # In addition to the limit: the pieces of the base, and the placeholder after the space sign.
    num_extra = sum(bool(appendable.fullmatch(piece)) for piece in known) + 1
    model = _train(base.proto, texts, limit + num_extra)
    # Once every word is a single piece, the trainer continues with pairs that no longer occur. A piece that
    # never occurs would stay a random row, so the last piece that occurs in the texts ends the list.
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    found = {token for ids in processor.encode(list(texts)) for token in ids}
    pieces = [str(piece.piece) for piece in model.pieces]
    is_merge = [len(piece) > 1 and bool(appendable.fullmatch(piece)) for piece in pieces]
    end = max((token + 1 for token in found if is_merge[token]), default=0)
    merges = [piece for token, piece in enumerate(pieces[:end]) if is_merge[token] and piece not in known]
    return merges[:limit]


def _train(base: Any, texts: Sequence[str], num_merges: int) -> Any:
    """Return a BPE ModelProto of `texts`: `<unk>`, merges in the order they are learned, characters."""
    short_worded = [_LONGEST_WORD.sub(r"\1 ", text) for text in texts]
    num_characters = len(set().union(*texts)) + 1  # the space sign
    num_merges = min(num_merges, sum(map(len, texts)))  # the maximum; SentencePiece counts in 32 bits
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(short_worded),
        model_writer=writer,
        model_type="bpe",
        vocab_size=1 + num_characters + num_merges,
        hard_vocab_limit=False,  # allow fewer pieces
        character_coverage=1.0,
        max_sentence_length=2**30,  # the default skips longer lines
        normalization_rule_name="identity",  # the rules of the base are applied already
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
