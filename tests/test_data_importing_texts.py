"""Tests of the texts of an import: marks that nobody speaks, of every layout, and voice tags of subtitles."""

import json
from pathlib import Path

import pytest

from indextts.errors import UserError
from tests.import_cases import objects, rows, tones, write
from tests.import_sources import manifest_lines, rejected, run_import, tone_bytes
from tests.test_data_importing_long_recordings import join_clips

TEXTS = ["[noise] ሰላም ለዓለም።", "Speaker 1: እንዴት &amp; ነህ?", "ዛሬ [ተሰጥቶታል] ነው።"]
CLEANED = ["ሰላም ለዓለም።", "እንዴት & ነህ?", "ዛሬ [ተሰጥቶታል] ነው።"]


IDS, AUDIO = ["u0", "u1", "u2"], ["0.wav", "1.wav", "2.wav"]
SOUNDS = [{"bytes": tone_bytes(200 + number), "path": name} for number, name in enumerate(AUDIO)]
LAYOUTS = {
    "table": {"metadata.csv": rows("|", AUDIO, TEXTS)},
    "jsonl": {"data.jsonl": list(map(json.dumps, objects(audio=AUDIO, text=TEXTS)))},
    "kaldi": {
        "wav.scp": rows(" ", IDS, AUDIO),
        "text": rows(" ", IDS, TEXTS),
        "utt2spk": rows(" ", IDS, "sss"),
    },
    "files": {f"{number}.txt": text for number, text in enumerate(TEXTS)},
    "parquet": {"a.parquet": {"audio": SOUNDS, "text": TEXTS}},
}


def write_layout(folder: Path, layout: str) -> Path:
    """Write three recordings with the texts in a layout."""
    return write(folder, LAYOUTS[layout] | (tones(*AUDIO) if layout != "parquet" else {}))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_marks_are_removed_in_every_layout_and_the_original_stays(tmp_path: Path, caplog, layout: str):
    caplog.set_level("INFO")
    run_import(write_layout(tmp_path / "in", layout), tmp_path / "out", speaker="s")
    lines = manifest_lines(tmp_path / "out")
    assert [line["text"] for line in lines] == CLEANED
    assert [line.get("original_text") for line in lines] == [*TEXTS[:2], None]
    logged = caplog.text
    assert all(mark in logged for mark in ("noise", "[noise]", "Speaker 1:", "&amp;", "[ተሰጥቶታል]"))


def test_kept_kinds_stay_also_in_the_next_import(tmp_path: Path):
    source = write_layout(tmp_path / "in", "table")
    run_import(source, tmp_path / "out", speaker="s", keep="noise,labels")
    run_import(source, tmp_path / "out")
    lines = manifest_lines(tmp_path / "out")
    assert [line["text"] for line in lines] == [TEXTS[0], "Speaker 1: እንዴት & ነህ?", TEXTS[2]]
    run_import(source, tmp_path / "out", keep="escapes")
    assert [line["text"] for line in manifest_lines(tmp_path / "out")] == CLEANED
    for wrong in ("noises", "noise;labels"):
        with pytest.raises(UserError, match="--keep"):
            run_import(source, tmp_path / "out", keep=wrong)


def test_a_text_of_marks_alone_is_rejected_with_its_row(tmp_path: Path):
    write(tmp_path / "in", {"a.wav": 0, "b.wav": 1, "metadata.csv": ["a.wav|[ሳቅ] (music)", "b.wav|ሰላም ነው"]})
    assert run_import(tmp_path / "in", tmp_path / "out", speaker="s").num_added == 1
    assert rejected(tmp_path / "out") == [("metadata.csv", 1, "empty_text")]


@pytest.mark.shared
def test_voice_tags_name_speakers_and_marks_of_subtitles_are_removed(tmp_path: Path, shared, caplog):
    truth = join_clips(shared, tmp_path / "in", 4, seed=3)
    srt = (tmp_path / "in/talk.srt").read_text(encoding="utf-8").replace(",", ".")
    (tmp_path / "in/talk.srt").unlink()
    tags = ("<v Anna>[ሳቅ] ", "<v.loud Bekele T.><font color='#fff'>", "<v Anna>", "")
    for (_, _, text), tag in zip(truth, tags, strict=True):
        srt = srt.replace(text.replace(",", "."), f"{tag}{text}")
    (tmp_path / "in/talk.vtt").write_text(f"WEBVTT\n\n{srt}", encoding="utf-8")
    caplog.set_level("INFO")
    run_import(tmp_path / "in", tmp_path / "out")
    lines = manifest_lines(tmp_path / "out")
    assert [(line["speaker"], line["text"]) for line in lines] == [
        (name, text) for name, (_, _, text) in zip(["Anna", "Bekele T.", "Anna"], truth, strict=False)
    ]
    assert lines[0]["original_text"] == tags[0] + truth[0][2]
    assert "[ሳቅ]" in caplog.text
    assert [code for *_, code in rejected(tmp_path / "out")] == ["no_speaker"]  # without a tag
    run_import(tmp_path / "in", tmp_path / "out", speaker="Chala")
    speakers = [line["speaker"] for line in manifest_lines(tmp_path / "out")]
    assert speakers == ["Anna", "Bekele T.", "Anna", "Chala"]
