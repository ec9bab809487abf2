"""Generation of the codes of many texts, in batches of similar lengths.

Axes: M codes, D width of the GPT, K rows of a condition.

    lines: texts in voices, each in parts --sorted by length--> batches --GPT--> segments, batch by batch

A part gets the same codes in any batch, so the order changes only the time: parts of one batch are padded to
the longest text, and run until the longest speech ends.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from indextts.commands.sampling_options import Sampling
from indextts.data.batch_sizing import GPU_MEMORY_SHARE, HOST_MEMORY_SHARE, available_bytes
from indextts.models.gpt.generate import OnStep, Prompt, code_states, generate, max_num_codes
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.search import Generated
from indextts.speech.synthesis.renderer import Reference, Segment
from indextts.speech.synthesis.trained_model import TrainedModel
from indextts.system.amounts import counted
from indextts.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

MAX_SEGMENTS = 64  # more gain little: the matrix products are large enough by then
SCORE_BYTES = 32  # of all arrays in the search, for each beam and code


@dataclass(frozen=True)
class VoicePrompt:
    """A voice for the renderer (`reference`) and for the GPT: `condition` (K, W) and `emo_vec` (D,)."""

    reference: Reference
    condition: Tensor
    emo_vec: Tensor


@dataclass(frozen=True)
class Line:
    """A text to speak in a voice."""

    parts: tuple[str, ...]  # the text, normalised, in parts that fit the model; at least one
    voice: VoicePrompt
    seed: int  # of the first part; each later part has the next seed


def generate_batches(
    trained: TrainedModel,
    lines: Sequence[Line],
    sampling: Sampling,
    num_codes: int,
    on_step: OnStep = lambda _: None,
) -> Iterator[list[tuple[int, int, Segment]]]:
    """Yield the segments of all lines with their line and part, batch by batch, the longest texts first.

    Args:
        sampling: settings; the seeds are those of the lines.
        num_codes: codes that are not below it are removed.
        on_step: called with the number of codes of the batch so far.
    """
    prompts = [
        (number, part, prompt_of(trained.tokenizer, line, part))
        for number, line in enumerate(lines)
        for part in range(len(line.parts))
    ]
    prompts.sort(key=lambda item: -len(item[2].text_ids))
    size = choose_num_segments(trained.gpt, sampling) if len(prompts) > 1 else 1
    for start in range(0, len(prompts), size):
        batch = prompts[start : start + size]
        generated = generate(trained.gpt, [prompt for *_, prompt in batch], sampling, on_step)
        texts = [lines[number].parts[part] for number, part, _ in batch]
        segments = segments_of(trained.gpt, texts, [prompt for *_, prompt in batch], generated, num_codes)
        yield [(number, part, segment) for (number, part, _), segment in zip(batch, segments, strict=True)]


def generate_segments(
    trained: TrainedModel,
    lines: Sequence[Line],
    sampling: Sampling,
    num_codes: int,
    on_step: OnStep = lambda _: None,
) -> list[tuple[Segment, ...]]:
    """Return the segments of each line, in order; arguments as for `generate_batches`."""
    found = {
        (number, part): segment
        for batch in generate_batches(trained, lines, sampling, num_codes, on_step)
        for number, part, segment in batch
    }
    return [
        tuple(found[number, part] for part in range(len(line.parts))) for number, line in enumerate(lines)
    ]


def prompt_of(tokenizer: Tokenizer, line: Line, part: int) -> Prompt:
    """Return what the GPT needs for a part of a line."""
    text, voice = line.parts[part], line.voice
    ids = tokenizer.encode_normalized(text)
    num_unknown = ids.count(tokenizer.unknown_id)
    if num_unknown:
        logger.warning("%d of %d pieces of %r are unknown and not spoken", num_unknown, len(ids), text)
    on_device = torch.tensor(ids, device=voice.emo_vec.device)
    seed = (line.seed + part) % 2**63
    return Prompt(voice.condition, voice.emo_vec, on_device, seed, tokenizer.language_row)


def segments_of(
    gpt: UnifiedVoice,
    texts: Sequence[str],
    prompts: Sequence[Prompt],
    generated: Sequence[Generated],
    num_codes: int,
) -> list[Segment]:
    """Return the segments of generated codes, with the states that the renderer needs."""
    codes = [drop_invalid_codes(each.codes, num_codes) for each in generated]
    latents = states_of(gpt, prompts, codes)
    for text, each, row in zip(texts, generated, codes, strict=True):
        if not each.has_stopped:
            logger.warning("%r was cut off at the limit of %s", text, counted(len(each.codes), "code"))
        if not len(row):
            logger.warning("%r: the model stopped before the first code", text)
    return [
        Segment(text, row, states, each.has_stopped, prompt.seed)
        for text, row, states, each, prompt in zip(texts, codes, latents, generated, prompts, strict=True)
    ]


def states_of(gpt: UnifiedVoice, prompts: Sequence[Prompt], codes: Sequence[Tensor]) -> list[Tensor]:
    """Return the states (M, D) of codes (M,) that the renderer needs: (M, 0) for a base without them."""
    if gpt.config.of_base.reads_states:
        return code_states(gpt, prompts, codes)
    return [prompts[0].emo_vec.new_zeros(len(row), 0) for row in codes]


def drop_invalid_codes(codes: Tensor, num_codes: int) -> Tensor:
    """Return those of `codes` (M,) that are in a codebook of `num_codes`: (M',)."""
    is_valid = (codes >= 0) & (codes < num_codes)
    if not is_valid.all():
        logger.warning("Dropped %d of %d codes: not in the codebook", (~is_valid).sum(), len(codes))
    return codes[is_valid]


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
