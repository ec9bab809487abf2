"""Export of a checkpoint to a model folder that IndexTTS2 loads.

OUTPUT_DIR/
  gpt.pth, gpt.safetensors   name -> tensor, every weight of the GPT, as published; one of them or both
  bpe.model                  the tokenizer of the training run, with its normaliser's options; also replaces
                             Ethiopic marks in raw texts (text/official_marks.py); for IndexTTS-2.5 its rank
                             file without gaps, whose options are in spoken_text/ only
  config.yaml                the base's, with the tokenizer's number of text tokens
  builtin.npz                the built-in speech backend; only for a model with built-in codes
  spoken_text/               the normaliser as a package, see text_package.py
  README.md                  the model card
  LICENSE-NOTE.txt           the terms for a model trained from the published weights
  export.json                {"format_version", "checkpoints", "step", "part", "dtype", "logits": {file:
                             {"difference", "allowed"}}, "files": {file: {"num_bytes", "digest"}}}
  s2mel.pth hf_cache/ ...    published files that the official page needs, see official_files.py

The folder is staged, read back and compared with the checkpoint, and then renamed: OUTPUT_DIR is a complete,
verified folder, or as it was before.
"""

import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from indextts.commands.bases import BASES, base_of
from indextts.commands.speech import ExportModel
from indextts.data.feature_store import read_info
from indextts.data.networks import BACKEND_NAME
from indextts.errors import DISK_FULL, DISK_FULL_ERRNOS, USER_MISTAKE, UserError
from indextts.features import builtin
from indextts.models.checkpoint import TEXT_TABLES, table_rows, write_and_sync
from indextts.models.gpt.config import GPTConfig, config_for, config_with_text_tokens, load_config
from indextts.speech.export.card import LICENCE_NOTE, FileCheck, model_card
from indextts.speech.export.comparison import TOLERANCES, compare, logits_on_fixed_inputs
from indextts.speech.export.official_files import (
    PUBLISHED_NAMES,
    add_published,
    describe_missing,
    missing_files,
    published_bytes,
)
from indextts.speech.export.source import Source, read_source
from indextts.speech.export.staging import staged_folder, unknown_files
from indextts.speech.export.text_package import NAME as TEXT_PACKAGE
from indextts.speech.export.text_package import write_text_package
from indextts.system.amounts import shown_size
from indextts.system.digest import file_digest
from indextts.system.files import sync, write_bytes, write_json
from indextts.system.json_lines import read_json_lines
from indextts.system.yaml_files import parse_yaml
from indextts.text.bases import stored_tokenizer, tokenizer_of
from indextts.text.byte_level import ByteLevelTokenizer
from indextts.text.official_marks import with_ethiopic_marks
from indextts.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
RECORD = "export.json"
WEIGHT_FILES = {
    "pth": ("gpt.pth",),
    "safetensors": ("gpt.safetensors",),
    "both": ("gpt.pth", "gpt.safetensors"),
}
FILES = (
    *WEIGHT_FILES["both"],
    *(base.tokenizer_file for base in BASES.values()),
    "config.yaml",
    BACKEND_NAME,
    "README.md",
    "LICENSE-NOTE.txt",
    RECORD,
    TEXT_PACKAGE,
    *sorted(PUBLISHED_NAMES),
)
SPARE_BYTES = 16 << 20  # for the small files

NUM_TOKENS_LINE = re.compile(r"^(\s+number_text_tokens\s*:\s*)\d+", re.MULTILINE)


