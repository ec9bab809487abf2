r"""Weights of a file into a model: names and shapes are checked first, so that nothing is half loaded.

weights --check_fit--> every misfit named, or none --load_model--> the whole model, a copy of the weights
                                               \--load_encoders--> what makes conditioning and emotion alone

Names are the published ones (`indextts.models.weight_names`).

Fresh weights, as the published model was started from; deterministic in a seed.
"""

import logging
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Generator, Tensor, nn

from indextts.errors import UserError
from indextts.models.checkpoint import TEXT_TABLES
from indextts.models.gpt.config import GPTConfig
from indextts.models.gpt.encoders import (
    PerceiverResampler,
    PositionAwareAttention,
    PositionTable,
    RMSNorm,
    sinusoids,
)
from indextts.models.gpt.gpt2 import InOutLinear
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.weight_names import canonical_names, some

logger = logging.getLogger(__name__)

MOST_THREADS = 8
CPU = torch.device("cpu")

# The speaker and emotion encoders: features are encoded once, before training, and no loss reaches them.
ENCODERS = (
    "conditioning_encoder.",
    "perceiver_encoder.",
    "emo_conditioning_encoder.",
    "emo_perceiver_encoder.",
    "emo_layer.",
    "emovec_layer.",
)
# Blocks are counted by these names; what the config calls them.
BLOCKS = (
    ("gpt.h.", "gpt.layers"),
    ("conditioning_encoder.encoders.", "gpt.condition_module.num_blocks"),
    ("emo_conditioning_encoder.encoders.", "gpt.emo_condition_module.num_blocks"),
)

Shape = tuple[int, ...]
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
        UserError: a weight is missing, unexpected, not of the shape that `config` asks for, or not finite.
    """
    model = empty_model(config)
    given = canonical_names(weights)
    expected = model.state_dict()
    _refuse_misfits(expected, given, source)

    def copy(name: str) -> Tensor:
        return given[name].to(device_of(name), expected[name].dtype, copy=True)

    model.load_state_dict(_finite(expected, copy, source), assign=True)
    return model


def load_encoders(
    config: GPTConfig, weights: Mapping[str, Tensor], source: str, device: torch.device = CPU
) -> UnifiedVoice:
    """A model in eval mode that has its encoders on `device` and nothing else: the rest stays without memory.

    On a CPU a float32 weight is not even copied: it stays the mapped file.

    Args:
        config: sizes that all weights must have, but for the number of text tokens.
        weights: by published or circulating names, of any floating-point type; never written to.
        source: the file that the weights are from, for messages.
        device: where conditioning and emotion are computed.

    Raises:
        UserError: as `load_model`, also for a misfit of a weight that is not used here.
    """
    model = empty_model(config)
    given = canonical_names(weights)
    expected = model.state_dict()
    _refuse_misfits(expected, given, source, any_rows=TEXT_TABLES)
    names = [name for name in expected if name.startswith(ENCODERS)]
    encoders = _finite(names, lambda name: given[name].to(device, expected[name].dtype), source)
    model.load_state_dict(encoders, assign=True, strict=False)
    return model.requires_grad_(False).eval()


def check_fit(config: GPTConfig, weights: Mapping[str, Tensor], source: str) -> None:
    """Raise a UserError unless `weights` are this model's, with text tables of any length."""
    _refuse_misfits(empty_model(config).state_dict(), canonical_names(weights), source, any_rows=TEXT_TABLES)


def empty_model(config: GPTConfig) -> UnifiedVoice:
    """A model whose weights have shapes and no memory."""
    with torch.device("meta"):
        return UnifiedVoice(config)


def in_threads(function: Callable[[str], ResultT], names: Iterable[str]) -> list[ResultT]:
    """Results in the order of `names`; reading a mapped file takes one thread longer than copying it."""
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as threads:
        return list(threads.map(function, names))


def _finite(names: Collection[str], read: Callable[[str], Tensor], source: str) -> dict[str, Tensor]:
    """What `read` gives for each name; a UserError if any of it holds a NaN or an infinity."""

    def read_and_check(name: str) -> tuple[Tensor, bool]:
        tensor = read(name)
        # one pass and no mask: a sum is finite only if all of it is, and the mask decides if the sum ran over
        return tensor, math.isfinite(tensor.sum().item()) or bool(tensor.isfinite().all())

    found = dict(zip(names, in_threads(read_and_check, names), strict=True))
    bad = [name for name, (_, is_finite) in found.items() if not is_finite]
    if bad:
        logger.warning("Not finite in %s: %s", source, bad)
        raise UserError(
            f"{source}: {len(bad)} of {len(found)} weights hold NaN or infinity: {some(bad)}; the training "
            "that wrote it had gone wrong, or the file is damaged: take an earlier one, or fetch it again"
        )
    return {name: tensor for name, (tensor, _) in found.items()}


