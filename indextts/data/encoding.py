"""One clip at a time through the speech backend and the base GPT's encoders.

Axes: T feature vectors, F their width, K latents, D model width.

One at a time, because padding would leak: the conformer's zeroed padding is a bias after its first pointwise
convolution, and the depthwise convolution carries it into the real frames.
"""

import hashlib
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from indextts.data.feature_store import file_sha256
from indextts.data.feature_store_writer import EncodedUtterance
from indextts.errors import UserError
from indextts.features.audio import load_audio
from indextts.features.backend import SAMPLE_RATE_HZ, SpeechBackend
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
MAX_WORKERS = 4  # clips at once; at the published size a clip of 10 s takes 0.8 GB while it is encoded


@dataclass(frozen=True)
class ClipEncoder:
    """All that is between a recording and its place in the feature store."""

    backend: SpeechBackend
    model: UnifiedVoice
    device: torch.device

    def encode(self, id: str, audio_sha256: str, audio: NDArray[np.float32]) -> EncodedUtterance:
        """Return one clip's codes, conditioning and emotion, with true lengths.

        Args:
            id: of the utterance.
            audio_sha256: of the file that `audio` is from.
            audio: (S,), at SAMPLE_RATE_HZ.
        """
        with torch.inference_mode():
            features = self.backend.features(audio)  # (T, F)
            batch = features[None].to(self.device)  # (1, T, F)
            return EncodedUtterance(
                id=id,
                audio_sha256=audio_sha256,
                codes=self.backend.codes(features).cpu().numpy(),
                condition=self.model.conditioning(batch)[0].cpu().numpy(),
                emo_vec=self.model.emotion(batch)[0].cpu().numpy(),
            )

    def encode_all(self, utterances: Iterable[Utterance]) -> Iterator[EncodedUtterance]:
        """Yield the utterances encoded, in order, a few at a time ahead of the reader.

        Args:
            utterances: with true durations.

        Raises:
            UserError: a recording cannot be read, or does not last as long as its header says.
        """
        num_workers = min(MAX_WORKERS, os.cpu_count() or 1)
        to_encode = iter(utterances)
        with ThreadPoolExecutor(num_workers) as pool:
            waiting = deque(pool.submit(self._encode_file, u) for u in islice(to_encode, 2 * num_workers))
            while waiting:
                encoded = waiting.popleft().result()
                waiting.extend(pool.submit(self._encode_file, u) for u in islice(to_encode, 1))
                yield encoded

    def _encode_file(self, utterance: Utterance) -> EncodedUtterance:
        audio = load_audio(utterance.audio, SAMPLE_RATE_HZ)  # (S,)
        found_s = len(audio) / SAMPLE_RATE_HZ
        if abs(found_s - utterance.duration_s) > 1 / SAMPLE_RATE_HZ:
            raise UserError(
                f"{utterance.audio}: holds {found_s:.3f} s, its header says {utterance.duration_s:.3f} s, "
                "convert it to WAV or FLAC anew"
            )
        return self.encode(utterance.id, file_sha256(utterance.audio), audio)


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
