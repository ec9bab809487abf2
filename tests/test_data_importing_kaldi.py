"""Tests of the layouts of Kaldi and LibriSpeech, and of smaller ones that other tools write."""

import json
import shutil
from pathlib import Path

import pytest
import soundfile

from indextts.errors import UserError
from tests.import_sources import manifest_lines, rejected, run_import, write_tone

TEXTS = ["ሰላም ለዓለም።", "እንዴት ነህ፣ ደህና?", "በ2017 ተጀመረ።", "ነገ እንገናኛለን አለ።"]
SPEAKERS = ["almaz", "bekele", "almaz", "bekele"]
NAMES = [f"tr_{number}" for number in range(4)]


def write_lines(path: Path, *columns: list[str], separator: str = " ") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = map(separator.join, zip(*columns, strict=True))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def write_kaldi(folder: Path, paths: list[str]) -> None:
    for number, name in enumerate(NAMES):
        write_tone(folder / "wav" / f"{name}.wav", 200 + number, 0.3)
    write_lines(folder / "wav.scp", NAMES, paths)
    write_lines(folder / "text", NAMES, TEXTS)
    write_lines(folder / "utt2spk", NAMES, SPEAKERS)


def imported(folder: Path, **flags: object) -> list[tuple[str, str, str]]:
    """Return id, text and speaker of the utterances that an import of the folder gives."""
    run_import(folder, folder.with_name("out"), **flags)
    return [(line["id"], line["text"], line["speaker"]) for line in manifest_lines(folder.with_name("out"))]


EXPECTED = list(zip(NAMES, TEXTS, SPEAKERS, strict=True))


@pytest.mark.parametrize(
    "path", ["wav/{}.wav", "/home/somebody/data/train/wav/{}.wav", "sox /data/wav/{}.wav -r 16k -t wav - |"]
)
def test_kaldi_folders_are_read_with_paths_of_other_machines(tmp_path: Path, path: str):
    write_kaldi(tmp_path / "in/data/train", [path.format(name) for name in NAMES])
    (tmp_path / "in/README").write_text("a corpus")
    assert imported(tmp_path / "in") == EXPECTED


def test_a_kaldi_folder_can_be_a_zip_archive(tmp_path: Path):
    write_kaldi(tmp_path / "in/train", [f"wav/{name}.wav" for name in NAMES])
    archive = Path(shutil.make_archive(str(tmp_path / "corpus"), "zip", tmp_path / "in"))
    run_import(archive, tmp_path / "out")
    assert {line["speaker"] for line in manifest_lines(tmp_path / "out")} == set(SPEAKERS)


def test_a_command_of_wav_scp_is_not_run(tmp_path: Path):
    mark = tmp_path / "mark"
    write_kaldi(tmp_path / "in", [f"touch {mark} |", *(f"wav/{name}.wav" for name in NAMES[1:])])
    assert imported(tmp_path / "in") == EXPECTED[1:]
    assert rejected(tmp_path / "out") == [("text", 1, "missing_audio")]
    assert not mark.exists()


@pytest.mark.parametrize("missing", ["wav.scp", "text", "utt2spk"])
def test_an_incomplete_kaldi_folder_is_named(tmp_path: Path, missing: str):
    write_kaldi(tmp_path / "in", [f"wav/{name}.wav" for name in NAMES])
    (tmp_path / "in" / missing).unlink()
    if missing == "wav.scp":
        (tmp_path / "in/wav").rename(tmp_path / "in/waves")
    with pytest.raises(UserError, match=rf"looks like a Kaldi data folder; {missing} missing"):
        imported(tmp_path / "in")


def test_segments_of_kaldi_are_cut_from_their_recordings(tmp_path: Path):
    folder = tmp_path / "in"
    write_tone(folder / "talk.wav", 300, 4)
    write_lines(folder / "wav.scp", ["talk"], ["talk.wav"])
    write_lines(folder / "text", NAMES, TEXTS)
    write_lines(folder / "utt2spk", NAMES, SPEAKERS)
    spans = ["0.00 1.00", "1.00 2.50", "3.50 4.01", "9.00 10.00"]
    write_lines(folder / "segments", NAMES, ["talk"] * 4, spans)
    assert imported(folder) == EXPECTED[:3]
    assert rejected(tmp_path / "out") == [("text", 4, "bad_time")]
    lines = manifest_lines(tmp_path / "out")
    durations = [soundfile.info(tmp_path / "out" / line["audio"]).duration for line in lines]
    assert durations == pytest.approx([1.0, 1.5, 0.5], abs=0.01)
    before = (tmp_path / "out/manifest.jsonl").read_bytes()
    result = run_import(folder, tmp_path / "out")
    assert (result.num_added, result.num_changed, result.num_unchanged) == (0, 0, 3)
    assert (tmp_path / "out/manifest.jsonl").read_bytes() == before
    write_lines(folder / "segments", NAMES, ["talk"] * 4, ["0.00 0.80", *spans[1:3], "broken x"])
    result = run_import(folder, tmp_path / "out")
    assert (result.num_changed, result.num_unchanged) == (1, 2)
    [first, *_] = manifest_lines(tmp_path / "out")
    assert soundfile.info(tmp_path / "out" / first["audio"]).duration == pytest.approx(0.8, abs=0.01)


