"""Choose the files of a subset and a split from a data set on the Hugging Face hub.

A data set names its subsets and splits in the YAML block of its card:

    configs:
    - config_name: amh_asr
      data_files:
      - split: train
        path: data/ASR/amh/amh-train-*       a glob, or a list of globs

Without that block, folder and file names decide:

    SUBSET/SPLIT-00000-of-00005.parquet      data/SUBSET/SPLIT/0000.parquet      data/SPLIT-*.parquet
    data/SUBSET/SPLIT.tsv, data/SUBSET/audio/SPLIT.tar.gz                        FLEURS
    metadata.csv, SPLIT/*.wav                                                    audiofolder
    train.tsv, dev.tsv, test.tsv, validated.tsv, clips/*.mp3                     Common Voice

Only tables, texts, recordings and archives are chosen. A file whose name has no split belongs to all splits.
"""

import fnmatch
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from indextts.data.importing.archive import ARCHIVE_SUFFIXES
from indextts.data.importing.items import (
    AUDIO_SUFFIXES,
    KALDI_NAMES,
    PARQUET_SUFFIX,
    SPLITS,
    is_hidden,
    may_be_read,
)
from indextts.errors import UserError

CARD_NAME = "README.md"
ONLY_SUBSET = "default"
ONLY_SPLIT = "train"

_TABLE_SUFFIXES = (".csv", ".tsv", ".list", ".xlsx", ".json", ".jsonl", PARQUET_SUFFIX)
_PLACES = frozenset(["data", "audio", "clips", "wav", "wavs", "transcript", "transcripts"])
_SHARD = re.compile(r"(?:.*-)?(?!of-)([A-Za-z][^-]*)-\d{4,}(?:-of-\d{4,})?")
_NOT_SPLITS = _PLACES | {"part", "shard", "chunk", "file"}
_NOT_DATA = frozenset(["dataset_infos.json", "dataset_info.json", "requirements.txt", "license.txt"])

Splits = dict[str, list[str]]


@dataclass(frozen=True)
class Choice:
    """Chosen files of a data set in the order of download, and the subset and splits they belong to."""

    subset: str
    splits: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class _Subset:
    """Files of a subset: all of them, and those of each split."""

    names: Sequence[str]
    splits: Splits


def choose(
    names: Iterable[str], card: Mapping[str, Any], subset: str, splits: Sequence[str], where: str
) -> Choice:
    """Return the files of a subset and of splits: tables first, then by name.

    Args:
        card: the YAML block of the card.
        subset: "" for the only subset.
        splits: empty for all splits.
        where: the data set, for messages.

    Raises:
        UserError: the subset or a split does not exist, or there are several subsets and `subset` is empty.
    """
    readable = sorted(filter(is_data, names))
    subsets = _of_card(readable, card) or _of_names(readable)
    if not subset and len(subsets) > 1:
        raise UserError(f"{where}: has several subsets; pass --hub-subset with one of {_listed(subsets)}")
    subset = subset or next(iter(subsets))
    if subset not in subsets:
        raise UserError(f"{where}: --hub-subset {subset} does not exist; choose one of {_listed(subsets)}")
    found = subsets[subset]
    wanted = [_named(split, found.splits, where) for split in splits]
    chosen = {name for split in wanted for name in found.splits[split]} if wanted else set(found.names)
    ordered = sorted(chosen, key=lambda name: (not _is_text_table(name), name))
    return Choice(subset, tuple(dict.fromkeys(wanted or found.splits)), tuple(ordered))


def _named(split: str, splits: Splits, where: str) -> str:
    """Return the name of a split in the data set; "dev" also names "validation", and so on."""
    if split in splits:
        return split
    for name in splits:
        if _same_split(name) == _same_split(split):
            return name
    raise UserError(f"{where}: --hub-split {split} does not exist; choose one of {_listed(splits)}")


def is_data(name: str) -> bool:
    """Return whether a file of a repository can hold recordings or their texts."""
    path = Path(name)
    if is_hidden(path) or path.name.lower() in _NOT_DATA:
        return False
    return may_be_read(path) or _is_archive(name)


def _is_archive(name: str) -> bool:
    return name.lower().endswith(ARCHIVE_SUFFIXES)


