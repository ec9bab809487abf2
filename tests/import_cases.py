"""Data sets of the tests of the import: the files in a folder, and what an import of them gives."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from indextts.errors import UserError
from tests.import_sources import (
    manifest_lines,
    rejected,
    run_import,
    snapshot,
    write_parquet,
    write_tar,
    write_tone,
)

TEXTS = ["ሰላም ለዓለም።", "እንዴት ነህ፣ ደህና?", "ዛሬ ፀሐይ ወጣች።", "መጽሐፉን አነበብኩት።", "ነገ እንገናኛለን አለ።", "ቡና አፈላች እሷ።"]
SPEAKERS = ["almaz", "bekele"] * 3
NAMES = [f"c{number}" for number in range(6)]
FILES = [f"{name}.wav" for name in NAMES]
PATHS = [f"wavs/{name}" for name in FILES]
TAR_MODES = {".tar": "w", ".tgz": "w:gz", ".gz": "w:gz", ".xz": "w:xz"}

Files = Mapping[str, Any]
NAMED: dict[str, Any] = {"flags": {}}
BOTH: dict[str, Any] = {"speakers": ["almaz", "bekele"], **NAMED}


@dataclass(frozen=True)
class Case:
    """A data set, and what an import of it gives.

    Args:
        files: by path, the number of a recording, a text, its lines, bytes, the columns of a parquet file, or
            the files of an archive.
        texts: by id, in the order of the recordings; {} if the import is refused.
        refusal: a pattern of the message: the layout or the file, and a flag or a file as the way out.
        rejected: file, line and code.
        source: the file to import; "" for the folder.
    """

    files: Files
    texts: Mapping[str, str] = field(default_factory=dict)
    speakers: Sequence[str] = ("s",)
    refusal: str = ""
    flags: Mapping[str, Any] = field(default_factory=lambda: {"speaker": "s"})
    rejected: Sequence[tuple[str, int | None, str]] = ()
    source: str = ""
    has_pitches: bool = True


def write(folder: Path, files: Files) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, int):
            write_tone(path, 200 + 10 * content, 0.2)
        elif path.suffix == ".parquet":
            write_parquet(path, content)
        elif isinstance(content, Mapping):
            unpacked = folder.with_name("unpacked") / name
            write(unpacked, content)
            members = {member: (unpacked / member).read_bytes() for member in content}
            if path.suffix == ".zip":
                with zipfile.ZipFile(path, "w") as file:
                    for member, data in members.items():
                        file.writestr(member, data)
            else:
                write_tar(path, members, TAR_MODES[path.suffix])
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            text = content if isinstance(content, str) else "".join(f"{line}\n" for line in content)
            path.write_bytes(text.encode())
    return folder


def pitch_hz(path: Path) -> int:
    samples, rate = soundfile.read(path)
    return round(int(np.abs(np.fft.rfft(samples[: rate // 10])).argmax()) * 10)


def imported(source: Path, **flags: Any) -> list[tuple[str, str, str]]:
    """Return id, text and speaker of the utterances that an import gives, into out/ beside the source."""
    run_import(source, source.parent / "out", **flags)
    return [(line["id"], line["text"], line["speaker"]) for line in manifest_lines(source.parent / "out")]


def tones(*names: str, first: int = 0) -> dict[str, int]:
    return {name: number for number, name in enumerate(names, start=first)}


def rows(delimiter: str, *columns: Sequence[str]) -> list[str]:
    return [delimiter.join(row) for row in zip(*columns, strict=False)]


def of(names: Sequence[str], texts: Sequence[str] = TEXTS) -> dict[str, str]:
    return dict(zip(names, texts, strict=False))


def table(name: str, delimiter: str, header: str, *columns: Sequence[str]) -> dict[str, Any]:
    heading = [delimiter.join(header.split(","))] if header else []
    return {**tones(*PATHS), name: [*heading, *rows(delimiter, *columns)]}


def objects(**fields: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]


def json_lines(name: str, **fields: Sequence[Any]) -> dict[str, Any]:
    lines = [json.dumps(record, ensure_ascii=False) for record in objects(**fields)]
    return {**tones(*PATHS), name: lines}


def check_import(case: Case, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    write(folder, case.files)
    source = folder / case.source
    if case.refusal:
        with pytest.raises(UserError, match=case.refusal) as caught:
            run_import(source, out, **case.flags)
        assert "\n" not in str(caught.value)
        assert caught.value.exit_status == (1 if "rejected.jsonl" in str(caught.value) else 2)
        assert not (out / "manifest.jsonl").exists()
        return
    result = run_import(source, out, **case.flags)
    lines = manifest_lines(out)
    assert {line["id"]: line["text"] for line in lines} == case.texts
    assert sorted({line["speaker"] for line in lines}) == sorted(case.speakers)
    assert sorted(rejected(out), key=str) == sorted(case.rejected, key=str)
    if case.has_pitches:
        pitches = {line["id"]: pitch_hz(out / line["audio"]) for line in lines}
        assert pitches == {id: 200 + 10 * number for number, id in enumerate(case.texts)}
    assert (result.num_utterances, result.num_added) == (len(lines), len(lines))
    before = snapshot(out)
    again = run_import(source, out, **case.flags)
    assert (again.num_added, again.num_changed, again.num_unchanged) == (0, 0, len(lines))
    assert snapshot(out) == before
