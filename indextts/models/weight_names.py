"""Mapping of weight names to those of the published gpt.pth. Does not import torch.

Fine-tuned variants of gpt.pth circulate with other names; `published_names` maps them:

    inference_model.*                     dropped: a second view of the same weights
    gpt.wte.weight                        dropped: an alias of mel_embedding.weight
    gpt.h.N.attn.bias, .masked_bias       dropped: causal masks of old libraries
    *.lora_*                              dropped: adapters; only the base weights are loaded
    *.base_layer.*                        renamed: `.base_layer.` becomes `.`
    module.*, *_orig_mod.*                renamed: the wrapper's part of the name is removed (distributed and
    *_fsdp_wrapped_module.*               compiled runs); the rules above see the rest
"""

import logging
import re
from collections.abc import Mapping
from typing import TypeVar

from indextts.errors import UserError
from indextts.system.amounts import counted, listed

logger = logging.getLogger(__name__)

LANGUAGE_ROWS = "lang_embedding.weight"  # the published name

DROPPED = re.compile(r"inference_model\.|gpt\.wte\.weight$|gpt\.h\.\d+\.attn\.(masked_)?bias$|.*\.lora_")

WRAPPERS = re.compile(
    r"^(?:(?:module|_orig_mod|_fsdp_wrapped_module)\.)+|(?<=\.)(?:_orig_mod|_fsdp_wrapped_module)\."
)

WeightT = TypeVar("WeightT")


def published_names(weights: Mapping[str, WeightT]) -> dict[str, WeightT]:
    """Return the weights under their published names, without the dropped ones of the table above.

    Raises:
        UserError: two weights have the same published name.
    """
    unwrapped = {name: WRAPPERS.sub("", name) for name in weights}
    dropped = [name for name, short in unwrapped.items() if DROPPED.match(short)]
    if dropped:
        amount = counted(len(dropped), "tensor")
        logger.info("Skipped %s that are not GPT weights: %s", amount, listed(dropped))
    adapters = [name for name in dropped if ".lora_" in name]
    if adapters:
        logger.warning("Skipped %s: only base weights are loaded", counted(len(adapters), "LoRA tensor"))
    left_out = set(dropped)
    published = {
        name: short.replace(".base_layer.", ".") for name, short in unwrapped.items() if name not in left_out
    }
    twice = [name for name, short in published.items() if name != short and short in weights]
    if twice:
        raise UserError(
            f"{listed(twice)}: the file contains these weights under two names; use a plain checkpoint"
        )
    return {short: weights[name] for name, short in published.items()}
