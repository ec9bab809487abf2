"""Loading weights into a model, with all names and shapes checked first.

    check_fit       raises with every mismatch between weights and config
    load_model      the complete model, with its own copy of the weights
    load_encoders   only the encoders of conditioning and emotion

Names are the published ones (`indextts.models.weight_names`).
"""

import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from indextts.commands.bases import base_of
from indextts.errors import RESUME_REFUSED, UserError
from indextts.models.checkpoint import TEXT_TABLES
from indextts.models.gpt.config import GPTConfig
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.weight_names import published_names
from indextts.system.amounts import counted, listed
from indextts.system.process_pool import map_in_threads
from indextts.system.processes import num_cores

logger = logging.getLogger(__name__)

NUM_THREADS = min(8, num_cores())  # that read memory-mapped files fast
CPU = torch.device("cpu")

# The speaker and emotion encoders. Preprocessing runs them once; training never updates them.
ENCODERS = (
    "conditioning_encoder.",
    "perceiver_encoder.",
    "emo_conditioning_encoder.",
    "emo_perceiver_encoder.",
    "emo_layer.",
    "emovec_layer.",
)
# Name prefix of repeated blocks, and the config key with their number.
BLOCKS = (
    ("gpt.h.", "gpt.layers"),
    ("conditioning_encoder.encoders.", "gpt.condition_module.num_blocks"),
    ("emo_conditioning_encoder.encoders.", "gpt.emo_condition_module.num_blocks"),
)


def load_model(
    config: GPTConfig,
    weights: Mapping[str, Tensor],
    source: str,
    device_of: Callable[[str], torch.device] = lambda _: CPU,
    dtype_of: Callable[[str], torch.dtype] = lambda _: torch.float32,
) -> UnifiedVoice:
    """Return a model with its own copy of `weights`, in float32; each is copied directly to its device.

    Args:
        weights: by any names that `published_names` maps, of any floating-point type.
        source: the file of the weights, for messages.
        dtype_of: returns another type than float32 for some names.

    Raises:
        UserError: a weight is missing, unexpected, not finite, or does not have the shape of `config`.
    """
    model = empty_model(config)
    given = published_names(weights)
    expected = model.state_dict()
    _check_weights(expected, given, source)

    def copy(name: str) -> Tensor:
        return given[name].to(device_of(name), dtype_of(name), copy=True)

    model.load_state_dict(_finite(expected, copy, source), assign=True)
    return model


def load_encoders(
    config: GPTConfig, weights: Mapping[str, Tensor], source: str, device: torch.device = CPU
) -> UnifiedVoice:
    """Return a model in eval mode with only its encoders on `device`; the rest stays on the meta device.

    On the CPU, float32 weights are not copied: they stay memory-mapped.

    Args:
        config: sizes that all weights must have, except for the number of text tokens.
        weights: by any names that `published_names` maps, of any floating-point type; never modified.

    Raises:
        UserError: as for `load_model`; mismatches of weights that are not loaded count too.
    """
    model = empty_model(config)
    given = published_names(weights)
    expected = model.state_dict()
    _check_weights(expected, given, source, any_rows=TEXT_TABLES)
    names = [name for name in expected if name.startswith(ENCODERS)]
    encoders = _finite(names, lambda name: given[name].to(device, expected[name].dtype), source)
    model.load_state_dict(encoders, assign=True, strict=False)
    return model.requires_grad_(False).eval()


def check_fit(config: GPTConfig, weights: Mapping[str, Tensor], source: str) -> None:
    """Raise a UserError unless `weights` fit this model; text tables may have any number of rows."""
    _check_weights(empty_model(config).state_dict(), published_names(weights), source, any_rows=TEXT_TABLES)


def empty_model(config: GPTConfig) -> UnifiedVoice:
    """Return a model on the meta device: weights with shapes but without memory."""
    with torch.device("meta"):
        return UnifiedVoice(config)