def _is_table(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix.lower() in _TABLE_SUFFIXES or path.name in KALDI_NAMES


def _is_text_table(name: str) -> bool:
    return _is_table(name) and not name.endswith(PARQUET_SUFFIX)


def _same_split(name: str) -> str:
    return SPLITS.get(name.lower(), name.lower())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _of_card(names: Sequence[str], card: Mapping[str, Any]) -> dict[str, _Subset]:
    """Return the files by subset and split as the card names them; empty if it names none."""
    subsets: dict[str, _Subset] = {}
    configs = card.get("configs")
    for config in configs if isinstance(configs, list) else []:
        if not isinstance(config, dict):
            continue
        folder = str(config.get("data_dir") or "").strip("/")
        below = [name for name in names if not folder or name.startswith(f"{folder}/")]
        splits = _of_data_files(below, folder, config.get("data_files"))
        subset = _by_split(below)
        if splits is not None:
            subset = _Subset([name for found in splits.values() for name in found], splits)
        if subset.names:
            subsets[str(config.get("config_name") or ONLY_SUBSET)] = subset
    return subsets


def _of_data_files(names: Sequence[str], folder: str, data_files: object) -> Splits | None:
    """Return the files of `data_files` in a card by split; None if the card has none."""
    if isinstance(data_files, str):
        data_files = [data_files]
    if not isinstance(data_files, list) or not data_files:
        return None
    splits: Splits = {}
    for entry in data_files:
        split, paths = ONLY_SPLIT, entry
        if isinstance(entry, dict):
            split, paths = str(entry.get("split") or ONLY_SPLIT), entry.get("path")
        for path in paths if isinstance(paths, list) else [paths]:
            parts = [part for part in f"{folder}/{path}".split("/") if part not in ("", ".")]
            glob = "/".join(parts).replace("**/", "*")  # fnmatch's * also matches /
            found = [name for name in names if fnmatch.fnmatchcase(name, glob)]
            splits.setdefault(split, []).extend(found)
    return {split: _with_recordings(found, names, split) for split, found in splits.items() if found}


def _with_recordings(found: list[str], names: Sequence[str], split: str) -> list[str]:
    """Add the recordings and archives beside tables if the card lists only the tables."""
    if not all(map(_is_text_table, found)):
        return found
    folders = {str(PurePosixPath(name).parent) for name in found}
    beside = [
        name
        for name in names
        if not _is_table(name) and any(folder == "." or name.startswith(f"{folder}/") for folder in folders)
    ]
    return found + [name for name in beside if _same_split(_split_of(name) or split) == _same_split(split)]


def _of_names(names: Sequence[str]) -> dict[str, _Subset]:
    """Return the files by subset and split as folder and file names tell."""
    holders = [name for name in names if _is_table(name) or _is_archive(name)]
    folders = [PurePosixPath(name).parent for name in holders]
    common = PurePosixPath(os.path.commonpath(folders) if folders else "").parts
    subsets = {_subset_of(name, len(common)) for name in holders}
    # a .json file at the top often holds no data
    if len(subsets) < 2 or any(
        not _subset_of(name, len(common)) for name in holders if not name.endswith(".json")
    ):
        place = next((part for part in reversed(common) if _is_subset(part)), ONLY_SUBSET)
        return {place: _by_split(names)}
    shared = [name for name in names if not _subset_of(name, len(common))]
    return {
        subset: _by_split([*shared, *(name for name in names if _subset_of(name, len(common)) == subset)])
        for subset in sorted(subsets - {""})
    }


def _subset_of(name: str, num_common: int) -> str:
    """Return the first folder below the common ones that is neither a split nor a usual place."""
    return next(filter(_is_subset, PurePosixPath(name).parent.parts[num_common:]), "")


def _is_subset(folder: str) -> bool:
    return folder.lower() not in SPLITS.keys() | _PLACES


def _by_split(names: Sequence[str]) -> _Subset:
    """Return the files by split; those without a split belong to all, unless a table has their split."""
    of = {name: _split_of(name) for name in names}
    splits: Splits = {}
    for split in sorted({split for split in of.values() if split}):
        own = [name for name in names if of[name] == split]
        with_table = {PurePosixPath(name).parent for name in own if _is_table(name)}
        splits[split] = own + [
            name
            for name in names
            if not of[name] and not (_is_table(name) and PurePosixPath(name).parent in with_table)
        ]
    return _Subset(names, splits or {ONLY_SPLIT: list(names)})


def _split_of(name: str) -> str:
    """Return the split in a file's name, or in its folders; "" if there is none."""
    path = PurePosixPath(name)
    if path.suffix.lower() not in AUDIO_SUFFIXES and not name.lower().endswith((".txt", ".lab")):
        stem = path.name.split(".", maxsplit=1)[0]
        shard = _SHARD.fullmatch(stem)
        if shard and shard[1].lower() not in _NOT_SPLITS:
            return shard[1]
        for word in re.split(r"[^A-Za-z]+", stem):
            if word.lower() in SPLITS:
                return word
    return next((part for part in reversed(path.parent.parts) if part.lower() in SPLITS), "")
