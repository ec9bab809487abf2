from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from scipy.fft import dct

from indextts.errors import UserError
from indextts.features.audio import audio_duration_s, load_audio
from indextts.features.backend import FEATURE_DIM, SAMPLE_RATE_HZ
from indextts.features.builtin import (
    BuiltinBackend,
    cepstra_of,
    fit,
    load,
    log_mel,
    style_vector,
)


def tone(frequency_hz: float, duration_s: float) -> np.ndarray:
    times = np.arange(round(duration_s * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    return (0.3 * np.sin(2 * np.pi * frequency_hz * times)).astype(np.float32)


def noise(duration_s: float, seed: int = 0) -> np.ndarray:
    samples = np.random.default_rng(seed).normal(0, 0.1, round(duration_s * SAMPLE_RATE_HZ))
    return samples.astype(np.float32)


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> list[Path]:
    """Six recordings of rising tones and noise, 8 s in total."""
    folder = tmp_path_factory.mktemp("audio")
    clips = [tone(200 * 2**octave, 1.0 + 0.1 * octave) for octave in range(5)] + [noise(2.0)]
    for number, clip in enumerate(clips):
        soundfile.write(folder / f"{number}.wav", clip, SAMPLE_RATE_HZ)
    return [folder / f"{number}.wav" for number in range(6)]


@pytest.fixture(scope="module")
def backend(paths) -> BuiltinBackend:
    return fit(paths, num_codes=16, seed=3)


@pytest.mark.parametrize("num_samples", [0, 479, 480, 959, 960, 24_000, 24_479])
def test_there_are_50_feature_vectors_per_second_rounded_down(backend, num_samples):  # D1
    features = backend.features(noise(2.0)[:num_samples])
    assert features.shape == (num_samples // 480, FEATURE_DIM)
    assert features.dtype == torch.float32
    codes = backend.codes(features)
    assert codes.shape == (num_samples // 480,)
    assert codes.dtype == torch.int64


@pytest.mark.parametrize("rate", [1, 2])
def test_a_code_is_the_nearest_centroid_of_one_or_two_feature_vectors(paths, backend, tmp_path, rate):
    fit(paths, num_codes=16, seed=3, features_per_code=rate).save(tmp_path / "builtin.npz")
    loaded = load(tmp_path / "builtin.npz")
    assert (loaded.features_per_code, loaded.num_codes, loaded.feature_dim) == (rate, 16, FEATURE_DIM)
    assert (loaded.identity == backend.identity) == (rate == 1)
    assert [path.name for path in tmp_path.iterdir()] == ["builtin.npz"]
    audio = noise(1.01)  # 50 feature vectors
    features = loaded.features(audio)
    cepstra = cepstra_of(log_mel(audio).reshape(-1, 2 * rate, 128))
    distances = torch.cdist(cepstra.double(), loaded.centroids.double())
    codes = loaded.codes(features)
    assert torch.equal(codes, distances.argmin(dim=1))
    assert len(loaded.codes(features[:49])) == len(codes) - (rate == 1)  # an odd number is rounded up
    frames = loaded.centroid_frames(codes)
    assert frames.shape == (100, 128)  # as many as those of the audio
    assert (frames - log_mel(audio)).abs().mean() < 2


def test_the_style_is_the_spectrum_without_its_level():
    plain, louder = style_vector(noise(1.0), 12), style_vector(2 * noise(1.0), 12)
    assert plain.shape == (12,)
    torch.testing.assert_close(louder, plain, atol=1e-3, rtol=0)
    assert int(style_vector(tone(440, 1.0), 12).argmax()) < 3
    assert int(style_vector(tone(5000, 1.0), 12).argmax()) > 6


def test_cepstra_are_coefficients_of_the_orthonormal_cosine_transform():
    frames = log_mel(noise(0.5)).reshape(-1, 2, 128)
    expected = dct(frames.numpy(), norm="ortho")[..., :24].reshape(-1, 48)
    torch.testing.assert_close(cepstra_of(frames), torch.from_numpy(expected), rtol=1e-4, atol=1e-4)


def test_the_same_recordings_and_seed_give_the_same_backend(paths, backend):
    assert fit(paths, 16, seed=3).identity == backend.identity
    assert fit(paths, 16, seed=4).identity != backend.identity
    assert fit(paths[:5], 16, seed=3).identity != backend.identity


def test_digital_silence_has_features_and_codes(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(24_000), SAMPLE_RATE_HZ)
    backend = fit([tmp_path / "a.wav"], num_codes=2, seed=0)
    assert backend.features(np.zeros(24_000, np.float32)).isfinite().all()


def test_fewer_feature_vectors_than_codes_is_an_error_with_numbers(paths):
    with pytest.raises(UserError, match=r" 400 \(8.0 s\) from 6 recordings, .*number_mel_codes .* 500;"):
        fit(paths, num_codes=500, seed=0)


@pytest.mark.parametrize("damage", ["cut", "flip", "missing", "array", "format"])
def test_the_error_names_a_corrupt_backend_file(tmp_path, backend, damage):
    path = tmp_path / "builtin.npz"
    backend.save(path)
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif damage == "format":
        arrays = {
            "band_mean": backend.band_mean,
            "band_std": backend.band_std,
            "centroids": backend.centroids,
        }
        np.savez(path, **arrays, identity=np.array(backend.identity), format_version=np.array(9))
    else:
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        path.write_bytes({"cut": content[:middle], "flip": flipped}[damage])
    with pytest.raises(UserError, match=r"builtin\.npz: "):
        load(path)


def test_channels_are_averaged_and_any_rate_becomes_24_khz(tmp_path):
    stereo = np.stack([tone(440, 1.0), 0.5 * tone(440, 1.0)], axis=1)
    soundfile.write(tmp_path / "a.flac", stereo, 24_000)
    np.testing.assert_allclose(load_audio(tmp_path / "a.flac", 24_000), 0.75 * tone(440, 1.0), atol=1e-4)
    for rate_hz in (8_000, 16_000, 44_100, 48_000):
        soundfile.write(tmp_path / "a.wav", np.zeros(rate_hz), rate_hz)
        assert load_audio(tmp_path / "a.wav", 24_000).shape == (24_000,)
        assert audio_duration_s(tmp_path / "a.wav") == 1.0
