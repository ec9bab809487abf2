"""Tests of forms beside tables: WebDataset, objects within objects, chats, TextGrid, labels, spreadsheets."""

import json
from pathlib import Path
from typing import Any

import pytest

from indextts.errors import UserError
from tests import import_cases
from tests.import_cases import imported, objects, tones, write
from tests.import_sources import manifest_lines, rejected, run_import, tone_bytes, write_tar, write_tone

TEXTS = import_cases.TEXTS[:3]
ENGLISH = ["peace to you", "how are you, well?", "the sun is out"]
NAMES = ["000", "001", "002"]
SHARDS = {
    **{f"{name}.wav": tone_bytes(200 + 10 * number, 0.3, "WAV") for number, name in enumerate(NAMES)},
    **{
        f"{name}.json": json.dumps(
            {"id": f"EN_{name}", "wav": f"/x/{name}.mp3", "text": text, "duration": 0.3, "speaker": "almaz"}
        )
        for name, text in zip(NAMES, TEXTS, strict=True)
    },
}
QUESTION = ("user", "<audio>Transcribe.")
CHAT_TURNS: dict[str, Any] = {
    "an answer before": ([("user", "Hi"), ("assistant", "ደህና"), QUESTION, ("assistant", "{}")], True),
    "recognition": ([("user", "<audio>Transcribe."), ("assistant", "{}")], True),
    "synthesis": ([("system", "Speak."), ("user", "{}"), ("assistant", "<audio>")], True),
    "parts": (
        [
            ("user", [{"type": "audio", "audio_url": "wavs/{name}.wav"}, {"type": "text", "text": "What?"}]),
            ("assistant", "{}"),
        ],
        False,
    ),
}


@pytest.mark.parametrize("place", ["folder", "tar", "folder of tars"])
def test_webdataset(tmp_path: Path, place: str):
    source = write(tmp_path / "in", SHARDS)
    expected = [(f"EN_{name}", text, "almaz") for name, text in zip(NAMES, TEXTS, strict=True)]
    packed = {
        name: content if isinstance(content, bytes) else content.encode() for name, content in SHARDS.items()
    }
    if place == "tar":
        source = write_tar(tmp_path / "x-000000.tar", packed, "w")
    elif place == "folder of tars":  # each begins with 000
        source = tmp_path / "set"
        for number in range(3):
            members = {
                f"000{Path(name).suffix}": content
                for name, content in packed.items()
                if name.startswith(NAMES[number])
            }
            write_tar(source / f"x-{number:06}.tar", members, "w")
        write(source, {"README.md": "a set", "wids.json": '{"shards": []}'})
    found = imported(source)
    assert [each[1:] for each in found] == [each[1:] for each in expected]
    assert found[0][0] == "EN_000"
    assert imported(source) == found


@pytest.mark.parametrize("form", ["x.jsonl", "x.json", "x.parquet"])
def test_objects_are_read_by_path_and_language(tmp_path: Path, form: str):
    write(tmp_path / "in", tones(*(f"wavs/{name}.wav" for name in NAMES)))
    audio = [{"path": f"/x/wavs/{name}.wav", "bytes": None} for name in NAMES]
    texts = [{"en": english, "am": text} for text, english in zip(TEXTS, ENGLISH, strict=True)]
    records = objects(audio=audio, translation=texts)
    content: dict[str, Any] = {
        "x.jsonl": list(map(json.dumps, records)),
        "x.json": json.dumps(records),
        "x.parquet": {"audio": audio, "translation": texts},
    }
    write(tmp_path / "in", {form: content[form]})
    source = tmp_path / "in" if form != "x.json" else tmp_path / "in/x.json"
    assert imported(source, speaker="s") == [(*each, "s") for each in zip(NAMES, TEXTS, strict=True)]


