"""Append the pieces of a language to a tokenizer; texts of the base keep their ids exactly.

The algorithms are in `piece_extend.py` (a SentencePiece model) and `byte_extend.py` (a rank file); `bases.py`
chooses.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from indextts.errors import UserError, disk_errors
from indextts.system.files import written_aside
from indextts.text.bases import extended, load_tokenizer, reserved, tokenizer_of
from indextts.text.languages import find_language
from indextts.text.normalize import reads_alike
from indextts.text.piece_extend import missing_letters
from indextts.text.tokenizer import Tokenizer, measure
from indextts.text.vocabulary import SizeAdvice, advise_size

logger = logging.getLogger(__name__)

_MIN_MERGES_SHARE = 0.5  # of the advised pieces, besides the letters of a large syllabary
_LONGEST_WORD = 100  # letters
_SHOWN = 20  # letters of it
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Extension:
    """A base tokenizer and its extension."""

    base: Tokenizer
    extended: Tokenizer


def extend_file(
    base_model: Path,
    texts: Sequence[str],
    output_model: Path,
    target_size: int,
    advice: SizeAdvice | None = None,
    options: Mapping[str, Any] = NO_OPTIONS,
    *,
    only_letters: bool = False,
) -> Extension:
    """Extend the base tokenizer with pieces learned from `texts` and write it to `output_model`.

    Args:
        target_size: total pieces; 0 for the advised size.
        advice: None if the hours of speech are unknown.
        options: of the normaliser that replace those of the base.
        only_letters: whether each new piece has one letter.

    Raises:
        UserError: the base, the texts or the target size cannot be used, or the file cannot be written.
    """
    _refuse_overwriting(base_model, output_model)
    base, advice = _load(base_model, options), advice or advise_size(None)
    _warn_of(texts, base)
    if target_size == 0:
        logger.info("Chose the tokenizer size: %d base pieces and %s", base.size, advice)
        has_every_letter = base.unknown_id < 0
        letters = [] if has_every_letter else missing_letters(base, texts, list(map(base.words, texts)))
        num_merges = round(_MIN_MERGES_SHARE * advice.num_pieces)
        target_size = base.size + max(advice.num_pieces, len(letters) + num_merges)
    elif objection := advice.objection(target_size - base.size):
        logger.warning("--target-size %d: %s", target_size, objection)
    model = extended(base, texts, target_size, only_letters=only_letters)
    _write(output_model, model)
    return Extension(base, tokenizer_of(model, output_model))


def reserve_file(
    base_model: Path, texts: Sequence[str], output_model: Path, options: Mapping[str, Any] = NO_OPTIONS
) -> Extension:
    """Write the base tokenizer with pieces of `texts` in place of its reserved special tokens.

    Raises:
        UserError: the base is not the published tokenizer of IndexTTS-2.5, the texts cannot be used, or the
            file cannot be written.
    """
    _refuse_overwriting(base_model, output_model)
    base = _load(base_model, options)
    _warn_of(texts, base)
    model = reserved(base, texts)
    _write(output_model, model)
    return Extension(base, tokenizer_of(model, output_model))


def store_options(path: Path, options: Mapping[str, Any]) -> Extension:
    """Store normaliser options and readings in a tokenizer file, in place of the recorded ones.

    Returns:
        The tokenizer before and after.

    Raises:
        UserError: the file is no usable tokenizer, or cannot be written.
    """
    before = load_tokenizer(path)
    chosen = before.options.model_copy(update=dict(options))
    model = before.recording(chosen)
    if model != before.model_bytes:
        _write(path, model)
    return Extension(before, tokenizer_of(model, path))


def describe_options(stored: Extension, texts: Sequence[str]) -> str:
    """Return what `store_options` changed, and for how many of `texts`, as lines."""
    before, after = stored.base.options, stored.extended.options
    num_changed = sum(not reads_alike(text, before, after) for text in texts)
    lines = [
        f"tokenizer:       {stored.extended.path}, all {stored.extended.size} pieces kept",
        f"normaliser:      {after.summary} ({after.fingerprint}), before: {before.summary}",
        f"texts:           {num_changed} of {len(texts)} are read differently",
    ]
    return "\n".join(lines)


def describe(extension: Extension, texts: Sequence[str]) -> str:
    """Return statistics of `texts` before and after the extension, as lines."""
    base, extended = extension.base, extension.extended
    before, after = measure(base, texts), measure(extended, texts)
    appended = extended.appended_ids(base.size)
    num_used = sum(token in appended for token in after.tokens)
    sample = next(text for text in texts if text.strip())
    lines = [
        f"tokenizer:       {extended.path}",
        f"base pieces:     {base.size}",
        f"pieces now:      {extended.size}",
        f"appended:        {len(appended)}, of which the texts use {num_used}",
        f"unknown before:  {before.unknown_percent:.3f} % of {before.num_tokens} tokens",
        f"unknown now:     {after.unknown_percent:.3f} % of {after.num_tokens} tokens",
        f"tokens per word: {after.tokens_per_word:.2f} over {after.num_words} words",
        f"normaliser:      {extended.options.summary} ({extended.options.fingerprint})",
        f"fingerprint:     {extended.vocabulary.fingerprint}",
        f"sample:          {' '.join(extended.encode_pieces(sample))}",
    ]
    return "\n".join(lines)


def _load(base_model: Path, options: Mapping[str, Any]) -> Tokenizer:
    """Load the base, with `options` replacing its normaliser options."""
    base = load_tokenizer(base_model)
    return tokenizer_of(base.model_bytes, base_model, base.options.model_copy(update=dict(options)))


def _warn_of(texts: Sequence[str], base: Tokenizer) -> None:
    """Log a warning about words that nobody wrote, and one about texts of another language."""
    longest = max((word for text in texts for word in text.split()), key=len, default="")
    if len(longest) > _LONGEST_WORD:
        start = f"{longest[:_SHOWN]}..."
        logger.warning("A text contains a word of %d letters (%s); correct or remove it", len(longest), start)
    language = find_language(base.options.language)
    num_foreign = sum(2 * own < letters for own, letters in map(language.count_letters, texts))
    if 2 * num_foreign > len(texts):
        logger.warning(
            "%d of %d texts are in another language than %s; choose it with --language",
            num_foreign,
            len(texts),
            language.name,
        )


def _refuse_overwriting(base_model: Path, output_model: Path) -> None:
    same = output_model.resolve() == base_model.resolve()
    if same or (output_model.exists() and base_model.exists() and output_model.samefile(base_model)):
        raise UserError(f"--output-model {output_model} is the base tokenizer itself; choose another file")


def _write(path: Path, content: bytes) -> None:
    with disk_errors(f"--output-model {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(path, is_unique=True) as aside:
            aside.write_bytes(content)
