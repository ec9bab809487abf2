"""Built-in speech backend: small networks that come with this program, without any download.

It runs the whole pipeline on any machine. The networks learned from synthetic voices and four human ones
(demo/train_networks.py); use the backend of the published weights for a real voice.

Axes: S samples, N mel frames (100 per second), T feature vectors (50 per second), M codes (25 per second, or
50), B mel bands, F = 8 B values of a feature vector, K codes, Z values of a centroid, V values that describe
a voice, Y values of a style vector.

    24 kHz samples (S,)
      T = S // 480, that is floor(seconds * 50); an incomplete last vector is dropped
      log-mel frames (N = 2 T, B = 128): frame n is centred on sample 240 n + 120
      scaled per band to mean 0 and standard deviation 1 over the speech that the networks learned from
      feature vector t (F = 1024) = frames 2t-3 ... 2t+4 concatenated; the first and the last frame are
      repeated beyond the ends

    feature vectors -> frames, less the mean of the clip's loud frames -> encoder -> nearest centroid: code
    (what is far below that mean is cut off: it is the noise of a room)
    codes and the voice, which is that mean and the deviation -> decoder -> parameters of a vocoder

The encoder learned to predict the states of Whisper's encoder and the phones, so codes say what is spoken and
not by whom. The first K centroids are spread over all speech, whatever K is: a base with fewer codes has the
first ones. A code has 40 ms; for IndexTTS-2.0, whose codes have 20 ms, each is given twice.

    builtin.npz    format_version, identity of networks and codes, num_codes, features_per_code: the record
                   that features or a model have these codes
"""

import hashlib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load as load_safetensors
from torch import Tensor

from indextts.commands.bases import FEATURES_PER_SECOND
from indextts.errors import UserError
from indextts.features.audio import unprepared
from indextts.features.backend import FEATURE_DIM, SAMPLE_RATE_HZ
from indextts.features.builtin_networks import (
    ENVELOPE_BANDS,
    FRAMES_PER_CODE,
    NOISE_BANDS,
    NUM_BANDS,
    NUM_CODES,
    VOICE_SIZE,
    Decoder,
    Encoder,
)
from indextts.features.log_mel import slaney_filters
from indextts.system.files import written_aside

FORMAT_VERSION = 3
WEIGHTS = Path(__file__).with_name("builtin.safetensors")
SAMPLES_PER_FEATURE = SAMPLE_RATE_HZ // FEATURES_PER_SECOND
FRAMES_PER_FEATURE = 2
SAMPLES_PER_FRAME = SAMPLES_PER_FEATURE // FRAMES_PER_FEATURE
STACK = FEATURE_DIM // NUM_BANDS  # frames in a feature vector
FRAMES_BEFORE = (STACK - FRAMES_PER_FEATURE) // 2
WINDOW = 1024  # samples, 43 ms: each of the 128 Slaney bands has at least one bin of the spectrum
MIN_POWER = 1e-8  # below the noise of 16-bit recordings; keeps the logarithm of digital silence finite
FRAME_SCALE = 2.0  # nats: about the deviation of a band within a clip
LOWEST = -2.5  # of a normalised band; below it are the noises of rooms
PITCH_SCALE = 0.25  # of the decoder's pitch, in nats from the voice's mean


@dataclass(frozen=True)
class SpeechParameters:
    """Parameters of a vocoder for frames of 10 ms."""

    envelope: Tensor  # (N, 64), logarithm of the power in mel bands
    noise_db: Tensor  # (N, 3), share of noise in the amplitude at 3, 6 and 9 kHz; at most 0
    is_voiced: Tensor  # (N,)
    log_pitch: Tensor  # (N,), logarithm of the pitch in Hz; of any value where the frame is not voiced


@dataclass(frozen=True)
class _Networks:
    digest: str
    encoder: Encoder
    decoder: Decoder
    arrays: dict[str, Tensor]


@cache
def _networks() -> _Networks:
    """Return the networks of this program, in float32."""
    content = WEIGHTS.read_bytes()
    tensors = {name: tensor.float() for name, tensor in load_safetensors(content).items()}
    encoder, decoder = Encoder(), Decoder()
    for name, network in (("encoder.", encoder), ("decoder.", decoder)):
        own = {key.removeprefix(name): tensors.pop(key) for key in list(tensors) if key.startswith(name)}
        network.load_state_dict(own)
        network.eval().requires_grad_(False)
    return _Networks(hashlib.sha256(content).hexdigest(), encoder, decoder, tensors)


