"""Readings and normaliser options of a project, and the tokenizer that carries them.

The page writes the table; the pipeline and the start of a stage on the page find one that somebody edited.
All end in `apply_readings`. The tokenizer keeps its pieces, so a run resumes, and only the changed texts are
tokenized again.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.errors import disk_errors
from indextts.projects.project import Project, ProjectSettings, read_project, write_project
from indextts.projects.stage_records import tokenizer_stays_done
from indextts.text.bases import load_tokenizer
from indextts.text.extend import store_options
from indextts.text.readings import ReadingRow, read_rows, readings_for, write_rows

logger = logging.getLogger(__name__)

_STORING = threading.Lock()  # two browsers store one after the other: their files have the same names


def read_readings(project: Project) -> list[ReadingRow]:
    """Return the rows of the project's table, none without one; a UserError for an invalid one."""
    return read_rows(project.readings) if project.readings.is_file() else []


def store_readings(project: Project, rows: Sequence[ReadingRow]) -> None:
    """Write the project's table, and store it in the tokenizer if there is one; a UserError if that fails."""
    settings = read_project(project)
    with _STORING, tokenizer_stays_done(project, settings):
        with disk_errors(project.readings):
            write_rows(project.readings, rows)
        apply_readings(project, settings, rows)


def store_normalizer(project: Project, options: Mapping[str, Any]) -> None:
    """Store options of the normaliser in the settings and the tokenizer; a UserError if that fails."""
    with _STORING:
        before = read_project(project)
        changed = before.with_fields("normalizer", **options)
        with tokenizer_stays_done(project, before, changed):
            write_project(project, changed)
            if project.tokenizer.is_file():
                chosen = NormalizerOptions(**changed.normalizer)
                store_options(project.tokenizer, {name: getattr(chosen, name) for name in options})


def apply_edited_readings(project: Project, settings: ProjectSettings) -> None:
    """Store a table that somebody edited or removed in the tokenizer; a UserError if that fails."""
    if project.tokenizer.is_file():
        with _STORING, tokenizer_stays_done(project, settings):
            apply_readings(project, settings, read_readings(project))


def apply_readings(project: Project, settings: ProjectSettings, rows: Sequence[ReadingRow]) -> None:
    """Store readings in the project's tokenizer, if there is one with others."""
    if not project.tokenizer.is_file():
        return
    readings = readings_for(rows, settings.language)
    if load_tokenizer(project.tokenizer).options.readings != readings:
        store_options(project.tokenizer, {"readings": readings})
        logger.info("%s: stored %d readings; its pieces stay", project.tokenizer, len(readings))
