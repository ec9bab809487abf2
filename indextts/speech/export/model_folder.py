"""Export of a checkpoint to a model folder that IndexTTS2 loads.

OUTPUT_DIR/
  adapter.safetensors        alone with the card, note and record: a LoRA (indextts/models/adapter_file.py)
  gpt.pth, gpt.safetensors   name -> tensor, every weight of the GPT, as published; one of them or both
  bpe.model                  the tokenizer of the training run, with its normaliser's options; also replaces
                             Ethiopic marks in raw texts (text/official_marks.py); for IndexTTS-2.5 its rank
                             file without gaps, whose options are in spoken_text/ only
  config.yaml                the base's, with the tokenizer's number of text tokens
  builtin.npz                the built-in speech backend; only for a model with built-in codes
  spoken_text/               the normaliser as a package, see text_package.py; and client.json, see client.py
  README.md                  the model card
  LICENSE-NOTE.txt           the terms for a model trained from the published weights
  export.json                {"format_version", "checkpoints", "step", "part", "dtype", "logits": {file:
                             {"difference", "allowed"}}, "files": {file: {"num_bytes", "digest"}}}
  s2mel.pth hf_cache/ ...    published files that the official page needs, see official_files.py

The folder is staged, read back and compared with the checkpoint, and then renamed: OUTPUT_DIR is a complete,
verified folder, or as it was before.
"""

import fcntl
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from indextts.commands.bases import BASES, base_of
from indextts.commands.speech import ExportModel
from indextts.data.networks import BACKEND_NAME
from indextts.errors import CHECK_FAILED, UserError, disk_errors
from indextts.features import builtin
from indextts.models.adapter_file import NAME as ADAPTER
from indextts.models.adapter_file import metadata_of, tensors_of
from indextts.models.checkpoint import (
    TEXT_TABLES,
    averaged_weights,
    codes_identity,
    embedded_meta,
    read_file,
    table_rows,
    write_and_sync,
)
from indextts.models.gpt.config import (
    GPTConfig,
    config_for,
    config_with_text_tokens,
    load_config,
    parse_config,
)
from indextts.models.lora import lora_record
from indextts.speech.export.card import model_card, official_usage, usage_of
from indextts.speech.export.client import NAME as CLIENT_NAME
from indextts.speech.export.client import Client, require_language, with_page_language
from indextts.speech.export.comparison import TOLERANCES, compare, logits_on_fixed_inputs
from indextts.speech.export.official_files import (
    PUBLISHED_NAMES,
    add_published,
    describe_missing,
    published_bytes,
)
from indextts.speech.export.source import Source, read_source, read_verified
from indextts.speech.export.text_package import NAME as TEXT_PACKAGE
from indextts.speech.export.text_package import write_text_package
from indextts.speech.synthesis.trained_model import find_builtin_backend
from indextts.system.amounts import listed
from indextts.system.digest import file_digest
from indextts.system.disk import require_space
from indextts.system.files import sync, write_bytes, write_json
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
    ADAPTER,
    *(base.tokenizer_file for base in BASES.values()),
    "config.yaml",
    BACKEND_NAME,
    "README.md",
    "LICENSE-NOTE.txt",
    RECORD,
    TEXT_PACKAGE,
    *sorted(PUBLISHED_NAMES),
)
LICENCE_NOTE = Path(__file__).with_name("licence_note.txt")
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
    if command.format == "adapter":
        return _export_adapter(command)
    source = read_source(command.checkpoint, command.average_last, command.weights, (command.config.parent,))
    base = base_of(source.weights)
    num_tokens = table_rows(source.weights, str(command.checkpoint)) - 1
    config_text = config_with_tokens(command.config, num_tokens)
    config = config_for(config_with_text_tokens(load_config(command.config), num_tokens), source.weights)
    tokenizer_path = target / base.tokenizer_file
    tokenizer = tokenizer_of(stored_tokenizer(dict(source.tokenizer)), tokenizer_path)
    if command.page_language:
        require_language(base, tokenizer, command.page_language)
    weights = with_page_language(source.weights, tokenizer, command.page_language)
    order = official_order(tokenizer)
    logits = logits_on_fixed_inputs(config, weights, str(command.checkpoint), order)
    source = replace(source, weights=in_official_order(weights, order))
    positions = command.positions if "positions" in command.model_fields_set else None
    client = Client(page_language=command.page_language, positions=positions)
    dtype: torch.dtype = getattr(torch, command.dtype)
    names = WEIGHT_FILES[command.format]
    fitted = _builtin_backend_of(source)
    published = command.published or command.config.parent
    with disk_errors(f"--output-dir {target}"), staged_folder(target) as aside:
        num_copied = published_bytes(base, published) if command.self_contained and fitted is None else 0
        _require_space(aside, source.weights, dtype, len(names), num_copied)
        checks = _write_weights(aside, names, source.weights, config, dtype, logits)
        official = (
            tokenizer.official_ranks
            if isinstance(tokenizer, ByteLevelTokenizer)
            else with_ethiopic_marks(tokenizer.model_bytes)
        )
        write_bytes(aside / base.tokenizer_file, official)
        write_text_package(aside, tokenizer.options, tokenizer.reserved)
        if client != Client():
            write_json(aside / CLIENT_NAME, client.model_dump())
        write_bytes(aside / "config.yaml", config_text.encode())
        if fitted is None:
            add_published(base, aside, published, copy=command.self_contained)
            for line in describe_missing(base, aside):
                logger.warning("%s", line)
        usage = official_usage(base, source, client) if fitted is None else usage_of("builtin", base)
        card = model_card(base, source, command.dtype, checks, usage)
        _finish(aside, source, command, checks, card, fitted)
    return target / names[0]


