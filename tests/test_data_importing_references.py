"""Tests of indextts/data/importing/references.py: moved and renamed recordings are found, or named."""

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from indextts.data.importing.items import Location, Rejection, Row
from indextts.data.importing.reading import SourceReader
from indextts.data.importing.references import Recordings
from tests.import_cases import Files, objects, rows, tones, write
from tests.import_sources import manifest_lines, rejected, run_import, tone_bytes, write_tar, write_tone

END, NAME, STEM, NUMBER = "by the end of the path", "by name", "by name without suffix", "by number"
TWO = ["almaz/1.wav", "bekele/1.wav"]
SPLITS = ["train/wavs/1.wav", "test/wavs/1.wav"]
CASES = [  # files, name in a row of metadata.csv, the file, and how it is found; or the files that match
    (["wavs/1.wav"], "wavs/1.wav", "wavs/1.wav", "as named"),
    (["wavs/1.wav"], "wavs\\1.wav", "wavs/1.wav", "as named"),
    (TWO, r"C:\Users\me\set\bekele\1.wav", "bekele/1.wav", END),
    (TWO, "/content/drive/MyDrive/set/almaz/1.wav", "almaz/1.wav", END),
    (TWO, "../out/almaz//1.wav", "almaz/1.wav", END),
    (TWO, r"\\server\share\Bekele\1.WAV", "bekele/1.wav", END),
    (TWO, "https://host/set/bekele/1.wav?download=1", "bekele/1.wav", END),
    (["my clips/ሰላም 1.wav"], "my%20clips/%E1%88%B0%E1%88%8B%E1%88%9D%201.wav", "my clips/ሰላም 1.wav", END),
    (["a/50%20.wav"], "clips/50%20.wav", "a/50%20.wav", NAME),
    (["wavs/1.wav"], "1", "wavs/1.wav", STEM),
    (["wavs/take1.5.wav"], "take1.5", "wavs/take1.5.wav", STEM),
    (["wavs/ABC.Wav"], "abc", "wavs/ABC.Wav", STEM),
    (["a/x.wav", "a/X.wav"], "wavs_16k/X.wav", "a/X.wav", NAME),
    (["wavs/Zoe\u0301.wav"], "Zo\u00e9.wav", "wavs/Zoe\u0301.wav", NAME),
    (["wavs/Zo\u00e9.wav"], "old/Zoe\u0301.flac", "wavs/Zo\u00e9.wav", STEM),
    (["wavs/1.mp3", "wavs/1.flac", "wavs/1.m4a"], "1", "wavs/1.flac", STEM),
    (["wavs/1.mp3", "wavs/1.flac"], "old/1.mp3", "wavs/1.mp3", NAME),
    (["wavs/0007.wav", "wavs/0070.wav"], "7", "wavs/0007.wav", NUMBER),
    (["wavs/spk_007.wav"], "spk_7.wav", "wavs/spk_007.wav", NUMBER),
    (["a/1200000000001.wav", "a/1300000000001.wav"], "1.2E+12", "a/1200000000001.wav", NUMBER),
    (["a/1234567890123.wav", "a/1300000000001.wav"], "1,23457E+12", "a/1234567890123.wav", NUMBER),
    (["wavs/1.wav", "wavs_22k/1.wav"], "1", "wavs/1.wav", STEM),
    (TWO, "/content/drive/1.wav", TWO, None),
    (TWO, "chaltu/1.wav", TWO, None),
    (["a/007.wav", "a/07.wav"], "7", ["a/007.wav", "a/07.wav"], None),
    (["a/1200000000001.wav", "b/1200000000002.wav"], "1.2E+12", ["00001.wav", "00002.wav"], None),
    (["s1/0.wav"], "s2/0.wav", ["s2/0.wav: the recording does not exist; s1/0.wav"], None),
    (["s1/wavs/0.wav"], "s2\\wavs\\0.mp3", ["does not exist; s1/wavs/0.wav"], None),
    (["test/0007.wav"], "train/7.wav", ["does not exist; test/0007.wav"], None),
    (["wavs/1.wav", "almaz/2.wav"], "almaz/1.wav", ["does not exist; wavs/1.wav"], None),
    (["bekele/1.wav", "almaz/2.wav"], r"C:\set\almaz\1.wav", ["does not exist; bekele/1.wav"], None),
    (["a/1.wav"], "2.wav", ["2.wav: the recording does not exist"], None),
]


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def resolve(root: Path, *named: str, table: str = "metadata.csv") -> list[Row | Rejection]:
    rows = [Row(Location(root / table, number), name, "ሰላም") for number, name in enumerate(named, start=1)]
    return SourceReader(Recordings(root), "am").resolve(rows)