def test_librispeech_has_its_texts_in_a_file_of_each_chapter(tmp_path: Path):
    expected = []
    for speaker, chapter in (("84", "121"), ("84", "122"), ("174", "50")):
        folder = tmp_path / f"in/dev-clean/{speaker}/{chapter}"
        names = [f"{speaker}-{chapter}-{number:04}" for number in range(2)]
        for number, name in enumerate(names):
            write_tone(folder / f"{name}.flac", 200 + number + len(expected), 0.3)
        write_lines(folder / f"{speaker}-{chapter}.trans.txt", names, TEXTS[:2])
        expected += [(name, text, speaker) for name, text in zip(names, TEXTS, strict=False)]
    assert sorted(imported(tmp_path / "in")) == sorted(expected)


def test_a_list_of_gpt_sovits_has_four_columns(tmp_path: Path):
    paths = [f"sliced/{name}.wav" for name in NAMES]
    for number, path in enumerate(paths):
        write_tone(tmp_path / "in" / path, 200 + number, 0.3)
    write_lines(tmp_path / "in/train.list", paths, SPEAKERS, ["AM"] * 4, TEXTS, separator="|")
    found = imported(tmp_path / "in")
    assert [(text, speaker) for _, text, speaker in found] == list(zip(TEXTS, SPEAKERS, strict=True))


@pytest.mark.parametrize("kind", ["array", "lines"])
def test_json_manifests_are_found_by_their_content(tmp_path: Path, kind: str):
    records = [
        {"audio_filepath": f"wav/{name}.wav", "duration": 0.3, "text": text, "speaker": speaker}
        for name, text, speaker in EXPECTED
    ]
    for number, name in enumerate(NAMES):
        write_tone(tmp_path / f"in/wav/{name}.wav", 200 + number, 0.3)
    text = json.dumps(records, indent=1) if kind == "array" else "\n".join(map(json.dumps, records))
    (tmp_path / "in/train_manifest.json").write_text(text)
    (tmp_path / "in/config.json").write_text('{"sample_rate": 24000}')
    assert imported(tmp_path / "in") == EXPECTED


def test_a_broken_json_array_is_refused_and_a_broken_object_rejected(tmp_path: Path):
    write_tone(tmp_path / "in/a.wav")
    path = tmp_path / "in/data.json"
    path.write_text(json.dumps([{"audio": "a.wav", "text": TEXTS[0]}, 3, {"audio": "a.wav", "text": ["x"]}]))
    run_import(path, tmp_path / "out", speaker="s")
    assert [code for *_, code in rejected(tmp_path / "out")] == ["broken_row", "broken_row"]
    path.write_text(path.read_text()[:-5])
    with pytest.raises(UserError, match=r"data\.json: not JSON"):
        run_import(path, tmp_path / "out", speaker="s")


def test_lab_files_are_texts_unless_they_have_times(tmp_path: Path):
    for number in range(2):
        write_tone(tmp_path / f"in/{number}.wav", 200 + number)
    (tmp_path / "in/0.lab").write_text(TEXTS[0], encoding="utf-8")
    (tmp_path / "in/1.lab").write_text("0 2500000 sil\n2500000 5000000 s\n")
    assert imported(tmp_path / "in", speaker="s") == [("0", TEXTS[0], "s")]
    assert rejected(tmp_path / "out") == [("1.lab", None, "not_text")]


def test_splits_with_a_table_each_are_read_together(tmp_path: Path):
    for split, names in (("train", NAMES[:2]), ("test", NAMES[2:])):
        for name in names:
            write_tone(tmp_path / f"in/{split}/{name}.wav", 200 + NAMES.index(name), 0.3)
        texts = [TEXTS[NAMES.index(name)] for name in names]
        lines = [
            json.dumps({"file_name": f"{name}.wav", "transcription": text})
            for name, text in zip(names, texts, strict=True)
        ]
        (tmp_path / f"in/{split}/metadata.jsonl").write_text("\n".join(lines))
    found = imported(tmp_path / "in", speaker="s")
    assert sorted(found) == [(name, text, "s") for name, text, _ in EXPECTED]
