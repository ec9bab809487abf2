"""Start of a new run from a base with language rows: the row of its language."""

import logging

from torch import Tensor

from indextts.text.special_tokens import language_row
from indextts.training.optim import LANGUAGE_ROWS
from indextts.training.run import Inputs

logger = logging.getLogger(__name__)

OWN = "own"  # the value of --language-row-init that keeps the published row


def with_language_row(weights: dict[str, Tensor], inputs: Inputs) -> dict[str, Tensor]:
    """Return the base weights, where the row of an untrained language is a copy of a trained one.

    The published model speaks few of the languages that it has rows for; the rows of the others are as they
    were initialised, perhaps many times longer.
    """
    row, source = inputs.tokenizer.language_row, inputs.command.language_row_init
    if row is None or source == OWN or not has_new_language(inputs):
        return weights
    table = weights[LANGUAGE_ROWS].clone()
    before = table[row].float().norm().item()
    table[row] = table[language_row(source)]
    logger.info(
        "The language row of %s (%d) starts as that of %s: its norm is %.2f, the published one has %.2f",
        inputs.tokenizer.options.language,
        row,
        source,
        table[row].float().norm().item(),
        before,
    )
    return {**weights, LANGUAGE_ROWS: table}


def has_new_language(inputs: Inputs) -> bool:
    """Return whether the run has a language row that the base was not trained on."""
    tokenizer = inputs.tokenizer
    is_trained = tokenizer.options.language in inputs.config.of_base.trained_languages
    return tokenizer.language_row is not None and not is_trained
