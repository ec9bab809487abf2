"""Tests of indextts/features/decoding.py: formats that libsndfile cannot read, and hostile files."""

import errno
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import soundfile

from indextts.features.audio import load_audio
from indextts.features.decoding import Readable, as_readable
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
        pytest.param("a.ts", "aac", 24_000, {}, marks=pytest.mark.long),
        pytest.param("a.avi", "libmp3lame", 24_000, {}, marks=pytest.mark.long),
        pytest.param("a.wma", "wmav2", 44_100, {}, marks=pytest.mark.long),
        pytest.param("ሰላም.ac3", "ac3", 48_000, {}, marks=pytest.mark.long),
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
        pytest.param("a.amr", "libopencore_amrnb", {}, marks=pytest.mark.long),
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
