"""Tests of the import from the Hugging Face hub, with a local hub and the real library."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from indextts.commands.data import ImportDataset
from indextts.data.importing.hub import card_block, dataset_folder, download_dataset, parquet_hours
from indextts.data.importing.hub_choice import choose
from indextts.data.sources import DataSource, read_sources, write_source
from indextts.errors import FOLDER_IN_USE, UserError
from indextts.system.disk import locked_folder
from tests.conftest import REPOSITORY
from tests.hub_server import COMMIT, Hub, hub_env, hub_files, repository
from tests.import_sources import (
    manifest_lines,
    rejected,
    run_import,
    tone_bytes,
    write_parquet,
    write_tar,
    write_tone,
)
from tests.waiting import PATIENCE_S, wait_until

NAME = "almaz/voices"
TABLE = "train/metadata.csv"
NEXT_COMMIT = "fedcba9876543210fedcba9876543210fedcba98"
CARD = """---
language: [am]
license: cc-by-4.0
---
# Voices

```bibtex
@misc{voices, title={Voices}, year={2026}}
```
"""
WAXAL_CARD = """---
license:
- cc-by-sa-4.0
- cc-by-4.0
configs:
- config_name: ach_asr
  data_files:
  - split: train
    path: data/ASR/ach/ach-train-*
- config_name: amh_asr
  data_files:
  - split: train
    path: data/ASR/amh/amh-train-*
  - split: validation
    path: [data/ASR/amh/amh-validation-*]
  - split: unlabeled
    path: data/ASR/amh/amh-unlabeled-*
---
"""


def shard(folder: Path, num_rows: int, duration_s: float, *, first: int = 0) -> bytes:
    """Return a parquet file like WAXAL's."""
    numbers = range(first, first + num_rows)
    sounds = [tone_bytes(200 + number, duration_s, "WAV") for number in numbers]
    columns = {
        "id": [f"{number}" for number in numbers],
        "transcription": [f"ሰላም {number}" for number in numbers],
        "audio": [{"bytes": sound, "path": f"{n}.wav"} for n, sound in zip(numbers, sounds, strict=True)],
    }
    return write_parquet(folder / "shard.parquet", columns).read_bytes()


def audiofolder(num_clips: int = 4) -> dict[str, bytes]:
    rows = ["file_name,transcription,speaker_id"]
    rows += [f"{number}.wav,ሰላም {number},almaz" for number in range(num_clips)]
    table = {TABLE: "\n".join(rows).encode(), "README.md": CARD.encode(), ".gitattributes": b"x"}
    sounds = {f"train/{number}.wav": tone_bytes(200 + 10 * number, 0.5, "WAV") for number in range(num_clips)}
    return table | sounds


class Project:
    """Project folder whose imports ask the local hub."""

    def __init__(self, folder: Path, hub: Hub) -> None:
        self.hub = hub
        self.output = folder / "my_voice/dataset"

    def publish(self, files: dict[str, bytes], name: str = NAME, **options: Any) -> None:
        self.hub.repositories[f"datasets/{name}"] = repository(files, **options)

    def run(self, name: str = NAME, **flags: Any) -> list[str]:
        """Import, and return the texts of the manifest."""
        run_import([], self.output, hub=name, **flags)
        return sorted(line["text"] for line in manifest_lines(self.output))

    def download(self, name: str = NAME, **flags: Any) -> DataSource:
        """Download without importing: for layouts that need more than the files."""
        return download_dataset(ImportDataset(output_dir=self.output, hub=name, **flags))[1]

    def folder(self, name: str = NAME, subset: str = "") -> Path:
        return dataset_folder(self.output, name, subset)

    def content(self, name: str = NAME, subset: str = "") -> dict[str, bytes]:
        """Return the downloaded files of a data set, without hidden ones."""
        folder = self.folder(name, subset)
        paths = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def project(tmp_path: Path, hub: Hub) -> Project:
    return Project(tmp_path, hub)


def test_an_audiofolder_is_downloaded_once_and_imported(project: Project):
    files = audiofolder()
    project.publish(files)
    texts = [f"ሰላም {number}" for number in range(4)]
    assert project.run() == texts
    del files[".gitattributes"]
    assert project.content() == files
    assert {line["speaker"] for line in manifest_lines(project.output)} == {"almaz"}
    [(source, origin)] = read_sources(project.output).items()
    assert source == "hub/almaz--voices"
    assert (origin.name, origin.licence, origin.revision) == (NAME, "cc-by-4.0", COMMIT)
    assert origin.url == f"{project.hub.url}/datasets/{NAME}"
    assert origin.citation.startswith("@misc{voices,")
    assert project.hub.names() == sorted(files)
    project.hub.requests.clear()
    assert project.run(hub_split=["train"]) == texts
    assert project.hub.names() == []
    assert read_sources(project.output)[source].splits == ("train",)


