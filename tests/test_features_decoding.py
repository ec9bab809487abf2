"""Tests of indextts/features/decoding.py: formats that libsndfile cannot read, hostile and damaged files."""

import errno
import re
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import soundfile

from indextts.features.audio import load_audio
from indextts.features.decoding import MAX_UNREAD_S, Readable, as_readable, write_parts
from indextts.features.vad import Span
from tests.conftest import REPOSITORY
from tests.import_sources import write_media

SPEECH = REPOSITORY / "demo/audio/demo_0001.opus"
RATE_HZ = 24_000
MOV_AT_START = {"movflags": "+faststart"}
MOV_IN_FRAGMENTS = {"movflags": "+frag_keyframe+empty_moov+default_base_moof", "frag_duration": "500000"}


def speech() -> np.ndarray:
    return load_audio(SPEECH, RATE_HZ)


def decoded(path: Path, folder: Path) -> tuple[np.ndarray, int]:
    """Return the samples of a file that libsndfile cannot read, and their rate."""
    found = as_readable(path, folder / "aside.flac")
    assert found == Readable(folder / "aside.flac", found.duration_s)
    facts = soundfile.info(found.path)
    assert (facts.format, facts.subtype, facts.channels) == ("FLAC", "PCM_16", 1)
    samples, rate_hz = soundfile.read(found.path, dtype="float32")
    return samples, rate_hz


@pytest.mark.parametrize(
    ("name", "codec", "rate_hz", "options"),
    [
        ("-a b:c.m4a", "aac", 24_000, MOV_AT_START),
        ("a.webm", "libopus", 48_000, {}),
        ("a.amr", "libopencore_amrnb", 8_000, {}),
        pytest.param("a.mp4", "aac", 44_100, MOV_IN_FRAGMENTS, marks=pytest.mark.long),
        pytest.param("a.aac", "aac", 24_000, {}, marks=pytest.mark.long),
        pytest.param("a.avi", "libmp3lame", 24_000, {}, marks=pytest.mark.long),
        pytest.param("a.wma", "wmav2", 44_100, {}, marks=pytest.mark.long),
    ],
)
def test_a_format_is_decoded_at_its_rate_without_loss_of_time(tmp_path, name, codec, rate_hz, options):
    expected = load_audio(SPEECH, rate_hz)
    path = write_media(tmp_path / name, expected, rate_hz, codec, **options)
    samples, found_hz = decoded(path, tmp_path)
    assert found_hz == rate_hz
    assert abs(len(samples) - len(expected)) < 0.1 * rate_hz
    both = samples[: rate_hz * 2], expected[: rate_hz * 2]
    lag = np.argmax(scipy.signal.correlate(*both, method="fft")) - 2 * rate_hz + 1
    assert abs(lag) < 0.06 * rate_hz
    level = np.sqrt(np.mean(samples**2) / np.mean(expected**2))
    assert level == pytest.approx(1, abs=0.25)  # AMR keeps the band of a telephone only


def test_the_first_audio_track_of_a_video_is_taken_and_mixed_to_mono(tmp_path):
    path = write_media(tmp_path / "a.mp4", speech(), RATE_HZ, layout="stereo", video_s=3)
    samples, rate_hz = decoded(path, tmp_path)
    assert rate_hz == RATE_HZ
    assert len(samples) == pytest.approx(len(speech()), abs=2048)


