from pathlib import Path

import numpy as np
import pytest
import torch

from indextts.errors import UserError
from indextts.features.audio import load_audio
from indextts.features.backend import FEATURE_DIM, SAMPLE_RATE_HZ
from indextts.features.builtin import BuiltinBackend, create, load, style_vector, voice_of
from indextts.features.builtin_networks import NUM_CODES
from tests.conftest import REPOSITORY

CLIPS = sorted((REPOSITORY / "demo/audio").glob("*.opus"))
BACKEND = BuiltinBackend(NUM_CODES)


def tone(frequency_hz: float, duration_s: float) -> np.ndarray:
    times = np.arange(round(duration_s * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    return (0.3 * np.sin(2 * np.pi * frequency_hz * times)).astype(np.float32)


def noise(duration_s: float, seed: int = 0) -> np.ndarray:
    samples = np.random.default_rng(seed).normal(0, 0.1, round(duration_s * SAMPLE_RATE_HZ))
    return samples.astype(np.float32)


@pytest.mark.parametrize("num_samples", [0, 479, 480, 959, 960, 24_000, 24_479])
@pytest.mark.parametrize("rate", [1, 2])
def test_there_are_50_feature_vectors_per_second_and_a_code_for_one_or_two(num_samples, rate):  # D1
    backend = BuiltinBackend(NUM_CODES, rate)
    features = backend.features(noise(2.0)[:num_samples])
    assert features.shape == (num_samples // 480, FEATURE_DIM)
    assert features.dtype == torch.float32
    codes = backend.codes(features)
    assert codes.shape == (-(-len(features) // rate),)
    assert codes.dtype == torch.int64
    found = backend.parameters(codes, voice_of(features))
    assert len(found.envelope) == 2 * rate * len(codes)
    assert all(map(len, (found.noise_db, found.is_voiced, found.log_pitch))) or not len(codes)


def test_codes_of_20_ms_are_those_of_40_ms_twice():
    features = BACKEND.features(noise(1.0))
    codes = BuiltinBackend(NUM_CODES, 1).codes(features)
    assert torch.equal(codes, BACKEND.codes(features).repeat_interleave(2))


def test_codes_depend_on_what_is_said_more_than_on_level_and_voice():
    clips = [load_audio(path, SAMPLE_RATE_HZ) for path in CLIPS[:4]]
    codes = [BACKEND.codes(BACKEND.features(clip)) for clip in clips]
    louder = BACKEND.codes(BACKEND.features(2 * clips[0]))
    assert float((louder == codes[0]).float().mean()) > 0.95
    assert len(torch.cat(codes).unique()) > 100


def test_fewer_codes_are_the_first_ones():
    features = BACKEND.features(load_audio(CLIPS[0], SAMPLE_RATE_HZ))
    few = BuiltinBackend(64).codes(features)
    assert int(few.max()) < 64
    assert len(few.unique()) > 10
    kept = BACKEND.codes(features)
    assert torch.equal(few[kept < 64], kept[kept < 64])


def test_a_base_with_more_codes_is_refused():
    with pytest.raises(UserError, match=r"have 2,048 codes, but number_mel_codes .* requires 8,192;"):
        create(8192, 1)


def test_the_style_is_the_spectrum_without_its_level():
    plain, louder = style_vector(noise(1.0), 12), style_vector(2 * noise(1.0), 12)
    assert plain.shape == (12,)
    torch.testing.assert_close(louder, plain, atol=1e-3, rtol=0)
    assert int(style_vector(tone(440, 1.0), 12).argmax()) < 3
    assert int(style_vector(tone(5000, 1.0), 12).argmax()) > 6


def test_digital_silence_has_features_and_codes():
    features = BACKEND.features(np.zeros(24_000, np.float32))
    assert features.isfinite().all()
    assert BACKEND.parameters(BACKEND.codes(features), voice_of(features)).envelope.isfinite().all()


@pytest.mark.parametrize("damage", ["cut", "flip", "missing", "array", "format"])
def test_the_error_names_a_corrupt_backend_file(tmp_path: Path, damage: str):
    path = tmp_path / "builtin.npz"
    BACKEND.save(path)
    assert load(path) == BACKEND
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif damage == "format":
        np.savez(path, format_version=np.array(2), identity=np.array(BACKEND.identity))
    elif damage == "flip":
        path.write_bytes(content.replace(b"\x00\x08\x00\x00", b"\x01\x07\x00\x00"))  # 2,048
    else:
        path.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"builtin\.npz: "):
        load(path)
