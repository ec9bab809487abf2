"""Tests of the import from the Hugging Face hub: the real program and library with a local hub."""

import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import soundfile

from indextts.commands.data import ImportDataset
from indextts.data.importing.hub import card_block, dataset_folder, download_until, parquet_hours
from indextts.data.importing.hub_choice import choose
from indextts.data.sources import DataSource, read_sources, write_source
from indextts.errors import UserError
from tests.conftest import REPOSITORY
from tests.hub_server import COMMIT, TOKEN, Hub, dataset, hub_files, serve
from tests.import_sources import manifest_lines, rejected, run_import, write_tone
from tests.waiting import PATIENCE_S, wait_until

NEXT_COMMIT = "fedcba9876543210fedcba9876543210fedcba98"
DOWNLOAD = """
import sys
from indextts.commands.data import ImportDataset
from indextts.commands.terminal import parse, run
from indextts.data.importing.hub import download_dataset
run(lambda: print(*download_dataset(parse(ImportDataset, sys.argv[1:]))) or 0)
"""
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


def tone(pitch_hz: float, duration_s: float = 0.5, format: str = "WAV") -> bytes:
    """Return the bytes of a recording that is determined by pitch and duration."""
    file = io.BytesIO()
    samples = 0.1 * np.sin(2 * np.pi * pitch_hz * np.arange(round(duration_s * 24_000)) / 24_000)
    soundfile.write(file, samples, 24_000, format=format)
    return file.getvalue()


def parquet(rows: list[dict[str, Any]], columns: list[tuple[str, pyarrow.DataType]]) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(columns)), file)
    return file.getvalue()


def shard(num_rows: int, duration_s: float, *, first: int = 0, with_duration: bool = False) -> bytes:
    """Return a parquet file like WAXAL's."""
    audio = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    columns = [("id", pyarrow.string()), ("transcription", pyarrow.string()), ("audio", audio)]
    rows: list[dict[str, Any]] = [
        {
            "id": f"{number}",
            "transcription": f"ሰላም {number}",
            "audio": {"bytes": tone(200 + number, duration_s), "path": f"{number}.wav"},
        }
        for number in range(first, first + num_rows)
    ]
    if with_duration:
        columns.append(("duration", pyarrow.float64()))
        rows = [{**row, "duration": 1800.0 / num_rows} for row in rows]
    return parquet(rows, columns)


def audiofolder(num_clips: int = 4) -> dict[str, bytes]:
    rows = ["file_name,transcription,speaker_id"]
    rows += [f"{number}.wav,ሰላም {number},almaz" for number in range(num_clips)]
    table = {
        "train/metadata.csv": "\n".join(rows).encode(),
        "README.md": CARD.encode(),
        ".gitattributes": b"x",
    }
    return table | {f"train/{number}.wav": tone(200 + 10 * number) for number in range(num_clips)}


