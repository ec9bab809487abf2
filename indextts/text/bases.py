"""The tokenizers of the published models: SentencePiece for 2.0, a rank file for 2.5; the content tells."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from indextts.commands.bases import Base, base_in
from indextts.commands.normalizer_options import NormalizerOptions, of_language
from indextts.commands.pairs_file import PairsFile
from indextts.errors import UserError
from indextts.text.byte_extend import extended_ranks, reserved_ranks
from indextts.text.byte_level import ByteLevelTokenizer, is_rank_file, reserved_line, with_rank_record
from indextts.text.piece_extend import extended_pieces
from indextts.text.special_tokens import language_row
from indextts.text.tokenizer import Tokenizer, parse_record, read_model, with_record

# Of speech/export/text_package.py.
NAMES_IN_FOLDER = ("spoken_text/options.json", "spoken_text/reserved.json")


def load_tokenizer(path: Path, options: NormalizerOptions | None = None) -> Tokenizer:
    """Return the tokenizer in a file of either kind; arguments and errors as for `Tokenizer.load`."""
    return tokenizer_of(read_model(path), path, options)


def tokenizer_of(model: bytes, path: Path, options: NormalizerOptions | None = None) -> Tokenizer:
    """Return the tokenizer with the content of a file of either kind; errors as for `Tokenizer`."""
    kind = ByteLevelTokenizer if is_rank_file(model) else Tokenizer
    return kind(model, path, options)


def extended(base: Tokenizer, texts: Iterable[str], target_size: int, *, only_letters: bool = False) -> bytes:
    """Return the content of a tokenizer file with pieces of `texts` appended to those of the base.

    Raises:
        UserError: the base cannot be extended, the texts contain no letter of the language, or the target
            size is too small for the letters.
    """
    if isinstance(base, ByteLevelTokenizer):
        return extended_ranks(base, texts, target_size, only_letters=only_letters)
    if only_letters:
        raise UserError(f"{base.path}: --pieces letters needs the .tiktoken file of IndexTTS-2.5")
    return extended_pieces(base, texts, target_size)


def reserved(base: Tokenizer, texts: Sequence[str]) -> bytes:
    """Return the content of a tokenizer file with pieces of `texts` in place of reserved special tokens.

    Raises:
        UserError: the base has no such tokens or is not the published one, or the texts cannot be used.
    """
    if not isinstance(base, ByteLevelTokenizer):
        raise UserError(f"{base.path}: --pieces reserved needs the .tiktoken file of IndexTTS-2.5")
    return reserved_ranks(base, texts)


def for_language(tokenizer: Tokenizer, language: str) -> Tokenizer:
    """Return a tokenizer with these pieces for texts of `language`, "" its own; a UserError without a row."""
    options = of_language(tokenizer.options, language) if language else tokenizer.options
    if options == tokenizer.options:
        return tokenizer
    other = tokenizer_of(tokenizer.model_bytes, tokenizer.path, options)
    _ = other.language_row  # raises
    return other


def new_languages(tokenizer: Tokenizer, base: Base, files: Iterable[PairsFile]) -> dict[str, int]:
    """Return the language rows of a run on pairs files that the base was not trained on, by language."""
    if tokenizer.language_row is None:
        return {}
    rows = {file.language: language_row(file.language) for file in files if file.language}
    rows[tokenizer.options.language] = tokenizer.language_row  # perhaps that of all unknown languages
    return {code: row for code, row in rows.items() if code not in base.trained_languages}


def stored_tokenizer(entry: dict[str, Any]) -> bytes:
    """Return the tokenizer file under `tokenizer` in a checkpoint, with its normaliser record."""
    model: bytes = entry["model"]
    record = entry.get("normalizer")  # absent in older checkpoints
    if record is None:
        return model
    return with_rank_record(model, record) if is_rank_file(model) else with_record(model, record)


def tokenizer_in(folder: Path, base: Base) -> Tokenizer:
    """Return the tokenizer of a model folder; errors as for `load_tokenizer`.

    The rank file of an export contains nothing else, because the official program reads nothing but ranks;
    options of the normaliser and pieces of reserved tokens are in `spoken_text/` beside it.
    """
    path, record, reserved = (folder / name for name in (base.tokenizer_file, *NAMES_IN_FOLDER))
    model, options = read_model(path), None
    if record.is_file():
        options = parse_record(record.read_bytes(), record)[1]
    if reserved.is_file():
        model += reserved_line(json.loads(reserved.read_bytes())["pieces"])
    return tokenizer_of(model, path, options)


def base_tokenizer(base_checkpoint: Path) -> Path:
    """Return the path of the tokenizer of a base checkpoint, which lies next to it."""
    return base_checkpoint.with_name(base_in(base_checkpoint.parent).tokenizer_file)
