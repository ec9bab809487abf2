"""Names of weights: from those that circulate to the published ones. No torch here.

Fine-tuners publish variants of gpt.pth; `canonical_names` brings them to the published names:

    inference_model.*                     dropped: a second view of the same weights
    gpt.wte.weight                        dropped: an alias of mel_embedding.weight
    gpt.h.N.attn.bias, .masked_bias       dropped: causal masks of old libraries
    *.lora_*                              dropped: adapters; only the base weights are loaded
    *.base_layer.*                        renamed: `.base_layer.` becomes `.`
"""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from indextts.errors import UserError

logger = logging.getLogger(__name__)

DROPPED = re.compile(r"inference_model\.|gpt\.wte\.weight$|gpt\.h\.\d+\.attn\.(masked_)?bias$|.*\.lora_")
NUM_NAMES_SHOWN = 3

WeightT = TypeVar("WeightT")


def canonical_names(weights: Mapping[str, WeightT]) -> dict[str, WeightT]:
    """Return the weights by their published names, without those that circulating files hold besides.

    Raises:
        UserError: two weights have the same published name, so that it is unknown which one counts.
    """
    dropped = [name for name in weights if DROPPED.match(name)]
    if dropped:
        logger.info("%d tensors are no weights of the GPT and are left out: %s", len(dropped), some(dropped))
    adapters = [name for name in dropped if ".lora_" in name]
    if adapters:
        logger.warning("%d LoRA tensors are left out: only the base weights are loaded", len(adapters))
    left_out = set(dropped)
    published = {name: name.replace(".base_layer.", ".") for name in weights if name not in left_out}
    twice = [name for name, short in published.items() if name != short and short in weights]
    if twice:
        raise UserError(
            f"{some(twice)}: the file holds these weights a second time without .base_layer.; give a plain "
            "checkpoint"
        )
    return {short: weights[name] for name, short in published.items()}


def some(names: Sequence[str]) -> str:
    """Return the first few names and how many more there are, for a sentence."""
    more = len(names) - NUM_NAMES_SHOWN
    return ", ".join(names[:NUM_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
