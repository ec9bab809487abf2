"""Clips through the speech backend and the base GPT's encoders.

Axes: B clips, T feature vectors, F their width, K latents, D model width.

    reader processes          a card, or threads of the CPU      whoever takes what is encoded
    recordings to clips   ->  clips to codes and vectors     ->  writes it
    (reading.py)              (here)

On a CPU one clip at a time, several beside each other. On a card clips of similar length in one batch; the
host hands over the next one before it looks at the last, so that the card always has work. Padding is kept
from the real vectors everywhere, so a clip's codes are those of the clip alone, and its conditioning and
emotion too, but for rounding.

Utterances into batches: of similar length, and no larger than memory allows.
"""

import hashlib
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

import torch
from torch.nn.utils.rnn import pad_sequence

from indextts.data.feature_store_writer import EncodedUtterance
from indextts.data.manifest import Utterance
from indextts.data.reading import Clip, ClipReader, Reading
from indextts.data.rejected import Rejected
from indextts.data.throughput import Throughput
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

logger = logging.getLogger(__name__)

MIN_CODES = 3  # the conformer's first convolution is 3 feature vectors wide
BATCHES_ON_CARD = 3  # handed over and not yet looked at; only their results take memory
AHEAD_S = 300.0  # of audio that is read ahead, besides a batch for every one in work: 30 MB

ONE_AT_A_TIME = Throughput(batch_s=0, num_readers=1, num_threads=1)


@dataclass(frozen=True)
class _InWork:
    """A batch that was handed over: codes (sum of T,), condition (B, K, D), emotion vectors (B, D)."""

    clips: Sequence[Clip]
    num_codes: Sequence[int]
    found: PendingTensors

    def results(self) -> list[EncodedUtterance]:
        codes, condition, emo_vec = (tensor.numpy() for tensor in self.found.get())
        ends = torch.tensor(self.num_codes).cumsum(0).tolist()
        return [
            EncodedUtterance(clip.id, clip.audio_sha256, codes[end - number : end], condition[n], emo_vec[n])
            for n, (clip, number, end) in enumerate(zip(self.clips, self.num_codes, ends, strict=True))
        ]


class Encoder(Protocol):
    """What turns recordings into what a feature store keeps of them."""

    @property
    def backend_identity(self) -> str:
        """Return what the features depend on: the backend and, if it is not the exact one, the arithmetic."""

    def encode_all(self, utterances: Iterable[Utterance]) -> Iterator[EncodedUtterance | Rejected]:
        """Yield the utterances encoded or rejected, in order."""


class ClipEncoder:
    """All that is between a recording and its place in the feature store.

    Args:
        backend: on `device`, if it computes on one at all.
        model: on `device`.
        device: where the model computes.
        throughput: how much is done at once.
        dtype: of the model's products.
    """

    def __init__(
        self,
        backend: SpeechBackend,
        model: UnifiedVoice,
        device: torch.device,
        throughput: Throughput = ONE_AT_A_TIME,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.backend = backend
        self.model = model
        self.device = device
        self.throughput = throughput
        self.dtype = dtype
        self.limit = BatchLimit(throughput.batch_s)

    @property
    def backend_identity(self) -> str:
        return self.backend.identity + arithmetic_mark(self.dtype)

    def encode(self, batch: Sequence[Clip | Rejected]) -> list[EncodedUtterance | Rejected]:
        """Return codes, conditioning and emotion of each clip with true lengths, or why there are none.

        Where memory runs out, half of the clips are tried, and so on; the limit for later batches falls too.
        """
        return _results(self._begin(batch))

    def encode_all(self, utterances: Iterable[Utterance]) -> Iterator[EncodedUtterance | Rejected]:
        """Yield the utterances encoded or rejected, in order, a few batches ahead of whoever takes them.

        Args:
            utterances: with true durations.

        Raises:
            UserError: the processes that read recordings die one after the other.
        """
        utterances = list(utterances)
        if not utterances:
            return
        next_ids = deque(utterance.id for utterance in utterances)
        done: dict[str, EncodedUtterance | Rejected] = {}
        # what the model can take is known from the headers; this is for headers that lie
        longest_s = (self.model.config.max_mel_tokens + CODES_PER_SECOND) / CODES_PER_SECOND
        reading = Reading(SAMPLE_RATE_HZ, longest_s, self.backend.prepare)
        ahead_s = AHEAD_S + 2 * self.throughput.batch_s
        with ClipReader(reading, self.throughput.num_readers, ahead_s) as reader:
            read = reader.read(batches_of(utterances, self.limit))
            for results in self._on_card(read) if self.device.type == "cuda" else self._in_threads(read):
                done |= {result.id: result for result in results}
                while next_ids and next_ids[0] in done:
                    yield done.pop(next_ids.popleft())

    def _on_card(
        self, batches: Iterator[list[Clip | Rejected]]
    ) -> Iterator[list[EncodedUtterance | Rejected]]:
        in_work: deque[list[_InWork | Rejected]] = deque()
        for batch in batches:
            in_work.append(self._begin(batch))
            if len(in_work) == BATCHES_ON_CARD:
                yield _results(in_work.popleft())
        yield from map(_results, in_work)

    def _in_threads(
        self, batches: Iterator[list[Clip | Rejected]]
    ) -> Iterator[list[EncodedUtterance | Rejected]]:
        with ThreadPoolExecutor(self.throughput.num_threads) as pool:
            first = islice(batches, 2 * self.throughput.num_threads)
            in_work = deque(pool.submit(self.encode, batch) for batch in first)
            while in_work:
                yield in_work.popleft().result()
                in_work.extend(pool.submit(self.encode, batch) for batch in islice(batches, 1))

    def _begin(self, batch: Sequence[Clip | Rejected]) -> list[_InWork | Rejected]:
        """Hand the clips over, in as many parts as memory asks for."""
        begun: list[_InWork | Rejected] = [one for one in batch if isinstance(one, Rejected)]
        clips = sorted((one for one in batch if isinstance(one, Clip)), key=lambda clip: clip.duration_s)
        parts = deque([clips] if clips else [])
        while parts:
            smaller = list(parts_within(parts.popleft(), lambda clip: clip.duration_s, self.limit.now))
            part = smaller[0]
            parts.extendleft(reversed(smaller[1:]))
            try:
                begun += self._hand_over(part)
                continue
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                problem = (str(error).splitlines() or ["MemoryError"])[0]
            # behind the except clause: the error holds the tensors of the failed pass
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            if len(part) == 1:
                begun.append(
                    Rejected(
                        part[0].id,
                        part[0].audio,
                        "out_of_memory",
                        f"lasts {part[0].duration_s:.1f} s, which does not fit into memory even alone "
                        f"({problem}); cut the recording or free memory",
                    )
                )
                continue
            self.limit.lower(len(part) * part[-1].duration_s, problem)
            parts.appendleft(part)
        return begun

    def _hand_over(self, clips: Sequence[Clip]) -> list[_InWork | Rejected]:
        """Begin to encode the clips in one batch."""
        products = torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)
        with torch.inference_mode():
            features = self.backend.features_of_batch([clip.prepared for clip in clips])  # (T, F) each
            rejected = [
                Rejected(clip.id, clip.audio, "too_short", f"has fewer than {MIN_CODES} codes, record more")
                for clip, rows in zip(clips, features, strict=True)
                if len(rows) < MIN_CODES
            ]
            if rejected:
                names = {one.id for one in rejected}
                kept = [n for n, clip in enumerate(clips) if clip.id not in names]
                clips, features = [clips[n] for n in kept], [features[n] for n in kept]
            if not clips:
                return [*rejected]
            codes = torch.cat(self.backend.codes_of_batch(features))  # (sum of T,)
            padded = pad_sequence(features, batch_first=True).to(self.device)  # (B, T, F)
            num_codes = [len(rows) for rows in features]
            lengths = to_device(torch.tensor(num_codes), self.device)
            with products:
                condition = self.model.conditioning(padded, lengths, seal_padding=True).float()
                emo_vec = self.model.emotion(padded, lengths, seal_padding=True).float()
            return [*rejected, _InWork(clips, num_codes, to_host((codes, condition, emo_vec), self.device))]


