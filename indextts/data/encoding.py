"""Encode clips with the speech backend and the encoders of the base GPT, in batches of similar length.

Axes: B clips, T feature vectors, F their width, K rows of a speaker condition, W their width, D model width.

    reader processes          GPU, or threads of the CPU       caller
    recordings to clips   ->  clips to codes and vectors   ->  stores the results
    (reading.py)              (this module)

A CPU computes clips one at a time in several threads. A GPU computes batches; the host launches the next
batch before it waits for the previous one, so that the GPU never idles. Padding never affects real vectors: a
clip has the same codes as alone, and the same conditioning and emotion up to rounding.
"""

import hashlib
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from indextts.data.batch_sizing import Throughput
from indextts.data.feature_store_writer import EncodedUtterance
from indextts.data.manifest import Utterance
from indextts.data.reading import Clip, ClipReader, Reading
from indextts.data.rejected import Rejected
from indextts.features.backend import (
    CODES_PER_SECOND,
    SAMPLE_RATE_HZ,
    PendingTensors,
    SpeechBackend,
    to_device,
    to_host,
)
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.weights import ENCODERS
from indextts.models.out_of_memory import is_out_of_memory
from indextts.system.process_pool import ahead

logger = logging.getLogger(__name__)

MIN_CODES = 3  # the conformer's first convolution is 3 feature vectors wide
BATCHES_ON_GPU = 3  # launched and not yet collected; only their results take memory
AHEAD_S = 300.0  # seconds of audio to read ahead besides two batches: 30 MB
SORTED_CLIPS = 512  # clips that are sorted by length together

ONE_AT_A_TIME = Throughput(batch_s=0, num_readers=1, num_threads=1)

ItemT = TypeVar("ItemT")

# The style vector (Z,) of a recording, None for less than a second.
StyleOf = Callable[[Path], Tensor | None]


@dataclass(frozen=True)
class _PendingBatch:
    """A launched batch: codes (sum of T,), condition (B, K, W), emotion vectors (B, D)."""

    clips: Sequence[Clip]
    num_codes: Sequence[int]
    outputs: PendingTensors

    def results(self) -> list[EncodedUtterance]:
        codes, condition, emo_vec = (tensor.numpy() for tensor in self.outputs.get())
        ends = torch.tensor(self.num_codes).cumsum(0).tolist()
        return [
            EncodedUtterance(clip.id, clip.audio_sha256, codes[end - number : end], condition[n], emo_vec[n])
            for n, (clip, number, end) in enumerate(zip(self.clips, self.num_codes, ends, strict=True))
        ]