def export(command: ExportModel) -> Path:
    """Write the model folder; return the path of its weights, the first if there are two files.

    Raises:
        UserError: the checkpoint cannot be exported, the config is invalid or does not fit, or the folder
            contains unknown files or cannot be written; with status 4 if the disk is full, with status 1 if
            the verification fails. The output folder is then unchanged.
    """
    target = command.output_dir
    _refuse_occupied(command)
    source = read_source(command.checkpoint, command.average_last, command.weights, (command.config.parent,))
    base = base_of(source.weights)
    num_tokens = table_rows(source.weights, str(command.checkpoint)) - 1
    config_text = config_with_tokens(command.config, num_tokens)
    config = config_for(config_with_text_tokens(load_config(command.config), num_tokens), source.weights)
    tokenizer_path = target / base.tokenizer_file
    tokenizer = tokenizer_of(stored_tokenizer(dict(source.tokenizer)), tokenizer_path)
    order = official_order(tokenizer)
    logits = logits_on_fixed_inputs(config, source.weights, str(command.checkpoint), order)
    source = replace(source, weights=in_official_order(source.weights, order))
    dtype: torch.dtype = getattr(torch, command.dtype)
    names = WEIGHT_FILES[command.format]
    fitted = find_builtin_backend_file(source)
    published = command.published or command.config.parent
    try:
        with staged_folder(target) as aside:
            num_copied = published_bytes(base, published) if command.self_contained and fitted is None else 0
            _require_space(aside, source.weights, dtype, len(names), num_copied)
            checks = _write_weights(aside, names, source, config, dtype, logits)
            write_bytes(aside / base.tokenizer_file, official_file(tokenizer))
            write_text_package(aside, tokenizer.options, tokenizer.reserved)
            write_bytes(aside / "config.yaml", config_text.encode())
            if fitted is not None:
                shutil.copyfile(fitted, aside / BACKEND_NAME)
                sync(aside / BACKEND_NAME)
            else:
                add_published(base, aside, published, copy=command.self_contained)
                for line in describe_missing(base, missing_files(base, aside)):
                    logger.warning("%s", line)
            write_bytes(aside / "README.md", model_card(base, source, checks, fitted is not None).encode())
            write_bytes(aside / "LICENSE-NOTE.txt", LICENCE_NOTE.encode())
            write_json(aside / RECORD, _record(aside, source, command, checks))
    except OSError as error:
        is_full = error.errno in DISK_FULL_ERRNOS
        raise UserError(
            f"--output-dir {target}: cannot be written ({error.strerror or error}); "
            + ("free disk space" if is_full else "check its permissions"),
            DISK_FULL if is_full else USER_MISTAKE,
        ) from None
    return target / names[0]


def _refuse_occupied(command: ExportModel) -> None:
    target = command.output_dir
    if command.config.resolve().parent == target.resolve():
        raise UserError(f"--output-dir {target}: contains the base model; choose another folder")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UserError(f"--output-dir {target}: is not a folder; choose another path")
    unknown = unknown_files(target, FILES, RECORD)
    if unknown:
        raise UserError(
            f"--output-dir {target}: contains {', '.join(unknown[:3])}{', ...' if len(unknown) > 3 else ''}, "
            "not written by an export; choose another folder, or move these files"
        )


def _require_space(
    folder: Path, weights: Mapping[str, Tensor], dtype: torch.dtype, num_files: int, num_copied: int
) -> None:
    """Raise a UserError if the weights and `num_copied` bytes of published files do not fit on the disk."""
    num_bytes = sum(tensor.numel() for tensor in weights.values()) * dtype.itemsize
    needed, free = num_files * num_bytes + num_copied + SPARE_BYTES, shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"--output-dir {folder.parent}: the model needs {shown_size(needed)}, {shown_size(free)} are "
            "free; free disk space, or choose another folder",
            DISK_FULL,
        )


def _write_weights(
    folder: Path,
    names: tuple[str, ...],
    source: Source,
    config: GPTConfig,
    dtype: torch.dtype,
    logits: Tensor,
) -> list[FileCheck]:
    """Write each file, read it back and compare it with `source`; return the results."""
    checks = []
    for name in names:
        weights = {name: tensor.to(dtype).contiguous() for name, tensor in source.weights.items()}
        if name.endswith(".pth"):
            write_and_sync(folder / name, weights)
        else:
            _write_safetensors(folder / name, weights)
        del weights  # saves the memory of a copy while the file is read back
        difference = compare(folder / name, config, source.weights, dtype, logits)
        dtype_name = str(dtype).removeprefix("torch.")
        checks.append(FileCheck(name, dtype_name, difference, TOLERANCES[dtype]))
        logger.info(
            "%s: verified %d tensors; relative difference of logits %.1e (tolerance for %s: %g)",
            name,
            len(source.weights),
            difference,
            dtype_name,
            TOLERANCES[dtype],
        )
    return checks