def _export_adapter(command: ExportModel) -> Path:
    """Write what a LoRA checkpoint trained, and read it back; errors as for `export`."""
    checkpoint, target = command.checkpoint, command.output_dir
    content = read_verified(checkpoint)
    if lora_record(content, checkpoint) is None or command.average_last > 1 or command.page_language:
        raise UserError(
            f"--format adapter: {checkpoint} must be one checkpoint of a run with --lora-rank, without "
            "--average-last and --page-language; leave out --format adapter for a complete export"
        )
    trained = content["model"] if command.weights == "raw" else averaged_weights(content, checkpoint)
    meta, codes = embedded_meta(content, checkpoint), codes_identity(content)
    source = Source((checkpoint,), trained, content["tokenizer"], meta, codes)
    base = parse_config(content["meta"]["gpt_config"], checkpoint).of_base
    dtype: torch.dtype = getattr(torch, command.dtype)
    tensors, fitted = tensors_of(content, trained, dtype), _builtin_backend_of(source)
    with disk_errors(f"--output-dir {target}"), staged_folder(target) as aside:
        _require_space(aside, tensors, torch.float32, 1, 0)
        write_safetensors(aside / ADAPTER, tensors, metadata_of(content))
        written = read_file(aside / ADAPTER)["model"]
        for name, values in trained.items():
            if not torch.equal(written[name], values.to(dtype).float()):
                raise UserError(f"{ADAPTER}: {name} differs after reading back; check the disk", CHECK_FAILED)
        card = model_card(base, source, command.dtype, {}, usage_of("adapter", base))
        _finish(aside, source, command, {}, card, fitted)
    return target / ADAPTER


def _finish(
    folder: Path,
    source: Source,
    command: ExportModel,
    checks: Mapping[str, Mapping[str, float]],
    card: str,
    fitted: Path | None,
) -> None:
    """Write the built-in backend, the card, the note and the record."""
    if fitted is not None:
        shutil.copyfile(fitted, folder / BACKEND_NAME)
        sync(folder / BACKEND_NAME)
    write_bytes(folder / "README.md", card.encode())
    write_bytes(folder / "LICENSE-NOTE.txt", LICENCE_NOTE.read_bytes())
    write_json(folder / RECORD, _record(folder, source, command, checks))


def _refuse_occupied(command: ExportModel) -> None:
    target = command.output_dir
    if command.config.resolve().parent == target.resolve():
        raise UserError(f"--output-dir {target}: contains the base model; choose another folder")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UserError(f"--output-dir {target}: is not a folder; choose another path")
    names = sorted(path.name for path in target.iterdir()) if target.is_dir() else []
    unknown = [name for name in names if name not in FILES] if RECORD in names else names
    if unknown:
        raise UserError(
            f"--output-dir {target}: contains {listed(unknown)}, "
            "not written by an export; choose another folder, or move these files"
        )


