"""A model folder from a checkpoint: what somebody needs to speak with it, and nothing else.

OUTPUT_DIR/
  gpt.pth, gpt.safetensors   name -> tensor, every weight of the GPT, as published; one of them or both
  bpe.model                  the tokenizer it was trained with, with its normaliser's options
  config.yaml                the base's, with the tokenizer's number of text tokens
  builtin.npz                what makes sound of the built-in codes; only for a model that speaks these
  README.md                  the model card
  LICENSE-NOTE.txt           what holds for a model made from the published one
  export.json                {"format_version", "checkpoints", "step", "part", "dtype", "logits": {file:
                             {"difference", "allowed"}}, "files": {file: {"num_bytes", "digest"}}}

It is written aside, read back and compared with the checkpoint, and then renamed: under its name stands a
whole folder that passed, or nothing, or the one before.
"""

import logging
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from indextts.commands.speech import ExportModel
from indextts.data.feature_store import read_info
from indextts.data.networks import BACKEND_NAME
from indextts.errors import DISK_FULL, DISK_FULL_ERRNOS, USER_MISTAKE, UserError
from indextts.features import builtin
from indextts.models.checkpoint import table_rows, write_and_sync
from indextts.models.gpt.config import GPTConfig, config_with_text_tokens, load_config
from indextts.speech.export.card import LICENCE_NOTE, Checked, model_card
from indextts.speech.export.comparison import TOLERANCES, compare, logits_on_fixed_inputs
from indextts.speech.export.source import Source, read_source
from indextts.speech.export.staging import foreign_files, written_aside
from indextts.system.digest import file_digest
from indextts.system.files import sync, write_bytes, write_json
from indextts.system.json_lines import read_json_lines
from indextts.text.normalizer_record import stored_tokenizer

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
    "bpe.model",
    "config.yaml",
    BACKEND_NAME,
    "README.md",
    "LICENSE-NOTE.txt",
    RECORD,
)
SPARE_BYTES = 16 << 20  # for the small files

NUM_TOKENS_LINE = re.compile(r"^(\s+number_text_tokens\s*:\s*)\d+", re.MULTILINE)


def export(command: ExportModel) -> Path:
    """Write the model folder; return the path of its weights, the first if there are two files.

    Raises:
        UserError: the checkpoint cannot be exported, the config is none or does not fit it, or the folder
            holds files of others or cannot be written; with status 4 if its disk is full, with status 1 if
            what was written is not what was meant, and then it was removed.
    """
    target = command.output_dir
    _refuse_occupied(command)
    source = read_source(command.checkpoint, command.average_last, command.weights)
    num_tokens = table_rows(source.weights, str(command.checkpoint)) - 1
    config_text = config_with_tokens(command.config, num_tokens)
    config = config_with_text_tokens(load_config(command.config), num_tokens)
    logits = logits_on_fixed_inputs(config, source.weights, str(command.checkpoint))
    dtype: torch.dtype = getattr(torch, command.dtype)
    names = WEIGHT_FILES[command.format]
    try:
        with written_aside(target) as aside:
            _require_room(aside, source.weights, dtype, len(names))
            checked = _write_weights(aside, names, source, config, dtype, logits)
            write_bytes(aside / "bpe.model", stored_tokenizer(dict(source.tokenizer)))
            write_bytes(aside / "config.yaml", config_text.encode())
            fitted = builtin_file(source)
            if fitted is not None:
                shutil.copyfile(fitted, aside / BACKEND_NAME)
                sync(aside / BACKEND_NAME)
            write_bytes(aside / "README.md", model_card(source, checked).encode())
            write_bytes(aside / "LICENSE-NOTE.txt", LICENCE_NOTE.encode())
            write_json(aside / RECORD, _record(aside, source, command, checked))
    except OSError as error:
        is_full = error.errno in DISK_FULL_ERRNOS
        raise UserError(
            f"--output-dir {target} cannot be written ({error.strerror or error})"
            + ("; make room on its disk" if is_full else ""),
            DISK_FULL if is_full else USER_MISTAKE,
        ) from None
    return target / names[0]