@pytest.mark.parametrize(("files", "named", "expected", "way"), CASES)
def test_the_closest_recording_is_found_if_it_is_the_only_one(tmp_path, files, named, expected, way):
    touch(tmp_path, *files)
    [found] = resolve(tmp_path, named)
    if isinstance(found, Row):
        assert (str(found.audio.relative_to(tmp_path)), found.found_by) == (expected, way)
    else:
        assert all(part in found.reason for part in expected), found
        assert found.code == ("ambiguous_audio" if len(expected) > 1 else "missing_audio")


def test_data_of_a_split_name_recordings_of_that_split(tmp_path):
    touch(tmp_path, *SPLITS)
    for name in ("1", "1.mp3", "/content/wavs/1.wav"):
        for split in ("train", "test"):
            [found] = resolve(tmp_path, name, table=f"{split}/metadata.csv")
            assert found.audio == tmp_path / split / "wavs/1.wav"
    [found] = resolve(tmp_path, "train/wavs/1.wav", table="lists/test/metadata.csv")
    assert found.audio == tmp_path / "train/wavs/1.wav"


@pytest.mark.parametrize(
    ("named", "codes"),
    [  # "" for a row that is read; bekele/1.wav and 1200000000002.wav do not exist
        (["almaz/1.wav", "bekele/1.wav"], ["", "missing_audio"]),
        (["/x/bekele/1.wav", "/x/almaz/1.wav"], ["ambiguous_audio", ""]),
        (["/x/almaz/1.wav", "D:\\y\\almaz\\1.wav"], ["ambiguous_audio"] * 2),
        (["/x/almaz/1.wav", "/x/almaz/1.wav"], ["", ""]),  # the second is a duplicate
        (["1.2E+12", "1.2E+12"], ["ambiguous_audio"] * 2),
        (["1200000000001", "1.2E+12"], ["", "ambiguous_audio"]),
    ],
)
def test_a_recording_belongs_to_the_rows_that_name_it_best(tmp_path, named, codes):
    touch(tmp_path, "almaz/1.wav", "almaz/1200000000001.wav")
    found = resolve(tmp_path, *named)
    assert [each.code if isinstance(each, Rejection) else "" for each in found] == codes


@pytest.mark.parametrize("named", ["C:/x/{}/audio.wav", "1.2E+12"])
def test_many_rows_that_name_as_many_recordings_take_little_time(tmp_path, named):
    known = {tmp_path / f"s{number}/audio.wav" for number in range(3000)}
    known |= {tmp_path / f"s/{1200000000000 + number}.wav" for number in range(3000)}
    started = time.process_time()
    recordings = Recordings(tmp_path, known=known)
    found = [recordings.find(named.format(number), tmp_path) for number in range(3000)]
    assert {each[0] for each in found} == {"ambiguous_audio"}
    assert time.process_time() - started < 3  # 25 s, if each row ranks all of them


def test_linked_folders_are_searched_and_links_in_circles_are_not(tmp_path):
    touch(tmp_path, "disk/deep/1.wav", "in/wavs_24k/2.wav", "in/.hidden/3.wav")
    (tmp_path / "in/wavs").symlink_to(tmp_path / "disk")
    (tmp_path / "in/latest").symlink_to(tmp_path / "in/wavs_24k")
    (tmp_path / "disk/up").symlink_to(tmp_path)
    found = resolve(tmp_path / "in", "1", "2", "3")
    assert [each.audio.name for each in found[:2]] == ["1.wav", "2.wav"]
    assert found[2].code == "missing_audio"