def _require_space(
    folder: Path, weights: Mapping[str, Tensor], dtype: torch.dtype, num_files: int, num_copied: int
) -> None:
    """Raise a UserError if the weights and `num_copied` bytes of published files do not fit on the disk."""
    num_bytes = sum(tensor.numel() for tensor in weights.values()) * dtype.itemsize
    needed = num_files * num_bytes + num_copied + SPARE_BYTES
    require_space(f"--output-dir {folder.parent}", folder, "the model needs", needed)


def _write_weights(
    folder: Path,
    names: tuple[str, ...],
    weights: Mapping[str, Tensor],
    config: GPTConfig,
    dtype: torch.dtype,
    logits: Tensor,
) -> dict[str, dict[str, float]]:
    """Write each file, read it back and compare it with `weights`; return the results for export.json."""
    checks = {}
    for name in names:
        _write(folder / name, {name: tensor.to(dtype).contiguous() for name, tensor in weights.items()})
        difference = compare(folder / name, config, weights, dtype, logits)
        checks[name] = {"difference": difference, "allowed": TOLERANCES[dtype]}
        logger.info(
            "%s: verified %d tensors; relative difference of logits %.1e (tolerance for %s: %g)",
            name,
            len(weights),
            difference,
            str(dtype).removeprefix("torch."),
            TOLERANCES[dtype],
        )
    return checks


def _write(path: Path, weights: dict[str, Tensor]) -> None:
    if path.suffix == ".pth":
        write_and_sync(path, weights)
    else:
        write_safetensors(path, weights)


def write_safetensors(
    path: Path, weights: Mapping[str, Tensor], metadata: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Write and sync a .safetensors file.

    Raises:
        OSError: the file cannot be written.
    """
    try:
        save_file(dict(weights), path, metadata={"format": "pt", **metadata})
    except SafetensorError as error:  # its text contains the number of the system's error
        found = re.search(r"os error (\d+)", str(error))
        raise OSError(int(found[1]) if found else 0, str(error)) from None
    sync(path)


def _builtin_backend_of(source: Source) -> Path | None:
    """Return the file of the built-in backend that made a run's features; None for another backend."""
    if source.meta is None or not source.meta.manifests:
        return None
    try:
        path = find_builtin_backend([Path(source.meta.manifests[0].path)], source.paths[0])
    except UserError as error:
        logger.warning("The speech backend of the model's codes is unknown: %s", error)
        return None
    if path is not None and source.codes not in (None, builtin.load(path).identity):
        logger.warning("%s was regenerated after training: the export contains no built-in backend", path)
        return None
    return path


def _record(
    folder: Path, source: Source, command: ExportModel, checks: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    meta = source.meta
    return {
        "format_version": FORMAT_VERSION,
        "checkpoints": [path.name for path in source.paths],
        "step": meta and meta.step,
        "part": meta and meta.part,
        "weights": command.weights,
        "dtype": command.dtype,
        "logits": checks,
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
            f"--config {path}: contains no section gpt; use the config.yaml of the base model"
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


# --- the folder is complete, or as before -----------------------------------------------------------------


@contextmanager
def staged_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces `target` on success and is removed on failure.

    It is PARENT/.tmp-NAME-XXXX, locked by its writer. The previous folder is .old-NAME between two renames,
    and is restored after a kill at this point.

    Raises:
        OSError: a file operation failed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _recover(target)
    aside = Path(tempfile.mkdtemp(prefix=f".tmp-{target.name}-", dir=target.parent))
    lock = os.open(aside, os.O_RDONLY)
    try:
        _try_lock(lock)
        aside.chmod(0o755)
        yield aside
        sync(aside)
        _swap(aside, target)
    finally:
        os.close(lock)
        shutil.rmtree(aside, ignore_errors=True)


def _swap(aside: Path, target: Path) -> None:
    old = _old(target)
    if target.exists():
        target.replace(old)
    aside.replace(target)
    sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _recover(target: Path) -> None:
    """Restore the folder after a kill between two renames; remove the folders of killed writers."""
    old = _old(target)
    if old.exists() and not target.exists():
        old.replace(target)
    shutil.rmtree(old, ignore_errors=True)
    for leftover in target.parent.glob(f".tmp-{target.name}-*"):
        lock = os.open(leftover, os.O_RDONLY)
        try:
            if _try_lock(lock):
                shutil.rmtree(leftover, ignore_errors=True)
        finally:
            os.close(lock)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process writes there, or the file system has no locks
        return False
    return True


def _old(target: Path) -> Path:
    return target.with_name(f".old-{target.name}")
