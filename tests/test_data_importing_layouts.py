"""Tests of the layouts and tables: detection, and invalid rows."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.frame import process_memory
from indextts.errors import UserError
from tests.conftest import REPOSITORY
from tests.import_sources import manifest_lines, rejected, run_import, write_tone

TEXTS = ["ሰላም ለዓለም።", "እንዴት ነህ፣ ደህና?", "በ2017 ተጀመረ።"]


def write_clips(folder: Path, names: list[str]) -> None:
    for number, name in enumerate(names):
        write_tone(folder / name, 200 + number, 0.2)


def write_text(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


def imported(folder: Path, **flags: object) -> list[tuple[str, str, str]]:
    """Return id, text and speaker of the utterances that an import of the folder gives."""
    flags.setdefault("speaker", "s")
    run_import(folder, folder.with_name("out"), **flags)
    return [(line["id"], line["text"], line["speaker"]) for line in manifest_lines(folder.with_name("out"))]


def out_rejected(folder: Path) -> list[tuple[str, int | None, str]]:
    return rejected(folder.with_name("out"))


@pytest.mark.parametrize("delimiter", ["|", "\t", ",", ";"])
@pytest.mark.parametrize("has_header", [False, True])
def test_a_table_is_read_with_any_delimiter_with_and_without_a_header(tmp_path, delimiter, has_header):
    write_clips(tmp_path / "in/wavs", ["a-1.wav", "a-2.wav", "a-3.wav"])
    rows = [delimiter.join(["file", "text"])] if has_header else []
    for number, text in enumerate(TEXTS, start=1):
        rows.append(delimiter.join([f"a-{number}", f'"{text}"' if delimiter in ",;" else text]))
    write_text(tmp_path / "in/metadata.csv", "\n".join(rows) + "\n")
    assert imported(tmp_path / "in") == [(f"a-{n}", text, "s") for n, text in enumerate(TEXTS, start=1)]


def test_the_spoken_text_of_ljspeech_is_used(tmp_path):
    write_clips(tmp_path / "in/wavs", ["LJ001-0001.wav", "LJ001-0002.wav"])
    lines = 'LJ001-0001|በ2017 ተጀመረ|በሁለት ሺህ አሥራ ሰባት ተጀመረ\nLJ001-0002|እርሱ "ደህና" አለ|\n'
    write_text(tmp_path / "in/metadata.csv", lines)
    assert imported(tmp_path / "in") == [
        ("LJ001-0001", "በሁለት ሺህ አሥራ ሰባት ተጀመረ", "s"),
        ("LJ001-0002", 'እርሱ "ደህና" አለ', "s"),
    ]


def test_a_header_names_speaker_and_the_order_of_columns_is_free(tmp_path):
    write_clips(tmp_path / "in", ["x/1.wav", "x/2.wav"])
    table = (
        'speaker,duration,transcription,path\nalmaz,1,"ሰላም, ለዓለም",x/1.wav\nbekele,1,"""ደህና""\nነኝ",x/2.wav\n'
    )
    write_text(tmp_path / "in/list.csv", table)
    assert imported(tmp_path / "in", speaker="") == [
        ("x_1", "ሰላም, ለዓለም", "almaz"),
        ("x_2", '"ደህና" ነኝ', "bekele"),
    ]


