"""Tests of indextts/features/published_files.py: what a folder still lacks."""

from pathlib import Path

from indextts.commands.bases import BASES, PublishedFile
from indextts.features.published_files import Remote, files_of, find_published, missing_bytes, write_record

BASE = BASES["2.0"]
FILES = files_of(BASE)
[GPT] = [file for file in FILES if file.place == "gpt.pth"]
[BPE] = [file for file in FILES if file.place == "bpe.model"]
TOTAL = sum(file.num_bytes for file in FILES)


def remote(file: PublishedFile, num_bytes: int) -> Remote:
    return Remote(
        repository=file.repository, name=file.name, commit="c" * 40, num_bytes=num_bytes, etag="e" * 64
    )


def test_an_empty_folder_lacks_all_files_and_a_full_one_nothing(tmp_path: Path):
    assert missing_bytes(tmp_path, BASE) == missing_bytes(tmp_path / "absent", BASE) == TOTAL > 7e9
    for file in FILES:
        (tmp_path / file.place).parent.mkdir(exist_ok=True)
        (tmp_path / file.place).touch()
    assert missing_bytes(tmp_path, BASE) == 0


def test_the_sizes_on_the_hub_replace_the_approximate_ones(tmp_path: Path):
    write_record(tmp_path, {GPT.place: remote(GPT, 1_000), BPE.place: remote(BPE, 70)})
    assert missing_bytes(tmp_path, BASE) == TOTAL - GPT.num_bytes + 1_070
    (tmp_path / GPT.place).write_bytes(b"x")
    assert missing_bytes(tmp_path, BASE) == TOTAL - GPT.num_bytes + 70


def test_a_file_is_found_in_the_cache_of_an_official_installation(tmp_path: Path):
    in_cache = [file for file in FILES if file.official]
    assert len(in_cache) == 7
    for file in in_cache:
        path, official = tmp_path / file.place, tmp_path / file.official
        assert find_published(path) == path
        official.parent.mkdir(parents=True, exist_ok=True)
        official.touch()
        assert find_published(path) == official
        path.parent.mkdir(exist_ok=True)
        path.touch()
        assert find_published(path) == path
    assert find_published(Path("gpt.pth")) == Path("gpt.pth")
