import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from indextts.data import recordings as recording_keys
from indextts.data.manifest import Utterance
from indextts.data.recordings import KEYS_NAME, keys_of


@pytest.fixture
def read(monkeypatch) -> list[Path]:
    """List of the files whose bytes were read."""
    files: list[Path] = []
    digest = recording_keys.file_sha256
    monkeypatch.setattr(recording_keys, "file_sha256", lambda path: files.append(path) or digest(path))
    return files


def recordings(folder: Path, *names: str) -> list[Utterance]:
    for name in names:
        (folder / name).write_bytes(name.encode())
    return [Utterance(id=f"of {n}", audio=folder / n, text="ሰላም", speaker="s", duration_s=1.0) for n in names]


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_an_unchanged_file_is_read_once(tmp_path, read):
    utterances = recordings(tmp_path, "a", "b")
    keys = keys_of(utterances, tmp_path)
    assert keys == {"of a": sha256(b"a"), "of b": sha256(b"b")}
    assert len(read) == 2
    assert keys_of(utterances, tmp_path) == keys
    assert len(read) == 2
    more = [*utterances, *recordings(tmp_path, "c")]
    assert keys_of(more, tmp_path) == {**keys, "of c": sha256(b"c")}
    assert read[2:] == [tmp_path / "c"]


def test_other_bytes_of_the_same_size_and_time_are_another_recording(tmp_path):
    [utterance] = recordings(tmp_path, "a")
    keys_of([utterance], tmp_path)
    date = utterance.audio.stat().st_mtime_ns
    utterance.audio.write_bytes(b"z")
    os.utime(utterance.audio, ns=(date, date))
    assert keys_of([utterance], tmp_path) == {"of a": sha256(b"z")}


def test_a_deleted_file_has_no_key(tmp_path):
    utterances = recordings(tmp_path, "a", "b")
    keys_of(utterances, tmp_path)
    utterances[0].audio.unlink()
    assert keys_of(utterances, tmp_path) == {"of b": sha256(b"b")}


def test_utterances_with_one_file_have_one_key_and_it_is_read_once(tmp_path, read):
    [utterance] = recordings(tmp_path, "a")
    both = [utterance, replace(utterance, id="again")]
    assert keys_of(both, tmp_path) == {"of a": sha256(b"a"), "again": sha256(b"a")}
    assert len(read) == 1


@pytest.mark.parametrize("content", [b"{", b"[]\n", b'{"audio": 3}\n', b"\xff\n"])
def test_unreadable_digests_are_computed_again(tmp_path, caplog, content):
    utterances = recordings(tmp_path, "a")
    (tmp_path / KEYS_NAME).write_bytes(content)
    assert keys_of(utterances, tmp_path) == {"of a": sha256(b"a")}
    assert "recordings.jsonl: " in caplog.text
    caplog.clear()
    assert keys_of(utterances, tmp_path) == {"of a": sha256(b"a")}
    assert not caplog.text