def test_invalid_rows_of_a_table_are_listed_and_the_rest_is_read(tmp_path):
    write_clips(tmp_path / "in/wavs", [f"{number}.wav" for number in range(8)])
    rows = [
        "0,ሰላም",
        "1,ሰላም, ለዓለም",  # a text with a delimiter
        '2,"ሰላም',  # a quote that is not closed
        "3,ሰላም",
        "4",
        "5,",
        "9,ሰላም",
        "../../../etc/hostname,ሰላም",
        "3,ደህና",
        "6,ሰላም",
    ]
    write_text(tmp_path / "in/metadata.csv", "\n".join(rows))
    assert [id for id, _, _ in imported(tmp_path / "in")] == ["0", "3", "6"]
    assert out_rejected(tmp_path / "in") == [
        ("metadata.csv", 2, "broken_row"),
        ("metadata.csv", 3, "broken_row"),
        ("metadata.csv", 5, "broken_row"),
        ("metadata.csv", 6, "empty_text"),
        ("metadata.csv", 7, "missing_audio"),
        ("metadata.csv", 8, "missing_audio"),
        ("metadata.csv", 9, "duplicate"),
    ]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_table_may_be_in_any_encoding_of_unicode_with_any_line_ends(tmp_path, encoding, line_end):
    write_clips(tmp_path / "in/wavs", ["1.wav", "2.wav", "3.wav"])
    rows = [f"{number}|{text}" for number, text in enumerate(TEXTS, start=1)]
    write_text(tmp_path / "in/metadata.csv", line_end.join(rows), encoding)
    assert [text for _, text, _ in imported(tmp_path / "in")] == TEXTS


def test_windows_paths_are_found(tmp_path):
    write_clips(tmp_path / "in", ["audio/1.wav", "audio/2.wav", "more/3.wav"])
    write_text(
        tmp_path / "in/metadata.csv", f"path,text\r\naudio\\1.wav,{TEXTS[0]}\r\nmore\\3.wav,{TEXTS[1]}\r\n"
    )
    assert imported(tmp_path / "in") == [("1", TEXTS[0], "s"), ("more_3", TEXTS[1], "s")]
    write_clips(tmp_path / "lines", ["audio/2.wav"])
    line = json.dumps({"audio": "audio\\2.wav", "text": TEXTS[2]}, ensure_ascii=False)
    write_text(tmp_path / "lines/manifest.jsonl", f"\ufeff{line}\r\n")
    assert imported(tmp_path / "lines")[-1] == ("2", TEXTS[2], "s")


def test_lines_in_another_encoding_than_the_files_are_listed(tmp_path):
    write_clips(tmp_path / "in/wavs", [f"{number}.wav" for number in range(6)])
    good = "".join(f"{number}|ሰላም ለዓለም ዛሬ እንዴት ናችሁ\n" for number in range(4)).encode()
    lines = good + "4|ሰላም\n".encode("utf-16-le") + b"5|caf\xe9\n" + "\ufeff3|ደህና\n".encode()
    (tmp_path / "in/metadata.csv").write_bytes(lines)
    assert [id for id, _, _ in imported(tmp_path / "in")] == ["0", "1", "2", "3"]
    assert out_rejected(tmp_path / "in") == [
        ("metadata.csv", 5, "not_text"),
        ("metadata.csv", 6, "encoding"),
        ("metadata.csv", 7, "duplicate"),
    ]


def test_a_binary_file_instead_of_a_text_is_one_rejection(tmp_path):
    write_clips(tmp_path / "in", ["a.wav", "b.wav"])
    write_text(tmp_path / "in/a.txt", "ሰላም")
    (tmp_path / "in/b.txt").write_bytes((tmp_path / "in/b.wav").read_bytes())
    (tmp_path / "in/c.txt").write_bytes(bytes(range(256)) * 10)
    assert imported(tmp_path / "in") == [("a", "ሰላም", "s")]
    assert out_rejected(tmp_path / "in") == [("b.txt", None, "not_text"), ("c.txt", None, "no_audio")]


def test_a_binary_table_is_an_error_with_its_code(tmp_path):
    write_clips(tmp_path / "in", ["a.wav"])
    (tmp_path / "in/metadata.csv").write_bytes((tmp_path / "in/a.wav").read_bytes())
    with pytest.raises(UserError, match=r"\(1 not_text") as caught:
        imported(tmp_path / "in")
    assert caught.value.exit_status == 1


