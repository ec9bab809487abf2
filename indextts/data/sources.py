"""Sources of the recordings of a project, with their licences.

    sources.json    beside manifest.jsonl: {source: {"name", "url", "subset", "splits", "revision", "licence",
                    "licence_name", "licence_link", "citation"}}; the source is named as in imported.jsonl

The import writes an entry for each data set of the Hugging Face hub, and for a table with licences. The model
card of an export lists them.
"""

import logging
from collections.abc import Collection
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from indextts.system.files import write_bytes
from indextts.system.yaml_files import read_section

logger = logging.getLogger(__name__)

SOURCES_NAME = "sources.json"


class DataSource(BaseModel, frozen=True):
    """Origin of recordings."""

    name: str  # of the data set, or of the folder of a table
    url: str  # "" for a table
    subset: str = ""
    splits: tuple[str, ...] = ()
    revision: str = ""  # the commit
    licence: str = ""  # the identifier of the licence; several with commas, "" if the data set names none
    licence_name: str = ""  # of a licence without an identifier
    licence_link: str = ""
    citation: str = ""  # BibTeX, or ""

    @property
    def shown_licence(self) -> str:
        """The licence as text, with the address of its terms if there is one."""
        names = (
            self.licence if self.licence_name == "" else f"{self.licence_name} ({self.licence or 'other'})"
        )
        return ", ".join(part for part in (names, self.licence_link) if part) or "unknown"


_SOURCES = TypeAdapter(dict[str, DataSource])


def read_sources(folder: Path) -> dict[str, DataSource]:
    """Return the entries of sources.json, none without the file; a UserError if it cannot be read."""
    path = folder / SOURCES_NAME
    return read_section(dict[str, DataSource], path, "delete it and import again") if path.exists() else {}


def write_source(folder: Path, source: str, entry: DataSource) -> None:
    """Add or replace the entry of a source; those of other sources stay."""
    entries = read_sources(folder)
    if entries.get(source) != entry:
        write_bytes(
            folder / SOURCES_NAME, _SOURCES.dump_json({**entries, source: entry}, indent=1, by_alias=True)
        )


def record_origin(folder: Path, source: str, origin: DataSource) -> None:
    """Write the entry of a data set of the hub, and log its licence."""
    write_source(folder, source, origin)
    if origin.licence or origin.licence_name:
        logger.info("%s: licence: %s; keep it with the model", origin.name, origin.shown_licence)
    else:
        text = "%s: its card names no licence; check %s before you publish the model"
        logger.warning(text, origin.name, origin.url)


def record_licences(folder: Path, source: str, path: Path, licences: Collection[str]) -> None:
    """Add the licences that a table at a path gives its recordings to the entry of the source."""
    if not licences:
        return
    entry = read_sources(folder).get(source) or DataSource(name=path.name, url="")
    names = ", ".join(sorted({*licences, *filter(None, entry.licence.split(", "))}))
    write_source(folder, source, entry.model_copy(update={"licence": names}))
    logger.info("%s: licences: %s; keep them with the model", path, names)