def _write_safetensors(path: Path, weights: dict[str, Tensor]) -> None:
    try:
        save_file(weights, path, metadata={"format": "pt"})
    except SafetensorError as error:  # its text contains the number of the system's error
        found = re.search(r"os error (\d+)", str(error))
        raise OSError(int(found[1]) if found else 0, str(error)) from None
    sync(path)


def find_builtin_backend_file(source: Source) -> Path | None:
    """Return the file of the built-in backend that made a run's features; None for another backend."""
    meta = source.meta
    if meta is None or not meta.manifests:
        return None
    pairs = Path(meta.manifests[0].path)
    try:
        _, record = next(read_json_lines(pairs))
        store = pairs.parent / str(record.get("features", ""))
        is_builtin = read_info(store).backend == "builtin"
    except UserError as error:
        logger.warning("The speech backend of the model's codes is unknown: %s", error)
        return None
    if not is_builtin:
        return None
    path = store.parent / BACKEND_NAME
    if source.codes not in (None, builtin.load(path).identity):
        logger.warning("%s was regenerated after training: the export contains no built-in backend", path)
        return None
    return path


def _record(folder: Path, source: Source, command: ExportModel, checks: list[FileCheck]) -> dict[str, Any]:
    meta = source.meta
    return {
        "format_version": FORMAT_VERSION,
        "checkpoints": [path.name for path in source.paths],
        "step": meta and meta.step,
        "part": meta and meta.part,
        "weights": command.weights,
        "dtype": command.dtype,
        "logits": {file.name: {"difference": file.difference, "allowed": file.allowed} for file in checks},
        "files": {
            path.name: {"num_bytes": path.stat().st_size, "digest": file_digest(path)}
            for path in sorted(folder.iterdir())
            if path.is_file() and path.name not in PUBLISHED_NAMES
        },
    }


def config_with_tokens(path: Path, num_tokens: int) -> str:
    """Return the YAML of the config at `path` with another number of text tokens, otherwise unchanged.

    Raises:
        UserError: the file cannot be read, or has no section gpt.
    """
    try:
        text = path.read_text(encoding="utf-8")
        config = parse_yaml(text)
        config["gpt"]["number_text_tokens"] = num_tokens
    except OSError as error:
        raise UserError(f"--config {path}: cannot be read ({error.strerror}); check the path") from None
    except (ValueError, TypeError, KeyError):
        raise UserError(
            f"--config {path}: has no section gpt; use the config.yaml of the base model"
        ) from None
    edited = NUM_TOKENS_LINE.sub(rf"\g<1>{num_tokens}", text)
    if parse_yaml(edited) == config:
        return edited
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)  # another YAML style, such as {a: 1}


# --- differences of the published models. In the official program of 2.5 the special tokens follow the
# appended pieces, and it reads nothing but ranks, so that the options are in spoken_text/ only.


def official_order(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the token that each token of the official program is; empty if none moves."""
    return tokenizer.official_order if isinstance(tokenizer, ByteLevelTokenizer) else ()


def in_official_order(weights: Mapping[str, Tensor], order: Sequence[int]) -> Mapping[str, Tensor]:
    """Return the weights by published name, with the text rows in the order of `official_order`."""
    if not order:
        return weights
    rows = [*order, len(order)]  # the last row belongs to no token
    return {**weights, **{name: weights[name][rows] for name in TEXT_TABLES}}


def official_file(tokenizer: Tokenizer) -> bytes:
    """Return the tokenizer file for the official program.

    Raises:
        OSError: the temporary folder cannot be written.
    """
    if isinstance(tokenizer, ByteLevelTokenizer):
        return tokenizer.official_ranks
    return with_ethiopic_marks(tokenizer.model_bytes)