class ClipEncoder:
    """Encoder on one device of this machine.

    Args:
        backend: on `device`, unless it only runs on the CPU.
        model: on `device`.
        dtype: of the model's matrix products.
        style_of: returns the style vector of a recording; None for a base that needs none.
    """

    def __init__(
        self,
        backend: SpeechBackend,
        model: UnifiedVoice,
        device: torch.device,
        throughput: Throughput = ONE_AT_A_TIME,
        dtype: torch.dtype = torch.float32,
        style_of: StyleOf | None = None,
    ) -> None:
        self.backend = backend
        self.model = model
        self.device = device
        self.throughput = throughput
        self.dtype = dtype
        self.style_of = style_of
        self.limit = BatchLimit(throughput.batch_s)

    @property
    def backend_identity(self) -> str:
        """Return the identity of the backend, with the precision if that is not float32."""
        return self.backend.identity + precision_suffix(self.dtype)

    def encode(self, batch: Sequence[Clip | Rejected]) -> list[EncodedUtterance | Rejected]:
        """Return codes, conditioning and emotion of each clip with true lengths, or its rejection.

        After running out of memory, the encoder halves the batch and the limit for later batches.
        """
        return _results(self._start(batch))

    def encode_all(self, utterances: Iterable[Utterance]) -> Iterator[EncodedUtterance | Rejected]:
        """Yield the utterances encoded or rejected, in order, a few batches ahead of the caller.

        Args:
            utterances: with true durations.

        Raises:
            UserError: several reader processes in a row die.
        """
        utterances = list(utterances)
        if not utterances:
            return
        next_ids = deque(utterance.id for utterance in utterances)
        done: dict[str, EncodedUtterance | Rejected] = {}
        # The caller has filtered by the durations in headers; this limit is for wrong headers.
        max_features = self.model.config.max_mel_tokens * self.model.config.of_base.features_per_code
        longest_s = (max_features + CODES_PER_SECOND) / CODES_PER_SECOND
        reading = Reading(SAMPLE_RATE_HZ, longest_s, self.backend.prepare)
        ahead_s = AHEAD_S + 2 * self.throughput.batch_s
        with ClipReader(reading, self.throughput.num_readers, ahead_s) as reader:
            read = reader.read(batches_of(utterances, self.limit))
            on_gpu = map(_results, ahead(read, self._start, BATCHES_ON_GPU - 1))
            for results in on_gpu if self.device.type == "cuda" else self._in_threads(read):
                done |= {result.id: result for result in results}
                while next_ids and next_ids[0] in done:
                    yield done.pop(next_ids.popleft())

    def _in_threads(
        self, batches: Iterator[list[Clip | Rejected]]
    ) -> Iterator[list[EncodedUtterance | Rejected]]:
        num_threads = self.throughput.num_threads
        with ThreadPoolExecutor(num_threads) as pool:
            encoding = ahead(batches, lambda batch: pool.submit(self.encode, batch), 2 * num_threads - 1)
            yield from (future.result() for future in encoding)

    def _start(self, batch: Sequence[Clip | Rejected]) -> list[_PendingBatch | Rejected]:
        """Launch the clips, in as many parts as the memory requires."""
        started: list[_PendingBatch | Rejected] = [item for item in batch if isinstance(item, Rejected)]
        clips = sorted((item for item in batch if isinstance(item, Clip)), key=lambda clip: clip.duration_s)
        parts = deque([clips] if clips else [])
        while parts:
            smaller = list(parts_within(parts.popleft(), lambda clip: clip.duration_s, self.limit.now))
            part = smaller[0]
            parts.extendleft(reversed(smaller[1:]))
            try:
                started += self._launch(part)
                continue
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                problem = (str(error).splitlines() or ["MemoryError"])[0]
            # After the except clause, because the exception keeps the tensors of the failed pass alive.
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            if len(part) == 1:
                started.append(
                    Rejected(
                        part[0].id,
                        part[0].audio,
                        "out_of_memory",
                        f"lasts {part[0].duration_s:.1f} s and does not fit into memory even alone "
                        f"({problem}); cut the recording or free memory",
                    )
                )
                continue
            self.limit.lower(len(part) * part[-1].duration_s, problem)
            parts.appendleft(part)
        return started

    def _launch(self, clips: Sequence[Clip]) -> list[_PendingBatch | Rejected]:
        """Start to encode the clips in one batch."""
        autocast = torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)
        with torch.inference_mode():
            features = self.backend.features_of_batch([clip.prepared for clip in clips])  # (T, F) each
            styles = None if self.style_of is None else {c.id: self.style_of(c.audio) for c in clips}
            rejected = _too_short(clips, features, styles)
            if rejected:
                names = {each.id for each in rejected}
                kept = [n for n, clip in enumerate(clips) if clip.id not in names]
                clips, features = [clips[n] for n in kept], [features[n] for n in kept]
            if not clips:
                return [*rejected]
            codes = self.backend.codes_of_batch(features)  # (M,) each
            num_codes = [len(row) for row in codes]
            padded = pad_sequence(features, batch_first=True).to(self.device)  # (B, T, F)
            lengths = to_device(torch.tensor([len(rows) for rows in features]), self.device)
            found = [] if styles is None else [styles[clip.id] for clip in clips]
            style = torch.stack([each for each in found if each is not None]) if found else None
            with autocast:
                condition = self.model.conditioning(
                    padded, lengths, isolate_padding=True, style=style
                ).float()
                emo_vec = self.model.emotion(padded, lengths, isolate_padding=True).float()
            return [
                *rejected,
                _PendingBatch(clips, num_codes, to_host((torch.cat(codes), condition, emo_vec), self.device)),
            ]