@pytest.mark.parametrize("form", CHAT_TURNS)
def test_chats_about_recordings(tmp_path: Path, form: str):
    turns, has_list = CHAT_TURNS[form]
    lines = []
    for number, (name, text) in enumerate(zip(NAMES, TEXTS, strict=True)):
        write_tone(tmp_path / f"in/wavs/{name}.wav", 200 + number, 0.3)
        filled = json.loads(json.dumps(turns).replace("{}", text).replace("{name}", name))
        record = {"messages": [{"role": role, "content": content} for role, content in filled]}
        lines.append(json.dumps(record | ({"audios": [f"/content/wavs/{name}.wav"]} if has_list else {})))
    write(tmp_path / "in", {"train.jsonl": "\n".join(lines)})
    assert imported(tmp_path / "in", speaker="s") == [(*each, "s") for each in zip(NAMES, TEXTS, strict=True)]


@pytest.mark.parametrize(
    ("answers", "reason"), [(["ሰላም", "ደስተኛ ነው"], "broken_row"), ([""], "empty_text"), ([], "empty_text")]
)
def test_a_chat_without_a_single_answer_is_refused(tmp_path: Path, answers: list[str], reason: str):
    lines = []
    for name, given in (("0", ["ሰላም"]), ("1", answers)):
        write_tone(tmp_path / f"in/{name}.wav", 200 + int(name), 0.3)
        turns = [QUESTION, *(("assistant", answer) for answer in given)]
        messages = [{"role": role, "content": content} for role, content in turns]
        lines.append(json.dumps({"messages": messages, "audios": [f"{name}.wav"]}))
    write(tmp_path / "in", {"x.jsonl": "\n".join(lines)})
    assert imported(tmp_path / "in", speaker="s") == [("0", "ሰላም", "s")]
    assert rejected(tmp_path / "out") == [("x.jsonl", 2, reason)]


@pytest.mark.parametrize("speaker", [{"id": "sp0"}, {"name": "sp0", "sex": "f"}, {"id": "sp0", "name": "A"}])
def test_a_speaker_in_an_object_is_read_by_id_or_name(tmp_path: Path, speaker: dict[str, str]):
    write_tone(tmp_path / "in/0.wav", 200, 0.3)
    write(tmp_path / "in", {"x.jsonl": json.dumps({"audio": "0.wav", "text": "ሰላም", "speaker": speaker})})
    assert imported(tmp_path / "in") == [("0", "ሰላም", "sp0")]


SENTENCES = [(0.0, 0.4, ""), (0.4, 1.2, TEXTS[0]), (1.2, 1.5, "")]
SENTENCES += [(1.5, 2.5, f'{TEXTS[1]} "x"'), (2.5, 3.0, "")]
WORDS = [(0.0, 0.4, "sil"), (0.4, 0.8, "ሰላም"), (0.8, 1.2, "ለዓለም።"), (1.2, 3.0, "<eps>")]
LABELS = f"0.4\t1.2\t{TEXTS[0]}\n\\\t100\t200\n1,5\t2,5\t{TEXTS[1]}\n2.6\t2.9\n"


def textgrid(tiers: dict[str, list[tuple[float, float, str]]], *, is_short: bool = False) -> str:
    """Return a TextGrid as Praat writes it."""
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', ""]
    lines += ["xmin = 0", "xmax = 3.0", "tiers? <exists>", f"size = {len(tiers) + 1}", "item []:"]
    lines += ["item [1]:", 'class = "TextTier"', 'name = "points"', "xmin = 0", "xmax = 3.0"]
    lines += ["points: size = 1"]
    lines += ["points [1]:", "number = 1.5", 'mark = "2 [3]"']
    for number, (name, intervals) in enumerate(tiers.items(), start=2):
        lines += [f"item [{number}]:", 'class = "IntervalTier"', f'name = "{name}"', "xmin = 0", "xmax = 3.0"]
        lines.append(f"intervals: size = {len(intervals)}")
        for place, (start, end, text) in enumerate(intervals, start=1):
            quoted = text.replace('"', '""')
            lines += [f"intervals [{place}]:", f"xmin = {start}", f"xmax = {end} ", f'text = "{quoted}" ']
    if is_short:
        lines = [line.partition("= ")[2] or "<exists>" for line in lines if not line.endswith((":", " = "))]
    return "\n".join(lines)