def test_a_video_without_sound_has_no_sound(tmp_path):
    path = write_media(tmp_path / "mute.mp4", None, RATE_HZ, video_s=2)
    assert as_readable(path, tmp_path / "aside.flac")[0] == "no_sound"
    assert not (tmp_path / "aside.flac").exists()


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("a.m4a", "aac", {}),
        ("a.m4a", "aac", MOV_AT_START),
        ("a.webm", "libopus", {}),
        pytest.param("a.mp4", "aac", MOV_IN_FRAGMENTS, marks=pytest.mark.long),
        pytest.param("a.aac", "aac", {}, marks=pytest.mark.long),
        pytest.param("a.wma", "wmav2", {}, marks=pytest.mark.long),
    ],
)
def test_a_truncated_file_is_unreadable(tmp_path, name, codec, options):
    rate_hz = {"libopus": 48_000, "libopencore_amrnb": 8_000, "wmav2": 44_100}.get(codec, RATE_HZ)
    path = write_media(tmp_path / name, load_audio(SPEECH, rate_hz), rate_hz, codec, **options)
    content = path.read_bytes()
    path.write_bytes(content[: int(0.6 * len(content)) // 3 * 3 + 1])
    assert as_readable(path, tmp_path / "aside.flac")[0] == "unreadable_audio"
    assert not (tmp_path / "aside.flac").exists()


def test_a_file_with_many_corrupt_packets_is_unreadable(tmp_path):
    path = write_media(tmp_path / "a.m4a", speech(), RATE_HZ, **MOV_AT_START)
    content = bytearray(path.read_bytes())
    middle = slice(len(content) // 3, 2 * len(content) // 3)
    content[middle] = np.random.default_rng(0).bytes(middle.stop - middle.start)
    path.write_bytes(content)
    assert as_readable(path, tmp_path / "aside.flac")[0] == "unreadable_audio"


def hostile_files(secret: Path) -> dict[str, str]:
    """Return the content of playlists that name another file or an address."""
    hls = "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{}\n#EXT-X-ENDLIST\n"
    dash = (
        '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
        'mediaPresentationDuration="PT1S" profiles="urn:mpeg:dash:profile:isoff-on-demand:2011"><Period>'
        '<AdaptationSet mimeType="audio/mp4"><Representation id="1" bandwidth="1"><BaseURL>file://{}'
        "</BaseURL></Representation></AdaptationSet></Period></MPD>"
    )
    return {
        "concat.mp4": f"ffconcat version 1.0\nfile '{secret}'\n",
        "hls.m4a": hls.format(secret),
        "hls.ts": hls.format("http://127.0.0.1:9/a.ts"),
        "dash.mp4": dash.format(secret),
        "sdp.mp4": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
    }


@pytest.mark.parametrize("name", ["concat.mp4", "hls.m4a", "hls.ts", "dash.mp4", "sdp.mp4"])
def test_a_playlist_named_like_a_recording_opens_no_other_file(tmp_path, name):
    secret = write_media(tmp_path / "secret.m4a", speech(), RATE_HZ)
    path = tmp_path / name
    path.write_text(hostile_files(secret)[name])
    assert as_readable(path, tmp_path / "aside.flac")[0] == "unreadable_audio"
    assert not (tmp_path / "aside.flac").exists()


def test_a_decoder_that_takes_too_long_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("indextts.features.decoding._TIMEOUT_S", 0.001)
    monkeypatch.setattr("indextts.features.decoding._TIMEOUT_PER_MB_S", 0)
    path = write_media(tmp_path / "a.m4a", speech(), RATE_HZ)
    assert as_readable(path, tmp_path / "aside.flac")[0] == "unreadable_audio"


def test_a_decoder_that_crashes_costs_one_recording(tmp_path, monkeypatch):
    program = tmp_path / "crash.py"
    program.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setattr("indextts.features.decoding._DECODER", program)
    path = write_media(tmp_path / "a.m4a", speech(), RATE_HZ)
    assert as_readable(path, tmp_path / "aside.flac")[0] == "unreadable_audio"


def test_a_recording_that_decodes_to_too_many_bytes_is_refused(tmp_path, monkeypatch):
    path = write_media(tmp_path / "a.m4a", speech(), RATE_HZ)
    monkeypatch.setattr("indextts.features.decoding._MAX_DECODED_BYTES", 2 * RATE_HZ)  # 1 s
    assert as_readable(path, tmp_path / "aside.flac")[0] == "unreadable_audio"
    assert not (tmp_path / "aside.flac").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_not_the_fault_of_the_recording(tmp_path):
    path = write_media(tmp_path / "a.m4a", speech(), RATE_HZ)
    (tmp_path / "aside.flac").symlink_to("/dev/full")
    with pytest.raises(OSError, match=rf"Errno {errno.ENOSPC}\b"):
        as_readable(path, tmp_path / "aside.flac")


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
    recording("mp3"),
    recording("flac"),
    recording("ogg"),
    recording("aiff"),
    recording("au"),
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
    (recording("wav"), sized(b"data", lambda _: 0xFFFFFFFF), 1),
    (recording("wav"), twice, 2),
    *((recording("mp3", "libmp3lame"), frames(share), 1) for share in (0, 0.1, 0.25, 0.5, 0.8)),
    (recording("mp3", "libmp3lame"), twice, 2),
    (recording("flac"), total(0), 1),
    (recording("flac"), total(RATE_HZ), 1),
    (recording("flac"), twice, 2),
    (recording("opus", "libopus", rate_hz=48_000), twice, 2),
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
    (recording("opus", "libopus", rate_hz=48_000), first(0.6)),
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
