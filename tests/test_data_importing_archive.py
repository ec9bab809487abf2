"""Tests of zip and tar archives as sources and within sources: harmful ones are refused."""

import io
import shutil
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from indextts.data.importing import archive
from indextts.errors import UserError
from tests.import_sources import (
    manifest_lines,
    rejected,
    run_import,
    snapshot,
    tone_bytes,
    write_tar,
)

MEMBERS = {"set/wavs/a.wav": tone_bytes(kind="WAV"), "set/metadata.csv": "a|ሰላም\n".encode()}
MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.bz2": "w:bz2", ".tar.xz": "w:xz"}


def write_archive(path: Path, members: dict[str, bytes]) -> Path:
    if path.suffix != ".zip":
        return write_tar(path, members, MODES["".join(path.suffixes)])
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name, (2024, 5, 6, 7, 8, 10)), content, zipfile.ZIP_DEFLATED)
    return path


def fleurs(folder: Path, *splits: str) -> Path:
    for number, split in enumerate(splits):
        row = ["7", f"{number}.wav", "ሰላም ለዓለም።", "ሰላም ለዓለም", "|", "1", "MALE"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{split}.tsv").write_text("\t".join(row) + "\n", encoding="utf-8")
        content = {f"{split}/{number}.wav": tone_bytes(200 + 10 * number, kind="WAV")}
        write_tar(folder / f"audio/{split}.tar.gz", content)
    return folder


def refused(path: Path, match: str, **flags: object) -> None:
    """Check that an archive is refused by name in one line, and leaves nothing behind."""
    out = path.parent / "w/out"
    with pytest.raises(UserError, match=match) as caught:
        run_import(path, out, speaker="s", **flags)
    assert str(caught.value).startswith(f"{path}")
    assert "\n" not in str(caught.value)
    assert [file.name for file in out.parent.rglob("*") if file.is_file()] == [".import.lock"]


@pytest.mark.parametrize("suffix", [".zip", *MODES])
def test_an_archive_is_imported_and_leaves_nothing_else(tmp_path, suffix):
    other = {"set/page.html": b"<script>", "set/.x.csv": b"1", "__MACOSX/set/._a.wav": b"x"}
    path = write_archive(tmp_path / f"set{suffix}", MEMBERS | other)
    run_import(path, tmp_path / "out", speaker="s")
    (line,) = manifest_lines(tmp_path / "out")
    assert (line["id"], line["text"]) == ("a", "ሰላም")
    before = snapshot(tmp_path / "out")
    names = [".import.lock", "answers.json", "audio/a.wav", "imported.jsonl", "manifest.jsonl"]
    assert sorted(before) == names
    assert run_import(path, tmp_path / "out").num_unchanged == 1
    assert snapshot(tmp_path / "out") == before


@pytest.mark.parametrize("name", ["/etc/a.wav", "../a.wav", "set/../../a.wav", "..\\..\\a.wav", "C:\\a.wav"])
@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_names_outside_the_folder_are_refused_and_nothing_is_written(tmp_path, suffix, name):
    refused(write_archive(tmp_path / f"set{suffix}", MEMBERS | {name: b"x"}), "set")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, "zip"])
def test_links_and_special_files_are_refused(tmp_path, kind):
    path = write_archive(tmp_path / ("set.zip" if kind == "zip" else "set.tar"), MEMBERS)
    if kind == "zip":
        link = zipfile.ZipInfo("set/wavs/b.wav")
        link.create_system = 3
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        with zipfile.ZipFile(path, "a") as file:
            file.writestr(link, "/etc/passwd")
    else:
        with tarfile.open(path, "a") as tar:
            member = tarfile.TarInfo("set/wavs/b.wav")
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    refused(path, r"set/wavs/b\.wav")


@pytest.mark.parametrize(("suffix", "name"), [(".zip", "a.wav"), (".tar.gz", "a.wav"), (".tar.gz", "a.bin")])
def test_a_bomb_is_refused_by_its_unpacked_bytes(tmp_path, monkeypatch, suffix, name):
    monkeypatch.setattr(archive, "MIN_BOMB_BYTES", 2**20)
    path = write_archive(tmp_path / f"set{suffix}", {name: bytes(30 * 2**20), "a.txt": b"x"})
    assert path.stat().st_size < 40_000
    refused(path, r"50 GB \(--max-unpacked-gb\).* 100 times")
    if suffix == ".zip":  # the same bomb with a small size in its directory
        content = path.read_bytes()
        entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"PK\x01\x02"))
        lied = content[: entry + 24] + struct.pack("<I", 1000) + content[entry + 28 :]
        path.write_bytes(lied[:22] + struct.pack("<I", 1000) + lied[26:])
        refused(path, "set")


@pytest.mark.parametrize("suffix", [".zip", ".tgz"])
def test_the_total_and_the_number_of_files_are_limited(tmp_path, monkeypatch, suffix):
    path = write_archive(tmp_path / f"set{suffix}", MEMBERS)
    refused(path, "max-unpacked-gb", max_unpacked_gb=1e-6)
    monkeypatch.setattr(archive, "MAX_FILES", 1)
    refused(path, "2 files.* 1;")