@pytest.mark.slow
def test_a_line_of_2_gb_is_one_rejection_and_takes_little_memory(tmp_path):
    write_clips(tmp_path / "in/wavs", ["1.wav", "2.wav"])
    table = write_text(tmp_path / "in/metadata.csv", "1|ሰላም\n9|" + "ሰ" * 100_000)
    with table.open("r+b") as file:
        file.seek(2 * 10**9)  # a sparse file
        file.write("\n2|ደህና\n".encode())
    argv = [sys.executable, str(REPOSITORY / "tools/import_dataset.py"), f"--source={tmp_path / 'in'}"]
    program = subprocess.Popen([*argv, "--speaker=s", f"--output-dir={tmp_path / 'out'}"])
    peak = 0
    while program.poll() is None:
        # not ru_maxrss, which for a child starts with the memory of the process that forked it
        peak = process_memory(program.pid, "VmHWM") or peak
        time.sleep(0.02)
    assert program.returncode == 0
    assert [line["id"] for line in manifest_lines(tmp_path / "out")] == ["1", "2"]
    assert rejected(tmp_path / "out") == [("metadata.csv", 2, "line_too_long")]
    assert 0 < peak < 600 * 2**20


def test_common_voice_is_detected_by_its_tables_and_its_clients_are_the_speakers(tmp_path):
    folder = tmp_path / "in/cv-corpus-25.0/am"
    write_clips(folder / "clips", ["common_voice_am_1.mp3", "common_voice_am_2.mp3", "common_voice_am_3.mp3"])
    header = "client_id\tpath\tsentence_id\tsentence\tsentence_domain\tup_votes\tlocale\n"
    client = "abcdef0123456789" * 8
    rows = [
        f'{client}\tcommon_voice_am_{n}.mp3\tx{n}\t"{text}\t\t2\tam\n' for n, text in enumerate(TEXTS[:2], 1)
    ]
    write_text(folder / "validated.tsv", header + "".join(rows))
    write_text(folder / "invalidated.tsv", header + rows[0].replace("_1.mp3", "_3.mp3"))
    assert imported(tmp_path / "in", speaker="") == [
        (f"common_voice_am_{number}", f'"{text}', "abcdef0123456789")
        for number, text in enumerate(TEXTS[:2], start=1)
    ]


def test_fleurs_is_detected_by_its_tables_and_asks_for_the_speaker(tmp_path):
    folder = tmp_path / "in/am_et"
    write_clips(folder / "audio/train", ["1000.wav"])
    write_clips(folder / "audio/dev", ["2000.wav"])
    for split, name, text in (("train", "1000", TEXTS[0]), ("dev", "2000", TEXTS[1])):
        row = ["7", f"{name}.wav", text, text.rstrip("።?"), "| |", "4800", "MALE"]
        write_text(folder / f"{split}.tsv", "\t".join(row) + "\n")
    with pytest.raises(UserError, match="--speaker NAME"):
        imported(tmp_path / "in", speaker="")
    assert imported(tmp_path / "in") == [("1000", TEXTS[0], "s"), ("2000", TEXTS[1], "s")]


def test_a_table_of_seven_named_columns_is_not_detected_as_fleurs(tmp_path):
    write_clips(tmp_path / "in", ["1.wav"])
    write_text(tmp_path / "in/train.tsv", "a\tpath\tb\ttext\tc\td\te\n0\t1.wav\t0\tሰላም\t0\t0\t0\n")
    assert imported(tmp_path / "in") == [("1", "ሰላም", "s")]


def test_json_lines_of_other_programs_are_read_by_their_field_names(tmp_path):
    write_clips(tmp_path / "in/audio", ["spk000_000001.wav", "2.wav", "3.wav"])
    lines = [
        {"id": "spk000_000001", "audio_path": "audio/spk000_000001.wav", "text": TEXTS[0],
         "speaker": "spk000", "codes_path": "codes/x.npy", "source_file": "video_7"},
        {"audio_filepath": "audio/2.wav", "duration": 1.0, "text": TEXTS[1], "speaker": 17},
        {"audio": "audio/3.wav", "text": ["a"], "speaker": "b"},
        {"id": "a__b", "target_id": "a", "prompt_id": "b"},
    ]  # fmt: skip
    write_text(tmp_path / "in/train.jsonl", "\n".join(map(json.dumps, lines)))
    assert imported(tmp_path / "in") == [("spk000_000001", TEXTS[0], "spk000"), ("2", TEXTS[1], "17")]
    assert [line.get("recording") for line in manifest_lines(tmp_path / "out")] == ["video_7", None]
    assert [row[1:] for row in out_rejected(tmp_path / "in")] == [(3, "broken_row"), (4, "broken_row")]