PARTS = [("talk_000000400", TEXTS[0], 0.8), ("talk_000001500", f'{TEXTS[1]} "x"', 1.0)]
GRID = {"sentences": SENTENCES}
SEGMENTS = [
    {"id": 0, "start": 0.4, "end": 1.2, "text": f" {TEXTS[0]}", "tokens": [1]},
    {"id": 1, "start": 1.5, "end": 2.5, "text": f" {TEXTS[1]}", "tokens": [2]},
]
WHISPER = json.dumps({"text": " ".join(TEXTS[:2]), "segments": SEGMENTS, "language": "am"})
MFA = {"words": WORDS, "phones": WORDS}
TIMED: dict[str, Any] = {  # files beside talk.wav, the clips, and the rejections
    "Praat, long": ({"talk.TextGrid": textgrid(GRID)}, PARTS, []),
    "Praat, short": ({"talk.TextGrid": textgrid(GRID, is_short=True)}, PARTS, []),
    "Praat, UTF-16": ({"talk.TextGrid": textgrid(GRID).encode("utf-16")}, PARTS, []),
    "Praat, words too": ({"talk.TextGrid": textgrid(MFA | GRID)}, PARTS, []),
    "Praat, a translation": ({"talk.textgrid": textgrid(GRID | {"en": [(0.4, 1.2, "peace")]})}, PARTS, []),
    "words alone": ({"talk.TextGrid": textgrid(MFA)}, [("talk", "ሰላም ለዓለም።", 3.0)], []),
    "aligned words": ({"talk.TextGrid": textgrid(MFA), "talk.lab": TEXTS[0]}, [("talk", TEXTS[0], 3.0)], []),
    "two sentences": (
        {"talk.TextGrid": textgrid(GRID | {"b": SENTENCES})},
        [],
        [("talk.TextGrid", None, "no_text")],
    ),
    "Whisper": ({"talk.json": WHISPER}, [(id, text.replace(' "x"', ""), s) for id, text, s in PARTS], []),
    "no TextGrid": ({"talk.TextGrid": "x"}, [], [("talk.TextGrid", None, "not_text")]),
    "Audacity": (
        {"talk.txt": LABELS},
        [PARTS[0], ("talk_000001500", TEXTS[1], 1.0)],
        [("talk.txt", 4, "empty_text")],
    ),
    "ELAN": ({"talk.eaf": "<x/>"}, [], [("talk.eaf", None, "other_form"), ("talk.wav", None, "no_text")]),
    "Excel 97": ({"x.xls": b"x"}, [], [("talk.wav", None, "no_text"), ("x.xls", None, "other_form")]),
}


@pytest.mark.parametrize("form", TIMED)
def test_texts_with_times_are_cut_and_other_forms_named(tmp_path: Path, form: str):
    files, parts, reasons = TIMED[form]
    write_tone(tmp_path / "in/talk.wav", 300, 3.0)
    write(tmp_path / "in", files)
    if not parts:
        with pytest.raises(UserError, match=r"rejected\.jsonl"):
            run_import(tmp_path / "in", tmp_path / "out", speaker="s")
    else:
        run_import(tmp_path / "in", tmp_path / "out", speaker="s")
        found = [(line["id"], line["text"], line["duration"]) for line in manifest_lines(tmp_path / "out")]
        assert found == parts
    assert sorted(rejected(tmp_path / "out"), key=str) == reasons


@pytest.mark.parametrize("name", ["talk.eaf", "x.xls", "x.ods", "data-00000-of-00001.arrow", "talk.docx"])
def test_a_file_in_another_form_is_refused_with_the_way_to_convert_it(tmp_path: Path, name: str):
    write(tmp_path, {name: b"x"})
    with pytest.raises(UserError, match=rf"{name}: .*(export|save|convert)"):
        run_import(tmp_path / name, tmp_path / "out")
