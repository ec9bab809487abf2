"""How the official programs speak with an export, where that differs from a checkpoint.

    OUTPUT_DIR/spoken_text/client.json    {"page_language": "ar", or "" for none, "positions": "training",
                                           or null for the usual ones}

The menu of the official page of IndexTTS-2.5 has the languages of the published model only, and a model reads
the language twice: as a tag before the text and as a separate row. With --page-language, the tags and rows
of the new language and of one in the menu are exchanged, so that this choice speaks the new language. A
second exchange, in `load_trained`, restores the model.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel
from torch import Tensor

from indextts.commands.bases import Base
from indextts.errors import UserError
from indextts.models.checkpoint import TEXT_TABLES
from indextts.models.weight_names import LANGUAGE_ROWS
from indextts.system.yaml_files import read_if_valid
from indextts.text.special_tokens import LANGUAGES, language_tag
from indextts.text.tokenizer import Tokenizer

NAME = "spoken_text/client.json"  # a folder that a download from the hub has too


class Client(BaseModel, frozen=True):
    """What the programs that load an export expect."""

    page_language: str = ""
    positions: Literal["published", "training"] | None = None


def client_of(folder: Path) -> Client:
    """Return what a model folder records; the usual client if it records nothing."""
    return read_if_valid(Client, folder / NAME) or Client()


def require_language(base: Base, tokenizer: Tokenizer, page_language: str) -> None:
    """Raise a UserError unless the languages can change places."""
    if page_language not in base.trained_languages:
        menu = ", ".join(base.trained_languages) or "no languages"
        raise UserError(
            f"--page-language {page_language}: the menu of {base.title} has {menu}; choose one of these, or "
            "leave the flag out"
        )
    if _tag(tokenizer.options.language) not in tokenizer.pieces:
        raise UserError(
            f"--page-language {page_language}: the language of the model ({tokenizer.options.language}) has "
            "no tag that could change places; leave the flag out"
        )


def with_page_language(
    weights: Mapping[str, Tensor], tokenizer: Tokenizer, page_language: str
) -> Mapping[str, Tensor]:
    """Return the weights with the tags and rows of the model's language and of `page_language` exchanged."""
    if not page_language:
        return weights
    tags = [tokenizer.pieces.index(_tag(code)) for code in (tokenizer.options.language, page_language)]
    assert tokenizer.language_row is not None
    rows = [tokenizer.language_row, LANGUAGES.index(page_language)]
    exchanged = {name: _exchanged(weights[name], tags) for name in TEXT_TABLES}
    return {**weights, **exchanged, LANGUAGE_ROWS: _exchanged(weights[LANGUAGE_ROWS], rows)}


def _tag(code: str) -> str:
    return language_tag(code).strip()


def _exchanged(table: Tensor, rows: list[int]) -> Tensor:
    order = torch.arange(len(table))
    order[rows] = order[rows[::-1]]
    return table[order]
