"""Tests of indextts/data/importing/archive.py: valid archives are unpacked, harmful ones refused."""

import stat
import struct
import zipfile
from pathlib import Path

import pytest

from indextts.data.importing import archive
from indextts.errors import UserError
from tests.import_sources import manifest_lines, run_import, snapshot, write_tone


def write_zip(path: Path, members: dict[str, bytes], **flags: object) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **flags) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name, (2024, 5, 6, 7, 8, 10)), content, zipfile.ZIP_DEFLATED)
    return path


def dataset(tmp_path: Path) -> dict[str, bytes]:
    tone = write_tone(tmp_path / "tone.wav", duration_s=0.2).read_bytes()
    return {"set/wavs/a.wav": tone, "set/metadata.csv": "a|ሰላም\n".encode(), "__MACOSX/set/._a.wav": b"x"}


def test_an_archive_is_imported_and_leaves_nothing_else(tmp_path):
    path = write_zip(
        tmp_path / "set.zip", dataset(tmp_path) | {"set/page.html": b"<script>", "set/.x.csv": b"1"}
    )
    run_import(path, tmp_path / "out", speaker="s")
    (line,) = manifest_lines(tmp_path / "out")
    assert (line["id"], line["text"]) == ("a", "ሰላም")
    names = sorted(str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*"))
    assert names == [
        ".import.lock",
        "answers.json",
        "audio",
        "audio/a.wav",
        "imported.jsonl",
        "manifest.jsonl",
    ]
    before = snapshot(tmp_path / "out")
    assert run_import(path, tmp_path / "out").num_unchanged == 1
    assert snapshot(tmp_path / "out") == before


@pytest.mark.parametrize(
    "name", ["/etc/a.wav", "../a.wav", "set/../../a.wav", "..\\..\\a.wav", "C:\\a.wav", "C:/a.wav"]
)
def test_names_outside_the_folder_are_refused_and_nothing_is_written(tmp_path, name):
    path = write_zip(tmp_path / "set.zip", dataset(tmp_path) | {name: b"x"})
    with pytest.raises(UserError, match=r"set\.zip: ") as caught:
        run_import(path, tmp_path / "w/out", speaker="s")
    assert "\n" not in str(caught.value)
    written = [file for file in (tmp_path / "w").rglob("*") if file.is_file()]
    assert [file.name for file in written] == [".import.lock"]


def test_links_are_refused(tmp_path):
    path = write_zip(tmp_path / "set.zip", dataset(tmp_path))
    link = zipfile.ZipInfo("set/wavs/b.wav")
    link.create_system = 3
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(link, "/etc/passwd")
    with pytest.raises(UserError, match=r"set\.zip: .*set/wavs/b\.wav"):
        run_import(path, tmp_path / "out", speaker="s")


def test_a_zip_bomb_is_refused_by_its_unpacked_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MIN_BOMB_BYTES", 2**20)
    path = write_zip(tmp_path / "set.zip", {"a.wav": bytes(30 * 2**20), "a.txt": b"x"})
    assert path.stat().st_size < 40_000
    with pytest.raises(UserError, match=r"50 GB \(--max-unpacked-gb\).* 100 times"):
        run_import(path, tmp_path / "out", speaker="s")
    content = path.read_bytes()  # the same bomb with a small size in its directory
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"PK\x01\x02"))
    lied = content[: entry + 24] + struct.pack("<I", 1000) + content[entry + 28 :]
    path.write_bytes(lied[:22] + struct.pack("<I", 1000) + lied[26:])
    with pytest.raises(UserError):
        run_import(path, tmp_path / "out", speaker="s")
    assert sum(file.stat().st_size for file in (tmp_path / "out").rglob("*")) < 10_000


def test_the_total_and_the_number_of_files_are_limited(tmp_path, monkeypatch):
    path = write_zip(tmp_path / "set.zip", dataset(tmp_path))
    with pytest.raises(UserError, match="max-unpacked-gb"):
        run_import(path, tmp_path / "out", speaker="s", max_unpacked_gb=1e-6)
    monkeypatch.setattr(archive, "MAX_FILES", 2)
    with pytest.raises(UserError, match=r"set\.zip: 3 files.* 2;"):
        run_import(path, tmp_path / "out", speaker="s")


def test_names_in_any_encoding_are_decoded(tmp_path):
    tone = write_tone(tmp_path / "tone.wav", duration_s=0.2).read_bytes()
    path = write_zip(
        tmp_path / "set.zip", {"ሰላም.wav": tone, "ሰላም.txt": "ሀ".encode(), "zz.wav": tone, "zz.txt": b"a"}
    )
    content = path.read_bytes()  # the first two in UTF-8 without the flag, the others in cp437
    unsaid = content.replace(b"zz.", b"z\x82.")
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = 0
        while (start := unsaid.find(mark, start)) >= 0:
            unsaid = unsaid[: start + offset + 1] + b"\0" + unsaid[start + offset + 2 :]
            start += 4
    path.write_bytes(unsaid)
    run_import(path, tmp_path / "out", speaker="s")
    assert {line["id"]: line["text"] for line in manifest_lines(tmp_path / "out")} == {"zé": "a", "ሰላም": "ሀ"}


def test_a_name_falsely_flagged_as_utf8_is_an_error_with_the_archive(tmp_path):
    path = write_zip(tmp_path / "set.zip", dataset(tmp_path) | {"ሰ.wav": b"x"})
    path.write_bytes(path.read_bytes().replace("ሰ".encode(), b"\xff\xfe\xfd"))
    with pytest.raises(UserError, match=r"set\.zip: ") as caught:
        run_import(path, tmp_path / "out", speaker="s")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"no archive at all" * 100])
def test_a_corrupt_archive_is_an_error_with_its_name(tmp_path, content):
    (tmp_path / "set.zip").write_bytes(content)
    with pytest.raises(UserError, match=r"set\.zip: "):
        run_import(tmp_path / "set.zip", tmp_path / "out", speaker="s")


def test_a_truncated_member_is_an_error_with_the_archive(tmp_path):
    path = write_zip(tmp_path / "set.zip", dataset(tmp_path))
    content = bytearray(path.read_bytes())
    content[200:260] = bytes(60)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"set\.zip: "):
        run_import(path, tmp_path / "out", speaker="s")
    assert not list((tmp_path / "out").glob(f"{archive.UNPACKED_PREFIX}*"))


def test_nested_archives_are_skipped_with_a_warning(tmp_path, caplog):
    inner = write_zip(tmp_path / "inner.zip", {"b.wav": b"x"}).read_bytes()
    path = write_zip(tmp_path / "set.zip", dataset(tmp_path) | {"set/inner.zip": inner})
    assert run_import(path, tmp_path / "out", speaker="s").num_utterances == 1
    assert "set/inner.zip" in caplog.text
