"""Does a tokenizer extend the one that its base checkpoint was trained with? No torch here."""

from pathlib import Path

from indextts.errors import UserError
from indextts.text.tokenizer import Tokenizer, first_difference


def base_tokenizer(base_checkpoint: Path) -> Path:
    """Return where the tokenizer of a base checkpoint lies, if it is at hand: beside it."""
    return base_checkpoint.parent / "bpe.model"


def require_extension(tokenizer: Tokenizer, base: Tokenizer) -> None:
    """Raise a UserError unless `tokenizer` begins with the pieces of `base`."""
    difference = first_difference(base, tokenizer)
    if difference is not None:
        raise UserError(
            f"--tokenizer {tokenizer.path} does not extend {base.path}: {difference}; make it with "
            "tools/extend_bpe.py from that file"
        )
