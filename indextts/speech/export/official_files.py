"""Published files in a model folder, so that the official program finds all and fetches nothing.

The official page downloads the entire published repository of its version into its model folder, over
gpt.pth, the tokenizer and config.yaml, if one of the files that it looks for is missing there. It fetches
auxiliary models that are missing in hf_cache/, and a missing config.yaml, one by one. Facts: the page of
2026-08-18.

    OUTPUT_DIR/
      s2mel.pth wav2vec2bert_stats.pt feat1.pt feat2.pt    links to the published files, or copies; also
                                                           codec.pth of IndexTTS-2.5
      qwen0.6bemo4-merge/                                  emotions from a text; without it no page starts
      hf_cache/                                            auxiliary models under their names there
"""

import shutil
from pathlib import Path

from indextts.commands.bases import BASES, OFFICIAL_CACHE, Base, PublishedFile
from indextts.errors import UserError
from indextts.features import published_files
from indextts.features.published_files import PAGE_FOLDER


def files_of(base: Base) -> list[PublishedFile]:
    """Return what the official program of a base looks for in a model folder, the exported files first."""
    files = published_files.files_of(base)
    exported = [file for file in files if file.purpose == "base model"]
    others = [file for file in files if file.purpose != "base model"]
    return [*reversed(exported), *others, PublishedFile("sound", PAGE_FOLDER)]


def official_place(file: PublishedFile) -> str:
    """Return the path of a file in a model folder."""
    return file.official or file.place


def replaces_model(base: Base, file: PublishedFile) -> bool:
    """Return whether the page replaces a model without this file by the published one."""
    names = ("gpt.pth", base.tokenizer_file, "s2mel.pth", "codec.pth", "wav2vec2bert_stats.pt")
    return file.place in names


PUBLISHED_NAMES = frozenset(
    official_place(file).partition("/")[0]
    for base in BASES.values()
    for file in files_of(base)
    if file.purpose != "base model"
)


def add_published(base: Base, folder: Path, published: Path, copy: bool) -> None:
    """Link or copy those published files that exist into a model folder.

    Args:
        published: the folder of the published files, in the layout of features/published_files.py.

    Raises:
        UserError: the file system has no symbolic links.
        OSError: a file cannot be copied.
    """
    for file, found in _available(base, published):
        source, target = found.resolve(), folder / official_place(file)
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


def describe_missing(base: Base, folder: Path) -> list[str]:
    """Return a line for each consequence of files that the official page would not find in a model folder.

    A broken link counts as missing.
    """
    missing = [file for file in files_of(base) if not (folder / official_place(file)).exists()]
    fatal = [file.place for file in missing if replaces_model(base, file)]
    others = [official_place(file) for file in missing if not replaces_model(base, file)]
    single = [place for place in others if place.startswith(OFFICIAL_CACHE)]
    absent = [place for place in others if place not in single]
    lines = []
    if fatal:
        lines.append(
            f"{', '.join(fatal)}: missing, so the official page would download the published model over "
            f"gpt.pth, {base.tokenizer_file} and config.yaml"
        )
    if absent:
        names = ", ".join(f"{place}/" if place == PAGE_FOLDER else place for place in absent)
        lines.append(
            f"{names}: missing, so the official page will not start; fetch them with "
            f"tools/download_checkpoints.py --what all --base {base.name} and export again, because the "
            "download that the page recommends would replace this model"
        )
    if single:
        lines.append(f"{', '.join(single)}: missing; the official page downloads each of them")
    return lines


def _available(base: Base, published: Path) -> list[tuple[PublishedFile, Path]]:
    """Return the files that exist, with their paths; in an official installation they have other names."""
    found = []
    for file in files_of(base):
        paths = (published / file.place, published / official_place(file))
        path = next((path for path in paths if path.exists()), None)
        if file.purpose != "base model" and path is not None:
            found.append((file, path))
    return found
