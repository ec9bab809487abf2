"""Layouts of data sets, detected from the files in a folder.

    table         metadata.csv, or another .csv, .tsv or .list, with columns as columns.py decides, or .txt
                  with names of recordings; recordings beside it or in wavs/, wav/, audio/ or clips/
    common-voice  validated.tsv (or train.tsv, dev.tsv, test.tsv) and clips/; client_id is the speaker. Or
                  transcript/am/train.tsv and audio/am/train/, as the hub has them
    fleurs        train.tsv, dev.tsv, test.tsv without a header, audio in audio/train/ and so on
    parquet       files of the Hugging Face hub; a column contains the recordings, or names them
    jsonl         JSON lines or a JSON array; objects with audio, text and optionally speaker, id, language,
                  recording
    kaldi         wav.scp, text, utt2spk and optionally segments
    librispeech   SPEAKER-CHAPTER.trans.txt with the texts of the recordings beside it; or transcripts.txt
                  with those in audio/, as in Multilingual LibriSpeech
    files         NAME.wav with NAME.txt, and NAME.mp3 with subtitles NAME.srt, NAME.am.vtt

`auto` takes the first matching layout. It descends into a folder that is alone in its parent, and searches
subfolders if the folder itself has no layout, or only tables of other facts. The fallback is `files`.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from indextts.commands.data import ImportLayout
from indextts.data.importing.audio_files import AudioFinder, Problem
from indextts.data.importing.columns import ALIASES, AUTO, Columns, NoColumnError, decide_columns
from indextts.data.importing.file_pairs import read_files
from indextts.data.importing.items import (
    AUDIO_SUFFIXES,
    PARQUET_SUFFIX,
    SUBTITLE_SUFFIXES,
    Rejection,
    SourceRecording,
)
from indextts.data.importing.kaldi import is_kaldi, is_librispeech, read_kaldi, read_librispeech
from indextts.data.importing.parquet import ParquetRows, parquet_files
from indextts.data.importing.tables import Decide, Row, header, is_manifest, json_rows, table_rows
from indextts.errors import UserError
from indextts.text.languages import find_language

logger = logging.getLogger(__name__)

FLEURS_COLUMNS = ("", "audio", "text", "", "", "", "")  # number, file, text as written, normalised, ...
WITH_COLUMNS: tuple[ImportLayout, ...] = ("table", "common-voice", "jsonl", "parquet")
_SPLITS = ("train", "dev", "test")
_TABLE_NAMES = ("metadata.csv", "metadata.tsv", "metadata.txt", "metadata.list")
_MANIFEST_NAMES = ("manifest.jsonl", "metadata.jsonl")
_MAX_DEPTH = 4
_MAX_FILELISTS = 20
_AUDIO_SUFFIXES = tuple(AUDIO_SUFFIXES)
_SPEAKER_DIGITS = 16  # of Common Voice's 128, enough to be unique

Item = SourceRecording | Rejection


@dataclass(frozen=True)
class _Reader:
    """Reader of the tables of a layout.

    Args:
        root: the folder of the source.
        columns: their columns by hand, as in --columns; "" to decide.
    """

    root: Path
    finder: AudioFinder
    language: str
    columns: str

    def decider(self, folder: Path, *, has_header: bool = False) -> Decide:
        """Return a function that decides the columns of a table with recordings below a folder."""

        def names_audio(value: str) -> bool:
            return self.is_file(value, folder)

        return partial(
            decide_columns,
            names_audio=names_audio,
            language=self.language,
            chosen=self.columns,
            has_header=has_header,
        )

    def find(self, named: str, folder: Path, inner: Sequence[Path] = ()) -> Path | Problem:
        """Return the recording for the name in a row of a table in `folder`, or the problem.

        A list in a folder of its own may name recordings from the folder above.
        """
        above = [folder.parent] if folder != self.root and re.search(r"[/\\]", named) else []
        return self.finder.find(named, [*inner, folder, *above])

    def is_file(self, value: str, folder: Path) -> bool:
        return isinstance(self.find(value, folder), Path)


def read_source(
    root: Path, layout: ImportLayout, finder: AudioFinder, typed: Path, language: str, columns: str = ""
) -> list[Item]:
    """Return all items of a folder or file, in a fixed order.

    Args:
        typed: the path of the source as typed, for messages; `root` may be a folder unpacked from it.
        language: of texts whose data name none.
        columns: the columns of tables by hand, as in --columns; "" to decide.

    Raises:
        UserError: there are no recordings in that layout, or the columns of a table cannot be decided.
        OSError: a file cannot be read.
    """
    reader = _Reader(root if root.is_dir() else root.parent, finder, language, columns)
    try:
        if layout != "auto":
            items = _items(layout, [_only_folder(root)], reader)
        else:
            layout, items = _detected_items(root, typed, reader)
    except UserError as error:
        raise UserError(f"{typed}: {error}") from None
    if not items:
        raise UserError(
            f"{typed}: no recordings in the layout {layout}; pass the folder or file that has the "
            "texts as --source, or --layout; docs/data.md lists the layouts"
        )
    return items


def find_tables(root: Path, layout: ImportLayout) -> Iterator[tuple[ImportLayout, list[Path]]]:
    """Yield each layout of a folder or file, and its tables or JSON manifests in the order of the import.

    Raises:
        OSError: a folder or file cannot be read.
    """
    found = _detect(root) if layout == "auto" else iter([(layout, [_only_folder(root)])])
    for detected, places in found:
        yield detected, list(chain.from_iterable(_tables_of_place(detected, place) for place in places))


def _tables_of_place(layout: ImportLayout, place: Path) -> list[Path]:
    if layout not in WITH_COLUMNS or layout == "parquet":
        return []
    if not place.is_dir():
        return [place]
    if layout == "common-voice":
        return _common_voice_tables(place)
    return _tables(place) if layout == "table" else _manifests(place)


def _detected_items(root: Path, typed: Path, reader: _Reader) -> tuple[ImportLayout, list[Item]]:
    """Return the layout and the items of the first places that have recordings and texts."""
    places = _detect(root)
    layout, folders = next(places)
    while True:
        logger.info("%s: layout %s", typed, layout)
        try:
            return layout, _items(layout, folders, reader)
        except NoColumnError as error:
            layout, folders = next(places, ("auto", []))
            if layout in ("auto", "files"):
                raise
            logger.warning("%s: not read: %s", typed, error)


def _items(layout: ImportLayout, places: Sequence[Path], reader: _Reader) -> list[Item]:
    if reader.columns not in ("", AUTO) and layout not in WITH_COLUMNS:
        raise UserError(f"--columns is for tables, and the layout is {layout}; pass --layout table")
    if layout == "parquet":
        return list(_read_parquet(places, reader))
    return list(chain.from_iterable(_read(layout, place, reader) for place in places))


def _detect(root: Path) -> Iterator[tuple[ImportLayout, list[Path]]]:
    """Yield each layout, and the folders or the file with that layout, from the top of a source down."""
    if root.is_file():
        yield _layout_of_file(root), [root]
        return
    root = _only_folder(root)
    for depth in range(_MAX_DEPTH):
        inside = sorted(root.glob("*/" * depth)) if depth else [root]
        inside = [folder for folder in inside if not _is_hidden(folder, root)]
        detected = [(found, folder) for folder in inside if (found := _layout_of_folder(folder))]
        if detected:
            first = detected[0][0]
            others = [(found, folder) for found, folder in detected if found != first]
            for found, folder in others:
                logger.warning(
                    "not read: %s has another layout, %s; import it as its own source", folder, found
                )
            yield first, [folder for found, folder in detected if found == first]
    yield "files", [root]


def _layout_of_file(path: Path) -> ImportLayout:
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".json"):
        return "jsonl"
    if suffix == PARQUET_SUFFIX:
        return "parquet"
    return "files" if suffix in AUDIO_SUFFIXES.union(SUBTITLE_SUFFIXES) else "table"


def _layout_of_folder(folder: Path) -> ImportLayout | None:
    splits = [folder / f"{split}.tsv" for split in _SPLITS if (folder / f"{split}.tsv").is_file()]
    if (folder / "validated.tsv").is_file() or any("client_id" in header(path) for path in splits):
        return "common-voice"
    if splits and all(_is_row_of_fleurs(header(path)) for path in splits):
        return "fleurs"
    if is_kaldi(folder):
        return "kaldi"
    if is_librispeech(folder):
        return "librispeech"
    if _tables(folder):
        return "table"
    if _manifests(folder):
        return "jsonl"
    return "parquet" if parquet_files(folder) else None


def _is_row_of_fleurs(fields: Sequence[str]) -> bool:
    """Return whether a first line is a row of FLEURS rather than the header of a table of the same width."""
    return len(fields) == len(FLEURS_COLUMNS) and not set(fields) & set(chain.from_iterable(ALIASES.values()))


def _tables(folder: Path) -> list[Path]:
    named = [folder / name for name in _TABLE_NAMES if (folder / name).is_file()]
    return named[:1] or _with_suffix(folder, ".csv", ".tsv", ".list") or _filelists(folder)


def _filelists(folder: Path) -> list[Path]:
    """Return the .txt files of a folder that begin with the name of a recording and a text, as for VITS."""
    texts = _with_suffix(folder, ".txt")
    if len(texts) > _MAX_FILELISTS:  # the texts of single recordings
        return []
    return [
        path
        for path in texts
        if len(fields := header(path)) > 1 and any(field.endswith(_AUDIO_SUFFIXES) for field in fields)
    ]


def _manifests(folder: Path) -> list[Path]:
    named = [folder / name for name in _MANIFEST_NAMES if (folder / name).is_file()]
    return (
        named[:1]
        or _with_suffix(folder, ".jsonl")
        or list(filter(is_manifest, _with_suffix(folder, ".json")))
    )


def _with_suffix(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in suffixes and not path.name.startswith(".") and path.is_file()
    )


def _only_folder(root: Path) -> Path:
    """Descend into folders that contain only a single folder, as unpacked archives often do."""
    for _ in range(_MAX_DEPTH):
        if not root.is_dir():
            return root
        inside = [path for path in root.iterdir() if not _is_hidden(path, root)]
        if len(inside) != 1 or not inside[0].is_dir() or inside[0].is_symlink():
            return root
        root = inside[0]
    return root


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in path.relative_to(root).parts)


def _read(layout: ImportLayout, place: Path, reader: _Reader) -> Iterable[Item]:
    if layout == "files":
        return read_files(place, reader.finder, find_language(reader.language))
    if layout == "common-voice":
        return _read_common_voice(place, reader)
    if layout == "fleurs":
        return _read_fleurs(place, reader)
    if layout == "kaldi":
        return read_kaldi(place, reader.finder)
    if layout == "librispeech":
        return read_librispeech(place, reader.finder)
    files = _tables_of_place(layout, place)
    if layout == "table":
        return _without_other_facts(files, lambda path: _read_table(path, reader))

    def read_json(path: Path) -> Iterator[Item]:
        decide = reader.decider(path.parent, has_header=True)
        return _clips(json_rows(path, decide), path.parent, reader)

    return _without_other_facts(files, read_json)


def _read_parquet(places: Sequence[Path], reader: _Reader) -> Iterator[Item]:
    rows = ParquetRows(
        partial(reader.decider, has_header=True),
        reader.is_file,
        is_chosen=reader.columns not in ("", AUTO),
    )
    files = [file for place in places for file in (parquet_files(place) if place.is_dir() else [place])]
    return _without_other_facts(files, lambda path: _clips(rows.rows(path), path.parent, reader))


def _without_other_facts(paths: Sequence[Path], read: Callable[[Path], Iterator[Item]]) -> Iterator[Item]:
    """Yield the clips of tables, without tables of other facts, such as a list of speakers.

    Raises:
        UserError: no table has recordings and texts, or the columns of one cannot be decided.
    """
    others = []
    for path in paths:
        try:
            yield from read(path)
        except NoColumnError as error:
            others.append(error)
    if others and len(others) == len(paths):
        raise others[0]
    for other in others:
        logger.warning("not read: %s", other)


def _read_table(
    path: Path, reader: _Reader, inner: Sequence[Path] = (), speaker_chars: int | None = None
) -> Iterator[Item]:
    rows = table_rows(path, reader.decider(path.parent))
    yield from _clips(rows, path.parent, reader, inner, speaker_chars=speaker_chars)


def _read_common_voice(folder: Path, reader: _Reader) -> Iterator[Item]:
    inner = []
    if folder.parent.name == "transcript":
        inner = reader.finder.folders_in(folder.parent.parent / "audio" / folder.name, depth=2)
    for table in _common_voice_tables(folder):
        inner.sort(key=lambda place: table.stem not in place.parts)  # those of the split first
        yield from _read_table(table, reader, inner, _SPEAKER_DIGITS)


def _common_voice_tables(folder: Path) -> list[Path]:
    """Return validated.tsv, or else the tables of the three splits."""
    tables = [folder / "validated.tsv"]
    if not tables[0].is_file():
        tables = [folder / f"{split}.tsv" for split in _SPLITS]
    return [table for table in tables if table.is_file()]


def _read_fleurs(folder: Path, reader: _Reader) -> Iterator[Item]:
    for split in _SPLITS:
        table = folder / f"{split}.tsv"
        if table.is_file():
            inner = [folder / "audio" / split, folder / split]
            rows = table_rows(table, lambda _rows: Columns(FLEURS_COLUMNS, has_header=False))
            yield from _clips(rows, folder, reader, inner)


def _clips(
    rows: Iterable[Row | Rejection],
    folder: Path,
    reader: _Reader,
    inner: Sequence[Path] = (),
    speaker_chars: int | None = None,
) -> Iterator[Item]:
    """Yield the clips of table rows, with recordings below `folder`."""
    for row in rows:
        yield row if isinstance(row, Rejection) else _clip(row, folder, reader, inner, speaker_chars)


def _clip(row: Row, folder: Path, reader: _Reader, inner: Sequence[Path], speaker_chars: int | None) -> Item:
    values = row.values
    named = values.get("audio") or values.get("id")
    if not named:
        columns = ", ".join(ALIASES["audio"][:4])
        return Rejection(row.where, "no_audio_named", f"no recording in the row; fill in {columns}, ...")
    if "text" not in values:
        return Rejection(row.where, "empty_text", "the text is empty; fill it in or remove the row")
    audio = row.where.file if row.embedded else reader.find(named, folder, inner)
    if isinstance(audio, tuple):
        return Rejection(row.where, *audio)
    speaker = values.get("speaker")
    return SourceRecording(
        key=row.key or values.get("id") or named,
        id=values.get("id") or _id_of(named.replace("\\", "/")),
        audio=audio,
        where=row.where,
        text=values["text"],
        speaker=speaker[:speaker_chars] if speaker else None,
        language=values.get("language"),
        recording=values.get("recording"),
        embedded=row.embedded,
        provenance=row.provenance,
    )


def _id_of(named: str) -> str:
    """Return an id from the path of a recording, without suffix and without folders such as wavs/."""
    path = Path(named)
    name = path.stem if path.suffix.lower() in AUDIO_SUFFIXES else path.name
    parents = [part for part in path.parent.parts if part not in ("/", "..", os.curdir)]
    if path.is_absolute() or not parents or parents[-1] in AudioFinder.USUAL_FOLDERS:
        return name
    return "_".join([*parents, name])
