"""Number of segments of speech in a batch, chosen by the free memory."""

import logging

import torch

from indextts.commands.sampling_options import Sampling
from indextts.data.batch_sizing import GPU_MEMORY_SHARE, HOST_MEMORY_SHARE, available_bytes
from indextts.models.gpt.generate import max_num_codes
from indextts.models.gpt.model import UnifiedVoice
from indextts.system.amounts import counted

logger = logging.getLogger(__name__)

MAX_SEGMENTS = 64  # more gain little: the matrix products are large enough by then
SCORE_BYTES = 32  # of all arrays in the search, for each beam and code


def choose_num_segments(model: UnifiedVoice, sampling: Sampling) -> int:
    """Return the number of segments to generate at once, at least 1; log it with its reason."""
    device = model.mel_head.weight.device
    if device.type == "cuda":
        free_bytes, share = torch.cuda.mem_get_info(device)[0], GPU_MEMORY_SHARE
    else:
        free_bytes, share = available_bytes(), HOST_MEMORY_SHARE
    needed = segment_bytes(model, sampling)
    number = int(max(1, min(MAX_SEGMENTS, share * free_bytes // needed)))
    logger.info(
        "Generating up to %s at once: each may need %.2f GB, and %.1f GB are free",
        counted(number, "segment"),
        needed / 1e9,
        free_bytes / 1e9,
    )
    return number


def segment_bytes(model: UnifiedVoice, sampling: Sampling) -> int:
    """Return the largest memory of a segment during the generation.

    Keys and values of every layer for the prefix, which the beams share, and for each code of each beam; half
    as many again while the cache grows.
    """
    config, num_beams = model.config, sampling.num_beams
    value_bytes = model.mel_head.weight.element_size()
    num_prefix = config.prefix_length + config.num_text_positions + 1
    num_entries = num_prefix + 3 * num_beams * max_num_codes(model, sampling) // 2
    cache = num_entries * config.layers * 2 * config.model_dim * value_bytes
    return cache + num_beams * config.number_mel_codes * SCORE_BYTES
