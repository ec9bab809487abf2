"""Tests of recordings whose header is wrong: all of their sound is imported, or they are rejected."""

import re
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.features.decoding import MAX_UNREAD_S, Readable, as_readable, write_parts
from indextts.features.vad import Span
from tests.import_sources import write_media

RATE_HZ = 24_000
LENGTH_S = 4.0

Change = Callable[[bytes], bytes]


def voice(length_s: float = LENGTH_S, rate_hz: int = RATE_HZ) -> np.ndarray:
    """Return a tone whose level goes up and down, with noise."""
    times = np.arange(round(length_s * rate_hz)) / rate_hz
    tone = 0.2 * np.sin(2 * np.pi * 220 * times) * (1 + np.sin(2 * np.pi * 3 * times))
    noise = 0.003 * np.random.default_rng(0).standard_normal(len(times))
    return (tone + noise).astype(np.float32)


def recording(suffix: str, codec: str = "", rate_hz: int = RATE_HZ, **kind: str) -> Callable[[Path], Path]:
    """Return a function that writes a good recording to a folder, with PyAV if a codec is given."""

    def write(folder: Path) -> Path:
        path = folder / f"good.{suffix}"
        if codec:
            return write_media(path, voice(rate_hz=rate_hz), rate_hz, codec, **kind)
        soundfile.write(path, voice(rate_hz=rate_hz), rate_hz, **kind)
        return path

    return write


def sized(tag: bytes, size: Callable[[int], int], offset: int = 4, order: str = "<I") -> Change:
    """Return a change of the number that follows a tag."""

    def change(content: bytes) -> bytes:
        place = content.index(tag) + offset
        [number] = struct.unpack(order, content[place : place + 4])
        return content[:place] + struct.pack(order, size(number)) + content[place + 4 :]

    return change


def frames(share: float) -> Change:
    """Return a change of the number of frames in the header of an MP3 file."""

    def change(content: bytes) -> bytes:
        tag = b"Xing" if b"Xing" in content[:4000] else b"Info"
        return sized(tag, lambda number: int(share * number), offset=8, order=">I")(content)

    return change


def total(num_samples: int) -> Change:
    """Return a change of the number of samples in the header of a FLAC file."""
    return lambda content: content[:22] + struct.pack(">I", num_samples) + content[26:]


def first(share: float) -> Change:
    return lambda content: content[: round(share * len(content))]


def twice(content: bytes) -> bytes:
    return content + content


def with_chunk(content: bytes) -> bytes:
    """Return a WAV file with a chunk after its samples, as many editors write it."""
    return (
        content + b"LIST" + struct.pack("<I", 26) + b"INFOISFT" + struct.pack("<I", 14) + b"Lavf59.27.100\0"
    )


GOOD = [
    *(recording("wav", subtype=kind) for kind in ("PCM_16", "PCM_24", "FLOAT", "ULAW", "MS_ADPCM")),
    *(recording("wav", "pcm_s16le", rate_hz=rate_hz) for rate_hz in (8000, 44_100)),
    *(recording("mp3", "libmp3lame", rate_hz=rate_hz) for rate_hz in (8000, 16_000, 24_000, 44_100)),
    *(recording("opus", "libopus", rate_hz=rate_hz) for rate_hz in (8000, 48_000)),
    *(recording("ogg", rate_hz=rate_hz) for rate_hz in (8000, 44_100)),
    recording("mp3"),
    recording("flac"),
    recording("flac", "flac"),
    recording("flac", subtype="PCM_24"),
    recording("ogg"),
    recording("aiff"),
    recording("aiff", "pcm_s16be"),
    recording("au"),
    recording("au", "pcm_mulaw"),
    recording("caf"),
    recording("w64"),
]


@pytest.mark.parametrize("write", GOOD)
def test_a_good_recording_stays_as_it_is(tmp_path, write):
    path = write(tmp_path)
    found = as_readable(path, tmp_path / "aside.flac")
    assert isinstance(found, Readable)
    assert (found.path, found.outcomes) == (path, ())
    assert found.duration_s == pytest.approx(LENGTH_S, abs=MAX_UNREAD_S)
    assert not (tmp_path / "aside.flac").exists()


