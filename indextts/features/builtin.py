"""Built-in speech backend: stacked log-mel bands and k-means, without any download.

It runs the whole pipeline on any machine. Its codes are coarse spectra without pitch, so use the backend of
the published weights for a real voice.

Axes: S samples, N mel frames (100 per second), T feature vectors (50 per second), M mel bands, F = 8 M
values of a feature vector, C cepstral coefficients of a frame, K centroids, R feature vectors of a code (1 or
2), Z values of a style vector.

    24 kHz samples (S,)
      T = S // 480, that is floor(seconds * 50); an incomplete last code is dropped
      log-mel frames (N = 2 T, M = 128): frame n is centred on sample 240 n + 120
      scaled per band to mean 0 and standard deviation 1 over the data set
      feature vector t (F = 1024) = frames 2t-3 ... 2t+4 concatenated; the first and the last frame are
      repeated beyond the ends
      cepstra t (2 R C) = the first C = 24 coefficients of the cosine transform of frames 2t ... 2t + 2R - 1,
      unscaled
      code t = the nearest of K centroids; for R = 2 only every other vector has a code

The frames of a code are the middle ones of the eight, and lie within its 20 ms, or 40 ms for R = 2. Their
cepstra keep the envelope of the spectrum, by which speech is understood, and drop the pitch and the noise
between bands, which would take most of the codes. Concatenating the `centroid_frames` of a sequence of codes
turns it back into smooth log-mel frames.

    builtin.npz    format_version, identity, band_mean (M,), band_std (M,), centroids (K, 2 R C) in float16
"""

import hashlib
import logging
import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from indextts.commands.bases import FEATURES_PER_SECOND
from indextts.errors import UserError
from indextts.features.audio import RecordingError, load_audio, unprepared
from indextts.features.backend import FEATURE_DIM, SAMPLE_RATE_HZ
from indextts.features.log_mel import slaney_filters
from indextts.system.amounts import counted
from indextts.system.files import written_aside

logger = logging.getLogger(__name__)

FORMAT_VERSION = 2
SAMPLES_PER_FEATURE = SAMPLE_RATE_HZ // FEATURES_PER_SECOND
FRAMES_PER_FEATURE = 2
SAMPLES_PER_FRAME = SAMPLES_PER_FEATURE // FRAMES_PER_FEATURE
NUM_BANDS = 128
STACK = FEATURE_DIM // NUM_BANDS  # frames in a feature vector
FRAMES_BEFORE = (STACK - FRAMES_PER_FEATURE) // 2
NUM_COEFFICIENTS = 24
WINDOW = 1024  # samples, 43 ms: each of the 128 Slaney bands has at least one bin of the spectrum
MIN_POWER = 1e-8  # below the noise of 16-bit recordings; keeps the logarithm of digital silence finite
MIN_STD = 1e-3  # avoids scaling up a constant band
VECTORS_PER_CODE = 64  # to fit a centroid; more vectors hardly change it
MIN_FIT_VECTORS = 20_000  # 400 s; the scaling is fitted to them too
MAX_FIT_VECTORS = 200_000  # 800 MB
FIT_BATCH = 4096
FIT_PASSES = 20


