import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.data import importing
from indextts.data.importing import import_dataset
from indextts.errors import UserError
from indextts.manifest import read_utterances
from tools.import_dataset import main


def write_tone(path: Path, duration_s: float = 0.5) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    times = np.arange(round(duration_s * 24_000)) / 24_000
    soundfile.write(path, 0.1 * np.sin(2 * np.pi * 220 * times), 24_000)


def write_dataset(folder: Path, ids: list[str], duration_s: float = 0.5) -> Path:
    """Write recordings and their manifest; return the manifest."""
    lines = []
    for number, id in enumerate(ids):
        write_tone(folder / f"wavs/{number}.wav", duration_s)
        line = {"id": id, "audio": f"wavs/{number}.wav", "text": "ሰላም", "speaker": "s", "duration": 0.5}
        lines.append(json.dumps(line) + "\n")
    (folder / "source.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder / "source.jsonl"


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_recordings_and_manifest_are_in_the_project(tmp_path):
    manifest = write_dataset(tmp_path / "in", ["a", "b"])
    result = import_dataset(manifest, tmp_path / "out")
    assert (result.num_utterances, result.num_speakers, result.num_copied) == (2, 1, 2)
    utterances = read_utterances(tmp_path / "out/manifest.jsonl")
    assert [utterance.audio for utterance in utterances] == [tmp_path / f"out/audio/{id}.wav" for id in "ab"]
    for number, utterance in enumerate(utterances):
        assert utterance.audio.read_bytes() == (tmp_path / f"in/wavs/{number}.wav").read_bytes()


def test_the_project_may_move(tmp_path):
    import_dataset(write_dataset(tmp_path / "in", ["a"]), tmp_path / "out")
    shutil.move(tmp_path / "out", tmp_path / "moved")
    assert read_utterances(tmp_path / "moved/manifest.jsonl")[0].audio.is_file()


def test_importing_twice_changes_nothing(tmp_path):  # D12
    manifest = write_dataset(tmp_path / "in", ["a", "b"])
    import_dataset(manifest, tmp_path / "out")
    before = snapshot(tmp_path / "out")
    assert import_dataset(manifest, tmp_path / "out").num_copied == 0
    assert snapshot(tmp_path / "out") == before


def test_any_id_becomes_a_safe_file_name_of_its_own(tmp_path):
    ids = ["../../evil", "a/b", "a b", "A", "a", ".", "ሰላም", "x" * 300, "x" * 301, "a\nb", "-rf", "CON"]
    import_dataset(write_dataset(tmp_path / "in", ids), tmp_path / "out")
    names = [path.name for path in (tmp_path / "out/audio").iterdir()]
    assert len({name.lower() for name in names}) == len(ids)
    assert all(len(name) < 120 and not name.startswith((".", "-")) for name in names)
    assert [utterance.id for utterance in read_utterances(tmp_path / "out/manifest.jsonl")] == ids
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_file_names_do_not_depend_on_the_other_lines(tmp_path):
    import_dataset(write_dataset(tmp_path / "in1", ["A", "b c"]), tmp_path / "out1")
    import_dataset(write_dataset(tmp_path / "in2", ["b c", "a", "A"]), tmp_path / "out2")
    first = {path.name for path in (tmp_path / "out1/audio").iterdir()}
    assert first < {path.name for path in (tmp_path / "out2/audio").iterdir()}


def test_durations_are_those_of_the_files_and_differences_are_counted(tmp_path, caplog):
    manifest = write_dataset(tmp_path / "in", ["a", "b"], duration_s=1.0)  # the manifest says 0.5
    import_dataset(manifest, tmp_path / "out")
    assert [u.duration_s for u in read_utterances(tmp_path / "out/manifest.jsonl")] == [1.0, 1.0]
    assert "2 of 2 durations are off by more than 0.2 s" in caplog.text


def test_all_bad_recordings_are_named_and_nothing_is_written(tmp_path):
    manifest = write_dataset(tmp_path / "in", [f"u{number}" for number in range(30)])
    for number in range(5, 30):
        (tmp_path / f"in/wavs/{number}.wav").write_bytes(b"RIFF no audio" if number % 2 else b"")
    (tmp_path / "in/wavs/7.wav").unlink()
    with pytest.raises(UserError) as caught:
        import_dataset(manifest, tmp_path / "out")
    message = str(caught.value)
    assert message.startswith(f"{manifest}: 25 of 30 recordings cannot be used")
    assert f"{manifest}:8: {tmp_path}/in/wavs/7.wav: there is no such file" in message
    assert f"{manifest}:6: {tmp_path}/in/wavs/5.wav: cannot be read as audio" in message
    assert message.endswith("and 5 more")
    assert not (tmp_path / "out").exists()


def test_a_folder_in_place_of_a_recording_is_named(tmp_path):
    manifest = write_dataset(tmp_path / "in", ["a"])
    (tmp_path / "in/wavs/0.wav").unlink()
    (tmp_path / "in/wavs/0.wav").mkdir()
    with pytest.raises(UserError, match=r"0\.wav: this is no file"):
        import_dataset(manifest, tmp_path / "out")


def test_an_interrupted_import_leaves_no_manifest_and_goes_on(tmp_path, monkeypatch):  # D13
    manifest = write_dataset(tmp_path / "in", ["a", "b", "c"])
    copy = shutil.copyfile
    copied = []

    def interrupted_copy(source, target):
        if copied:
            Path(target).write_bytes(b"half")
            raise KeyboardInterrupt
        copied.append(copy(source, target))

    monkeypatch.setattr(importing.shutil, "copyfile", interrupted_copy)
    with pytest.raises(KeyboardInterrupt):
        import_dataset(manifest, tmp_path / "out")
    assert not (tmp_path / "out/manifest.jsonl").exists()
    monkeypatch.undo()
    assert import_dataset(manifest, tmp_path / "out").num_copied == 2
    assert len(list((tmp_path / "out/audio").iterdir())) == 3


def test_an_interrupted_second_import_leaves_no_manifest_that_does_not_fit(tmp_path, monkeypatch):
    import_dataset(write_dataset(tmp_path / "in1", ["a"]), tmp_path / "out")
    changed = write_dataset(tmp_path / "in2", ["a"], duration_s=2.0)

    def interrupted_copy(source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(importing.shutil, "copyfile", interrupted_copy)
    with pytest.raises(KeyboardInterrupt):
        import_dataset(changed, tmp_path / "out")
    assert not (tmp_path / "out/manifest.jsonl").exists()


def test_files_of_an_earlier_import_are_counted_and_left(tmp_path, caplog):  # D12
    import_dataset(write_dataset(tmp_path / "in1", ["a", "b"]), tmp_path / "out")
    import_dataset(write_dataset(tmp_path / "in2", ["a"]), tmp_path / "out")
    assert "1 files belong to no utterance of the new manifest (b.wav, ...)" in caplog.text
    assert (tmp_path / "out/audio/b.wav").is_file()


def test_a_project_is_not_imported_into_itself(tmp_path):
    import_dataset(write_dataset(tmp_path / "in", ["a"]), tmp_path / "out")
    before = snapshot(tmp_path / "out")
    with pytest.raises(UserError, match="is in --output-dir already"):
        import_dataset(tmp_path / "out/manifest.jsonl", tmp_path / "out")
    shutil.copy(tmp_path / "out/manifest.jsonl", tmp_path / "copy.jsonl")
    copy = (tmp_path / "copy.jsonl").read_text().replace("audio/", "out/audio/")
    (tmp_path / "copy.jsonl").write_text(copy)
    with pytest.raises(UserError, match="is in --output-dir already"):
        import_dataset(tmp_path / "copy.jsonl", tmp_path / "out")
    assert snapshot(tmp_path / "out") == before


def test_a_file_in_the_way_of_the_folder_is_named(tmp_path):
    (tmp_path / "out").write_text("x")
    with pytest.raises(UserError, match="cannot copy"):
        import_dataset(write_dataset(tmp_path / "in", ["a"]), tmp_path / "out")


def test_the_program_prints_a_short_result(tmp_path, capsys):
    manifest = write_dataset(tmp_path / "in", ["a", "b"])
    assert main([f"--manifest={manifest}", f"--output-dir={tmp_path / 'out'}"]) == 0
    assert capsys.readouterr().out == (
        f"{tmp_path}/out/manifest.jsonl: 2 utterances, 0.00 hours, 1 speakers; "
        "2 recordings copied, 0 were there already\n"
    )
