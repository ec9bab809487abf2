"""Tests of layouts and tables: invalid rows, encodings, paths."""

import json
import tracemalloc
from pathlib import Path

import pytest
import soundfile

from indextts.errors import UserError
from tests.import_sources import manifest_lines, rejected, run_import, write_tone

TEXTS = ["ሰላም ለዓለም።", "እንዴት ነህ፣ ደህና?", "በ2017 ተጀመረ።", "ነገ እንገናኛለን አለ።"]
SPEAKERS = ["almaz", "bekele"] * 2
NAMES = [f"tr_{number}" for number in range(4)]


def write_clips(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        write_tone(folder / name, 200 + number, 0.2)


def write_text(path: Path, *lines: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("\n".join(lines).encode(encoding))
    return path


def imported(folder: Path, **flags: object) -> list[tuple[str, str, str]]:
    """Return id, text and speaker of the utterances that an import of the folder gives."""
    flags.setdefault("speaker", "s")
    run_import(folder, folder.with_name("out"), **flags)
    return [(line["id"], line["text"], line["speaker"]) for line in manifest_lines(folder.with_name("out"))]


def out_rejected(folder: Path) -> list[tuple[str, int | None, str]]:
    return rejected(folder.with_name("out"))


def test_a_header_names_speaker_and_the_order_of_columns_is_free(tmp_path):
    write_clips(tmp_path / "in", "x/1.wav", "x/2.wav")
    rows = ["speaker,duration,transcription,path", 'almaz,1,"ሰላም, ለዓለም",x/1.wav']
    write_text(tmp_path / "in/list.csv", *rows, 'bekele,1,"""ደህና""\nነኝ",x/2.wav')
    assert imported(tmp_path / "in", speaker="") == [
        ("x_1", "ሰላም, ለዓለም", "almaz"),
        ("x_2", '"ደህና" ነኝ', "bekele"),
    ]


def test_quotes_in_a_table_with_bars_are_text_and_an_empty_spoken_form_leaves_the_text(tmp_path):
    write_clips(tmp_path / "in/wavs", "1.wav", "2.wav")
    write_text(tmp_path / "in/metadata.csv", "1|በ2017 ተጀመረ|በሁለት ሺህ አሥራ ሰባት ተጀመረ", '2|እርሱ "ደህና" አለ|')
    assert imported(tmp_path / "in") == [("1", "በሁለት ሺህ አሥራ ሰባት ተጀመረ", "s"), ("2", 'እርሱ "ደህና" አለ', "s")]


def test_invalid_rows_of_a_table_are_listed_and_the_rest_is_read(tmp_path):
    write_clips(tmp_path / "in/wavs", *(f"{number}.wav" for number in range(8)))
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
    write_text(tmp_path / "in/metadata.csv", *rows)
    assert [id for id, _, _ in imported(tmp_path / "in")] == ["0", "3", "6"]
    codes = ["broken_row", "broken_row", "broken_row", "empty_text", "missing_audio", "missing_audio"]
    lines = zip([2, 3, 5, 6, 7, 8, 9], [*codes, "duplicate"], strict=True)
    assert out_rejected(tmp_path / "in") == [("metadata.csv", *line) for line in lines]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_a_table_may_be_in_any_encoding_of_unicode_with_any_line_ends(tmp_path, encoding, line_end):
    write_clips(tmp_path / "in/wavs", *(f"{number}.wav" for number in range(4)))
    rows = line_end.join(f"{number}|{text}" for number, text in enumerate(TEXTS))
    write_text(tmp_path / "in/metadata.csv", rows, encoding=encoding)
    assert [text for _, text, _ in imported(tmp_path / "in")] == TEXTS


def test_windows_paths_are_found(tmp_path):
    write_clips(tmp_path / "in", "audio/1.wav", "audio/2.wav", "more/3.wav")
    write_text(
        tmp_path / "in/metadata.csv", "path,text", f"audio\\1.wav,{TEXTS[0]}", f"more\\3.wav,{TEXTS[1]}"
    )
    assert imported(tmp_path / "in") == [("1", TEXTS[0], "s"), ("more_3", TEXTS[1], "s")]
    write_clips(tmp_path / "lines", "audio/2.wav")
    line = json.dumps({"audio": "audio\\2.wav", "text": TEXTS[2]}, ensure_ascii=False)
    write_text(tmp_path / "lines/manifest.jsonl", f"\ufeff{line}\r\n")
    assert imported(tmp_path / "lines")[-1] == ("2", TEXTS[2], "s")


def test_lines_in_another_encoding_than_the_files_are_listed(tmp_path):
    write_clips(tmp_path / "in/wavs", *(f"{number}.wav" for number in range(6)))
    good = "".join(f"{number}|ሰላም ለዓለም ዛሬ እንዴት ናችሁ\n" for number in range(4)).encode()
    lines = good + "4|ሰላም\n".encode("utf-16-le") + b"5|caf\xe9\n" + "\ufeff3|ደህና\n".encode()
    (tmp_path / "in/metadata.csv").write_bytes(lines)
    assert [id for id, _, _ in imported(tmp_path / "in")] == ["0", "1", "2", "3"]
    assert [row[1:] for row in out_rejected(tmp_path / "in")] == [
        (5, "not_text"),
        (6, "encoding"),
        (7, "duplicate"),
    ]


def test_a_binary_file_instead_of_a_text_or_table_is_one_rejection(tmp_path):
    write_clips(tmp_path / "in", "a.wav", "b.wav")
    write_text(tmp_path / "in/a.txt", "ሰላም")
    (tmp_path / "in/b.txt").write_bytes((tmp_path / "in/b.wav").read_bytes())
    (tmp_path / "in/c.txt").write_bytes(bytes(range(256)) * 10)
    assert imported(tmp_path / "in") == [("a", "ሰላም", "s")]
    assert out_rejected(tmp_path / "in") == [("b.txt", None, "not_text"), ("c.txt", None, "no_audio")]
    (tmp_path / "in/metadata.csv").write_bytes((tmp_path / "in/a.wav").read_bytes())
    with pytest.raises(UserError, match=r"\(1 not_text") as caught:
        imported(tmp_path / "in")
    assert caught.value.exit_status == 1


def test_a_line_of_200_mb_is_one_rejection_and_takes_little_memory(tmp_path):
    write_clips(tmp_path / "in/wavs", "1.wav", "2.wav")
    table = write_text(tmp_path / "in/metadata.csv", "1|ሰላም", "9|" + "ሰ" * 100_000)
    with table.open("r+b") as file:
        file.seek(200 * 10**6)  # a sparse file
        file.write("\n2|ደህና\n".encode())
    tracemalloc.start()
    try:
        assert [id for id, _, _ in imported(tmp_path / "in")] == ["1", "2"]
        assert tracemalloc.get_traced_memory()[1] < 60 * 2**20
    finally:
        tracemalloc.stop()
    assert out_rejected(tmp_path / "in") == [("metadata.csv", 2, "line_too_long")]


def test_a_table_of_seven_named_columns_is_not_detected_as_fleurs(tmp_path):
    write_clips(tmp_path / "in", "1.wav")
    write_text(tmp_path / "in/train.tsv", "a\tpath\tb\ttext\tc\td\te", "0\t1.wav\t0\tሰላም\t0\t0\t0")
    assert imported(tmp_path / "in") == [("1", "ሰላም", "s")]


def test_json_lines_of_other_programs_are_read_by_their_field_names(tmp_path):
    write_clips(tmp_path / "in/audio", "spk000_000001.wav", "2.wav", "3.wav")
    lines = [
        {"id": "spk000_000001", "audio_path": "audio/spk000_000001.wav", "text": TEXTS[0],
         "speaker": "spk000", "codes_path": "codes/x.npy", "source_file": "video_7"},
        {"audio_filepath": "audio/2.wav", "duration": 1.0, "text": TEXTS[1], "speaker": 17},
        {"audio": "audio/3.wav", "text": ["a"], "speaker": "b"},
        {"id": "a__b", "target_id": "a", "prompt_id": "b"},
    ]  # fmt: skip
    write_text(tmp_path / "in/train.jsonl", *map(json.dumps, lines))
    assert imported(tmp_path / "in") == [("spk000_000001", TEXTS[0], "spk000"), ("2", TEXTS[1], "17")]
    assert [line.get("recording") for line in manifest_lines(tmp_path / "out")] == ["video_7", None]
    assert [row[1:] for row in out_rejected(tmp_path / "in")] == [(3, "broken_row"), (4, "broken_row")]


def test_a_broken_json_array_is_refused_and_a_broken_object_rejected(tmp_path):
    write_tone(tmp_path / "in/a.wav")
    path = tmp_path / "in/data.json"
    path.write_text(json.dumps([{"audio": "a.wav", "text": TEXTS[0]}, 3, {"audio": "a.wav", "text": ["x"]}]))
    run_import(path, tmp_path / "out", speaker="s")
    assert [code for *_, code in rejected(tmp_path / "out")] == ["broken_row", "broken_row"]
    path.write_text(path.read_text()[:-5])
    with pytest.raises(UserError, match=r"data\.json: not JSON"):
        run_import(path, tmp_path / "out", speaker="s")


def test_recordings_with_texts_beside_them_are_found_in_all_folders(tmp_path):
    write_clips(tmp_path / "in/b", "1.flac", "2.ogg", "3.wav", "4.wav")
    write_clips(tmp_path / "in/a.b", "1.WAV", "1.ogg")
    for name in ("b/1.txt", "b/2.TXT", "a.b/1.txt"):
        write_text(tmp_path / "in" / name, " ሰላም ", f"{name} ", "")
    write_text(tmp_path / "in/b/4.lab", "0 2500000 sil", "2500000 5000000 s")
    write_clips(tmp_path / "in/.hidden", "9.wav")
    assert imported(tmp_path / "in") == [
        ("a.b_1", "ሰላም a.b/1.txt", "s"),
        ("b_1", "ሰላም b/1.txt", "s"),
        ("b_2", "ሰላም b/2.TXT", "s"),
    ]
    assert sorted(out_rejected(tmp_path / "in")) == [
        ("a.b/1.ogg", None, "duplicate"),
        ("b/3.wav", None, "no_text"),
        ("b/4.lab", None, "not_text"),
    ]


def test_subtitles_match_the_recording_of_the_same_name_with_or_without_a_language(tmp_path):
    write_clips(tmp_path / "in", "a.wav", "b.one.wav", "c.wav", "clip.wav")
    write_text(tmp_path / "in/clip.txt", "ሰላም")
    for name in ("a.am.srt", "a.en.srt", "b.one.srt", "c.en.vtt"):
        write_text(tmp_path / "in" / name, "1", "00:00:00,000 --> 00:00:00,200", "ሰላም ለዓለም")
    assert [id for id, _, _ in imported(tmp_path / "in")] == ["clip"]
    assert sorted(out_rejected(tmp_path / "in")) == [
        ("a.am.srt", 2, "no_speech"),  # the preferred subtitles; a tone contains no speech
        ("a.en.srt", None, "language"),
        ("b.one.srt", 2, "no_speech"),
        ("c.en.vtt", None, "language"),
    ]


def test_recordings_outside_the_allowed_folders_are_not_read(tmp_path):
    write_clips(tmp_path / "secret", "1.wav")
    write_clips(tmp_path / "in/wavs", "2.wav")
    (tmp_path / "in/wavs/3.wav").symlink_to(tmp_path / "secret/1.wav")
    rows = [f"{tmp_path}/secret/1.wav|ሰላም", "../secret/1.wav|ሰላም", "2|ሰላም", "3|ሰላም"]
    write_text(tmp_path / "in/metadata.csv", *rows)
    assert len(imported(tmp_path / "in")) == 4  # without allowed folders, as in the terminal
    run_import(tmp_path / "in", tmp_path / "out2", speaker="s", audio_root=[tmp_path / "in"])
    assert [line["id"] for line in manifest_lines(tmp_path / "out2")] == ["2"]
    assert [row[1:] for row in rejected(tmp_path / "out2")] == [(n, "outside") for n in (1, 2, 4)]


# --- Kaldi ----------------------------------------------------------------------------------------------


def write_kaldi(folder: Path, paths: list[str]) -> None:
    write_clips(folder / "wav", *(f"{name}.wav" for name in NAMES))
    for name, values in {"wav.scp": paths, "text": TEXTS, "utt2spk": SPEAKERS}.items():
        write_text(folder / name, *map(" ".join, zip(NAMES, values, strict=True)))


EXPECTED = list(zip(NAMES, TEXTS, SPEAKERS, strict=True))


@pytest.mark.parametrize("path", ["/home/x/data/train/wav/{}.wav", "sox /data/wav/{}.wav -r 16k -t wav - |"])
def test_kaldi_folders_are_read_with_paths_of_other_machines(tmp_path, path):
    write_kaldi(tmp_path / "in/data/train", [path.format(name) for name in NAMES])
    (tmp_path / "in/README").write_text("a corpus")
    assert imported(tmp_path / "in", speaker="") == EXPECTED


def test_a_command_of_wav_scp_is_not_run(tmp_path):
    mark = tmp_path / "mark"
    write_kaldi(tmp_path / "in", [f"touch {mark} |", *(f"wav/{name}.wav" for name in NAMES[1:])])
    assert imported(tmp_path / "in", speaker="") == EXPECTED[1:]
    assert rejected(tmp_path / "out") == [("text", 1, "missing_audio")]
    assert not mark.exists()


@pytest.mark.parametrize("missing", ["wav.scp", "text"])
def test_an_incomplete_kaldi_folder_is_named(tmp_path, missing):
    write_kaldi(tmp_path / "in", [f"wav/{name}.wav" for name in NAMES])
    (tmp_path / "in" / missing).unlink()
    with pytest.raises(UserError, match=rf"looks like a Kaldi data folder; {missing} missing"):
        imported(tmp_path / "in")


def test_segments_of_kaldi_are_cut_from_their_recordings(tmp_path):
    folder = tmp_path / "in"

    def write_segments(*spans: str) -> None:
        write_text(folder / "segments", *(f"{n} talk {span}" for n, span in zip(NAMES, spans, strict=True)))

    write_kaldi(folder, ["unused"] * 4)
    write_tone(folder / "talk.wav", 300, 4)
    write_text(folder / "wav.scp", "talk talk.wav")
    write_segments("0.00 1.00", "1.00 2.50", "3.50 4.01", "9.00 10.00")
    assert imported(folder, speaker="") == EXPECTED[:3]
    assert rejected(tmp_path / "out") == [("text", 4, "bad_time")]
    lines = manifest_lines(tmp_path / "out")
    durations = [soundfile.info(tmp_path / "out" / line["audio"]).duration for line in lines]
    assert durations == pytest.approx([1.0, 1.5, 0.5], abs=0.01)
    result = run_import(folder, tmp_path / "out")
    assert (result.num_added, result.num_changed, result.num_unchanged) == (0, 0, 3)
    write_segments("0.00 0.80", "1.00 2.50", "3.50 4.01", "broken x")
    result = run_import(folder, tmp_path / "out")
    assert (result.num_changed, result.num_unchanged) == (1, 2)
    [first, *_] = manifest_lines(tmp_path / "out")
    assert soundfile.info(tmp_path / "out" / first["audio"]).duration == pytest.approx(0.8, abs=0.01)
