"""Input, output and blockers of an import, for its run panel. No Gradio here.

Facts come from directories and headers only; the lines of a manifest are counted once per change.
"""

import shutil
import zipfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from indextts.commands.base import Command
from indextts.commands.data import ImportDataset
from indextts.data.importing.items import AUDIO_SUFFIXES
from indextts.projects.project import Project
from indextts.system.amounts import shown_size
from indextts.webui.data.import_sources import column_blockers, import_sources, sources_of
from indextts.webui.language import shown_hours, t, t_or
from indextts.webui.markup import Tile, empty_html, tiles_html
from indextts.webui.running.outlook import Notice, Outlook
from indextts.webui.view_versions import num_lines, utterances_of

MAX_FILES = 5_000  # counted in a folder; a recording set of a server can be larger
MAX_SOURCES = 4  # with a fact of its own
UPLOAD = "#data/upload"

FORMATS = {  # with the same name in every language
    "common-voice": "Common Voice",
    "fleurs": "FLEURS",
    "jsonl": "JSON Lines",
    "kaldi": "Kaldi",
    "librispeech": "LibriSpeech",
    "parquet": "Parquet",
}


def import_outlook(project: Project, commands: Sequence[Command]) -> Outlook:
    """Return what the import reads and where it writes; a missing source or an undecided column blocks it."""
    imports = [command for command in commands if isinstance(command, ImportDataset)]
    paths = [(path, path == command.manifest) for command in imports for path in sources_of(command)]
    sources = import_sources(project, imports)
    named = {source.path: source.preview.layout for source in sources}
    layouts = {path: t_or(f"data.layouts.{id}", FORMATS.get(id, id)) for path, id in named.items()}
    blockers = [
        Notice(
            t("data.no_manifest" if is_manifest else "data.source_missing", path=path),
            UPLOAD,
            t("data.upload_recordings"),
        )
        for path, is_manifest in paths
        if not path.exists()
    ]
    if not paths and not any(command.url or command.hub for command in imports):
        blockers = [Notice(t("data.nothing_to_import"), UPLOAD, t("data.upload_recordings"), kind="missing")]
    blockers += column_blockers(sources)
    facts = [
        (
            t("data.facts.source"),
            f"{path.name}: {shown_source(path, is_manifest=is_manifest, layout=layouts.get(path, ''))}",
        )
        for path, is_manifest in paths[:MAX_SOURCES]
        if path.exists()
    ]
    for command in imports:
        names = filter(None, (command.hub, command.hub_subset, *command.hub_split))
        facts += [(t("data.facts.source"), " ".join(["Hugging Face:", *names]))] if command.hub else []
    if len(paths) > MAX_SOURCES:
        facts.append((t("data.facts.source"), t("data.facts.more_sources", count=len(paths) - MAX_SOURCES)))
    recognizers = dict.fromkeys(command.asr for command in imports if command.asr)
    facts += [(t("data.facts.recognizer"), name) for name in recognizers]
    if stored := shown_dataset(project):
        facts.append((t("data.facts.imported"), stored))
    facts.append((t("data.facts.target"), f"{project.root.name}/{project.dataset.name}/"))
    facts.append((t("data.facts.free"), shown_size(shutil.disk_usage(project.root).free)))
    return Outlook(facts, blockers)


def numbers_html(project: Project) -> str:
    if not project.manifest.is_file():
        return empty_html(f"{t('data.nothing_imported')} {t('data.import_lead')}")
    durations = sorted(utterance.duration_s for utterance in utterances_of(project.manifest))
    speakers = {utterance.speaker for utterance in utterances_of(project.manifest)}
    median = t("data.tiles.median", seconds=durations[len(durations) // 2]) if durations else ""
    return tiles_html(
        [
            Tile(t("data.tiles.utterances"), f"{len(durations):,}"),
            Tile(t("data.tiles.duration"), shown_hours(sum(durations)), median),
            Tile(t("data.tiles.speakers"), f"{len(speakers):,}"),
        ]
    )


def shown_dataset(project: Project) -> str:
    """Return the size of the imported data as text; "" before the first import."""
    if not project.manifest.is_file():
        return ""
    utterances = utterances_of(project.manifest)
    seconds = sum(utterance.duration_s for utterance in utterances)
    id = "data.facts.one_utterance" if len(utterances) == 1 else "data.facts.utterances"
    return t(id, count=len(utterances), hours=shown_hours(seconds))


def shown_source(path: Path, *, is_manifest: bool, layout: str = "") -> str:
    """Return the size of a source and the name of its layout as text."""
    try:
        if path.is_dir():
            size = _shown_folder(path)
        elif path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as file:
                count = sum(Path(name).suffix.lower() in AUDIO_SUFFIXES for name in file.namelist())
            size = _shown_recordings(count, path.stat().st_size)
        elif is_manifest or path.suffix.lower() == ".jsonl":
            size = t("data.facts.lines", count=num_lines(path))
        else:
            size = shown_size(path.stat().st_size)
    except (OSError, zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError):
        size = "?"  # the import names the problem
    return t("data.facts.size_layout", size=size, layout=layout) if layout else size


def _shown_folder(folder: Path) -> str:
    files = [path for path in islice(folder.rglob("*"), MAX_FILES) if path.is_file()]
    if len(files) == MAX_FILES:
        return t("data.facts.size_many", count=MAX_FILES)
    audio = [path for path in files if path.suffix.lower() in AUDIO_SUFFIXES]
    return _shown_recordings(len(audio), sum(path.stat().st_size for path in audio))


def _shown_recordings(count: int, num_bytes: int) -> str:
    id = "data.facts.one_recording" if count == 1 else "data.facts.size"
    return t(id, count=count, size=shown_size(num_bytes))