def _results(begun: Iterable[_InWork | Rejected]) -> list[EncodedUtterance | Rejected]:
    results: list[EncodedUtterance | Rejected] = []
    for one in begun:
        results += [one] if isinstance(one, Rejected) else one.results()
    return results


def arithmetic_mark(dtype: torch.dtype) -> str:
    """Return what stands behind a backend's identity: nothing for the exact arithmetic."""
    return "" if dtype == torch.float32 else f" in {dtype}"


def encoders_identity(model: UnifiedVoice) -> str:
    """Return the sha256, in hex, over the weights and sizes that conditioning and emotion depend on.

    The text tables are not among them: a new vocabulary leaves features valid.
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
def exact_arithmetic() -> Iterator[None]:
    """Make features the same on any number of cores, and on a card what they are on a CPU.

    Each operation runs on one thread; clips run side by side instead. That is also faster: many threads on
    one short clip mostly wait for each other, on a busy computer a second per clip. TensorFloat-32
    convolutions would change the third digit.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            yield
    finally:
        torch.set_num_threads(num_threads)


SORTED_CLIPS = 512  # are looked at together to find clips of similar length

ItemT = TypeVar("ItemT")


class BatchLimit:
    """Seconds of audio that a batch may have with its padding; where memory runs out, they get fewer.

    Args:
        seconds: 0 for one clip at a time.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._turn = threading.Lock()

    def now(self) -> float:
        """Return the seconds that a batch of several clips may have at this moment."""
        return self.seconds or math.inf

    def lower(self, tried_s: float, problem: str) -> None:
        """Halve what may be tried, after a batch of `tried_s` did not fit."""
        with self._turn:
            half_s = tried_s / 2
            if 0 < self.seconds <= half_s:
                return  # a batch that was begun before the limit was lowered
            self.seconds = half_s
        logger.warning(
            "Out of memory (%s): batches of at most %.1f s from now on, this one is done again",
            problem,
            half_s,
        )


def batches_of(utterances: Sequence[Utterance], limit: BatchLimit) -> Iterator[list[Utterance]]:
    """Yield all utterances, those of similar length together; never far from their order."""
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
    """Yield the items in parts that keep the limit with their padding, or are one item.

    Args:
        items: sorted by size, so that the last of a part says what the others are padded to.
        size: of an item.
        limit: asked for every item: it may change meanwhile.
    """
    part: list[ItemT] = []
    for item in items:
        if part and (len(part) + 1) * size(item) > limit():
            yield part
            part = []
        part.append(item)
    if part:
        yield part
