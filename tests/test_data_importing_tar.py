"""Tests of tar archives as sources and within sources: unpacked with the limits of zip archives."""

import gzip
import io
import shutil
import tarfile
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
    write_tone,
)

MEMBERS = {"set/wavs/a.wav": tone_bytes(kind="WAV"), "set/metadata.csv": "a|ሰላም\n".encode()}


def fleurs(folder: Path, *splits: str) -> Path:
    for number, split in enumerate(splits):
        row = ["7", f"{number}.wav", "ሰላም ለዓለም።", "ሰላም ለዓለም", "|", "1", "MALE"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{split}.tsv").write_text("\t".join(row) + "\n", encoding="utf-8")
        content = {f"{split}/{number}.wav": tone_bytes(200 + 10 * number, kind="WAV")}
        write_tar(folder / f"audio/{split}.tar.gz", content)
    return folder


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.name.startswith((".unpacked", ".part")))


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"])
def test_a_tar_archive_is_imported_and_leaves_nothing_else(tmp_path, suffix):
    mode = {".tar": "w", ".tgz": "w:gz"}.get(suffix, f"w:{suffix.rpartition('.')[2]}")
    path = write_tar(tmp_path / f"set{suffix}", MEMBERS | {"set/page.html": b"x", "set/._a.wav": b"x"}, mode)
    run_import(path, tmp_path / "out", speaker="s")
    (line,) = manifest_lines(tmp_path / "out")
    assert (line["id"], line["text"]) == ("a", "ሰላም")
    before = snapshot(tmp_path / "out")
    assert run_import(path, tmp_path / "out").num_unchanged == 1
    assert snapshot(tmp_path / "out") == before
    assert not left_over(tmp_path / "out")