def _refuse_misfits(
    expected: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    source: str,
    any_rows: Collection[str] = (),
) -> None:
    """Raise a UserError unless the weights are those of the model; every misfit goes to the log.

    Args:
        expected: the model's, of which shapes count.
        given: by published names.
        any_rows: tables that may have another first dimension.
    """
    missing = [name for name in expected if name not in given]
    unexpected = [name for name in given if name not in expected]
    both = [name for name in expected if name in given]
    misshapen = [
        f"{name} is {_shape(given[name])}, expected {_shape(expected[name])}"
        for name in both
        if not _fits(_shape(given[name]), _shape(expected[name]), name in any_rows)
    ]
    no_floats = [f"{name} ({given[name].dtype})" for name in both if not given[name].is_floating_point()]
    if missing:
        logger.warning("[Warn] Missing keys in checkpoint: %s", missing)
    if unexpected:
        logger.warning("[Warn] Unexpected keys in checkpoint: %s", unexpected)
    if misshapen:
        logger.warning("[Warn] Keys of another shape in checkpoint: %s", misshapen)
    problems = list(_block_problems(expected, given)) if missing or unexpected else []
    if missing:
        problems.append(f"{len(missing)} of {len(expected)} weights are missing: {some(missing)}")
    if unexpected:
        problems.append(f"{len(unexpected)} weights are unexpected: {some(unexpected)}")
    if misshapen:
        problems.append(f"{len(misshapen)} weights do not fit the configuration: {some(misshapen)}")
    if no_floats:
        problems.append(f"{len(no_floats)} weights are no floating-point numbers: {some(no_floats)}")
    if problems:
        raise UserError(
            f"{source}: {'; '.join(problems)}; give a whole IndexTTS2 GPT checkpoint (gpt.pth), and the "
            "config.yaml that belongs to it"
        )


def _fits(given: Shape, expected: Shape, any_rows: bool) -> bool:
    return given[1:] == expected[1:] and len(given) == len(expected) if any_rows else given == expected


def _block_problems(expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Iterator[str]:
    """Where the file is a deeper or a shallower model than the config, which many names would hide."""
    for prefix, key in BLOCKS:
        wanted, found = _num_blocks(prefix, expected), _num_blocks(prefix, given)
        if found and found != wanted:
            yield f"the checkpoint has {found} blocks {prefix}N, {key} in the config says {wanted}"


def _num_blocks(prefix: str, names: Iterable[str]) -> int:
    block = re.compile(re.escape(prefix) + r"(\d+)\.")
    return 1 + max((int(found[1]) for name in names if (found := block.match(name))), default=-1)


def _shape(tensor: Tensor) -> Shape:
    return tuple(tensor.shape)


STD = 0.02


def random_model(config: GPTConfig, seed: int) -> UnifiedVoice:
    """A model on the CPU with fresh weights; the global random state is left alone."""
    with torch.device("meta"):
        model = UnifiedVoice(config)
    model.to_empty(device="cpu")
    initialise(model, seed)
    return model


@torch.no_grad()
def initialise(model: UnifiedVoice, seed: int) -> None:
    """Overwrite every parameter and buffer of a model on the CPU; the global random state is left alone."""
    generator = Generator().manual_seed(seed)
    residual_std = STD / math.sqrt(2 * model.config.layers)
    for name, module in model.named_modules():
        if isinstance(module, InOutLinear):
            module.weight.normal_(0, residual_std if name.endswith(".c_proj") else STD, generator=generator)
            module.bias.zero_()
        else:
            _initialise_module(module, generator)
    model.speed_emb.weight.zero_()


def _initialise_module(module: nn.Module, generator: Generator) -> None:
    match module:
        case nn.Embedding():
            module.weight.normal_(0, STD, generator=generator)
        case nn.Linear() | nn.Conv1d() | nn.Conv2d():
            bound = 1 / math.sqrt(module.weight[0].numel())  # what torch does by default
            module.weight.uniform_(-bound, bound, generator=generator)
            if module.bias is not None:
                module.bias.uniform_(-bound, bound, generator=generator)
        case nn.LayerNorm():
            module.weight.fill_(1)
            module.bias.zero_()
        case RMSNorm():
            module.gamma.fill_(1)
        case PerceiverResampler():
            module.latents.normal_(0, STD, generator=generator)
        case PositionAwareAttention():
            nn.init.xavier_uniform_(module.pos_bias_u, generator=generator)
            nn.init.xavier_uniform_(module.pos_bias_v, generator=generator)
        case PositionTable():
            module.pe.copy_(sinusoids(*module.pe.shape[1:])[None])
        case _:
            assert not list(module.parameters(recurse=False)), type(module)