@pytest.mark.parametrize(
    "change", [with_chunk, lambda wav: wav + bytes(200_000), sized(b"RIFF", lambda _: 0)]
)
def test_what_follows_the_samples_is_no_sound(tmp_path, change):
    path = recording("wav")(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    found = as_readable(path, tmp_path / "aside.flac")
    assert found == Readable(path, LENGTH_S)


WHOLE = [
    *(
        (recording("wav", subtype=kind), sized(b"data", lambda size: size // 4), 1)
        for kind in ("PCM_16", "PCM_24", "FLOAT", "ULAW")
    ),
    (recording("wav"), sized(b"data", lambda _: 0), 1),
    (recording("wav"), sized(b"data", lambda _: 4096), 1),
    (recording("wav"), sized(b"data", lambda _: 0xFFFFFFFF), 1),
    (recording("wav"), twice, 2),
    *((recording("mp3", "libmp3lame"), frames(share), 1) for share in (0, 0.1, 0.25, 0.5, 0.8)),
    (recording("mp3"), frames(0.25), 1),
    (recording("mp3", "libmp3lame"), twice, 2),
    (recording("mp3", "libmp3lame", rate_hz=44_100, write_xing="0"), twice, 2),
    (recording("flac"), total(0), 1),
    (recording("flac"), total(RATE_HZ), 1),
    (recording("flac"), twice, 2),
    (recording("opus", "libopus", rate_hz=48_000), twice, 2),
    (recording("ogg"), twice, 2),
    (recording("au"), sized(b".snd", lambda size: size // 4, offset=8, order=">I"), 1),
]  # fmt: skip


@pytest.mark.parametrize(("write", "change", "times"), WHOLE)
def test_sound_beyond_the_length_in_a_header_is_read(tmp_path, write, change, times):
    path = write(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    found = as_readable(path, tmp_path / "aside.flac")
    assert isinstance(found, Readable)
    assert found.duration_s == pytest.approx(times * LENGTH_S, abs=0.1 * times)
    samples, rate_hz = soundfile.read(found.path)
    assert len(samples) == pytest.approx(found.duration_s * rate_hz, abs=1)
    assert samples[-rate_hz // 2 :].std() == pytest.approx(samples[: rate_hz // 2].std(), rel=0.3)


REFUSED = [
    (recording("wav"), first(0.5)),
    (recording("mp3", "libmp3lame"), frames(3)),
    (recording("mp3", "libmp3lame"), first(0.6)),
    (recording("flac"), total(10 * RATE_HZ)),
    (recording("flac"), first(0.6)),
    (recording("opus", "libopus", rate_hz=48_000), first(0.6)),
    (recording("ogg"), first(0.6)),
    (recording("aiff"), first(0.5)),
]


@pytest.mark.parametrize(("write", "change"), REFUSED)
def test_a_recording_that_lacks_sound_is_refused(tmp_path, write, change):
    path = write(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    code, reason = as_readable(path, tmp_path / "aside.flac")
    assert code == "unreadable_audio"
    seconds = re.findall(r"[0-9]+\.[0-9]+ s", reason)
    assert len(seconds) == (1 if path.suffix in (".opus", ".ogg") else 2)  # Ogg has no length in its header
    assert not (tmp_path / "aside.flac").exists()


@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("num_channels", [1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_sample_that_is_no_number_makes_a_recording_unusable(tmp_path, subtype, num_channels, bad):
    samples = np.stack([voice()] * num_channels, axis=1)
    samples[1000, -1] = bad
    soundfile.write(tmp_path / "a.wav", samples, RATE_HZ, subtype)
    found = as_readable(tmp_path / "a.wav", tmp_path / "aside.flac")
    assert found == ("unreadable_audio", "some samples are NaN or infinite; replace the file")


def test_a_long_part_is_written_in_little_memory(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.tile(voice(60), 20), RATE_HZ)
    tracemalloc.start()
    durations = write_parts(tmp_path / "a.wav", [Span(1, 1e4)], [tmp_path / "part.flac"])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert durations == [1199] == [soundfile.info(tmp_path / "part.flac").duration]
    assert peak < 10e6
