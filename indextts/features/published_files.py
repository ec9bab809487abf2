"""Published files: their Hugging Face repositories, local paths and download record. No torch, no network.

FOLDER/                       `checkpoints/`, or the folder of a base in a workspace (`Base.folder`)
  config.yaml gpt.pth bpe.model wav2vec2bert_stats.pt s2mel.pth feat1.pt feat2.pt, and others of the base
                              (`Base.own_files`), of which a .tiktoken file replaces bpe.model
  qwen0.6bemo4-merge/         with `--what all`: what only the official page needs, to start
  w2v-bert-2.0/               config.json preprocessor_config.json model.safetensors
  semantic_codec/             model.safetensors
  campplus/                   campplus_cn_common.bin
  bigvgan/                    config.json bigvgan_generator.pt
  .downloads.json             metadata of each file on the hub: {place: {"repository", "name", "commit",
                              "num_bytes", "etag", "checked": [size, time] or null}}
  .tmp-NAME.ETAG              a partial download; the next download resumes it
  hf_cache/                   of an official installation in the same folder: some of these files under
                              other names (`official`), which programs read there (`find_published`) and a
                              download links instead of fetching them
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import huggingface_hub
from pydantic import BaseModel, TypeAdapter

from indextts.commands.bases import BASES, OFFICIAL_CACHE, Base, PublishedFile, Purpose
from indextts.commands.data import PublishedSet
from indextts.system.amounts import shown_size
from indextts.system.files import write_bytes
from indextts.system.yaml_files import read_if_valid

RepoType = Literal["model", "dataset"]
PURPOSES: dict[PublishedSet, tuple[Purpose, ...]] = {
    "training": ("base model", "speech features"),
    "speech": ("sound",),
    "all": get_args(Purpose),
}

W2V_BERT = "facebook/w2v-bert-2.0"
W2V_BERT_FILES = {"config.json": 0, "preprocessor_config.json": 0, "model.safetensors": 2_320_000_000}
BIGVGAN = "nvidia/bigvgan_v2_22khz_80band_256x"
BIGVGAN_FILES = {"config.json": 0, "bigvgan_generator.pt": 450_000_000}
RECORD_NAME = ".downloads.json"
PAGE_FOLDER = "qwen0.6bemo4-merge"  # in the repository of each base, for the official page alone


def files_of(base: Base) -> list[PublishedFile]:
    """Return the published files that a base needs, in the order of download."""
    style: Purpose = "speech features" if base.reads_style else "sound"
    campplus = PublishedFile(
        style,
        "campplus/campplus_cn_common.bin",
        28_000_000,
        repository="funasr/campplus",
        official=f"{OFFICIAL_CACHE}/campplus_cn_common.bin",
        published_as="campplus_cn_common.bin",
    )
    files = [
        *(replace(file, repository=file.repository or base.repository) for file in base.own_files),
        *_of_model("speech features", W2V_BERT, "w2v-bert-2.0", W2V_BERT_FILES),
        campplus,
        *_of_model("sound", BIGVGAN, "bigvgan", BIGVGAN_FILES),
    ]
    return sorted(files, key=lambda file: get_args(Purpose).index(file.purpose))


def find_published(path: Path, repository: str = "") -> Path:
    """Return the path of a published file: here, in hf_cache/ of its folder, or in the cache of the hub.

    Args:
        path: in the model folder, such as FOLDER/campplus/campplus_cn_common.bin; it need not exist.
        repository: of the file, to look for it in the Hugging Face cache too.
    """
    official = _official_places().get("/".join(path.parts[-2:]))
    if path.is_file():
        return path
    if official and (path.parents[1] / official).is_file():
        return path.parents[1] / official
    cached = huggingface_hub.try_to_load_from_cache(repository, path.name) if repository else None
    return Path(cached) if isinstance(cached, str) else path


@cache
def _official_places() -> dict[str, str]:
    """Return the places of published files here, each with that in an official installation."""
    return {file.place: file.official for base in BASES.values() for file in files_of(base)}


def _of_model(
    purpose: Purpose, repository: str, folder: str, files: Mapping[str, int]
) -> Iterator[PublishedFile]:
    """Yield the files of another model, by their sizes; official installations have them in a folder too."""
    for name, num_bytes in files.items():
        place, official = f"{folder}/{name}", f"{OFFICIAL_CACHE}/{folder}/{name}"
        yield PublishedFile(purpose, place, num_bytes, "", repository, official, published_as=name)


class Remote(BaseModel, frozen=True):
    """Metadata of a file on the hub, and the local file that was verified against it.

    Args:
        etag: the sha256 of a large file or the git blob id of a small file, in hexadecimal.
        checked: size and modification time of the verified local file; None if there is none.
    """

    repository: str
    name: str
    commit: str
    num_bytes: int
    etag: str
    repo_type: RepoType = "model"
    checked: tuple[int, int] | None = None


Record = Mapping[str, Remote]
_RECORD = TypeAdapter(dict[str, Remote])


def files_for(what: PublishedSet, base: Base) -> list[PublishedFile]:
    """Return the files of `--what`, in the order of download."""
    return [file for file in files_of(base) if file.purpose in PURPOSES[what]]


def read_record(folder: Path) -> dict[str, Remote]:
    """Return the record of a folder, by place; empty if the file is missing or corrupt."""
    return read_if_valid(dict[str, Remote], folder / RECORD_NAME) or {}


def write_record(folder: Path, record: Record) -> None:
    """Replace the record of a folder in one step."""
    write_bytes(folder / RECORD_NAME, _RECORD.dump_json(dict(record), indent=1))


def stamp(path: Path) -> tuple[int, int]:
    """Return size and modification time of a file; a change of the content changes them."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def partial_path(path: Path, etag: str) -> Path:
    """Return the temporary path of the file at `path` until its download is complete."""
    return path.with_name(f".tmp-{path.name}.{etag[:16]}")


def table(folder: Path, base: Base) -> list[list[str]]:
    """Return a row for each file of a base: purpose, place, size and state."""
    record = read_record(folder)
    return [_row(folder, file, record.get(file.place)) for file in files_of(base)]


def missing_bytes(folder: Path, base: Base) -> int:
    """Return about how many bytes are still to be downloaded; partial downloads count as absent."""
    record = read_record(folder)
    absent = [file for file in files_of(base) if not find_published(folder / file.place).is_file()]
    return sum(record[file.place].num_bytes if file.place in record else file.num_bytes for file in absent)


def _row(folder: Path, file: PublishedFile, remote: Remote | None) -> list[str]:
    path = find_published(folder / file.place)
    if path.is_file():
        is_checked = remote is not None and remote.checked == stamp(path)
        return [
            file.purpose,
            file.place,
            shown_size(path.stat().st_size),
            "checked" if is_checked else "there",
        ]
    if remote is None:
        return [file.purpose, file.place, "", "absent"]
    partial = partial_path(path, remote.etag)
    percent = 100 * partial.stat().st_size // max(remote.num_bytes, 1) if partial.is_file() else 0
    return [file.purpose, file.place, shown_size(remote.num_bytes), f"{percent} %" if percent else "absent"]
