"""Clips through the speech backend and the base GPT's encoders.

Axes: B clips, T feature vectors, F their width, K latents, D model width.

On a CPU one clip at a time, several beside each other. On a card clips of similar length in one batch:
padding is kept from the real vectors everywhere, so a clip's codes are those of the clip alone, and its
conditioning and emotion too, but for rounding.
"""

import contextlib
import hashlib
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from indextts.data.feature_shards import file_sha256
from indextts.data.feature_store_writer import EncodedUtterance
from indextts.errors import UserError
from indextts.features.audio import load_audio
from indextts.features.backend import CODES_PER_SECOND, SAMPLE_RATE_HZ, SpeechBackend
from indextts.gpt.model import UnifiedVoice
from indextts.manifest import Utterance

ENCODER_WEIGHTS = (
    "conditioning_encoder.",
    "perceiver_encoder.",
    "emo_conditioning_encoder.",
    "emo_perceiver_encoder.",
    "emovec_layer.",
    "emo_layer.",
)
MAX_WORKERS = 4  # batches at once; at the published size a clip of 10 s takes 0.8 GB while it is encoded
CARD_BATCH_VECTORS = 4000  # 80 s: at the published size the conformers' first layer takes 2 MB for each
SORTED_CLIPS = 128  # are looked at together to find clips of similar length


@dataclass(frozen=True)
class Clip:
    """A recording that was read.

    Args:
        id: of the utterance.
        audio_sha256: of the file that `audio` is from.
        audio: (S,), at SAMPLE_RATE_HZ.
    """

    id: str
    audio_sha256: str
    audio: NDArray[np.float32]


@dataclass(frozen=True)
class ClipEncoder:
    """All that is between a recording and its place in the feature store.

    Args:
        backend: on `device`, if it computes on one at all.
        model: on `device`.
        device: where the model computes.
        max_batch_vectors: of a batch with its padding; 0 for one clip at a time.
    """

    backend: SpeechBackend
    model: UnifiedVoice
    device: torch.device
    max_batch_vectors: int = 0
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def encode(self, clips: Sequence[Clip]) -> list[EncodedUtterance]:
        """Return codes, conditioning and emotion of each clip, with true lengths.

        Args:
            clips: with at least 3 feature vectors each.
        """
        with torch.inference_mode():
            features = self.backend.features_of_batch([clip.audio for clip in clips])  # (T, F) each
            codes = self.backend.codes_of_batch(features)  # (T,) each
            # a card's memory is for one batch; a CPU has its clips beside each other
            with self._turn if self.device.type == "cuda" else contextlib.nullcontext():
                padded = pad_sequence(features, batch_first=True).to(self.device)  # (B, T, F)
                lengths = torch.tensor([len(rows) for rows in features], device=self.device)
                condition = self.model.conditioning(padded, lengths, seal_padding=True).cpu().numpy()
                emo_vec = self.model.emotion(padded, lengths, seal_padding=True).cpu().numpy()
        return [
            EncodedUtterance(clip.id, clip.audio_sha256, codes[n].cpu().numpy(), condition[n], emo_vec[n])
            for n, clip in enumerate(clips)
        ]

    def encode_all(self, utterances: Iterable[Utterance]) -> Iterator[EncodedUtterance]:
        """Yield the utterances encoded, in order, a few batches ahead of the reader.

        Args:
            utterances: with true durations.

        Raises:
            UserError: a recording cannot be read, or does not last as long as its header says.
        """
        num_workers = min(MAX_WORKERS, os.cpu_count() or 1)
        utterances = list(utterances)
        to_encode = self._batches(utterances)
        next_ids = deque(utterance.id for utterance in utterances)
        encoded: dict[str, EncodedUtterance] = {}
        with ThreadPoolExecutor(num_workers) as pool:
            waiting = deque(pool.submit(self._encode_files, b) for b in islice(to_encode, 2 * num_workers))
            while waiting:
                encoded |= {clip.id: clip for clip in waiting.popleft().result()}
                waiting.extend(pool.submit(self._encode_files, b) for b in islice(to_encode, 1))
                while next_ids and next_ids[0] in encoded:
                    yield encoded.pop(next_ids.popleft())

    def _batches(self, utterances: Sequence[Utterance]) -> Iterator[list[Utterance]]:
        """Yield all utterances, those of similar length together; never far from their order."""
        for start in range(0, len(utterances), SORTED_CLIPS):
            window = utterances[start : start + SORTED_CLIPS]
            batch: list[Utterance] = []
            for utterance in sorted(window, key=lambda u: u.duration_s) if self.max_batch_vectors else window:
                # sorted, so that this one is the longest and says what the others are padded to
                num_vectors = (len(batch) + 1) * utterance.duration_s * CODES_PER_SECOND
                if batch and num_vectors > self.max_batch_vectors:
                    yield batch
                    batch = []
                batch.append(utterance)
            if batch:
                yield batch

    def _encode_files(self, utterances: Sequence[Utterance]) -> list[EncodedUtterance]:
        return self.encode([_read_clip(utterance) for utterance in utterances])


def _read_clip(utterance: Utterance) -> Clip:
    audio = load_audio(utterance.audio, SAMPLE_RATE_HZ)  # (S,)
    found_s = len(audio) / SAMPLE_RATE_HZ
    if abs(found_s - utterance.duration_s) > 1 / SAMPLE_RATE_HZ:
        raise UserError(
            f"{utterance.audio}: holds {found_s:.3f} s, its header says {utterance.duration_s:.3f} s, "
            "convert it to WAV or FLAC anew"
        )
    return Clip(utterance.id, file_sha256(utterance.audio), audio)


def encoders_identity(model: UnifiedVoice) -> str:
    """Return the sha256, in hex, over the weights and sizes that conditioning and emotion depend on.

    The text tables are not among them: a new vocabulary leaves features valid.
    """
    config = model.config
    sizes = (config.condition_module, config.emo_condition_module, config.perceiver_head_dim)
    digest = hashlib.sha256(repr(sizes).encode())
    for name, tensor in sorted(model.state_dict().items()):
        if name.startswith(ENCODER_WEIGHTS):
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