def _finite(names: Collection[str], read: Callable[[str], Tensor], source: str) -> dict[str, Tensor]:
    """Return `read(name)` for each name; raise a UserError if a tensor contains NaN or infinity."""

    def read_and_check(name: str) -> tuple[Tensor, bool]:
        tensor = read(name)
        # a finite sum proves that all values are finite, without a mask; after an overflow the mask decides
        return tensor, math.isfinite(tensor.sum().item()) or bool(tensor.isfinite().all())

    found = dict(zip(names, map_in_threads(read_and_check, names, NUM_THREADS), strict=True))
    bad = [name for name, (_, is_finite) in found.items() if not is_finite]
    if bad:
        logger.warning("Not finite in %s: %s", source, bad)
        raise UserError(
            f"{source}: {len(bad)} of {len(found)} weights contain NaN or infinity: {listed(bad)}; "
            "either training diverged or the file is corrupt; use an earlier checkpoint, or download the "
            "file again"
        )
    return {name: tensor for name, (tensor, _) in found.items()}


def _check_weights(
    expected: Mapping[str, Tensor], given: Mapping[str, Tensor], source: str, any_rows: Collection[str] = ()
) -> None:
    """Raise a UserError unless the weights fit the model; log every mismatch.

    Args:
        expected: the model's state dict; only names and shapes are used.
        any_rows: tables whose first dimension may differ.
    """
    base, found = base_of(expected), base_of(given)
    if found != base and not found.weight_names.isdisjoint(given):  # else these are of no known base
        raise UserError(
            f"{source}: a GPT of {found.title}, but this command runs with {base.title}; use the gpt.pth and "
            f"config.yaml of {base.title}, or a checkpoint that was trained from them",
            RESUME_REFUSED,
        )
    missing = [name for name in expected if name not in given]
    unexpected = [name for name in given if name not in expected]
    both = [name for name in expected if name in given]
    misshapen = [
        f"{name} is {tuple(given[name].shape)}, expected {tuple(expected[name].shape)}"
        for name in both
        if given[name].dim() != expected[name].dim()
        or given[name].shape[name in any_rows :] != expected[name].shape[name in any_rows :]
    ]
    not_floats = [f"{name} ({given[name].dtype})" for name in both if not given[name].is_floating_point()]
    if missing:
        logger.warning("[Warn] Missing keys in checkpoint: %s", missing)
    if unexpected:
        logger.warning("[Warn] Unexpected keys in checkpoint: %s", unexpected)
    if misshapen:
        logger.warning("[Warn] Keys of another shape in checkpoint: %s", misshapen)
    problems = list(_block_problems(expected, given)) if missing or unexpected else []
    if missing:
        problems.append(f"{len(missing)} of {len(expected)} weights are missing: {listed(missing)}")
    wrong = {
        "not in the model": unexpected,
        "with another shape than in the config": misshapen,
        "not of a floating-point type": not_floats,
    }
    problems += [
        f"{counted(len(names), 'weight')} {what}: {listed(names)}" for what, names in wrong.items() if names
    ]
    if problems:
        raise UserError(
            f"{source}: {'; '.join(problems)}; use a complete IndexTTS2 GPT checkpoint (gpt.pth) and its "
            "config.yaml"
        )


def _block_problems(expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Iterator[str]:
    """Yield differences in the number of blocks, which explain a long list of missing or unexpected names."""
    for prefix, key in BLOCKS:
        wanted, found = _num_blocks(prefix, expected), _num_blocks(prefix, given)
        if found and found != wanted:
            blocks = counted(found, "block")
            yield f"the checkpoint has {blocks} {prefix}N, but {key} in the config is {wanted}"


def _num_blocks(prefix: str, names: Iterable[str]) -> int:
    block = re.compile(re.escape(prefix) + r"(\d+)\.")
    return 1 + max((int(found[1]) for name in names if (found := block.match(name))), default=-1)