@dataclass(frozen=True)
class BuiltinBackend:
    """The networks with a number of codes."""

    num_codes: int  # K, at most NUM_CODES
    features_per_code: int = 2  # 1 for 50 codes per second, 2 for 25

    @cached_property
    def identity(self) -> str:
        content = f"builtin {FORMAT_VERSION} {_networks().digest} {self.num_codes} {self.features_per_code}"
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def feature_dim(self) -> int:
        return FEATURE_DIM

    def features(self, audio: NDArray[np.float32]) -> Tensor:
        """Return the scaled feature vectors of one clip: (T, F), T = S // 480."""
        arrays = _networks().arrays
        return stack_frames((log_mel(audio) - arrays["band_mean"]) / arrays["band_std"])

    def codes(self, features: Tensor) -> Tensor:
        """Return the codes of feature vectors (T, F): (T,) or, rounded up, (T / 2,)."""
        if len(features) == 0:
            return torch.zeros(0, dtype=torch.int64)
        frames = frames_of(features)
        missing = -len(frames) % FRAMES_PER_CODE
        frames = torch.cat([frames, frames[-1:].expand(missing, -1)])
        with torch.inference_mode():
            [vectors] = _networks().encoder(normal_frames(frames)[None])  # (M, Z)
        # |x - c|^2 = |x|^2 + 2 (|c|^2 / 2 - x c), and |x| is the same for all centroids.
        found: Tensor = (self._centroids.square().sum(dim=1) / 2 - vectors @ self._centroids.T).argmin(dim=1)
        return found.repeat_interleave(2 // self.features_per_code)[
            : -(-len(features) // self.features_per_code)
        ]

    @property
    def prepare(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        return unprepared

    def features_of_batch(self, prepared: Sequence[NDArray[np.float32]]) -> list[Tensor]:
        return [self.features(clip) for clip in prepared]

    def codes_of_batch(self, features: Sequence[Tensor]) -> list[Tensor]:
        return [self.codes(rows) for rows in features]

    def parameters(self, codes: Tensor, voice: Tensor) -> SpeechParameters:
        """Return the parameters of the frames of `codes` (M,) in a `voice` (V,), from `voice_of`."""
        every = codes[:: 2 // self.features_per_code] if len(codes) else torch.zeros(1, dtype=torch.int64)
        arrays = _networks().arrays
        with torch.inference_mode():
            [found] = _networks().decoder(self._centroids[every][None], voice[None])  # (N, P)
        found = found[: len(codes) * self.features_per_code * FRAMES_PER_FEATURE]
        shapes = found[:, : ENVELOPE_BANDS + NOISE_BANDS] * arrays["parameter_std"] + arrays["parameter_mean"]
        mean_pitch = voice @ arrays["pitch_weights"] + arrays["pitch_bias"]
        return SpeechParameters(
            shapes[:, :ENVELOPE_BANDS],
            shapes[:, ENVELOPE_BANDS:].clamp_max(0),
            found[:, -2] > 0,
            mean_pitch + found[:, -1] * PITCH_SCALE,
        )

    @property
    def _centroids(self) -> Tensor:
        return _networks().arrays["centroids"][: self.num_codes]

    def save(self, path: Path) -> None:
        """Write the record of these codes through a temporary file, see `written_aside`."""
        with written_aside(path) as aside, aside.open("wb") as file:
            np.savez(
                file,
                format_version=np.array(FORMAT_VERSION),
                identity=np.array(self.identity),
                num_codes=np.array(self.num_codes),
                features_per_code=np.array(self.features_per_code),
            )


def create(num_codes: int, features_per_code: int) -> BuiltinBackend:
    """Return the backend for a base.

    Raises:
        UserError: the networks have fewer codes.
    """
    if num_codes > NUM_CODES:
        raise UserError(
            f"the built-in speech features have {NUM_CODES:,} codes, but number_mel_codes of the config "
            f"requires {num_codes:,}; use --backend indextts2, or a smaller config"
        )
    return BuiltinBackend(num_codes, features_per_code)


def load(path: Path) -> BuiltinBackend:
    """Return a saved backend.

    Raises:
        UserError: the file is missing or corrupt, or other networks computed the codes.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if arrays["format_version"] != FORMAT_VERSION:
                raise ValueError(f"format {arrays['format_version']}, expected {FORMAT_VERSION}")
            backend = BuiltinBackend(int(arrays["num_codes"]), int(arrays["features_per_code"]))
            stored = str(arrays["identity"])
    except (OSError, ValueError, TypeError, KeyError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path}: cannot be read ({reason}); delete its folder and preprocess again"
        ) from None
    if backend.identity != stored:
        raise UserError(
            f"{path}: other built-in networks computed these codes; delete its folder and preprocess again"
        )
    return backend


def voice_of(features: Tensor) -> Tensor:
    """Return what the decoder needs of a voice, from feature vectors (T, F): (V,).

    Without any, the voice is a neutral one.
    """
    if len(features) == 0:
        return torch.zeros(VOICE_SIZE)
    return voice_of_frames(frames_of(features))


def voice_of_frames(frames: Tensor) -> Tensor:
    """Return what the decoder needs of a voice, from log-mel frames (N, B), at least one: (V,)."""
    loud = _loud(frames)
    return torch.cat([(loud.mean(dim=0) + 7) / 3, loud.std(dim=0, correction=0) - 1.5])


def normal_frames(frames: Tensor) -> Tensor:
    """Return what the encoder reads of a clip's log-mel frames (N, B), at least one: (N, B)."""
    return ((frames - _loud(frames).mean(dim=0)) / FRAME_SCALE).clamp_min(LOWEST)


def frames_of(features: Tensor) -> Tensor:
    """Return the unscaled log-mel frames of feature vectors (T, F): (2 T, B)."""
    arrays = _networks().arrays
    stacks = features.cpu().reshape(-1, STACK, NUM_BANDS)[
        :, FRAMES_BEFORE : FRAMES_BEFORE + FRAMES_PER_FEATURE
    ]
    return stacks.reshape(-1, NUM_BANDS) * arrays["band_std"] + arrays["band_mean"]


def _loud(frames: Tensor) -> Tensor:
    """Return the frames that are louder than the average of all, at least one."""
    level = frames.mean(dim=1)
    return frames[level >= level.mean().clamp_max(float(level.max()))]


def log_mel(audio: NDArray[np.float32]) -> Tensor:
    """Return the log-mel frames of samples (S,) at 24 kHz: (N, B), N = 2 * (S // 480)."""
    num_frames = len(audio) // SAMPLES_PER_FEATURE * FRAMES_PER_FEATURE
    # Frame n is centred on the middle of its 10 ms, so the first window starts before the clip.
    before = (WINDOW - SAMPLES_PER_FRAME) // 2
    padded = F.pad(torch.from_numpy(audio), (before, WINDOW))
    windows = padded.unfold(0, WINDOW, SAMPLES_PER_FRAME)  # (N or more, WINDOW)
    spectrum = torch.fft.rfft(windows * torch.hann_window(WINDOW))  # (N or more, WINDOW/2 + 1)
    power = spectrum.abs().square() @ torch.from_numpy(mel_filters()).T  # (N or more, B)
    frames: Tensor = power.clamp_min(MIN_POWER).log()
    return frames[:num_frames]


def stack_frames(frames: Tensor) -> Tensor:
    """Return the feature vectors of mel frames (N, B): (N / 2, F)."""
    starts = torch.arange(0, len(frames), FRAMES_PER_FEATURE)[:, None]  # (T, 1)
    neighbours = starts + torch.arange(-FRAMES_BEFORE, STACK - FRAMES_BEFORE)  # (T, 8)
    return frames[neighbours.clamp(0, max(len(frames) - 1, 0))].reshape(len(starts), FEATURE_DIM)


def style_vector(audio: NDArray[np.float32], size: int) -> Tensor:
    """Return a style vector of samples (S,) at 24 kHz, in place of that of CAM++: (Y,), Y = `size`.

    It is the mean spectrum in Y bands, relative to its mean over the bands; it needs no weights.
    """
    bands = log_mel(audio).mean(dim=0)  # (B,)
    return F.adaptive_avg_pool1d((bands - bands.mean())[None], size)[0]


def mel_filters() -> NDArray[np.float32]:
    """Return triangular filters on the bins of the power spectrum: (B, WINDOW/2 + 1), peaks at most 1."""
    return slaney_filters(SAMPLE_RATE_HZ, WINDOW, NUM_BANDS).astype(np.float32)
