"""Layouts of data sets, detected from the files in a folder.

    table         metadata.csv, or another .csv, .tsv, .list or .xlsx, with columns as columns.py decides, or
                  .txt with names of recordings; recordings beside it or in wavs/, wav/, audio/ or clips/
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

A reader yields rows (items.Row), and reading.py finds the recording of each. A new layout is a reader in
a separate module, and a line of LAYOUTS.

`auto` takes the first matching layout. It descends into a folder that is alone in its parent, and searches
subfolders if the folder itself has no layout, or only tables of other facts. The fallback is `files`.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from indextts.commands.data import ImportLayout
from indextts.data.importing.archive import is_archive
from indextts.data.importing.columns import Columns, NoColumnError
from indextts.data.importing.file_pairs import read_files
from indextts.data.importing.headers import column_of, is_known_header
from indextts.data.importing.items import (
    AUDIO_SUFFIXES,
    OTHER_FORMS,
    PARQUET_SUFFIX,
    SUBTITLE_SUFFIXES,
    Item,
    Items,
    Row,
    files_below,
    is_hidden,
)
from indextts.data.importing.json_records import is_webdataset
from indextts.data.importing.kaldi import is_kaldi, is_librispeech, read_kaldi, read_librispeech
from indextts.data.importing.parquet import parquet_rows
from indextts.data.importing.reading import SourceReader
from indextts.data.importing.spans import with_spans
from indextts.data.importing.tables import is_manifest, table_head, table_rows
from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.text.languages import find_language

logger = logging.getLogger(__name__)

FLEURS_COLUMNS = ("", "audio", "text", "", "", "", "")  # number, file, text as written, normalised, ...
WITH_COLUMNS: tuple[ImportLayout, ...] = ("table", "common-voice", "jsonl", "parquet")
_ALONE = ("table", "jsonl", "parquet")  # layouts whose other tables of a folder are named
_SPLITS = ("train", "dev", "test")
_TABLE_SUFFIXES = (".csv", ".tsv", ".list", ".xlsx")
_TABLE_NAMES = ("metadata.csv", "metadata.tsv", "metadata.txt", "metadata.list", "metadata.xlsx")
_MANIFEST_NAMES = ("manifest.jsonl", "metadata.jsonl")
_MAX_DEPTH = 4
_MAX_MISTAKES = 0.05  # of the rows of a table
_MAX_FILELISTS = 20
_AUDIO_SUFFIXES = tuple(AUDIO_SUFFIXES)
_SPEAKER_DIGITS = 16  # of Common Voice's 128, enough to be unique


def read_source(root: Path, layout: ImportLayout, reader: SourceReader, typed: Path) -> list[Item]:
    """Return all rows of a folder or file with their recordings, and rejections, in a fixed order.

    Args:
        typed: the path of the source as typed, for messages; `root` may be a folder unpacked from it.

    Raises:
        UserError: there are no recordings in that layout, or the columns of a table cannot be decided.
    """
    places = _places(root, layout)
    detected, folders = next(places)
    items: list[Item] | None = None
    try:
        while items is None:
            if layout == "auto":
                logger.info("%s: layout %s", typed, detected)
            try:
                items = _items(detected, folders, reader)
            except NoColumnError as error:
                detected, folders = next(places, ("auto", []))
                if detected in ("auto", "files"):
                    raise
                logger.warning("%s: not read: %s", typed, error)
    except UserError as error:
        raise UserError(f"{typed}: {error}") from None
    if not items:
        raise UserError(
            f"{typed}: no recordings in the layout {detected}; pass the folder or file with the "
            "texts as --source, or --layout; docs/data.md lists the layouts"
        )
    return items


def has_only_archives(root: Path) -> bool:
    """Return whether the data of a folder are in archives, as the shards of a WebDataset."""
    files = list(files_below(root)) if root.is_dir() else []
    is_beside = any(path.suffix.lower() in AUDIO_SUFFIXES for path in files)
    return not is_beside and any(map(is_archive, files)) and next(_detect(root))[0] == "files"


def find_tables(root: Path, layout: ImportLayout) -> Iterator[tuple[ImportLayout, list[Path]]]:
    """Yield each layout of a folder or file, and its tables or JSON manifests in the order of the import."""
    for detected, places in _places(root, layout):
        has_tables = detected in WITH_COLUMNS and detected != "parquet"
        yield detected, _parts(detected, places) if has_tables else []


def _places(root: Path, layout: ImportLayout) -> Iterator[tuple[ImportLayout, list[Path]]]:
    return _detect(root) if layout == "auto" else iter([(layout, [_only_folder(root)])])


def _parts(layout: ImportLayout, places: Sequence[Path]) -> list[Path]:
    """Return the tables of some folders, each read alone; in layouts without tables, the folders."""
    parts_of, _ = LAYOUTS[layout]
    return [part for place in places for part in (parts_of(place) if place.is_dir() else [place])]


def _items(layout: ImportLayout, places: Sequence[Path], reader: SourceReader) -> list[Item]:
    if reader.is_chosen and layout not in WITH_COLUMNS:
        raise UserError(f"--columns is for tables, and the layout is {layout}; pass --layout table")
    _, read = LAYOUTS[layout]
    parts = _parts(layout, places)
    rows: list[Item] = []
    others = []  # tables of other facts, such as a list of speakers
    for part in parts:
        try:
            rows += read(part, reader)
        except NoColumnError as error:
            others.append(error)
    if others and len(others) == len(parts):
        raise others[0]
    for other in others:
        logger.warning("not read: %s", other)
    for place in places:
        if layout in _ALONE and place.is_dir():
            beside = {*_with_suffix(place, *_TABLE_SUFFIXES, PARQUET_SUFFIX), *_manifests(place)}
            if unread := ", ".join(sorted(path.name for path in beside.difference(parts))):
                logger.warning("%s: not read: %s; pass one as --source to import it", place, unread)
    items = with_spans(reader.resolve(rows), reader.decided)
    _refuse_other_texts(items, reader.decided)
    return items


def _refuse_other_texts(items: Sequence[Item], columns: Mapping[Path, Columns]) -> None:
    """Raise a UserError if two tables have other texts for most recordings that both have.

    Also if over 5 % of the rows of a table, and more than one, have another text for an entire recording:
    they are parts of it whose times were not read. A mistake in a few rows costs these rows only.
    """
    num_rows = Counter(item.where.file for item in items)
    parts: dict[Path, list[tuple[Row, Row]]] = defaultdict(list)
    first: dict[object, Row] = {}
    shared: Counter[tuple[Path, Path]] = Counter()
    differ: Counter[tuple[Path, Path]] = Counter()
    for row in items:
        if isinstance(row, Row) and row.embedded is None:
            known = first.setdefault((row.audio, row.span), row)
            tables = known.where.file, row.where.file
            shared[tables] += 1
            differ[tables] += known.text != row.text
            if known.text != row.text and tables[0] == tables[1] and not (row.span or row.subtitles):
                parts[row.where.file].append((known, row))
    for table, pairs in parts.items():
        if len(pairs) > max(1, _MAX_MISTAKES * num_rows[table]):
            known, row = pairs[0]
            places = (each.where.place.strip(": ") or f"line {each.where.line}" for each in (known, row))
            example = f", for example {columns[table].choice('')}" if table in columns else ""
            raise UserError(
                f"{table.name}: {' and '.join(places)} have different texts for all of {row.audio.name} "
                f"({counted(len(pairs), 'such row')}); if these are parts of recordings, pass the columns of "
                f"their times{example}; else correct the names of the recordings"
            )
    for (one, other), count in differ.items():
        if one != other and 2 * count > shared[one, other]:
            raise UserError(
                f"{one.name} and {other.name} contain different texts for "
                f"{counted(count, 'shared recording')}; pass the right table as --source, for example "
                f"--source {one}"
            )


def _detect(root: Path) -> Iterator[tuple[ImportLayout, list[Path]]]:
    """Yield each layout, and the folders or the file with that layout, from the top of a source down."""
    if root.is_file():
        yield _layout_of_file(root), [root]
        return
    root = _only_folder(root)
    for depth in range(_MAX_DEPTH):
        inside = sorted(root.glob("*/" * depth)) if depth else [root]
        inside = [folder for folder in inside if not is_hidden(folder.relative_to(root))]
        detected = [(found, folder) for folder in inside if (found := _layout_of(folder))]
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
    if suffix in OTHER_FORMS:
        raise UserError(f"{path}: {OTHER_FORMS[suffix]}")
    if suffix in (".jsonl", ".json"):
        return "jsonl"
    if suffix == PARQUET_SUFFIX:
        return "parquet"
    return "files" if suffix in {*AUDIO_SUFFIXES, *SUBTITLE_SUFFIXES, ".textgrid"} else "table"


def _layout_of(folder: Path) -> ImportLayout | None:
    return next((name for name, (parts, _) in LAYOUTS.items() if name != "files" and parts(folder)), None)


def _header(path: Path) -> list[str]:
    """Return the fields of a table's first row in lower case; none without columns."""
    _, rows = table_head(path)
    return [field.strip().lower() for field in rows[0]] if rows else []