def test_parquet_shards_and_archives_of_the_hub_are_imported(project: Project, tmp_path: Path):
    shards = {
        f"data/ASR/amh/amh-train-{number:05d}.parquet": shard(tmp_path, 2, 0.9, first=2 * number)
        for number in range(3)
    }
    waxal = "google/WaxalNLP"
    project.publish({"README.md": WAXAL_CARD.encode(), **shards}, waxal)
    flags = {"hub_subset": "amh_asr", "hub_split": ["train"], "speaker": "almaz"}
    project.run(waxal, **flags, max_hours=3 / 3600)  # two shards of 1.8 s
    assert len(project.content(waxal, "amh_asr")) == 3  # the card and two shards
    texts = [f"ሰላም {number}" for number in range(6)]
    assert project.run(waxal, **flags) == texts
    assert len(project.hub.fetched("data/ASR/amh/amh-train-00000.parquet")) == 1
    rows = "".join(f"{n}\t{n}.wav\tአዲስ {n}\tአዲስ {n}\tx\t12000\tMALE\n" for n in range(2))
    sounds = {f"train/{n}.wav": tone_bytes(500 + n, 0.5, "WAV") for n in range(2)}
    archive = write_tar(tmp_path / "train.tar.gz", sounds).read_bytes()
    files = {"data/am_et/train.tsv": rows.encode(), "data/am_et/audio/train.tar.gz": archive}
    unwanted = {"fleurs.py": b"import this", "data/am_et/dev.tsv": b"x", "data/fr_fr/train.tsv": b"x"}
    project.publish(files | unwanted, "google/fleurs")
    found = project.run("google/fleurs", hub_subset="am_et", hub_split=["train"], speaker_from="file")
    assert found == [*texts, "አዲስ 0", "አዲስ 1"]
    assert project.content("google/fleurs", "am_et") == files
    sources = {"hub/google--WaxalNLP--amh_asr", "hub/google--fleurs--am_et"}
    assert read_sources(project.output).keys() == sources
    assert read_sources(project.output)["hub/google--fleurs--am_et"].licence == ""


@pytest.mark.parametrize("is_from_hub", [True, False])
def test_downloaded_tables_name_no_recordings_outside_their_folder(
    project: Project, tmp_path: Path, is_from_hub: bool
):
    for place in ("secret.wav", "elsewhere/secret.wav"):
        write_tone(project.output.parent / place)
    names = ["0.wav", str(project.output.parent / "secret.wav"), "../../elsewhere/secret.wav"]
    table = "\n".join(["file_name,transcription", *(f"{name},ሰላም {n}" for n, name in enumerate(names))])
    files = {"0.wav": tone_bytes(300, 0.5, "WAV"), "metadata.csv": table.encode()}
    if is_from_hub:
        project.publish(files)
        project.run(speaker="s")
    else:  # videos
        downloads = project.output.parent / "downloads"
        downloads.mkdir()
        for name, content in files.items():
            (downloads / name).write_bytes(content)
        run_import(downloads, project.output, speaker="s")
    assert [line["text"] for line in manifest_lines(project.output)] == ["ሰላም 0"]
    assert [code for *_, code in rejected(project.output)] == ["outside", "outside"]


def names_of(names: list[str], subset: str = "", *splits: str, card: str = "") -> tuple[str, ...]:
    return choose(names, card_block(card, Path("x")), subset, splits, "--hub x/y").names


WAXAL = [
    f"data/ASR/{name[:3]}/{name}-00000.parquet"
    for name in ("ach-train", "amh-train", "amh-unlabeled", "amh-validation")
]
FLEURS = [f"data/{p}/{n}" for p in ("am_et", "fr_fr") for n in ("train.tsv", "audio/train.tar.gz", "dev.tsv")]
CONVERTED = ["am_et/fleurs-train-00000-of-00002.parquet", "am_et/fleurs-train-00001-of-00002.parquet"]
CONVERTED += ["am_et/fleurs-validation.parquet", "fr_fr/fleurs-test.parquet"]
COMMON_VOICE = ["clips/a.mp3", "clips/b.mp3", "dev.tsv", "train.tsv", "validated.tsv"]
TALKS = """---
configs:
- config_name: talks
  data_dir: talks
- config_name: news
  data_files: news/**
---
"""
TABLES = "---\nconfigs:\n- data_files:\n  - split: train\n    path: am/train.csv\n---\n"


