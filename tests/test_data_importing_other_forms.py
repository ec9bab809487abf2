"""Tests of forms beside tables: WebDataset, objects within objects, chats, TextGrid, labels, spreadsheets."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.import_sources import manifest_lines, run_import, tone_bytes, write_parquet, write_tar, write_tone

TEXTS = ["ሰላም ለዓለም።", "እንዴት ነህ፣ ደህና?", "ዛሬ ፀሐይ ወጣች።"]
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
CHAT_TURNS: dict[str, Any] = {
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


def write(folder: Path, files: dict[str, bytes | str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def imported(source: Path, **flags: Any) -> list[tuple[str, str, str]]:
    """Return id, text and speaker of the utterances that an import gives."""
    out = source.parent / "out"
    run_import(source, out, **flags)
    return [(line["id"], line["text"], line["speaker"]) for line in manifest_lines(out)]


@pytest.mark.parametrize("place", ["folder", "tar", "folder of tars", "zip of folders"])
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


@pytest.mark.parametrize("form", ["jsonl", "array", "parquet"])
def test_objects_are_read_by_path_and_language(tmp_path: Path, form: str):
    for number, name in enumerate(NAMES):
        write_tone(tmp_path / f"in/wavs/{name}.wav", 200 + number, 0.3)
    audio = [{"path": f"/x/wavs/{name}.wav", "bytes": None} for name in NAMES]
    texts = [{"en": english, "am": text} for text, english in zip(TEXTS, ENGLISH, strict=True)]
    records = [{"audio": each, "translation": text} for each, text in zip(audio, texts, strict=True)]
    if form == "parquet":
        write_parquet(tmp_path / "in/x.parquet", {"audio": audio, "translation": texts})
    else:
        lines = json.dumps(records) if form == "array" else "\n".join(map(json.dumps, records))
        write(tmp_path / "in", {"x.jsonl" if form == "jsonl" else "x.json": lines})
    source = tmp_path / "in" if form != "array" else tmp_path / "in/x.json"
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