def _refuse_occupied(command: ExportModel) -> None:
    target = command.output_dir
    if command.config.resolve().parent == target.resolve():
        raise UserError(f"--output-dir {target} holds the base model; choose another folder")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UserError(f"--output-dir {target} cannot be written: it is no folder; choose another name")
    others = foreign_files(target, FILES, RECORD)
    if others:
        raise UserError(
            f"--output-dir {target} holds {', '.join(others[:3])}{', ...' if len(others) > 3 else ''}, which "
            "no export wrote; choose another folder, or move that away"
        )


def _require_room(folder: Path, weights: Mapping[str, Tensor], dtype: torch.dtype, num_files: int) -> None:
    num_bytes = sum(tensor.numel() for tensor in weights.values()) * dtype.itemsize
    needed, free = num_files * num_bytes + SPARE_BYTES, shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"--output-dir: the model needs {needed / 1e9:.2f} GB, {free / 1e9:.2f} GB are free on its disk; "
            "make room, or choose another folder",
            DISK_FULL,
        )


def _write_weights(
    folder: Path,
    names: tuple[str, ...],
    source: Source,
    config: GPTConfig,
    dtype: torch.dtype,
    logits: Tensor,
) -> list[Checked]:
    """Write each file and compare what is read back with `source`; return how it went."""
    checked = []
    for name in names:
        weights = {name: tensor.to(dtype).contiguous() for name, tensor in source.weights.items()}
        if name.endswith(".pth"):
            write_and_sync(folder / name, weights)
        else:
            _write_safetensors(folder / name, weights)
        del weights  # a second copy beside the model that is read back would not fit everywhere
        difference = compare(folder / name, config, source.weights, dtype, logits)
        dtype_name = str(dtype).removeprefix("torch.")
        checked.append(Checked(name, dtype_name, difference, TOLERANCES[dtype]))
        logger.info(
            "%s, read back: all %d tensors are there, logits differ by %.1e (allowed for %s: %g)",
            name,
            len(source.weights),
            difference,
            dtype_name,
            TOLERANCES[dtype],
        )
    return checked


def _write_safetensors(path: Path, weights: dict[str, Tensor]) -> None:
    try:
        save_file(weights, path, metadata={"format": "pt"})
    except SafetensorError as error:  # it hides the system's error in its text
        found = re.search(r"os error (\d+)", str(error))
        raise OSError(int(found[1]) if found else 0, str(error)) from None
    sync(path)


def builtin_file(source: Source) -> Path | None:
    """Return the file of the builtin backend that made a run's features; None if another one did."""
    meta = source.meta
    if meta is None or not meta.manifests:
        return None
    pairs = Path(meta.manifests[0].path)
    try:
        _, record = next(read_json_lines(pairs))
        store = pairs.parent / str(record.get("features", ""))
        is_builtin = read_info(store).backend == "builtin"
    except UserError as error:
        logger.warning("Which codes the model speaks is not known any more: %s", error)
        return None
    if not is_builtin:
        return None
    path = store.parent / BACKEND_NAME
    if source.codes not in (None, builtin.load(path).identity):
        logger.warning("%s was made anew since the training, so nothing here makes sound of its codes", path)
        return None
    return path


def _record(folder: Path, source: Source, command: ExportModel, checked: list[Checked]) -> dict[str, Any]:
    meta = source.meta
    return {
        "format_version": FORMAT_VERSION,
        "checkpoints": [path.name for path in source.paths],
        "step": meta and meta.step,
        "part": meta and meta.part,
        "weights": command.weights,
        "dtype": command.dtype,
        "logits": {file.name: {"difference": file.difference, "allowed": file.allowed} for file in checked},
        "files": {
            path.name: {"num_bytes": path.stat().st_size, "digest": file_digest(path)}
            for path in sorted(folder.iterdir())
        },
    }


def config_with_tokens(path: Path, num_tokens: int) -> str:
    """Return the YAML of the config at `path` for `num_tokens` text tokens; all else stays, comments too.

    Raises:
        UserError: the file cannot be read, or has no section gpt.
    """
    try:
        text = path.read_text(encoding="utf-8")
        config = yaml.safe_load(text)
        config["gpt"]["number_text_tokens"] = num_tokens
    except OSError as error:
        raise UserError(f"--config {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError):
        raise UserError(f"--config {path}: no config of IndexTTS2, it has no section gpt") from None
    edited = NUM_TOKENS_LINE.sub(rf"\g<1>{num_tokens}", text)
    if yaml.safe_load(edited) == config:
        return edited
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)  # written in another way: {a: 1, ...}