@pytest.mark.parametrize(
    ("names", "subset", "splits", "card", "expected"),
    [
        (["data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"], "", ["test"], "", [1]),
        (["default/train/0000.parquet", "default/test/0000.parquet"], "", ["train"], "", [0]),
        (CONVERTED, "am_et", ["train"], "", [0, 1]),
        (CONVERTED, "am_et", ["dev"], "", [2]),
        (FLEURS, "am_et", ["train"], "", [0, 1]),
        (["amh-train-00000.parquet", "amh-unlabeled-00000.parquet"], "", ["unlabeled"], "", [1]),
        (COMMON_VOICE, "", ["train"], "", [3, 0, 1]),
        (["metadata.csv", "train/a.wav", "test/b.wav"], "", ["test"], "", [0, 2]),
        (["almaz/1.txt", "almaz/1.wav", "bekele/2.wav"], "", [], "", [0, 1, 2]),
        (["am/a.csv", "am/wavs/1.wav", "ti/a.csv", "info.json"], "am", [], "", [0, 3, 1]),
        (["talks/train.csv", "talks/1.wav", "news/1.csv", "news/x/2.wav"], "talks", [], TALKS, [0, 1]),
        (["talks/train.csv", "talks/1.wav", "news/1.csv", "news/x/2.wav"], "news", [], TALKS, [2, 3]),
        (WAXAL, "amh_asr", ["train", "dev"], WAXAL_CARD, [1, 3]),
        (["am/train.csv", "am/audio/train.zip", "am/audio/test.zip", "ti/a.wav"], "", [], TABLES, [0, 1]),
        (["README.md", "a.png", ".hidden/a.wav", "dataset_infos.json", "a.wav", "a.txt"], "", [], "", [5, 4]),
    ],
)
def test_the_files_of_a_choice(
    names: list[str], subset: str, splits: list[str], card: str, expected: list[int]
):
    assert names_of(names, subset, *splits, card=card) == tuple(names[number] for number in expected)


@pytest.mark.parametrize(
    ("subset", "split", "listed"),
    [
        ("", [], "ach_asr, amh_asr"),
        ("amh", [], "ach_asr, amh_asr"),
        ("amh_asr", ["test"], "train, unlabeled, validation"),
    ],
)
def test_the_error_lists_subsets_or_splits(subset: str, split: list[str], listed: str):
    with pytest.raises(UserError, match=listed):
        names_of(WAXAL, subset, *split, card=WAXAL_CARD)


def test_a_data_set_with_a_script_only_is_taken_from_its_conversion(project: Project, tmp_path: Path):
    project.publish({"scripted.py": b"import this\n", "README.md": CARD.encode()})
    with pytest.raises(UserError, match=r"scripted\.py"):
        project.download()
    converted = {"default/train/0000.parquet": shard(tmp_path, 1, 0.1)}
    known = project.hub.repositories[f"datasets/{NAME}"]
    known.commits[NEXT_COMMIT] = hub_files(converted)
    known.branches["refs/convert/parquet"] = NEXT_COMMIT
    assert project.download().revision == NEXT_COMMIT
    assert project.content() == converted | {"README.md": CARD.encode()}


def test_a_revision_stays_when_the_data_set_changes(project: Project):
    project.publish(audiofolder())
    known = project.hub.repositories[f"datasets/{NAME}"]
    known.commits[NEXT_COMMIT] = hub_files({"README.md": CARD.encode()})
    known.branches |= {"main": NEXT_COMMIT, "v1": COMMIT}
    for revision in ("v1", COMMIT):
        assert len(project.run(hub_revision=revision)) == 4
        assert read_sources(project.output)["hub/almaz--voices"].revision == COMMIT
    with pytest.raises(UserError, match="--hub-revision v2"):
        project.run(hub_revision="v2")


def test_a_killed_download_resumes_within_the_file_and_takes_what_changed(project: Project, tmp_path: Path):
    files = audiofolder()
    files["train/1.wav"] += random.Random(0).randbytes(3 << 20)  # after the samples
    project.publish(files)
    known = project.hub.repositories[f"datasets/{NAME}"]
    held = known.commits[COMMIT]["train/1.wav"]
    held.hold_after = 2 << 20
    argv = [sys.executable, ImportDataset.program, f"--output-dir={project.output}", f"--hub={NAME}"]
    env = {**os.environ, **hub_env(project.hub.url, tmp_path)}
    process = subprocess.Popen(argv, cwd=REPOSITORY, env=env, stdout=subprocess.DEVNULL)
    assert held.held.wait(PATIENCE_S)
    partials = lambda: project.folder().rglob(".tmp-1.wav.*")  # noqa: E731
    wait_until(lambda: any(partial.stat().st_size >= 1 << 20 for partial in partials()))
    process.send_signal(signal.SIGKILL)
    process.wait()
    held.hold_after = 0
    changed = files | {"train/2.wav": tone_bytes(900, 0.5, "WAV")}
    del changed["train/3.wav"]
    known.commits[NEXT_COMMIT] = hub_files(changed)
    known.branches["main"] = NEXT_COMMIT
    project.run()
    assert project.content() == {k: v for k, v in changed.items() if k != ".gitattributes"}
    assert read_sources(project.output)["hub/almaz--voices"].revision == NEXT_COMMIT
    _, range_ = project.hub.fetched("train/1.wav")
    assert int(range_.removeprefix("bytes=").removesuffix("-")) >= 1 << 20
    assert project.hub.fetched("train/0.wav") == project.hub.fetched(TABLE) == [""]
    known.commits["e" * 40] = hub_files(
        {name: each for name, each in changed.items() if name != "train/2.wav"}
    )
    known.branches["main"] = "e" * 40
    project.hub.requests.clear()
    project.run()
    assert (project.hub.names(), "train/2.wav" in project.content()) == ([], False)


