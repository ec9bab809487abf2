"""Published files in a model folder, so that the official page of IndexTTS-2 finds all and fetches nothing.

The official page downloads the entire published repository into its model folder, over gpt.pth, bpe.model and
config.yaml, if one of the files that it looks for is missing there. It fetches auxiliary models that are
missing in hf_cache/, and a missing config.yaml, one by one. Facts: the page of 2026-08-18, version 2.

    OUTPUT_DIR/
      s2mel.pth wav2vec2bert_stats.pt feat1.pt feat2.pt    links to the published files, or copies
      qwen0.6bemo4-merge/                                  if it is among them: emotions from a text need it
      hf_cache/                                            auxiliary models under their names there
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from indextts.errors import UserError
from indextts.features import published_files

COMMAND = "python webui.py --version 2 --model_dir"
CACHE = published_files.OFFICIAL_CACHE


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


FILES = (
    OfficialFile("gpt.pth", replaces_model=True),
    OfficialFile("bpe.model", replaces_model=True),
    OfficialFile("config.yaml"),
    OfficialFile("s2mel.pth", "s2mel.pth", replaces_model=True),
    OfficialFile("wav2vec2bert_stats.pt", "wav2vec2bert_stats.pt", replaces_model=True),
    OfficialFile("feat1.pt", "feat1.pt"),
    OfficialFile("feat2.pt", "feat2.pt"),
    OfficialFile("qwen0.6bemo4-merge", "qwen0.6bemo4-merge"),
    *(OfficialFile(file.official, file.place) for file in published_files.FILES if file.official),
)
PUBLISHED_NAMES = frozenset(file.place.partition("/")[0] for file in FILES if file.published)


def add_published(folder: Path, published: Path, copy: bool) -> None:
    """Link or copy those published files that exist into a model folder.

    Args:
        published: the folder of the published files, in the layout of features/published_files.py.
        copy: write copies instead of symbolic links.

    Raises:
        UserError: the file system has no symbolic links.
        OSError: a file cannot be copied.
    """
    for file in _available(published):
        source, target = (published / file.published).resolve(), folder / file.place
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


def published_bytes(published: Path) -> int:
    """Return the size of the files that `add_published` would copy."""
    paths = [published / file.published for file in _available(published)]
    return sum(part.stat().st_size for path in paths for part in (path, *path.rglob("*")) if part.is_file())


def missing_files(folder: Path) -> list[OfficialFile]:
    """Return the files that the official page would not find in a model folder; a broken link is missing."""
    return [file for file in FILES if not (folder / file.place).exists()]


def describe_missing(missing: list[OfficialFile]) -> list[str]:
    """Return a line for each consequence of missing files; empty if all are there."""
    fatal = [file.place for file in missing if file.replaces_model]
    single = [file.place for file in missing if not file.replaces_model and file.place.startswith(CACHE)]
    absent = [file.place for file in missing if not file.replaces_model and file.place not in single]
    lines = []
    if fatal:
        lines.append(
            f"{', '.join(fatal)}: missing, so the official page would download the published model over "
            "gpt.pth, bpe.model and config.yaml"
        )
    if absent:
        lines.append(f"{', '.join(absent)}: missing; copy them from the published IndexTTS-2")
    if single:
        lines.append(f"{', '.join(single)}: missing; the official page downloads each of them")
    return lines


def _available(published: Path) -> list[OfficialFile]:
    return [file for file in FILES if file.published and (published / file.published).exists()]