def archive(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


class Project:
    """Project folder whose imports ask a local hub, with a separate environment."""

    def __init__(self, folder: Path, hub: Hub) -> None:
        self.hub = hub
        self.output = folder / "my_voice/dataset"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        self.env = {
            **kept,
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(folder / "hf"),
            "PYTHONPATH": str(REPOSITORY),
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def folder(self, name: str, subset: str = "") -> Path:
        return dataset_folder(self.output, name, subset)

    def argv(self, name: str, *flags: str) -> list[str]:
        program = str(REPOSITORY / ImportDataset.program)
        return [sys.executable, program, f"--output-dir={self.output}", f"--hub={name}", *flags]

    def run(self, name: str, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.finish(self.argv(name, *flags), env)

    def download(self, name: str, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Download without importing: for layouts that need more than the files."""
        return self.finish([sys.executable, "-c", DOWNLOAD, *self.argv(name, *flags)[2:]], env)

    def finish(self, argv: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, env={**self.env, **env}, capture_output=True, text=True, timeout=PATIENCE_S
        )

    def error_line(self, name: str, *flags: str, **env: str) -> str:
        """Return the error line of an import that fails."""
        answer = self.run(name, *flags, **env)
        assert answer.returncode == 2, answer.stdout + answer.stderr
        [line] = [line for line in answer.stderr.splitlines() if line.startswith("[Error] ")]
        assert "Traceback" not in answer.stderr
        return line

    def content(self, name: str, subset: str = "") -> dict[str, bytes]:
        """Return the downloaded files of a data set, without hidden ones."""
        folder = self.folder(name, subset)
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        }


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve({}, {}) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path, hub: Hub) -> Project:
    return Project(tmp_path, hub)


def fetched(hub: Hub) -> list[str]:
    return sorted(name for method, name, *_ in hub.requests if method == "GET")


def test_an_audiofolder_is_downloaded_once_and_imported(project: Project, hub: Hub):
    files = audiofolder()
    hub.datasets["almaz/voices"] = dataset(files)
    answer = project.run("almaz/voices")
    assert answer.returncode == 0, answer.stderr
    del files[".gitattributes"]
    assert project.content("almaz/voices") == files
    lines = manifest_lines(project.output)
    assert [(line["text"], line["speaker"]) for line in lines] == [
        (f"ሰላም {number}", "almaz") for number in range(4)
    ]
    [(source, origin)] = read_sources(project.output).items()
    assert source == "hub/almaz--voices"
    assert (origin.name, origin.licence, origin.revision) == ("almaz/voices", "cc-by-4.0", COMMIT)
    assert origin.url == f"{hub.url}/datasets/almaz/voices"
    assert origin.citation.startswith("@misc{voices,")
    assert "cc-by-4.0" in answer.stdout
    assert fetched(hub) == sorted(files)
    hub.requests.clear()
    answer = project.run("almaz/voices", "--hub-split=train")
    assert answer.returncode == 0, answer.stderr
    assert fetched(hub) == []
    assert manifest_lines(project.output) == lines
    assert read_sources(project.output)[source].splits == ("train",)


def test_the_card_names_the_shards_of_a_subset_and_split(project: Project, hub: Hub):
    shards = {
        f"data/ASR/{name}.parquet": shard(2, 0.1)
        for name in (
            *("ach/ach-train-00000", "amh/amh-train-00000", "amh/amh-train-00001"),
            *("amh/amh-unlabeled-00000", "amh/amh-validation-00000"),
        )
    }
    hub.datasets["google/WaxalNLP"] = dataset({"README.md": WAXAL_CARD.encode(), **shards})
    flags = ("--hub-subset=amh_asr", "--hub-split=train", "--hub-split=dev")
    answer = project.download("google/WaxalNLP", *flags)
    assert answer.returncode == 0, answer.stderr
    expected = {name: content for name, content in shards.items() if "amh-t" in name or "amh-v" in name}
    content = project.content("google/WaxalNLP", "amh_asr")
    assert content == {"README.md": WAXAL_CARD.encode(), **expected}
    assert len(expected) == 3
    line = project.error_line("google/WaxalNLP")
    assert "ach_asr, amh_asr" in line
    line = project.error_line("google/WaxalNLP", "--hub-subset=amh")
    assert "ach_asr, amh_asr" in line
    line = project.error_line("google/WaxalNLP", "--hub-subset=amh_asr", "--hub-split=test")
    assert "train, unlabeled, validation" in line


def test_the_tables_and_archives_of_fleurs_are_downloaded_for_a_split(project: Project, hub: Hub):
    files = {"README.md": b"---\nlicense: cc-by-4.0\n---\n", "fleurs.py": b"import this\n"}
    for place in ("am_et", "fr_fr"):
        for split in ("train", "dev"):
            files[f"data/{place}/{split}.tsv"] = b"1\t1.wav\ta\tb\tc\t10\tMALE\n"
            files[f"data/{place}/audio/{split}.tar.gz"] = archive({f"{split}/1.wav": tone(200)})
    hub.datasets["google/fleurs"] = dataset(files)
    answer = project.download("google/fleurs", "--hub-subset=am_et", "--hub-split=train")
    assert answer.returncode == 0, answer.stderr
    names = {"README.md", "data/am_et/train.tsv", "data/am_et/audio/train.tar.gz"}
    assert project.content("google/fleurs", "am_et") == {name: files[name] for name in names}
    [request] = [request for request in hub.requests if request[1].endswith("train.tar.gz")]
    assert request[0] == "GET"


def test_the_clips_of_a_common_voice_are_imported(project: Project, hub: Hub):
    rows = ["client_id\tpath\tsentence", *(f"{'a' * 128}\t{n}.mp3\tሰላም {n}" for n in range(3))]
    files = {f"clips/{n}.mp3": tone(300 + n, format="MP3") for n in range(3)}
    files |= {"validated.tsv": "\n".join(rows).encode(), "train.tsv": "\n".join(rows[:2]).encode()}
    hub.datasets["almaz/cv-am"] = dataset(files)
    answer = project.run("almaz/cv-am")
    assert answer.returncode == 0, answer.stderr
    assert [line["text"] for line in manifest_lines(project.output)] == ["ሰላም 0", "ሰላም 1", "ሰላም 2"]
    assert project.content("almaz/cv-am") == files
    assert read_sources(project.output)["hub/almaz--cv-am"].licence == ""


def test_parquet_shards_and_archives_of_the_hub_are_imported(project: Project, hub: Hub):
    shards = {
        f"data/ASR/amh/amh-train-{number:05d}.parquet": shard(2, 0.9, first=2 * number) for number in range(3)
    }
    hub.datasets["google/WaxalNLP"] = dataset({"README.md": WAXAL_CARD.encode(), **shards})
    flags = ("--hub-subset=amh_asr", "--hub-split=train", "--speaker=almaz")
    answer = project.run("google/WaxalNLP", *flags, f"--max-hours={3 / 3600}")  # two shards of 1.8 s
    assert answer.returncode == 0, answer.stderr
    assert len(project.content("google/WaxalNLP", "amh_asr")) == 3  # the card and two shards
    answer = project.run("google/WaxalNLP", *flags)
    assert answer.returncode == 0, answer.stderr
    assert len(hub.fetched("data/ASR/amh/amh-train-00000.parquet")) == 1
    texts = [line["text"] for line in manifest_lines(project.output)]
    assert sorted(texts) == [f"ሰላም {number}" for number in range(6)]
    rows = "".join(f"{n}\t{n}.wav\tአዲስ {n}\tአዲስ {n}\tx\t12000\tMALE\n" for n in range(2))
    files = {"data/am_et/train.tsv": rows.encode(), "fleurs.py": b"import this\n"}
    files["data/am_et/audio/train.tar.gz"] = archive({f"train/{n}.wav": tone(500 + n) for n in range(2)})
    hub.datasets["google/fleurs"] = dataset(files)
    answer = project.run("google/fleurs", "--hub-subset=am_et", "--hub-split=train", "--speaker-from=file")
    assert answer.returncode == 0, answer.stderr
    texts = [line["text"] for line in manifest_lines(project.output)]
    assert sorted(texts) == ["ሰላም 0", "ሰላም 1", "ሰላም 2", "ሰላም 3", "ሰላም 4", "ሰላም 5", "አዲስ 0", "አዲስ 1"]
    assert read_sources(project.output).keys() == {
        "hub/google--WaxalNLP--amh_asr",
        "hub/google--fleurs--am_et",
    }


def test_the_tables_of_a_download_name_no_recordings_outside_it(project: Project, hub: Hub):
    for place in ("secret.wav", "elsewhere/secret.wav"):
        write_tone(project.output.parent / place)
    names = ["train/0.wav", str(project.output.parent / "secret.wav"), "../../elsewhere/secret.wav"]
    table = "\n".join(["file_name,transcription", *(f"{name},ሰላም {n}" for n, name in enumerate(names))])
    hub.datasets["almaz/voices"] = dataset({"train/0.wav": tone(300), "metadata.csv": table.encode()})
    answer = project.run("almaz/voices", "--speaker=s")
    assert answer.returncode == 0, answer.stderr
    assert [line["text"] for line in manifest_lines(project.output)] == ["ሰላም 0"]
    assert [code for *_, code in rejected(project.output)] == ["outside", "outside"]


def test_the_tables_of_videos_name_no_recordings_outside_them(tmp_path: Path):
    secret = write_tone(tmp_path / "secret.wav")
    write_tone(tmp_path / "p/downloads/0.wav")
    table = f"file_name,transcription\n0.wav,ሰላም 0\n{secret},ሰላም 1\n"
    (tmp_path / "p/downloads/metadata.csv").write_text(table, encoding="utf-8")
    run_import(tmp_path / "p/downloads", tmp_path / "p/dataset", speaker="s")
    assert [line["text"] for line in manifest_lines(tmp_path / "p/dataset")] == ["ሰላም 0"]
    assert [code for *_, code in rejected(tmp_path / "p/dataset")] == ["outside"]


def names_of(names: list[str], subset: str = "", *splits: str, card: str = "") -> tuple[str, ...]:
    return choose(names, card_block(card, Path("x")), subset, splits, "--hub x/y").names


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
        (["data/data-00000-of-00002.parquet", "data/data-00001-of-00002.parquet"], "", ["train"], "", [0, 1]),
        (["default/train/0000.parquet", "default/test/0000.parquet"], "", ["train"], "", [0]),
        (CONVERTED, "am_et", ["train"], "", [0, 1]),
        (CONVERTED, "am_et", ["dev"], "", [2]),
        (CONVERTED, "fr_fr", [], "", [3]),
        (FLEURS, "am_et", ["train"], "", [0, 1]),
        (["amh-train-00000.parquet", "amh-unlabeled-00000.parquet"], "", ["unlabeled"], "", [1]),
        (COMMON_VOICE, "", ["train"], "", [3, 0, 1]),
        (COMMON_VOICE, "", [], "", [2, 3, 4, 0, 1]),
        (["metadata.csv", "train/a.wav", "test/b.wav"], "", ["test"], "", [0, 2]),
        (["almaz/1.txt", "almaz/1.wav", "bekele/2.wav"], "", [], "", [0, 1, 2]),
        (["am/a.csv", "am/wavs/1.wav", "ti/a.csv", "info.json"], "am", [], "", [0, 3, 1]),
        (["audio/am/train/0.tar", "audio/ti/train/0.tar", "transcript/am/train.tsv"], "am", [], "", [2, 0]),
        (["talks/train.csv", "talks/1.wav", "news/1.csv", "news/x/2.wav"], "talks", [], TALKS, [0, 1]),
        (["talks/train.csv", "talks/1.wav", "news/1.csv", "news/x/2.wav"], "news", [], TALKS, [2, 3]),
        (["am/train.csv", "am/audio/train.zip", "am/audio/test.zip", "ti/a.wav"], "", [], TABLES, [0, 1]),
        (["README.md", "a.png", ".hidden/a.wav", "dataset_infos.json", "a.wav", "a.txt"], "", [], "", [5, 4]),
    ],
)
def test_the_files_of_a_choice(
    names: list[str], subset: str, splits: list[str], card: str, expected: list[int]
):
    assert sorted(names_of(names, subset, *splits, card=card)) == sorted(names[number] for number in expected)


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("**/" * 20 + "x.parquet", ["a/" * 25 + "x.parquet", "x.parquet"]),
        ("**/" * 20 + "y", []),
        ("a/**", ["a/" * 25 + "x.parquet"]),
        ("*a" * 30 + "b.parquet", []),
        ("[z-a].parquet", []),
        ("[!].parquet", []),
        ("[!y].parquet", ["x.parquet"]),
        ("./?.parquet", ["x.parquet"]),
    ],
)
def test_any_pattern_of_a_card_is_matched(glob: str, expected: list[str]):
    names = ["a/" * 25 + "x.parquet", "a" * 60 + ".parquet", "x.parquet", "other.csv"]
    data_files = [{"split": "train", "path": glob}, {"split": "test", "path": "other.csv"}]
    card = {"configs": [{"data_files": data_files}]}
    found = choose(names, card, "", [], "--hub x/y").names
    assert sorted(name for name in found if name in names[:1] + names[2:3]) == expected


def test_tables_are_downloaded_before_recordings():
    assert names_of(["a.wav", "b/c.wav", "z.csv", "d.parquet"])[0] == "z.csv"


@pytest.mark.parametrize(
    ("subset", "splits", "listed"),
    [("", [], "am_et, fr_fr"), ("ti_et", [], "am_et, fr_fr"), ("am_et", ["test"], "dev, train")],
)
def test_a_wrong_choice_lists_what_exists(subset: str, splits: list[str], listed: str):
    with pytest.raises(UserError, match=listed):
        names_of(FLEURS, subset, *splits)


def test_a_data_set_with_a_script_only_is_taken_from_its_conversion(project: Project, hub: Hub):
    hub.datasets["almaz/scripted"] = dataset({"scripted.py": b"import this\n", "README.md": CARD.encode()})
    assert "scripted.py" in project.error_line("almaz/scripted")
    converted = {"default/train/0000.parquet": shard(1, 0.1)}
    hub.datasets["almaz/scripted"].commits[NEXT_COMMIT] = hub_files(converted)
    hub.datasets["almaz/scripted"].branches["refs/convert/parquet"] = NEXT_COMMIT
    answer = project.download("almaz/scripted")
    assert answer.returncode == 0, answer.stderr
    assert project.content("almaz/scripted") == converted | {"README.md": CARD.encode()}


def test_a_killed_download_resumes_with_the_same_revision(project: Project, hub: Hub):
    chance = random.Random(0)
    files = audiofolder()
    files["train/1.wav"] += chance.randbytes(3 << 20)  # after the samples
    hub.datasets["almaz/voices"] = known = dataset(files)
    known.commits[COMMIT]["train/1.wav"].hold_after = 2 << 20
    process = subprocess.Popen(
        project.argv("almaz/voices"), env=project.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert known.commits[COMMIT]["train/1.wav"].held.wait(PATIENCE_S)
    folder = project.folder("almaz/voices")
    wait_until(lambda: any(part.stat().st_size >= 1 << 20 for part in folder.rglob(".tmp-1.wav.*")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    known.commits[COMMIT]["train/1.wav"].hold_after = 0
    changed = files | {"train/2.wav": tone(900)}
    del changed["train/3.wav"]
    known.commits[NEXT_COMMIT] = hub_files(changed)
    known.branches["main"] = NEXT_COMMIT
    assert project.run("almaz/voices").returncode == 0
    assert project.content("almaz/voices") == {k: v for k, v in files.items() if k != ".gitattributes"}
    assert read_sources(project.output)["hub/almaz--voices"].revision == COMMIT
    _, range_ = hub.fetched("train/1.wav")
    assert int(range_.removeprefix("bytes=").removesuffix("-")) >= 1 << 20
    assert hub.fetched("train/0.wav") == hub.fetched("train/3.wav") == [""]
    hub.requests.clear()
    answer = project.run("almaz/voices", "--prune")
    assert answer.returncode == 0, answer.stderr
    assert fetched(hub) == ["train/2.wav"]
    assert "3.wav" not in " ".join(project.content("almaz/voices"))
    assert read_sources(project.output)["hub/almaz--voices"].revision == NEXT_COMMIT
    assert project.content("almaz/voices")["train/2.wav"] == changed["train/2.wav"]


def test_an_interrupted_download_of_a_lost_revision_takes_the_newest(project: Project, hub: Hub):
    files = audiofolder()
    hub.datasets["almaz/voices"] = dataset(files)
    assert project.run("almaz/voices").returncode == 0
    listing = project.folder("almaz/voices") / ".hub.json"
    record = json.loads(listing.read_text())
    listing.write_text(json.dumps(record | {"is_complete": False, "commit": "e" * 40}))
    assert project.run("almaz/voices").returncode == 0
    assert json.loads(listing.read_text()) == record


def test_a_download_with_the_wrong_digest_is_deleted(project: Project, hub: Hub):
    hub.datasets["almaz/voices"] = dataset(audiofolder())
    hub.datasets["almaz/voices"].commits[COMMIT]["train/0.wav"].etag = "0" * 64
    assert "train/0.wav" in project.error_line("almaz/voices")
    assert not list(project.folder("almaz/voices").rglob("*0.wav*"))
    assert not (project.output / "manifest.jsonl").exists()


@pytest.mark.parametrize("env", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:1"}], ids=str)
def test_without_the_hub_complete_downloads_are_imported(project: Project, hub: Hub, env: dict[str, str]):
    hub.datasets["almaz/voices"] = dataset(audiofolder())
    line = project.error_line("almaz/voices", **env)
    assert ("HF_HUB_OFFLINE" in line) == ("HF_HUB_OFFLINE" in env)
    assert "almaz/voices" in line
    assert project.download("almaz/voices").returncode == 0
    answer = project.run("almaz/voices", **env)
    assert answer.returncode == 0, answer.stderr
    [line] = [line for line in answer.stdout.splitlines() if line.startswith("[Warn] ")]
    assert "almaz/voices" in line
    assert len(manifest_lines(project.output)) == 4
    (project.folder("almaz/voices") / "train/3.wav").unlink()
    assert "train/3.wav" in project.error_line("almaz/voices", **env)


@pytest.mark.parametrize(
    ("options", "env", "words"),
    [
        ({"is_gated": True}, {}, ["gated", "/datasets/almaz/voices", "hf auth login", "HF_TOKEN"]),
        ({"is_gated": True}, {"HF_TOKEN": "hf_other"}, ["gated", "/datasets/almaz/voices", "hf auth whoami"]),
        ({}, {"HF_TOKEN": "hf_wrong"}, ["401", "hf auth login"]),
        ({"status": 403}, {}, ["403", "HF_TOKEN"]),
        ({"status": 404}, {}, ["404"]),
        ({"status": 200}, {}, ["HF_ENDPOINT", "proxy"]),
        ({"status": 429}, {}, ["429", "wait"]),
        ({"status": 500}, {}, ["500", "later"]),
    ],
    ids=str,
)
def test_a_refusal_of_the_hub_is_one_line_with_what_to_do(
    project: Project, hub: Hub, options: dict[str, bool | int], env: dict[str, str], words: list[str]
):
    hub.datasets["almaz/voices"] = dataset(audiofolder(), **options)
    line = project.error_line("almaz/voices", **env)
    assert all(word in line for word in words), line


def test_a_gated_data_set_is_downloaded_with_the_token(project: Project, hub: Hub):
    hub.datasets["almaz/voices"] = dataset(audiofolder(), is_gated=True)
    assert project.run("almaz/voices", HF_TOKEN=TOKEN).returncode == 0
    login = {name: login for _, name, _, login in hub.requests}
    assert login["train/metadata.csv"] == f"Bearer {TOKEN}"
    assert login["train/0.wav"] == ""  # the storage gets no token


def test_an_unknown_data_set_is_one_line(project: Project):
    assert "almaz/absent" in project.error_line("almaz/absent")


@pytest.mark.parametrize(
    "name", ["absent", "../almaz/voices", "https://huggingface.co/datasets/a/b", "a/b/c", "a/b--c", "a/.."]
)
def test_a_wrong_name_is_refused_before_any_request(tmp_path: Path, name: str):
    with pytest.raises(UserError, match="OWNER/NAME"):
        run_import([], tmp_path / "p/dataset", hub=name)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_leaves_the_folder_is_refused(project: Project, hub: Hub):
    hub.datasets["almaz/voices"] = dataset(audiofolder() | {"../../escaped.csv": b"x"})
    assert "escaped.csv" in project.error_line("almaz/voices")
    assert not list(project.output.parent.rglob("escaped.csv"))


def test_a_second_import_into_the_folder_is_refused(project: Project, hub: Hub):
    hub.datasets["almaz/voices"] = known = dataset(audiofolder())
    held = known.commits[COMMIT]["train/0.wav"]
    held.content += bytes(1 << 20)
    held.hold_after = 1 << 16
    process = subprocess.Popen(project.argv("almaz/voices"), env=project.env, stdout=subprocess.DEVNULL)
    assert held.held.wait(PATIENCE_S)
    answer = project.run("almaz/voices")
    assert answer.returncode == 5
    assert str(project.folder("almaz/voices")) in answer.stderr
    held.go_on.set()
    assert process.wait(PATIENCE_S) == 0


def test_a_subset_without_a_data_set_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="--hub"):
        run_import([], tmp_path / "out", hub_subset="amh_asr")


def test_a_broken_card_is_ignored():
    assert card_block("---\n{\n---\n", Path("x")) == {}
    assert card_block("---\n- a\n---\n", Path("x")) == {}
    assert card_block("no block", Path("x")) == {}
    assert card_block(CARD, Path("x"))["license"] == "cc-by-4.0"


def test_the_download_stops_at_the_wanted_hours(tmp_path: Path):
    for number in range(4):
        (tmp_path / f"{number}.parquet").write_bytes(shard(2, 0.9))  # 1.8 s
    (tmp_path / "a.csv").write_text("")
    taken = []

    def paths() -> Iterator[Path]:
        for path in sorted(tmp_path.iterdir(), key=lambda path: (path.suffix, path.name)):
            taken.append(path.name)
            yield path

    assert download_until(paths(), 3.0 / 3600) == pytest.approx(3.6 / 3600)
    assert taken == ["a.csv", "0.parquet", "1.parquet"]
    taken.clear()
    assert download_until(paths(), 0) == 0
    assert len(taken) == 5


def test_the_hours_of_a_parquet_file_come_from_durations_or_recordings(tmp_path: Path):
    path = tmp_path / "a.parquet"
    path.write_bytes(shard(4, 0.1, with_duration=True))
    assert parquet_hours(path) == 0.5
    path.write_bytes(shard(4, 0.25))
    assert parquet_hours(path) == pytest.approx(1 / 3600)
    numbers = [{"text": "a", "duration": 900_000}]  # not seconds, and no recordings
    path.write_bytes(parquet(numbers, [("text", pyarrow.string()), ("duration", pyarrow.int64())]))
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


def test_splits_of_earlier_imports_are_named_too(project: Project, hub: Hub):
    files = {f"data/{split}-00000-of-00001.parquet": shard(2, 0.1) for split in ("train", "test")}
    hub.datasets["almaz/voices"] = dataset(files)
    for split, named in (("test", ("test",)), ("train", ("train", "test"))):
        answer = project.run("almaz/voices", f"--hub-split={split}", "--speaker=s")
        assert answer.returncode == 0, answer.stderr
        assert read_sources(project.output)["hub/almaz--voices"].splits == named
        assert ("downloaded before, splits test" in answer.stdout) == (split == "train")


def test_changed_files_of_the_user_are_kept(project: Project, hub: Hub):
    hub.datasets["almaz/voices"] = dataset(audiofolder())
    assert project.run("almaz/voices").returncode == 0
    table = project.folder("almaz/voices") / "train/metadata.csv"
    original = table.read_bytes()
    table.write_bytes(b"mine")
    assert project.run("almaz/voices").returncode == 0
    assert table.read_bytes() == original
    assert table.with_name("metadata.csv.old1").read_bytes() == b"mine"
