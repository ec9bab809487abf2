import io
from typing import Any

import av
import numpy as np
import pytest

from indextts.speech.serving.encoding import RATE_HZ, Encoder, change_speed


@pytest.mark.parametrize("speed", [0.25, 0.8, 1.7, 4.0])
def test_a_changed_speed_keeps_the_pitch(speed: float):
    times = np.arange(2 * RATE_HZ) / RATE_HZ
    tone = (0.5 * np.sin(2 * np.pi * 220 * times)).astype(np.float32)
    changed = change_speed(tone, speed)
    assert len(changed) == int(len(tone) / speed)
    middle = changed[len(changed) // 4 : -len(changed) // 4]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    assert np.argmax(spectrum) * RATE_HZ / len(middle) == pytest.approx(220, rel=0.02)
    assert np.abs(middle).max() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("gain", [0.3, 4.0])
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("name", ["wav", "pcm", "flac", "mp3", "aac", "opus"])
def test_a_sound_in_pieces_decodes_to_the_same_sound_within_full_scale(
    name: Any, is_stream: bool, gain: float
):
    samples = (gain * np.sin(np.arange(30_000) / 9)).astype(np.float32)
    encoder = Encoder(name, is_stream=is_stream)
    pieces = [encoder.add(samples[at : at + 7000]) for at in range(0, 30_000, 7000)]
    content = b"".join([*pieces, encoder.end()])
    assert any(pieces) == is_stream
    wanted = np.clip(samples, -1, 1)
    if name == "pcm" or (name == "wav" and is_stream):  # whose header names no length
        decoded = np.frombuffer(content[-60_000:], "<i2") / 32768
        np.testing.assert_allclose(decoded, wanted, atol=1e-4)
        return
    with av.open(io.BytesIO(content)) as container:
        frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
        assert container.streams.audio[0].rate in (RATE_HZ, 48_000)  # opus says 48,000
    decoded = np.concatenate(frames)
    decoded = decoded / 32768 if decoded.dtype == np.int16 else decoded
    decoded = decoded[:: len(decoded) // 30_000 or 1]
    assert len(decoded) == pytest.approx(30_000, abs=3000)
    middle = decoded[5000:20_000]
    # a wrapped peak would have a step in it, the opposite sign; rounding of a codec adds at most a quarter
    assert np.abs(middle).max() == pytest.approx(min(gain, 1.1), abs=0.15)
    assert np.abs(np.diff(middle)).max() < 1.0 > np.abs(np.diff(wanted)).max()