def test_without_the_hub_the_error_names_the_folder_of_an_earlier_download(project: Project, monkeypatch):
    project.publish(audiofolder())
    project.download()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=f"HF_HUB_OFFLINE.*--source {project.folder()} "):
        project.run()
    with pytest.raises(UserError, match=r"almaz/others.*same command resumes$"):
        project.run("almaz/others")
    run_import(project.folder(), project.output)
    assert len(manifest_lines(project.output)) == 4


@pytest.mark.parametrize(
    "name", ["absent", "../almaz/voices", "https://huggingface.co/datasets/a/b", "a/b/c", "a/b--c", "a/.."]
)
def test_a_wrong_name_is_refused_before_any_request(tmp_path: Path, name: str):
    with pytest.raises(UserError, match="OWNER/NAME"):
        run_import([], tmp_path / "p/dataset", hub=name)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_downloaded_is_refused(project: Project, tmp_path: Path):
    with pytest.raises(UserError, match="almaz/absent"):
        project.run("almaz/absent")
    project.publish(audiofolder(), is_gated=True)
    with pytest.raises(UserError, match=r"gated.*/datasets/almaz/voices"):
        project.run()
    project.publish(audiofolder() | {"../../escaped.csv": b"x"})
    with pytest.raises(UserError, match=r"escaped\.csv"):
        project.run()
    assert not list(tmp_path.rglob("escaped.csv"))
    with pytest.raises(UserError, match="--hub"):
        run_import([], tmp_path / "out", hub_subset="amh_asr")
    lock = project.folder() / ".downloads.lock"
    with locked_folder(lock, in_use=""), pytest.raises(UserError) as caught:
        project.run()
    assert caught.value.exit_status == FOLDER_IN_USE
    assert str(project.folder()) in str(caught.value)


def test_a_broken_card_is_ignored():
    assert card_block("---\n{\n---\n", Path("x")) == {}
    assert card_block("---\n- a\n---\n", Path("x")) == {}
    assert card_block("no block", Path("x")) == {}
    assert card_block(CARD, Path("x"))["license"] == "cc-by-4.0"


def test_a_parquet_file_without_readable_recordings_has_no_hours(tmp_path: Path):
    path = write_parquet(tmp_path / "a.parquet", {"text": ["a"], "duration": [900_000]})
    assert parquet_hours(path) == 0
    path = write_parquet(tmp_path / "a.parquet", {"audio": [{"bytes": b"x", "path": "a.wav"}]})
    assert parquet_hours(path) == 0
    path.write_bytes(b"no parquet")
    assert parquet_hours(path) == 0


def test_sources_of_other_imports_stay(tmp_path: Path):
    other = DataSource(name="a/b", url="https://hub/a/b", licence="cc0-1.0")
    write_source(tmp_path, "hub/a--b", other)
    mine = DataSource(name="c/d", url="https://hub/c/d", licence="other", licence_name="Own", citation="@x{}")
    write_source(tmp_path, "hub/c--d", mine)
    write_source(tmp_path, "hub/c--d", mine.model_copy(update={"revision": "e"}))
    assert read_sources(tmp_path) == {
        "hub/a--b": other,
        "hub/c--d": mine.model_copy(update={"revision": "e"}),
    }
    assert "Own" in mine.shown_licence
    (tmp_path / "sources.json").write_text("{")
    with pytest.raises(UserError, match=r"sources\.json"):
        read_sources(tmp_path)


def test_splits_of_earlier_imports_are_named_too(project: Project, tmp_path: Path):
    files = {f"data/{split}-00000-of-00001.parquet": shard(tmp_path, 2, 0.1) for split in ("train", "test")}
    project.publish(files)
    for split, named in (("test", ("test",)), ("train", ("train", "test"))):
        project.run(hub_split=[split], speaker="s")
        assert read_sources(project.output)["hub/almaz--voices"].splits == named