@pytest.mark.parametrize("name", ["/etc/a.wav", "../a.wav", "set/../../a.wav", "..\\a.wav", "C:/a.wav"])
def test_names_outside_the_folder_are_refused(tmp_path, name):
    path = write_tar(tmp_path / "set.tar.gz", MEMBERS | {name: b"x"})
    with pytest.raises(UserError, match=r"set\.tar\.gz: "):
        run_import(path, tmp_path / "w/out", speaker="s")
    assert [file.name for file in (tmp_path / "w").rglob("*") if file.is_file()] == [".import.lock"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_special_files_are_refused(tmp_path, kind):
    path = write_tar(tmp_path / "set.tar", MEMBERS, "w")
    with tarfile.open(path, "a") as file:
        member = tarfile.TarInfo("set/wavs/b.wav")
        member.type, member.linkname = kind, "/etc/passwd"
        file.addfile(member)
    with pytest.raises(UserError, match=r"set\.tar: 'set/wavs/b\.wav' is a link"):
        run_import(path, tmp_path / "out", speaker="s")


@pytest.mark.parametrize("name", ["a.wav", "skipped.bin"])
def test_a_bomb_is_refused_by_its_unpacked_bytes(tmp_path, monkeypatch, name):
    monkeypatch.setattr(archive, "MIN_BOMB_BYTES", 2**20)
    path = write_tar(tmp_path / "set.tar.gz", {name: bytes(30 * 2**20), "a.txt": b"x"})
    assert path.stat().st_size < 40_000
    with pytest.raises(UserError, match=r"50 GB \(--max-unpacked-gb\).* 100 times"):
        run_import(path, tmp_path / "out", speaker="s")
    assert not left_over(tmp_path / "out")


def test_a_huge_header_is_refused(tmp_path):
    """A name in a header of its own is read into memory at once."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as file:
        file.addfile(tarfile.TarInfo("x" * (3 * 2**20) + ".wav"))
    (tmp_path / "set.tar.gz").write_bytes(gzip.compress(stream.getvalue()))
    with pytest.raises(UserError, match=r"set\.tar\.gz: corrupt"):
        run_import(tmp_path / "set.tar.gz", tmp_path / "out", speaker="s")


def test_the_total_and_the_number_of_files_are_limited(tmp_path, monkeypatch):
    path = write_tar(tmp_path / "set.tgz", MEMBERS)
    with pytest.raises(UserError, match="max-unpacked-gb"):
        run_import(path, tmp_path / "out", speaker="s", max_unpacked_gb=1e-6)
    monkeypatch.setattr(archive, "MAX_FILES", 1)
    with pytest.raises(UserError, match=r"set\.tgz: 2 files.* 1;"):
        run_import(path, tmp_path / "out", speaker="s")


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9])
def test_a_truncated_archive_is_an_error_at_any_length(tmp_path, suffix, share):
    path = write_tar(tmp_path / f"set{suffix}", MEMBERS, "w" if suffix == ".tar" else "w:gz")
    with tarfile.open(path) as file:
        end = file.getmembers()[-1].offset_data + 512
    content = path.read_bytes()[: end if suffix == ".tar" else None]
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(UserError, match=r"set\.tar"):
        run_import(path, tmp_path / "out", speaker="s")


def test_members_of_multiples_of_a_block_are_read_forwards(tmp_path):
    """Before each header, tarfile goes one byte back, at the end of a member without padding."""
    content = tone_bytes(kind="WAV")
    padded = content + bytes(-len(content) % 512)
    members = {f"set/{number}.wav": padded for number in range(50)}
    members |= {f"set/{number}.txt": b"\xe1\x88\x80" * 512 for number in range(50)}
    path = write_tar(tmp_path / "set.tar.gz", members)
    assert run_import(path, tmp_path / "out", speaker="s").num_utterances == 50


@pytest.mark.parametrize("changed", ["nan", "inf", "-inf", "1e20", "-1e20", "-1", "1700000000.5"])
def test_any_modification_time_is_read(tmp_path, changed):
    with tarfile.open(tmp_path / "set.tar", "w", format=tarfile.PAX_FORMAT) as file:
        for name, content in MEMBERS.items():
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = len(content), {"mtime": changed}
            file.addfile(member, io.BytesIO(content))
    assert run_import(tmp_path / "set.tar", tmp_path / "out", speaker="s").num_added == 1
    assert run_import(tmp_path / "set.tar", tmp_path / "out", speaker="s").num_unchanged == 1


def test_archives_in_a_folder_are_unpacked_for_its_tables_and_change_nothing_twice(tmp_path):
    source = fleurs(tmp_path / "am_et", "train", "dev")
    files = snapshot(source)
    run_import(source, tmp_path / "out", speaker="s")
    assert [line["id"] for line in manifest_lines(tmp_path / "out")] == ["0", "1"]
    before = snapshot(tmp_path / "out")
    assert run_import(source, tmp_path / "out").num_unchanged == 2
    assert snapshot(tmp_path / "out") == before
    assert snapshot(source) == files
    assert not left_over(tmp_path / "out")
    result = run_import(source, tmp_path / "limited", speaker="s", audio_root=[source])
    assert result.num_utterances == 2


def test_archives_are_not_unpacked_if_all_recordings_are_there(tmp_path):
    source = fleurs(tmp_path / "am_et", "train")
    shutil.unpack_archive(source / "audio/train.tar.gz", source / "audio", filter="data")
    (source / "audio/train.tar.gz").write_bytes(b"never read")
    assert run_import(source, tmp_path / "out", speaker="s").num_utterances == 1


def test_a_corrupt_archive_in_a_folder_is_an_error_with_its_name(tmp_path):
    source = fleurs(tmp_path / "am_et", "train", "dev")
    (source / "audio/train.tar.gz").write_bytes((source / "audio/train.tar.gz").read_bytes()[:-50])
    with pytest.raises(UserError, match=r"audio/train\.tar\.gz: corrupt") as caught:
        run_import(source, tmp_path / "out", speaker="s")
    assert "\n" not in str(caught.value)
    assert not left_over(tmp_path / "out")


def test_recordings_in_no_folder_of_an_archive_get_one_of_its_name(tmp_path):
    source = tmp_path / "in"
    for number, split in enumerate(("train", "dev")):
        row = ["7", "x.wav", "ሰላም ለዓለም።", "ሰላም ለዓለም", "|", "1", "MALE"]
        write_tar(source / f"audio/{split}.tar.gz", {"x.wav": tone_bytes(200 + 50 * number, kind="WAV")})
        (source / f"{split}.tsv").write_text("\t".join(row) + "\n", encoding="utf-8")
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


def test_an_archive_beside_a_single_file_is_left_alone(tmp_path):
    write_tone(tmp_path / "in/a.wav")
    (tmp_path / "in/list.csv").write_text("path,text\na.wav,ሰላም\nb.wav,ሰላም\n", encoding="utf-8")
    (tmp_path / "in/other.tar.gz").write_bytes(b"never read")
    run_import(tmp_path / "in/list.csv", tmp_path / "out", speaker="s")
    assert rejected(tmp_path / "out") == [("list.csv", 3, "missing_audio")]
