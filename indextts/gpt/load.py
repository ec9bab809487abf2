"""Weights of a file into a model: names and shapes are checked first, so that nothing is half loaded.

Fine-tuners publish variants of gpt.pth; `canonical_names` brings them to the published names:

    inference_model.*                     dropped: a second view of the same weights
    gpt.wte.weight                        dropped: an alias of mel_embedding.weight
    gpt.h.N.attn.bias, .masked_bias       dropped: causal masks of old libraries
    *.lora_*                              dropped: adapters; only the base weights are loaded
    *.base_layer.*                        renamed: `.base_layer.` becomes `.`
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from indextts.errors import UserError
from indextts.gpt.config import GPTConfig
from indextts.gpt.model import UnifiedVoice

logger = logging.getLogger(__name__)

DROPPED = re.compile(r"inference_model\.|gpt\.wte\.weight$|gpt\.h\.\d+\.attn\.(masked_)?bias$|.*\.lora_")
NUM_NAMES_SHOWN = 3
MOST_THREADS = 8
CPU = torch.device("cpu")

ResultT = TypeVar("ResultT")


def load_model(
    config: GPTConfig,
    weights: Mapping[str, Tensor],
    source: str,
    device_of: Callable[[str], torch.device] = lambda _: CPU,
) -> UnifiedVoice:
    """A float32 model with its own copy of `weights`; each goes to its device without a copy in between.

    Args:
        config: sizes that the weights must have.
        weights: by published or circulating names, of any floating-point type.
        source: the file that the weights are from, for messages.
        device_of: where the weight of a name shall be.

    Raises:
        UserError: a weight is missing, or is not of the shape that `config` asks for.
    """
    with torch.device("meta"):
        model = UnifiedVoice(config)
    given = canonical_names(weights)
    expected = model.state_dict()
    _check(given, {name: tensor.shape for name, tensor in expected.items()}, source)
    unexpected = [name for name in given if name not in expected]
    if unexpected:
        logger.warning("[Warn] Unexpected keys in checkpoint: %s", unexpected)

    def copy(name: str) -> Tensor:
        return given[name].to(device_of(name), expected[name].dtype, copy=True)

    copies = in_threads(copy, expected)
    model.load_state_dict(dict(zip(expected, copies, strict=True)), assign=True)
    return model


def in_threads(function: Callable[[str], ResultT], names: Iterable[str]) -> list[ResultT]:
    """Results in the order of `names`; reading a mapped file takes one thread longer than copying it."""
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as threads:
        return list(threads.map(function, names))


def canonical_names(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights by their published names, without those that circulating files hold besides."""
    dropped = [name for name in weights if DROPPED.match(name)]
    if dropped:
        logger.info("%d tensors are no weights of the GPT and are left out: %s", len(dropped), _some(dropped))
    adapters = [name for name in dropped if ".lora_" in name]
    if adapters:
        logger.warning("%d LoRA tensors are left out: only the base weights are loaded", len(adapters))
    left_out = set(dropped)
    return {
        name.replace(".base_layer.", "."): tensor for name, tensor in weights.items() if name not in left_out
    }


def _check(given: Mapping[str, Tensor], expected: Mapping[str, torch.Size], source: str) -> None:
    missing = [name for name in expected if name not in given]
    if missing:
        logger.warning("[Warn] Missing keys in checkpoint: %s", missing)
        raise UserError(
            f"{source}: {len(missing)} of {len(expected)} weights are missing: {_some(missing)}; "
            "give a whole IndexTTS2 GPT checkpoint (gpt.pth), and the config.yaml that belongs to it"
        )
    misshapen = [
        f"{name} is {tuple(given[name].shape)}, expected {tuple(shape)}"
        for name, shape in expected.items()
        if given[name].shape != shape
    ]
    if misshapen:
        raise UserError(
            f"{source}: {len(misshapen)} weights do not fit the configuration: {_some(misshapen)}; "
            "give the config.yaml that belongs to this checkpoint"
        )


def _some(names: list[str]) -> str:
    more = len(names) - NUM_NAMES_SHOWN
    return ", ".join(names[:NUM_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