def _common_voice_tables(folder: Path) -> list[Path]:
    """Return validated.tsv, or else the tables of the three splits."""
    if (folder / "validated.tsv").is_file():
        return [folder / "validated.tsv"]
    splits = _split_tables(folder)
    return splits if any("client_id" in _header(path) for path in splits) else []


def _fleurs_tables(folder: Path) -> list[Path]:
    """Return the tables of the splits if their first lines are rows of FLEURS, and no header."""
    splits = _split_tables(folder)
    first = [_header(path) for path in splits]
    is_fleurs = all(len(row) == len(FLEURS_COLUMNS) and not any(map(column_of, row)) for row in first)
    return splits if is_fleurs else []


def _split_tables(folder: Path) -> list[Path]:
    return [path for split in _SPLITS if (path := folder / f"{split}.tsv").is_file()]


def _tables(folder: Path) -> list[Path]:
    named = [folder / name for name in _TABLE_NAMES if (folder / name).is_file()]
    return named[:1] or _with_suffix(folder, *_TABLE_SUFFIXES) or _filelists(folder)


def _filelists(folder: Path) -> list[Path]:
    """Return the .txt files that begin with a header, or with a recording and a text, as for VITS."""
    texts = _with_suffix(folder, ".txt")
    if len(texts) > _MAX_FILELISTS:  # the texts of single recordings
        return []
    return [
        path
        for path in texts
        if (fields := _header(path))
        and (is_known_header(fields) or any(field.endswith(_AUDIO_SUFFIXES) for field in fields))
    ]