@dataclass(frozen=True)
class BuiltinBackend:
    """Scaling and codebook fitted to a data set.

    Args:
        band_mean: (M,), float32, of the log-mel bands.
        band_std: (M,), float32.
        centroids: (K, 2 R C), float32, with values that float16 has: cepstra of the frames of a code.
    """

    band_mean: Tensor
    band_std: Tensor
    centroids: Tensor

    @property
    def features_per_code(self) -> int:
        """Return R."""
        return int(self.centroids.shape[1]) // (FRAMES_PER_FEATURE * NUM_COEFFICIENTS)

    @cached_property
    def identity(self) -> str:
        digest = hashlib.sha256(f"builtin {FORMAT_VERSION}".encode())
        for array in (self.band_mean, self.band_std, self.centroids):
            digest.update(f"{tuple(array.shape)}".encode())
            digest.update(array.contiguous().numpy().tobytes())
        return digest.hexdigest()

    @property
    def num_codes(self) -> int:
        return len(self.centroids)

    @property
    def feature_dim(self) -> int:
        return FEATURE_DIM

    def features(self, audio: NDArray[np.float32]) -> Tensor:
        """Return the scaled feature vectors of one clip: (T, F), T = S // 480."""
        return stack_frames((log_mel(audio) - self.band_mean) / self.band_std)

    def codes(self, features: Tensor) -> Tensor:
        """Return the nearest centroid of each, or every other, feature vector (T, F): (T,) or (T / 2,).

        The first if several are equally near; an odd T is rounded up.
        """
        stacks = features[:: self.features_per_code].reshape(-1, STACK, NUM_BANDS)  # (T, 8, M)
        end = FRAMES_BEFORE + FRAMES_PER_FEATURE * self.features_per_code
        cepstra = cepstra_of(stacks[:, FRAMES_BEFORE:end] * self.band_std + self.band_mean)  # (T, 2 R C)
        # |x - c|^2 = |x|^2 + 2 (|c|^2 / 2 - x c), and |x| is the same for all centroids.
        return (self._half_norms - cepstra @ self.centroids.T).argmin(dim=1)

    @property
    def prepare(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        return unprepared

    def features_of_batch(self, prepared: Sequence[NDArray[np.float32]]) -> list[Tensor]:
        return [self.features(clip) for clip in prepared]

    def codes_of_batch(self, features: Sequence[Tensor]) -> list[Tensor]:
        return [self.codes(rows) for rows in features]

    def centroid_frames(self, codes: Tensor) -> Tensor:
        """Return the smooth unscaled log-mel frames of `codes` (T,): (2 R T, M)."""
        return self.centroids[codes].reshape(-1, NUM_COEFFICIENTS) @ _cosines()

    @cached_property
    def _half_norms(self) -> Tensor:
        return self.centroids.square().sum(dim=1) / 2

    def save(self, path: Path) -> None:
        """Write the backend through a temporary file, see `written_aside`."""
        with written_aside(path) as aside, aside.open("wb") as file:
            np.savez(
                file,
                format_version=np.array(FORMAT_VERSION),
                identity=np.array(self.identity),
                band_mean=self.band_mean,
                band_std=self.band_std,
                centroids=self.centroids.half(),
            )


def load(path: Path) -> BuiltinBackend:
    """Return a saved backend.

    Raises:
        UserError: the file is missing or corrupt.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if arrays["format_version"] != FORMAT_VERSION:
                raise ValueError(f"format {arrays['format_version']}, expected {FORMAT_VERSION}")
            names = ("band_mean", "band_std", "centroids")
            backend = BuiltinBackend(*(torch.from_numpy(arrays[name].astype(np.float32)) for name in names))
            stored = str(arrays["identity"])
    except (OSError, ValueError, TypeError, KeyError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path}: cannot be read ({reason}); delete its folder and preprocess again"
        ) from None
    if backend.identity != stored:
        raise UserError(f"{path}: the content is corrupt; delete its folder and preprocess again")
    return backend


def fit(paths: Sequence[Path], num_codes: int, seed: int, features_per_code: int = 1) -> BuiltinBackend:
    """Fit scaling and codebook to recordings.

    The result depends on the recordings, their order and the seed. It is identical bit for bit on the same
    machine; another number of threads changes the order of summation. Unreadable recordings are skipped.

    Raises:
        UserError: all recordings together have fewer feature vectors than codes.
    """
    num_wanted = min(max(VECTORS_PER_CODE * num_codes, MIN_FIT_VECTORS), MAX_FIT_VECTORS)
    clips = list(_sample(paths, num_wanted, seed))
    frames = torch.cat([torch.zeros(0, NUM_BANDS), *clips])  # (N, M)
    num_vectors = len(frames) // FRAMES_PER_FEATURE
    if num_vectors < num_codes:
        raise UserError(
            f"too few feature vectors: {num_vectors} ({num_vectors / FEATURES_PER_SECOND:.1f} s) from "
            f"{counted(len(paths), 'recording')}, but number_mel_codes of the config requires {num_codes}; "
            "add recordings, or use a smaller config"
        )
    logger.info(
        "Fitting %d codes to %s of %s",
        num_codes,
        counted(num_vectors, "feature vector"),
        counted(len(clips), "clip"),
    )
    band_mean = frames.double().mean(dim=0).float()  # (M,)
    band_std = frames.double().std(dim=0).clamp_min(MIN_STD).float()  # (M,)
    num_frames = FRAMES_PER_FEATURE * features_per_code
    groups = frames[: len(frames) // num_frames * num_frames].reshape(-1, num_frames, NUM_BANDS)
    centroids = _fit_centroids(cepstra_of(groups).numpy(), num_codes, seed)
    return BuiltinBackend(band_mean, band_std, centroids)


def log_mel(audio: NDArray[np.float32]) -> Tensor:
    """Return the log-mel frames of samples (S,) at 24 kHz: (N, M), N = 2 * (S // 480)."""
    num_frames = len(audio) // SAMPLES_PER_FEATURE * FRAMES_PER_FEATURE
    # Frame n is centred on the middle of its 10 ms, so the first window starts before the clip.
    before = (WINDOW - SAMPLES_PER_FRAME) // 2
    padded = F.pad(torch.from_numpy(audio), (before, WINDOW))
    windows = padded.unfold(0, WINDOW, SAMPLES_PER_FRAME)  # (N or more, WINDOW)
    spectrum = torch.fft.rfft(windows * torch.hann_window(WINDOW))  # (N or more, WINDOW/2 + 1)
    power = spectrum.abs().square() @ torch.from_numpy(mel_filters()).T  # (N or more, M)
    frames: Tensor = power.clamp_min(MIN_POWER).log()
    return frames[:num_frames]


def stack_frames(frames: Tensor) -> Tensor:
    """Return the feature vectors of mel frames (N, M): (N / 2, F)."""
    starts = torch.arange(0, len(frames), FRAMES_PER_FEATURE)[:, None]  # (T, 1)
    neighbours = starts + torch.arange(-FRAMES_BEFORE, STACK - FRAMES_BEFORE)  # (T, 8)
    return frames[neighbours.clamp(0, max(len(frames) - 1, 0))].reshape(len(starts), FEATURE_DIM)


def cepstra_of(frames: Tensor) -> Tensor:
    """Return the cepstra of groups of unscaled log-mel frames (T, 2 R, M): (T, 2 R C)."""
    return (frames @ _cosines().T).flatten(1)


@cache
def _cosines() -> Tensor:
    """Return the first rows of the orthonormal cosine transform: (C, M)."""
    phases = math.pi * (torch.arange(NUM_BANDS) + 0.5) / NUM_BANDS  # (M,)
    cosines = (torch.arange(NUM_COEFFICIENTS)[:, None] * phases).cos() * math.sqrt(2 / NUM_BANDS)
    cosines[0] /= math.sqrt(2)
    return cosines


def style_vector(audio: NDArray[np.float32], size: int) -> Tensor:
    """Return a style vector of samples (S,) at 24 kHz, in place of that of CAM++: (Z,), Z = `size`.

    It is the mean spectrum in Z bands, relative to its mean over the bands; it needs no weights.
    """
    bands = log_mel(audio).mean(dim=0)  # (M,)
    return F.adaptive_avg_pool1d((bands - bands.mean())[None], size)[0]


def mel_filters() -> NDArray[np.float32]:
    """Return triangular filters on the bins of the power spectrum: (M, WINDOW/2 + 1), peaks at most 1."""
    return slaney_filters(SAMPLE_RATE_HZ, WINDOW, NUM_BANDS).astype(np.float32)


def _sample(paths: Sequence[Path], num_vectors: int, seed: int) -> Iterator[Tensor]:
    """Yield log-mel frames (N, M) of clips in seeded random order, up to `num_vectors` vectors."""
    num_left = num_vectors
    for index in np.random.default_rng(seed).permutation(len(paths)):
        if num_left <= 0:
            return
        try:
            audio = load_audio(paths[index], SAMPLE_RATE_HZ)
        except RecordingError as error:
            logger.warning("%s; the codes are fitted without it", error)
            continue
        frames = log_mel(audio)[: num_left * FRAMES_PER_FEATURE]
        num_left -= len(frames) // FRAMES_PER_FEATURE
        yield frames


def _fit_centroids(vectors: NDArray[np.float32], num_codes: int, seed: int) -> Tensor:
    """Return the centroids (K, 2 C) of cepstra (T, 2 C)."""
    # Mini-batches: full k-means sums in the order in which its threads finish, so two runs differ. Random
    # initialisation: k-means++ takes hours for 8,192 codes.
    # Here: with scipy and pandas it takes as long to import as torch, and only a fit needs it.
    from sklearn.cluster import MiniBatchKMeans

    kmeans = MiniBatchKMeans(
        num_codes,
        init="random",
        n_init=1,
        init_size=min(3 * num_codes, len(vectors)),
        batch_size=FIT_BATCH,
        max_iter=FIT_PASSES,
        random_state=np.random.RandomState(seed % 2**32),
        compute_labels=False,
    )
    centroids: NDArray[np.float32] = kmeans.fit(vectors).cluster_centers_
    return torch.from_numpy(centroids.astype(np.float16).astype(np.float32))