def test_recordings_with_texts_beside_them_are_found_in_all_folders(tmp_path):
    write_clips(tmp_path / "in/b", ["1.flac", "2.ogg", "3.wav"])
    write_clips(tmp_path / "in/a.b", ["1.WAV", "1.ogg"])
    for name in ("b/1.txt", "b/2.TXT", "a.b/1.txt"):
        write_text(tmp_path / "in" / name, f" ሰላም \n{name} \n")
    write_clips(tmp_path / "in/.hidden", ["9.wav"])
    assert imported(tmp_path / "in") == [
        ("a.b_1", "ሰላም a.b/1.txt", "s"),
        ("b_1", "ሰላም b/1.txt", "s"),
        ("b_2", "ሰላም b/2.TXT", "s"),
    ]
    assert sorted(out_rejected(tmp_path / "in")) == [
        ("a.b/1.ogg", None, "duplicate"),
        ("b/3.wav", None, "no_text"),
    ]


def test_subtitles_match_the_recording_of_the_same_name_with_or_without_a_language(tmp_path):
    write_clips(tmp_path / "in", ["a.wav", "b.one.wav", "c.wav", "clip.wav"])
    write_text(tmp_path / "in/clip.txt", "ሰላም")
    lines = "1\n00:00:00,000 --> 00:00:00,200\nሰላም ለዓለም\n"
    for name in ("a.am.srt", "a.en.srt", "b.one.srt", "c.en.vtt"):
        write_text(tmp_path / "in" / name, lines)
    assert [id for id, _, _ in imported(tmp_path / "in")] == ["clip"]
    assert sorted(out_rejected(tmp_path / "in")) == [
        ("a.am.srt", 2, "no_speech"),  # the preferred subtitles; a tone contains no speech
        ("a.en.srt", None, "language"),
        ("b.one.srt", 2, "no_speech"),
        ("c.en.vtt", None, "language"),
    ]


def test_several_tables_in_one_folder_are_one_source(tmp_path):
    for speaker in ("almaz", "bekele"):
        write_clips(tmp_path / f"in/{speaker}/wavs", [f"{speaker}1.wav"])
        write_text(tmp_path / f"in/{speaker}/metadata.csv", f"{speaker}1|ሰላም {speaker}\n")
    write_text(tmp_path / "in/README.md", "two")
    assert imported(tmp_path / "in", speaker="", speaker_from="folder") == [
        ("almaz1", "ሰላም almaz", "almaz"),
        ("bekele1", "ሰላም bekele", "bekele"),
    ]


def test_recordings_outside_the_allowed_folders_are_not_read(tmp_path):
    write_clips(tmp_path / "secret", ["1.wav"])
    write_clips(tmp_path / "in/wavs", ["2.wav"])
    (tmp_path / "in/wavs/3.wav").symlink_to(tmp_path / "secret/1.wav")
    write_text(
        tmp_path / "in/metadata.csv", f"{tmp_path}/secret/1.wav|ሰላም\n../secret/1.wav|ሰላም\n2|ሰላም\n3|ሰላም\n"
    )
    assert len(imported(tmp_path / "in")) == 4  # without allowed folders, as in the terminal
    run_import(tmp_path / "in", tmp_path / "out2", speaker="s", audio_root=[tmp_path / "in"])
    assert [line["id"] for line in manifest_lines(tmp_path / "out2")] == ["2"]
    assert [row[1:] for row in rejected(tmp_path / "out2")] == [
        (1, "outside"),
        (2, "outside"),
        (4, "outside"),
    ]


def test_a_folder_without_recordings_is_an_error_with_the_layout(tmp_path):
    (tmp_path / "in").mkdir()
    with pytest.raises(UserError, match="the layout files;"):
        imported(tmp_path / "in")