def _manifests(folder: Path) -> list[Path]:
    named = [folder / name for name in _MANIFEST_NAMES if (folder / name).is_file()]
    return (
        named[:1]
        or _with_suffix(folder, ".jsonl")
        or ([folder] if is_webdataset(folder) else [])
        or list(filter(is_manifest, _with_suffix(folder, ".json")))
    )


def _with_suffix(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in suffixes and not path.name.startswith((".", "~$")) and path.is_file()
    )


def _only_folder(root: Path) -> Path:
    """Descend into folders that contain only a single folder, as unpacked archives often do."""
    for _ in range(_MAX_DEPTH):
        if not root.is_dir():
            return root
        inside = [path for path in root.iterdir() if not is_hidden(Path(path.name))]
        if len(inside) != 1 or not inside[0].is_dir() or inside[0].is_symlink():
            return root
        root = inside[0]
    return root


def _read_common_voice(path: Path, reader: SourceReader) -> Items:
    folder = path.parent.parent.parent / "audio" / path.parent.name / path.stem  # as on the hub
    for row in table_rows(path, reader):
        if isinstance(row, Row):
            speaker = row.speaker and row.speaker[:_SPEAKER_DIGITS]
            row = replace(row, speaker=speaker, folders=(folder,))
        yield row


def _read_fleurs(path: Path, reader: SourceReader) -> Items:
    folders = (path.parent / "audio" / path.stem, path.parent / path.stem)
    for row in table_rows(path, reader, Columns(FLEURS_COLUMNS, has_header=False)):
        yield replace(row, folders=folders) if isinstance(row, Row) else row


# The tables of a folder, or the folder if its files are read together; empty for a folder of another layout.
Parts = Callable[[Path], list[Path]]
Read = Callable[[Path, SourceReader], Items]  # yields the rows of a part


def _folder_if(is_layout: Callable[[Path], bool]) -> Parts:
    return lambda folder: [folder] if is_layout(folder) else []


# In the order of their detection.
LAYOUTS: dict[ImportLayout, tuple[Parts, Read]] = {
    "common-voice": (_common_voice_tables, _read_common_voice),
    "fleurs": (_fleurs_tables, _read_fleurs),
    "kaldi": (_folder_if(is_kaldi), lambda folder, reader: read_kaldi(folder)),
    "librispeech": (_folder_if(is_librispeech), lambda folder, reader: read_librispeech(folder)),
    "table": (_tables, table_rows),
    "jsonl": (_manifests, table_rows),
    "parquet": (lambda folder: _with_suffix(folder, PARQUET_SUFFIX), parquet_rows),
    "files": (
        lambda folder: [folder],
        lambda place, reader: read_files(place, find_language(reader.language)),
    ),
}
