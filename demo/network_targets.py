"""Training targets of the networks of the built-in speech features, see demo/train_networks.py.

H is the size of a state of Whisper's encoder, P the parameters of a frame (builtin_networks.py).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indextts.features.audio import load_audio
from indextts.features.backend import SAMPLE_RATE_HZ
from indextts.features.builtin import log_mel
from indextts.features.builtin_networks import ENVELOPE_BANDS
from indextts.features.log_mel import mel_of
from indextts.speech.synthesis.source_filter import FFT_SIZE, NUM_BINS
from indextts.system.files import written_aside

WHISPER_HZ = 16_000
BEFORE_S, AFTER_S = 0.5, 1.5  # silence around what Whisper hears
CLIPS_PER_FILE = 400

Encode = Callable[[Path], NDArray[Any]]  # of a recording


def encoded(folder: Path, audio: Mapping[str, Path], load: Callable[[], Encode]) -> dict[str, NDArray[Any]]:
    """Return an array for each clip, from files of CLIPS_PER_FILE clips, which are made if missing.

    Args:
        audio: the recording of each clip, by its id.
        load: returns what encodes a recording; not called if no file is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, NDArray[Any]] = {}
    encode = None
    for number, start in enumerate(range(0, len(audio), CLIPS_PER_FILE)):
        path = folder / f"{number:05d}.npz"
        block = list(audio)[start : start + CLIPS_PER_FILE]
        arrays = dict(np.load(path)) if path.exists() else {}
        if list(arrays) != block:
            encode = encode or load()
            arrays = {name: encode(audio[name]) for name in block}
            with written_aside(path) as aside, aside.open("wb") as file:
                np.savez(file, **arrays)
            print(f"{path}: {len(block)} clips", flush=True)
        found |= arrays
    return found


def whisper_states(folder: Path) -> Encode:
    """Return what computes the states of Whisper's encoder: (50 per second, H), float16."""
    import ctranslate2
    from faster_whisper.feature_extractor import FeatureExtractor

    model = ctranslate2.models.Whisper(str(folder), device="cpu", compute_type="int8", intra_threads=1)
    extract = FeatureExtractor()

    def encode(audio: Path) -> NDArray[Any]:
        samples = load_audio(audio, WHISPER_HZ)
        num_states = len(samples) * 50 // WHISPER_HZ
        samples = samples * (0.07 / max(1e-4, float(np.sqrt(np.mean(samples**2)))))
        padded = np.pad(samples, (int(BEFORE_S * WHISPER_HZ), int(AFTER_S * WHISPER_HZ)))
        num_frames = 2 * (num_states + int(50 * (BEFORE_S + AFTER_S)) - 25)  # without the end, to save time
        heard = np.ascontiguousarray(extract(padded, chunk_length=30)[None, :, :num_frames], np.float32)
        states = np.array(model.encode(ctranslate2.StorageView.from_array(heard), to_cpu=True))[0]
        first = int(50 * BEFORE_S)
        found: NDArray[np.float16] = states[first : first + num_states].astype(np.float16)
        return found

    return encode


def world_parameters() -> Encode:
    """Return what computes the parameters of WORLD: (100 per second, P - 1).

    They are the logarithm of the power in mel bands, the share of noise in decibels, and the pitch in Hz,
    which is 0 where there is none.
    """
    import pyworld

    edges = np.linspace(0, mel_of(np.array(SAMPLE_RATE_HZ / 2)), ENVELOPE_BANDS + 2)
    bins = mel_of(np.linspace(0, SAMPLE_RATE_HZ / 2, NUM_BINS))
    rising = (bins - edges[:-2, None]) / (edges[1] - edges[0])
    triangles = np.maximum(0, np.minimum(rising, 2 - rising))
    triangles[0, 0] = 1  # bands are narrower than bins there
    triangles /= triangles.sum(axis=1, keepdims=True) + 1e-9

    def encode(audio: Path) -> NDArray[Any]:
        samples = load_audio(audio, SAMPLE_RATE_HZ).astype(np.float64)
        samples *= 0.08 / max(1e-4, float(np.sqrt(np.mean(samples**2))))
        pitch, times = pyworld.dio(samples, SAMPLE_RATE_HZ, f0_floor=60, f0_ceil=500, frame_period=10)
        pitch = pyworld.stonemask(samples, pitch, times, SAMPLE_RATE_HZ)
        of_samples = (samples, pitch, times, SAMPLE_RATE_HZ)
        power = pyworld.cheaptrick(*of_samples, f0_floor=71, fft_size=FFT_SIZE)
        noise = pyworld.code_aperiodicity(pyworld.d4c(*of_samples, fft_size=FFT_SIZE), SAMPLE_RATE_HZ)
        envelope = np.log(np.maximum(power @ triangles.T, 1e-12))
        return np.concatenate([envelope, noise, pitch[:, None]], axis=1).astype(np.float32)

    return encode


def half_precision_frames(audio: Path) -> NDArray[Any]:
    frames: NDArray[np.float32] = log_mel(load_audio(audio, SAMPLE_RATE_HZ)).numpy()
    return frames.astype(np.float16)
