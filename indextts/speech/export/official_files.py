"""Published files in a model folder, so that the official program finds all and fetches nothing.

The official page downloads the entire published repository of its version into its model folder, over
gpt.pth, the tokenizer and config.yaml, if one of the files that it looks for is missing there. It fetches
auxiliary models that are missing in hf_cache/, and a missing config.yaml, one by one. Facts: the page of
2026-08-18.

    OUTPUT_DIR/
      s2mel.pth wav2vec2bert_stats.pt feat1.pt feat2.pt    links to the published files, or copies; also
                                                           codec.pth of IndexTTS-2.5
      qwen0.6bemo4-merge/                                  if it is among them: emotions from a text need it
      hf_cache/                                            auxiliary models under their names there
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from indextts.commands.bases import BASES, OFFICIAL_CACHE, Base
from indextts.errors import UserError
from indextts.features import published_files


@dataclass(frozen=True)
class OfficialFile:
    """A file or folder that the official page looks for.

    Args:
        place: its path in the model folder.
        published: its path in the folder of published files; empty for a file that an export writes.
        replaces_model: without it, the page replaces the model by the published one.
    """

    place: str
    published: str = ""
    replaces_model: bool = False


def files_of(base: Base) -> list[OfficialFile]:
    """Return what the official program of a base looks for in a model folder."""
    exported = ("gpt.pth", base.tokenizer_file, "config.yaml")
    published = [file for file in published_files.files_of(base) if file.place not in exported]
    names = ("s2mel.pth", "codec.pth", "wav2vec2bert_stats.pt")
    return [
        OfficialFile("gpt.pth", replaces_model=True),
        OfficialFile(base.tokenizer_file, replaces_model=True),
        OfficialFile("config.yaml"),
        *(OfficialFile(file.official or file.place, file.place, file.place in names) for file in published),
        OfficialFile("qwen0.6bemo4-merge", "qwen0.6bemo4-merge"),
    ]


PUBLISHED_NAMES = frozenset(
    file.place.partition("/")[0] for base in BASES.values() for file in files_of(base) if file.published
)


def add_published(base: Base, folder: Path, published: Path, copy: bool) -> None:
    """Link or copy those published files that exist into a model folder.

    Args:
        published: the folder of the published files, in the layout of features/published_files.py.
        copy: write copies instead of symbolic links.

    Raises:
        UserError: the file system has no symbolic links.
        OSError: a file cannot be copied.
    """
    for file, found in _available(base, published):
        source, target = found.resolve(), folder / file.place
        target.parent.mkdir(exist_ok=True, parents=True)
        if not copy:
            try:
                target.symlink_to(source, target_is_directory=source.is_dir())
            except OSError as error:
                raise UserError(
                    f"--output-dir {folder.parent}: symbolic links are not possible there "
                    f"({error.strerror}); pass --self-contained to copy the published files"
                ) from None
        elif source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)


def published_bytes(base: Base, published: Path) -> int:
    """Return the size of the files that `add_published` would copy."""
    paths = [path for _, path in _available(base, published)]
    return sum(part.stat().st_size for path in paths for part in (path, *path.rglob("*")) if part.is_file())


def missing_files(base: Base, folder: Path) -> list[OfficialFile]:
    """Return the files that the official page would not find in a model folder; a broken link is missing."""
    return [file for file in files_of(base) if not (folder / file.place).exists()]


def describe_missing(base: Base, missing: list[OfficialFile]) -> list[str]:
    """Return a line for each consequence of missing files; empty if all are there."""
    fatal = [file.place for file in missing if file.replaces_model]
    single = [
        file.place for file in missing if not file.replaces_model and file.place.startswith(OFFICIAL_CACHE)
    ]
    absent = [file.place for file in missing if not file.replaces_model and file.place not in single]
    lines = []
    if fatal:
        lines.append(
            f"{', '.join(fatal)}: missing, so the official page would download the published model over "
            f"gpt.pth, {base.tokenizer_file} and config.yaml"
        )
    if absent:
        lines.append(f"{', '.join(absent)}: missing; copy them from the published {base.title}")
    if single:
        lines.append(f"{', '.join(single)}: missing; the official page downloads each of them")
    return lines


def _available(base: Base, published: Path) -> list[tuple[OfficialFile, Path]]:
    """Return the files that exist, with their paths; in an official installation they have other names."""
    found = []
    for file in files_of(base):
        paths = (published / file.published, published / file.place)
        path = next((path for path in paths if path.exists()), None)
        if file.published and path is not None:
            found.append((file, path))
    return found