TEXTS = {"0001": "ሰላም ለዓለም።", "0002": "እንዴት ነህ፣ ደህና?", "0003": "ዛሬ ፀሐይ ወጣች።"}
IN_LAYOUT: dict[str, Callable[[list[str]], Files]] = {
    "csv": lambda names: {"metadata.csv": ["file_name,text", *rows(",", names, [*TEXTS.values()])]},
    "unknown header": lambda names: {"x.csv": ["ድምፅ;words", *rows(";", names, [*TEXTS.values()])]},
    "list": lambda names: {"train.list": rows("|", names, [*TEXTS.values()])},
    "jsonl": lambda names: {"x.jsonl": list(map(json.dumps, objects(file=names, text=[*TEXTS.values()])))},
    "array": lambda names: {"x.json": json.dumps(objects(file=names, text=[*TEXTS.values()]))},
    "parquet": lambda names: {
        "x.parquet": {"audio": objects(bytes=[None] * 3, path=names), "text": [*TEXTS.values()]}
    },
}


@pytest.mark.parametrize("form", ["C:\\me\\clips\\{}.wav", "/content/{}.mp3", "file:///x/{}.wav", "{:.1f}"])
@pytest.mark.parametrize("layout", IN_LAYOUT)
def test_references_that_moved_are_found_in_every_layout_and_counted(tmp_path, caplog, layout, form):
    caplog.set_level(logging.INFO)
    names = [form.format(int(name) if ":.1f" in form else name) for name in TEXTS]
    write(tmp_path / "in", IN_LAYOUT[layout](names) | tones(*(f"deep/set/{name}.wav" for name in TEXTS)))
    run_import(tmp_path / "in", tmp_path / "out", speaker="s")
    assert [line["text"] for line in manifest_lines(tmp_path / "out")] == [*TEXTS.values()]
    way = NUMBER if ":.1f" in form else STEM if ".mp3" in form else NAME
    assert f"recordings found: {way} 3" in caplog.text


def test_archives_are_unpacked_before_a_recording_of_another_place_is_taken(tmp_path):
    touch(tmp_path, "in/almaz/1.wav")
    write_tar(tmp_path / "in/rest.tar.gz", {"bekele/1.wav": tone_bytes()})
    (tmp_path / "in/x.csv").write_text("path,text\nC:\\x\\bekele\\1.wav,ሰላም\n1.wav,ሰላም\n", encoding="utf-8")
    run_import(tmp_path / "in", tmp_path / "out", speaker="s")
    assert [line["id"] for line in manifest_lines(tmp_path / "out")] == ["1"]
    assert rejected(tmp_path / "out") == [("x.csv", 3, "ambiguous_audio")]


@pytest.mark.parametrize("form", ["csv", "files", "zip", "link"])
def test_amharic_names_work_in_a_locale_that_does_not_know_them(tmp_path, form):
    folder, out = tmp_path / "ቅጂዎች", tmp_path / "ፕሮጀክት" / "dataset"
    for number, name in enumerate(TEXTS):
        write_tone(folder / f"አልማዝ/ድምፅ_{name}.wav", 200 + number, 1.5)
        if form == "files":
            (folder / f"አልማዝ/ድምፅ_{name}.txt").write_text(TEXTS[name], encoding="utf-8")
    if form != "files":
        rows = "".join(f"C:\\x\\ድምፅ_{name}.mp3|{text}|አልማዝ\n" for name, text in TEXTS.items())
        (folder / "ዝርዝር.csv").write_text(f"path|text|speaker\n{rows}", encoding="utf-8")
    if form == "zip":
        folder = Path(shutil.make_archive(str(folder), "zip", folder))
    flags = ["--link"] * (form == "link") + ["--speaker-from=folder"] * (form == "files")
    programs = [
        ["tools/import_dataset.py", f"--source={folder}", f"--output-dir={out}", *flags],
        [
            "check_amharic_data.py",
            f"--train-manifest={out}/manifest.jsonl",
            f"--report-dir={out}/ዘገባ",
            "--quality=fast",
        ],
    ]
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"}
    for argv in programs:
        ran = subprocess.run([sys.executable, *argv], env=environment, capture_output=True, check=False)
        assert ran.returncode == (0 if "import" in argv[0] else 1), ran.stderr.decode()
        assert str(out) in ran.stdout.decode() or "አልማዝ" in ran.stdout.decode()
    assert {(line["text"], line["speaker"]) for line in manifest_lines(out)} == {
        (text, "አልማዝ") for text in TEXTS.values()
    }
