"""Tests of storing uploaded files, and of names that a request may use for them."""

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.webui.data.uploads import remove, store_adapter, store_uploads, store_voice, uploads_html
from indextts.webui.listen.saved_models import adapter_meta
from tests.import_sources import write_media


def tone(duration_s: float = 0.1, format: str = "WAV") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(int(8000 * duration_s), np.int16), 8000, format=format)
    return file.getvalue()


def archive(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as written:
        for name in names:
            written.writestr(name, b"x" * 1000)
    return file.getvalue()


CONTENT = {".wav": tone(), ".zip": archive("wavs/1.wav", "metadata.csv")}


def receive(folder: Path, *names: str, content: bytes | None = None) -> list[str]:
    """Write files as the server keeps uploads: each in a folder of its own."""
    paths = []
    for number, name in enumerate(names):
        path = folder / f"received/{number}/{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT.get(path.suffix.lower(), b"x") if content is None else content)
        paths.append(str(path))
    return paths


def test_single_files_share_a_folder_and_each_archive_has_its_own(tmp_path):
    project = Project(tmp_path / "voice")
    sources = store_uploads(
        project, receive(tmp_path, "a.wav", "a.txt", "set.ZIP", "b.xlsx"), tmp_path / "received"
    )
    assert sources == [project.uploads / "files", project.uploads / "set.ZIP"]
    store_uploads(project, receive(tmp_path, "a.txt", content=b"corrected"), tmp_path / "received")
    assert (project.uploads / "files/a.txt").read_bytes() == b"corrected"
    cells = re.findall(r"<td.*?>(.*?)</td>", uploads_html(project))
    assert cells == ["files", "3", "0.0 MB", "set.ZIP", "1", "0.0 MB"]
    assert project.uploaded() == sources
    remove(project, "set.ZIP")
    remove(project, "files")
    assert project.uploaded() == []


@pytest.mark.parametrize(
    "name", ["page.html", "run.sh", ".hidden.wav", "x" * 200 + ".wav", "model.pth", "zip"]
)
def test_a_file_that_is_not_data_is_refused_and_nothing_is_stored(tmp_path, name):
    project = Project(tmp_path / "voice")
    with pytest.raises(UserError, match=re.escape(name[-8:])):
        store_uploads(project, receive(tmp_path, "a.wav", name), tmp_path / "received")
    assert project.uploaded() == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("talks.zip", b""),
        ("talks.zip", b"PK\x03\x04 and no end"),
        ("talks.zip", archive("wavs/1.wav")[:-30]),
        ("talks.zip", archive("photo.jpg", "readme.md")),
        ("nine.wav", b"RIFFxxxxW"),
        ("empty.mp3", b""),
        ("empty.m4a", b""),
        ("header.wav", tone(0)),
        ("noise.flac", b"fLaC" + bytes(500)),
    ],
)
def test_an_unusable_upload_is_refused_with_its_name_and_nothing_is_stored(
    tmp_path: Path, name: str, content: bytes
):
    project = Project(tmp_path / "voice")
    good, bad = receive(tmp_path, "a.wav")[0], receive(tmp_path / "bad", name, content=content)[0]
    with pytest.raises(UserError, match=re.escape(name)) as refused:
        store_uploads(project, [good, bad], tmp_path)
    assert "a.wav" not in str(refused.value)
    assert project.uploaded() == []


def test_a_recording_with_the_suffix_of_another_format_is_stored(tmp_path):
    project = Project(tmp_path / "voice")
    media = write_media(tmp_path / "a.m4a", np.zeros(24_000, np.float32), 24_000)
    [source] = store_uploads(project, receive(tmp_path, "a.mp3", content=media.read_bytes()), tmp_path)
    assert [path.name for path in source.iterdir()] == ["a.mp3"]


def test_a_request_cannot_name_a_file_that_was_not_uploaded(tmp_path):
    project = Project(tmp_path / "voice")
    secret = tmp_path / "workspace/other.wav"
    secret.parent.mkdir()
    secret.write_bytes(b"x")
    (tmp_path / "received").mkdir()
    (tmp_path / "received/link.wav").symlink_to(secret)
    for path in (secret, tmp_path / "received/../workspace/other.wav", tmp_path / "received/link.wav"):
        with pytest.raises(UserError, match="was not uploaded"):
            store_uploads(project, [str(path)], tmp_path / "received")
    assert secret.is_file()


@pytest.mark.parametrize("name", ["..", ".", "", "../other", "files/../../x", "absent.zip"])
def test_only_uploads_can_be_removed(tmp_path, name):
    project = Project(tmp_path / "voice")
    store_uploads(project, receive(tmp_path, "a.wav"), tmp_path / "received")
    with pytest.raises(UserError, match="has no upload"):
        remove(project, name)


def receive_sound(folder: Path, name: str, duration_s: float) -> str:
    [path] = receive(folder, name)
    soundfile.write(path, np.zeros(int(8000 * duration_s), np.int16), 8000)
    return path


def test_voices_are_stored_apart_from_imports(tmp_path):
    project = Project(tmp_path / "voice")
    taken = store_voice(project, receive_sound(tmp_path, "አበበ.wav", 4), tmp_path / "received")
    assert taken == project.listen / "voices/አበበ.wav"
    assert soundfile.info(taken).duration == 4
    assert project.uploaded() == []


def test_an_adapter_is_stored_and_another_file_is_not(tmp_path):
    project, (path,) = Project(tmp_path / "voice"), receive(tmp_path, "mine.safetensors", content=b"x")
    for name in (path, "/etc/hostname"):
        with pytest.raises(UserError):
            store_adapter(project, name, tmp_path / "received", adapter_meta)
    assert not project.listen.exists()
    stored = store_adapter(project, path, tmp_path / "received", lambda _: None)
    assert stored == project.listen / "adapters/mine.safetensors"


def test_an_invalid_voice_is_refused_and_not_stored(tmp_path):
    project = Project(tmp_path / "voice")
    cases = {
        receive_sound(tmp_path, "hour.flac", 3600): r"^hour\.flac: lasts 3600\.0 s, ",
        receive_sound(tmp_path, "click.wav", 0.2): r"^click\.wav: lasts 0\.2 s",
        receive(tmp_path, "text.mp3", content=b"x")[0]: r"^text\.mp3: ",
        receive(tmp_path, "page.html")[0]: r"^page\.html: ",
        "/etc/passwd": "passwd: this file was not uploaded",
    }
    for path, message in cases.items():
        with pytest.raises(UserError, match=message):
            store_voice(project, path, tmp_path / "received")
    assert not project.listen.exists()
