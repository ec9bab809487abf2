"""Tests of indextts/data/importing/importer.py: new, repeated, killed, limited and partly invalid imports."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from indextts.commands.data import ImportDataset
from indextts.data.importing.importer import import_dataset
from indextts.data.manifest import Provenance, read_utterances, write_utterances
from indextts.errors import UserError
from tests.conftest import REPOSITORY
from tests.import_sources import ids, json_lines, manifest_lines, rejected, run_import, snapshot, write_tone
from tests.killed_program import kill_when
from tools.import_dataset import main

HOUR_S = 3600
SPEAKERS = ["almaz", "bekele", "chala"]


def write_dataset(folder: Path, ids: list[str], first_pitch_hz: float = 220) -> Path:
    """Write recordings and their manifest; return the manifest."""
    lines = []
    for number, id in enumerate(ids):
        write_tone(folder / f"wavs/{number}.wav", first_pitch_hz + number)
        line = {"id": id, "audio": f"wavs/{number}.wav", "text": "ሰላም", "speaker": "s", "duration": 0.5}
        lines.append(json.dumps(line) + "\n")
    (folder / "source.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder / "source.jsonl"


def write_folder(folder: Path, numbers: range) -> Path:
    """Write recordings with a text each."""
    for number in numbers:
        write_tone(folder / f"clip{number:03d}.wav", 200 + number, 0.2)
        (folder / f"clip{number:03d}.txt").write_text(f"ሰላም {number}", encoding="utf-8")
    return folder


def import_manifest(manifest: Path, output_dir: Path):
    return import_dataset(ImportDataset(manifest=manifest, output_dir=output_dir))


def test_the_provenance_of_texts_stays_with_their_clips(tmp_path):
    source = write_dataset(tmp_path / "in", ["a", "b"])
    a, b = read_utterances(source)
    heard = Provenance(kind="heard", by=("one", "two"), disagreement=0.1, other="ሰላ", is_doubtful=True)
    write_utterances(source, [replace(a, provenance=heard), b])
    manifest = tmp_path / "out/manifest.jsonl"
    for _ in range(2):  # the second import reads the journal
        import_manifest(source, tmp_path / "out")
        assert [utterance.provenance for utterance in read_utterances(manifest)] == [heard, None]
    write_utterances(source, [a, b])
    assert import_manifest(source, tmp_path / "out").num_changed == 1
    assert [utterance.provenance for utterance in read_utterances(manifest)] == [None, None]


@pytest.mark.parametrize("stored", [[], {"layout": None}, {"speaker_from": "nope", "columns": 3}])
def test_invalid_stored_answers_count_as_absent(tmp_path, stored):
    source, path = write_folder(tmp_path / "in", range(2)), tmp_path / "out/answers.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"in": stored, "other": []}))
    assert run_import(source, tmp_path / "out", speaker="almaz").num_added == 2
    answers = json.loads(path.read_text())
    assert answers == {"in": {"layout": "auto", "columns": "", "speaker": "almaz", "speaker_from": "data"}}


def test_a_grown_source_adds_its_new_recordings(tmp_path):
    source = write_folder(tmp_path / "in", range(3))
    run_import(source, tmp_path / "out", speaker="almaz")
    write_folder(source, range(5))
    for number in range(3):
        # a new modification time, the same content
        shutil.copystat(REPOSITORY / "README.md", source / f"clip{number:03d}.wav")
    result = run_import(source, tmp_path / "out")
    assert (result.num_added, result.num_changed, result.num_unchanged) == (2, 0, 3)
    assert {line["speaker"] for line in manifest_lines(tmp_path / "out")} == {"almaz"}  # the stored answer


def test_a_changed_text_or_recording_replaces_the_old_one(tmp_path):
    source = write_folder(tmp_path / "in", range(3))
    run_import(source, tmp_path / "out", speaker="almaz")
    (source / "clip001.txt").write_text("ደህና ነኝ", encoding="utf-8")
    write_tone(source / "clip002.wav", 900, 0.7)
    result = run_import(source, tmp_path / "out", speaker="almaz")
    assert (result.num_added, result.num_changed, result.num_unchanged) == (0, 2, 1)
    lines = manifest_lines(tmp_path / "out")
    assert [line["text"] for line in lines] == ["ሰላም 0", "ደህና ነኝ", "ሰላም 2"]
    assert lines[2]["duration"] == 0.7
    assert (tmp_path / "out/audio/clip002.wav").read_bytes() == (source / "clip002.wav").read_bytes()


def test_several_sources_with_clashing_names_are_imported_into_one_project(tmp_path, caplog):
    first, second = write_folder(tmp_path / "a", range(2)), tmp_path / "b"
    for number in range(2):
        write_tone(second / f"clip00{number}.wav", 700 + number, 0.3)
        (second / f"clip00{number}.txt").write_text("ሌላ", encoding="utf-8")
    shutil.copy(first / "clip001.wav", second / "clip001.wav")  # the same recording as in the first
    (second / "clip001.txt").write_text("ሰላም 1", encoding="utf-8")
    run_import(first, tmp_path / "out", speaker="almaz")
    result = run_import(second, tmp_path / "out", speaker="bekele")
    assert (result.num_utterances, result.num_added, result.num_unchanged) == (3, 1, 1)
    ids = [line["id"] for line in manifest_lines(tmp_path / "out")]
    assert ids[:2] == ["clip000", "clip001"]
    assert ids[2].startswith("clip000-")
    before = snapshot(tmp_path / "out")
    run_import([first, second], tmp_path / "out")
    assert snapshot(tmp_path / "out") == before


def test_the_same_recording_with_another_text_is_rejected(tmp_path):
    first = write_folder(tmp_path / "a", range(2))
    second = Path(shutil.copytree(first, tmp_path / "b"))
    (second / "clip001.txt").write_text("ሌላ", encoding="utf-8")
    run_import(first, tmp_path / "out", speaker="almaz")
    run_import(second, tmp_path / "out", speaker="almaz")
    assert [line["text"] for line in manifest_lines(tmp_path / "out")] == ["ሰላም 0", "ሰላም 1"]
    assert rejected(tmp_path / "out") == [("clip001.txt", None, "other_text")]


def test_recordings_missing_from_a_source_stay_until_they_are_pruned(tmp_path, caplog):
    source, other = write_folder(tmp_path / "in", range(3)), write_folder(tmp_path / "other", range(5, 6))
    run_import([source, other], tmp_path / "out", speaker="almaz")
    (source / "clip001.wav").unlink()
    (source / "clip001.txt").unlink()
    assert run_import(source, tmp_path / "out").num_utterances == 4
    assert "--prune" in caplog.text
    result = run_import(source, tmp_path / "out", prune=True)
    assert (result.num_utterances, result.num_pruned) == (3, 1)
    assert not (tmp_path / "out/audio/clip001.wav").exists()
    assert [line["id"] for line in manifest_lines(tmp_path / "out")] == ["clip000", "clip002", "clip005"]


def test_a_manifest_without_a_journal_is_refused_with_a_way_out(tmp_path):
    out = tmp_path / "out"
    import_manifest(write_dataset(tmp_path / "in", ["a", "b"]), out)
    (out / "imported.jsonl").unlink()
    before = snapshot(out)
    with pytest.raises(UserError, match=r"out/manifest\.jsonl: .*--manifest.*--output-dir"):
        run_import(write_folder(tmp_path / "more", range(1)), out, speaker="s")
    assert snapshot(out) == before
    assert import_manifest(out / "manifest.jsonl", tmp_path / "new").num_added == 2


def test_every_id_becomes_a_unique_safe_file_name(tmp_path):
    ids = ["../../evil", "a/b", "a b", "A", "a", ".", "ሰላም", "x" * 300, "x" * 301, "a\nb", "-rf", "CON"]
    import_manifest(write_dataset(tmp_path / "in", ids), tmp_path / "out")
    names = [path.name for path in (tmp_path / "out/audio").iterdir()]
    assert len({name.lower() for name in names}) == len(ids)
    assert all(len(name) < 120 and not name.startswith((".", "-")) for name in names)
    assert [utterance.id for utterance in read_utterances(tmp_path / "out/manifest.jsonl")] == ids
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_bad_recordings_and_rows_are_listed_and_the_rest_is_imported(tmp_path, capsys):
    manifest = write_dataset(tmp_path / "in", [f"u{number}" for number in range(8)])
    wavs = tmp_path / "in/wavs"
    (wavs / "1.wav").unlink()
    (wavs / "2.wav").write_bytes(b"RIFF no audio")
    (wavs / "3.wav").write_bytes(b"")
    (wavs / "4.wav").write_bytes((wavs / "4.wav").read_bytes()[:20])
    with manifest.open("a", encoding="utf-8") as file:
        file.write('{"id": "u9", "audio": "wavs/7.wav"\n')
        file.write('{"id": "u10", "audio": "wavs/7.wav", "text": " ", "speaker": "s"}\n')
        file.write('{"id": "u5", "audio": "wavs/5.wav", "text": "ሰላም", "speaker": "s"}\n')
        file.write('{"id": "u11", "audio": "wavs/7.wav", "text": "ሰላም"}\n')
        file.write('{"id": "u12", "audio": "wavs/7.wav", "text": "\\ud800", "speaker": "s"}\n')
        file.write("[1]\n")
    assert main([f"--manifest={manifest}", f"--output-dir={tmp_path / 'out'}"]) == 0
    assert [line["id"] for line in manifest_lines(tmp_path / "out")] == ["u0", "u5", "u6", "u7"]
    assert sorted(rejected(tmp_path / "out"), key=str) == [
        ("source.jsonl", 10, "empty_text"),
        ("source.jsonl", 11, "duplicate"),
        ("source.jsonl", 12, "no_speaker"),
        ("source.jsonl", 13, "encoding"),
        ("source.jsonl", 14, "broken_row"),
        ("source.jsonl", 2, "missing_audio"),
        ("source.jsonl", 9, "broken_row"),
        ("wavs/2.wav", None, "unreadable_audio"),
        ("wavs/3.wav", None, "unreadable_audio"),
        ("wavs/4.wav", None, "unreadable_audio"),
    ]
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{tmp_path}/out/manifest.jsonl: 4 utterances, 0.00 hours, 1 speaker; 4 added, ")
    assert ": 3 unreadable_audio, 2 broken_row, 1 duplicate" in second
    for number in (1, 2, 3, 4):
        write_tone(wavs / f"{number}.wav", 220 + number)
    assert import_manifest(manifest, tmp_path / "out").num_added == 4
    assert len(rejected(tmp_path / "out")) == 6


def test_unknown_speakers_are_an_error_and_not_guessed(tmp_path):  # D11
    source = write_folder(tmp_path / "in", range(2))
    with pytest.raises(UserError, match=r": 2 recordings .*--speaker NAME"):
        run_import(source, tmp_path / "out")
    assert not (tmp_path / "out/manifest.jsonl").exists()
    run_import(source, tmp_path / "out", speaker_from="file")
    assert [line["speaker"] for line in manifest_lines(tmp_path / "out")] == ["clip000", "clip001"]
    run_import(source, tmp_path / "out", speaker="almaz")
    assert [line["speaker"] for line in manifest_lines(tmp_path / "out")] == ["almaz", "almaz"]


@pytest.mark.long
def test_a_killed_import_resumes(tmp_path):  # D13
    source = write_folder(tmp_path / "in", range(150))
    whole = tmp_path / "whole"
    run_import(source, whole, speaker="almaz")
    argv = [f"--source={source}", "--speaker=almaz", "--num-workers=1", f"--output-dir={tmp_path / 'out'}"]
    journal = tmp_path / "out/imported.jsonl"
    condition = f"(j := Path({str(journal)!r})).is_file() and j.stat().st_size > 2000"
    kill_when(condition, "tools.import_dataset", argv)
    num_done = journal.read_bytes().count(b"\n")
    assert 0 < num_done < 150
    assert not (tmp_path / "out/manifest.jsonl").exists()
    with journal.open("ab") as file:
        file.write(b'{"source": "cut o')  # an incomplete last line
    write_tone(tmp_path / "out/audio/.part-x/9/copy.wav")
    result = run_import(source, tmp_path / "out", speaker="almaz")
    assert result.num_added == 150 - num_done
    assert result.num_unchanged == num_done
    assert manifest_lines(tmp_path / "out") == manifest_lines(whole)
    assert json_lines(journal) == json_lines(whole / "imported.jsonl")
    assert sorted(path.name for path in (tmp_path / "out/audio").iterdir()) == sorted(
        path.name for path in (whole / "audio").iterdir()
    )


def test_a_kill_while_a_recording_is_replaced_leaves_no_manifest(tmp_path, monkeypatch):
    source = write_folder(tmp_path / "in", range(2))
    run_import(source, tmp_path / "out", speaker="almaz")
    write_tone(source / "clip001.wav", 900, 0.9)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("indextts.data.importing.importer.write_utterances", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_import(source, tmp_path / "out")
    assert not (tmp_path / "out/manifest.jsonl").exists()
    monkeypatch.undo()
    run_import(source, tmp_path / "out")
    assert [line["duration"] for line in manifest_lines(tmp_path / "out")] == [0.2, 0.9]


def test_a_second_import_into_the_same_folder_is_refused(tmp_path, monkeypatch):
    source = write_folder(tmp_path / "in", range(1))
    refusals = []

    def second_import(*_, **__):
        with pytest.raises(UserError, match=r"/out: ") as caught:
            run_import(source, tmp_path / "out", speaker="almaz")
        refusals.append(caught.value.exit_status)
        raise KeyboardInterrupt

    monkeypatch.setattr("indextts.data.importing.importer.write_utterances", second_import)
    with pytest.raises(KeyboardInterrupt):
        run_import(source, tmp_path / "out", speaker="almaz")
    assert refusals == [5]


def test_a_project_is_not_imported_into_itself(tmp_path):
    import_manifest(write_dataset(tmp_path / "in", ["a"]), tmp_path / "out")
    before = snapshot(tmp_path / "out")
    with pytest.raises(UserError, match="--output-dir"):
        import_manifest(tmp_path / "out/manifest.jsonl", tmp_path / "out")
    with pytest.raises(UserError, match="--output-dir"):
        run_import(tmp_path, tmp_path / "out", speaker="s")
    copy = (tmp_path / "out/manifest.jsonl").read_text().replace("audio/", "out/audio/")
    (tmp_path / "copy.jsonl").write_text(copy)
    with pytest.raises(UserError, match="--output-dir"):
        import_manifest(tmp_path / "copy.jsonl", tmp_path / "out")
    assert snapshot(tmp_path / "out") == before


def test_the_error_names_the_file_or_the_flags(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match=r"/file/audio: Not a directory"):
        import_manifest(write_dataset(tmp_path / "in", ["a"]), tmp_path / "file")
    with pytest.raises(UserError, match=r"--source FOLDER .*--manifest FILE"):
        import_dataset(ImportDataset(output_dir=tmp_path / "out"))
    with pytest.raises(UserError, match="absent: "):
        run_import(tmp_path / "absent", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --max-hours and --speakers


def table(folder: Path, first: int = 0, last: int = 9) -> Path:
    """Write recordings of 0.5 s by three speakers in turn, and their table."""
    rows = ["path,text,speaker"]
    for number in range(first, last):
        write_tone(folder / f"wavs/c{number}.wav", 200 + number)
        rows.append(f"c{number},ሰላም ለዓለም {number},{SPEAKERS[number % 3]}")
    (folder / "metadata.csv").write_text("\n".join(rows), encoding="utf-8")
    return folder


def test_the_first_recordings_are_imported_until_they_reach_the_hours(tmp_path, caplog):
    source = table(tmp_path / "in")
    (source / "wavs/c0.wav").write_bytes(b"no audio")  # does not count
    with caplog.at_level("INFO"):
        run_import(source, tmp_path / "out", max_hours=1.6 / HOUR_S)
    assert ids(tmp_path / "out") == ["c1", "c2", "c3", "c4"]
    assert "left out 4 recordings because of --max-hours" in caplog.text
    before = snapshot(tmp_path / "out")
    assert run_import(source, tmp_path / "out", max_hours=1.6 / HOUR_S).num_unchanged == 4
    assert snapshot(tmp_path / "out") == before
    result = run_import(source, tmp_path / "out", max_hours=3 / HOUR_S)
    assert (result.num_added, result.num_unchanged) == (2, 4)
    assert ids(tmp_path / "out") == [f"c{number}" for number in range(1, 7)]
    assert not list((tmp_path / "out/audio").glob(".part-*"))


def test_the_hours_are_those_of_all_sources_and_fewer_remove_nothing(tmp_path):
    sources = [table(tmp_path / "a", 0, 3), table(tmp_path / "b", 3, 6), table(tmp_path / "c", 6, 9)]
    run_import(sources, tmp_path / "out", max_hours=2 / HOUR_S)
    assert ids(tmp_path / "out") == ["c0", "c1", "c2", "c3"]
    assert run_import(sources, tmp_path / "out").num_added == 5
    result = run_import(sources, tmp_path / "out", max_hours=1 / HOUR_S, prune=True)
    assert (result.num_utterances, result.num_pruned) == (9, 0)


def test_only_the_recordings_of_the_named_speakers_are_imported(tmp_path, caplog):
    source = table(tmp_path / "in")
    with caplog.at_level("INFO"):
        run_import(source, tmp_path / "out", speakers=["bekele", "chala"])
    assert ids(tmp_path / "out") == ["c1", "c2", "c4", "c5", "c7", "c8"]
    assert "left out 3 recordings because of --speakers" in caplog.text
    result = run_import(source, tmp_path / "out", speakers=["almaz"], max_hours=1 / HOUR_S)
    assert (result.num_utterances, result.num_added, result.num_unchanged) == (8, 2, 0)
    assert ids(tmp_path / "out") == [f"c{number}" for number in range(6)] + ["c7", "c8"]


def test_an_unknown_speaker_is_an_error_that_names_some_that_exist(tmp_path):
    with pytest.raises(UserError, match=r"--speakers nobody: .* 3 speakers: almaz, bekele, chala"):
        run_import(table(tmp_path / "in"), tmp_path / "out", speakers=["almaz", "nobody"])
    assert not (tmp_path / "out/manifest.jsonl").exists()