def _too_short(
    clips: Sequence[Clip], features: Sequence[Tensor], styles: Mapping[str, Tensor | None] | None
) -> list[Rejected]:
    """Return the rejections of clips with too few features, or without a style that is needed."""
    rejected = []
    for clip, rows in zip(clips, features, strict=True):
        if len(rows) < MIN_CODES:
            reason = f"has fewer than {MIN_CODES} codes; record more"
        elif styles is not None and styles[clip.id] is None:
            reason = "has less than a second of speech, too little for the style of its voice; record more"
        else:
            continue
        rejected.append(Rejected(clip.id, clip.audio, "too_short", reason))
    return rejected


def _results(started: Iterable[_PendingBatch | Rejected]) -> list[EncodedUtterance | Rejected]:
    results: list[EncodedUtterance | Rejected] = []
    for item in started:
        results += [item] if isinstance(item, Rejected) else item.results()
    return results


def precision_suffix(dtype: torch.dtype) -> str:
    """Return the suffix of a backend's identity for `dtype`: empty for float32."""
    return "" if dtype == torch.float32 else f" in {dtype}"


def encoders_identity(model: UnifiedVoice) -> str:
    """Return the hex sha256 of the weights and sizes that conditioning and emotion depend on.

    They exclude the text tables, so features stay valid with a new vocabulary.
    """
    config = model.config
    sizes = (config.condition_module, config.emo_condition_module, config.perceiver_head_dim)
    digest = hashlib.sha256(repr(sizes).encode())
    for name, tensor in sorted(model.state_dict().items()):
        if name.startswith(ENCODERS):
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy())
    return digest.hexdigest()


@contextmanager
def reproducible_math() -> Iterator[None]:
    """Make features independent of the number of cores, and equal on GPU and CPU.

    Each operation runs on one thread, and clips run in parallel. This is also faster: many threads on a short
    clip mostly wait for each other, up to a second per clip on a busy machine. TensorFloat-32 is disabled,
    because it would change the third digit.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            yield
    finally:
        torch.set_num_threads(num_threads)


class BatchLimit:
    """Limit of a batch in seconds with padding, 0 for one clip at a time; it falls when memory runs out."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return the current limit of a batch of several clips."""
        return self.seconds or math.inf

    def lower(self, tried_s: float, problem: str) -> None:
        """Lower the limit to half of `tried_s`, the size of a batch that did not fit."""
        with self._lock:
            half_s = tried_s / 2
            if 0 < self.seconds <= half_s:
                return  # the batch started before another thread lowered the limit
            self.seconds = half_s
        logger.warning(
            "Out of memory (%s): retrying this batch, with at most %.1f s per batch from now on",
            problem,
            half_s,
        )


def batches_of(utterances: Sequence[Utterance], limit: BatchLimit) -> Iterator[list[Utterance]]:
    """Yield all utterances in batches of similar length, close to their original order."""
    for start in range(0, len(utterances), SORTED_CLIPS):
        window = utterances[start : start + SORTED_CLIPS]
        if not limit.seconds:
            yield from ([utterance] for utterance in window)
            continue
        by_length = sorted(window, key=lambda utterance: utterance.duration_s)
        yield from parts_within(by_length, lambda utterance: utterance.duration_s, limit.now)


def parts_within(
    items: Sequence[ItemT], size: Callable[[ItemT], float], limit: Callable[[], float]
) -> Iterator[list[ItemT]]:
    """Yield the items in parts that are within the limit including padding, or have a single item.

    Args:
        items: sorted by size, so that the last item of a part determines its padding.
        limit: returns the current limit; called for every item.
    """
    part: list[ItemT] = []
    for item in items:
        if part and (len(part) + 1) * size(item) > limit():
            yield part
            part = []
        part.append(item)
    if part:
        yield part
