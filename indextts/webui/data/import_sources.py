"""Sources of an import with their tables, and the columns that the user chose for them. No Gradio here.

The page keeps a choice as the text of --columns, until the import stores it with the source:

    {"<key of a source>": "audio=file_name,text=text_am"}
"""

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from indextts.commands.base import Command
from indextts.commands.data import ImportDataset, ImportLayout
from indextts.data.importing.columns import CHOOSABLE
from indextts.data.importing.items import source_name
from indextts.data.importing.speakers import answered, read_answers
from indextts.data.importing.table_preview import SourcePreview, TablePreview, preview_source
from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.webui.language import t, t_or
from indextts.webui.running.outlook import Notice
from indextts.webui.view_versions import files_version

FOLDER_AGE_S = 60  # after which the tables in a folder are read again
UNDECIDED = "?"  # use of a column that is one of several candidates
TO_CHOOSE = "choose-column"  # id of the first column to choose

_NO_HUB = {"hub": "", "hub_subset": "", "hub_split": []}
_USE = re.compile(r"(\d{1,3})=(\w{1,20}|\?)", re.ASCII)


@dataclass(frozen=True)
class ImportSource:
    """Source of an import with its tables.

    Args:
        key: names this version of the source in the choices.
        is_asked: the page shows the tables, because the source is new, chosen or cannot be imported.
        is_manifest: the fields of --manifest have fixed names.
    """

    path: Path
    key: str
    preview: SourcePreview
    is_asked: bool
    is_manifest: bool = False

    @property
    def has_choice(self) -> bool:
        """The user can choose the columns."""
        return self.preview.has_choice and not self.is_manifest


def import_sources(project: Project, commands: Sequence[Command], chosen: str = "") -> list[ImportSource]:
    """Return the sources of the commands, except for unreadable ones.

    Args:
        chosen: name of the source that the answers of the form are for.
    """
    known = read_answers(project.dataset)
    found = []
    for command in commands:
        if not isinstance(command, ImportDataset):
            continue
        for path in sources_of(command):
            name = source_name(path, project.dataset)
            answers = answered(command, known.get(name, {}))
            layout = "jsonl" if path == command.manifest else answers["layout"]
            version = files_version(path) + (f" {time.time() // FOLDER_AGE_S}" if path.is_dir() else "")
            roots = tuple(command.audio_root)
            preview = _preview(path, version, layout, command.language, answers["columns"], roots)
            if preview is not None:
                is_asked = name not in known or chosen == path.name or bool(preview.undecided)
                found.append(
                    ImportSource(path, source_key(path), preview, is_asked, path == command.manifest)
                )
    return found


def sources_of(command: ImportDataset) -> list[Path]:
    """Return the manifest and the sources of a command."""
    return [*([command.manifest] if command.manifest is not None else []), *command.source]


def source_key(path: Path) -> str:
    """Return the name of a version of a source in the choices."""
    return hashlib.sha256(f"{path} {files_version(path)}".encode()).hexdigest()[:16]


def read_choices(text: str) -> dict[str, str]:
    """Return the columns by the key of their source, without invalid ones; the text is from a browser."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    items = found.items() if isinstance(found, dict) else ()
    return {key: columns for key, columns in items if isinstance(columns, str) and columns.isprintable()}


def with_choice(
    choices: Mapping[str, str], sources: Sequence[ImportSource], row: Sequence[Any]
) -> dict[str, str]:
    """Return the choices for these sources, with the uses of a table.

    Args:
        row: key of the source, file of the table, and uses such as "2=text"; from a browser.
    """
    kept = {source.key: choices[source.key] for source in sources if source.key in choices}
    key, file, *uses = map(str, row) if len(row) > 1 else ("", "")
    table = _find_table(sources, key, file)
    matches = [match for use in uses if (match := _USE.fullmatch(use))]
    if table is None or any(match[2] == UNDECIDED for match in matches):
        return {other: columns for other, columns in kept.items() if other != key}
    chosen = [(int(match[1]), match[2]) for match in matches]
    chosen = [(number, use) for number, use in chosen if number < len(table.columns) and use in CHOOSABLE]
    return kept | {key: table.choice(chosen) or ","}  # "," is invalid, and "" would leave it to the import


def with_chosen_columns(command: ImportDataset, choices: Mapping[str, str]) -> list[ImportDataset]:
    """Return the command with the chosen columns, with a command of its own for each source with a choice."""
    chosen = {path: choices[key] for path in command.source if (key := source_key(path)) in choices}
    others = [path for path in command.source if path not in chosen]
    own = [
        command.model_copy(
            update={"manifest": None, "url": [], **_NO_HUB, "source": [path], "columns": columns}
        )
        for path, columns in chosen.items()
    ]
    has_more = bool(others or command.manifest is not None or command.url or command.hub or not own)
    return [*([command.model_copy(update={"source": others})] if has_more else []), *own]


def column_blockers(sources: Sequence[ImportSource]) -> list[Notice]:
    """Return what to choose before the tables can be imported."""

    def place(source: ImportSource, table: TablePreview) -> str:
        name, files = source.path.name, shown_files(table)
        return files if table.files[0] == name else f"{name}/{files}"

    return [
        Notice(
            f"{place(source, table)}: {advice(table)}",
            f"#data/{TO_CHOOSE}" if source.has_choice and table.columns else "",
            t("data.choose_columns"),
        )
        for source in sources
        for table in source.preview.undecided
    ]


def advice(table: TablePreview) -> str:
    """Return what to do about a table that is not decided."""
    return table.problem or ", ".join(
        filter(None, (t_or(f"data.choose_column.{name}", "") for name in table.missing))
    )


def shown_files(table: TablePreview) -> str:
    """Return the name of the first file of a table, and how many others have the same columns."""
    first, *others = table.files
    return t("data.and_more_files", name=first, count=len(others)) if others else first


def _find_table(sources: Sequence[ImportSource], key: str, file: str) -> TablePreview | None:
    for source in sources:
        if source.key == key and source.has_choice:
            return next((table for table in source.preview.tables if file in table.files), None)
    return None


@lru_cache(maxsize=64)
def _preview(
    path: Path, _version: str, layout: str, language: str, columns: str, allowed: tuple[Path, ...]
) -> SourcePreview | None:
    """Return the tables of a source; None if it cannot be read, which the import reports."""
    try:
        return preview_source(
            path, cast(ImportLayout, layout), language=language, columns=columns, allowed=allowed
        )
    except (UserError, OSError):
        return None