@pytest.mark.parametrize(
    ("suffix", "share"), [(".tar", 0.3), (".tar", 0.9), (".tar.gz", 0.0), (".tar.gz", 0.5)]
)
def test_a_truncated_tar_archive_is_an_error_at_any_length(tmp_path, suffix, share):
    path = write_archive(tmp_path / f"set{suffix}", MEMBERS)
    with tarfile.open(path) as file:
        end = file.getmembers()[-1].offset_data + 512
    content = path.read_bytes()[: end if suffix == ".tar" else None]
    path.write_bytes(content[: int(share * len(content))])
    refused(path, "set")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", "a member", "a name that is no UTF-8"])
def test_a_corrupt_zip_archive_is_an_error_with_its_name(tmp_path, content):
    path = write_archive(tmp_path / "set.zip", MEMBERS | {"ሰ.wav": b"x"})
    valid = path.read_bytes()
    if content == "a member":
        content = valid[:200] + bytes(60) + valid[260:]
    elif isinstance(content, str):
        content = valid.replace("ሰ".encode(), b"\xff\xfe\xfd")
    path.write_bytes(content)
    refused(path, "set")


def test_names_in_any_encoding_are_decoded(tmp_path):
    tone = tone_bytes(kind="WAV")
    members = {"ሰላም.wav": tone, "ሰላም.txt": "ሀ".encode(), "zz.wav": tone, "zz.txt": b"a"}
    path = write_archive(tmp_path / "set.zip", members)
    unsaid = path.read_bytes().replace(b"zz.", b"z\x82.")  # in cp437; the others in UTF-8 without the flag
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = 0
        while (start := unsaid.find(mark, start)) >= 0:
            unsaid = unsaid[: start + offset + 1] + b"\0" + unsaid[start + offset + 2 :]
            start += 4
    path.write_bytes(unsaid)
    run_import(path, tmp_path / "out", speaker="s")
    assert {line["id"]: line["text"] for line in manifest_lines(tmp_path / "out")} == {"zé": "a", "ሰላም": "ሀ"}


def test_nested_archives_are_skipped_with_a_warning(tmp_path, caplog):
    inner = write_archive(tmp_path / "inner.zip", {"b.wav": b"x"}).read_bytes()
    path = write_archive(tmp_path / "set.zip", MEMBERS | {"set/inner.zip": inner})
    assert run_import(path, tmp_path / "out", speaker="s").num_utterances == 1
    assert "set/inner.zip" in caplog.text


@pytest.mark.parametrize("changed", ["nan", "-inf", "1e20", "-1", "1700000000.5"])
def test_any_modification_time_is_read(tmp_path, changed):
    with tarfile.open(tmp_path / "set.tar", "w", format=tarfile.PAX_FORMAT) as file:
        for name, content in MEMBERS.items():
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = len(content), {"mtime": changed}
            file.addfile(member, io.BytesIO(content))
    assert run_import(tmp_path / "set.tar", tmp_path / "out", speaker="s").num_added == 1
    assert run_import(tmp_path / "set.tar", tmp_path / "out", speaker="s").num_unchanged == 1


# --- within a source ------------------------------------------------------------------------------------


def test_archives_are_not_unpacked_if_all_recordings_are_there(tmp_path):
    source = fleurs(tmp_path / "am_et", "train")
    shutil.unpack_archive(source / "audio/train.tar.gz", source / "audio", filter="data")
    (source / "audio/train.tar.gz").write_bytes(b"never read")
    assert run_import(source, tmp_path / "out", speaker="s").num_utterances == 1


def test_a_corrupt_archive_in_a_folder_is_an_error_with_its_name(tmp_path):
    source = fleurs(tmp_path / "am_et", "train", "dev")
    (source / "audio/train.tar.gz").write_bytes((source / "audio/train.tar.gz").read_bytes()[:-50])
    with pytest.raises(UserError, match=r"audio/train\.tar\.gz: corrupt"):
        run_import(source, tmp_path / "out", speaker="s")
    assert not [*(tmp_path / "out").rglob(".unpacked*"), *(tmp_path / "out").rglob(".part*")]


def test_recordings_in_no_folder_of_an_archive_get_one_of_its_name(tmp_path):
    source = fleurs(tmp_path / "in", "train", "dev")
    for number, split in enumerate(("train", "dev")):
        write_tar(source / f"audio/{split}.tar.gz", {"x.wav": tone_bytes(200 + 50 * number, kind="WAV")})
        table = (source / f"{split}.tsv").read_text(encoding="utf-8").replace(f"{number}.wav", "x.wav")
        (source / f"{split}.tsv").write_text(table, encoding="utf-8")
    run_import(source, tmp_path / "out", speaker="s")
    lines = manifest_lines(tmp_path / "out")
    assert [line["id"] for line in lines] == ["x", "dev_x"]
    contents = [(tmp_path / "out" / line["audio"]).read_bytes() for line in lines]
    assert contents == [tone_bytes(200, kind="WAV"), tone_bytes(250, kind="WAV")]


def test_an_unusable_recording_of_an_archive_is_listed_with_its_place_in_the_source(tmp_path):
    source = fleurs(tmp_path / "am_et", "train", "dev")
    write_tar(source / "audio/dev.tar.gz", {"dev/1.wav": b"no audio"})
    run_import(source, tmp_path / "out", speaker="s")
    assert rejected(tmp_path / "out") == [("audio/dev/1.wav", None, "unreadable_audio")]
