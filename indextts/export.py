"""A model folder from a checkpoint: what somebody needs to speak with it, and nothing else.

OUTPUT_DIR/
  gpt.pth        name -> tensor, every weight of the GPT, as published
  bpe.model      the tokenizer it was trained with, from the checkpoint itself, with its normaliser's options
  config.yaml    the base's, with the tokenizer's number of text tokens
"""

import logging
from pathlib import Path
from typing import Any

import torch
import yaml

from indextts.checkpoint import read_file, table_rows
from indextts.commands import ExportModel
from indextts.errors import UserError
from indextts.run_dir import sync_file, write_bytes
from indextts.text.normalizer_record import with_record

logger = logging.getLogger(__name__)


def export(command: ExportModel) -> Path:
    """Write the model folder; return the path of its gpt.pth.

    Raises:
        UserError: the checkpoint names no tokenizer, the config is none, or the folder cannot be written.
    """
    content = read_file(command.checkpoint)
    tokenizer = content.get("tokenizer")
    if "model" not in content or not isinstance(tokenizer, dict) or "model" not in tokenizer:
        raise UserError(
            f"{command.checkpoint}: holds no model with its tokenizer; give a model_step*.pth, latest.pth or "
            "best.pth of a run"
        )
    if command.config.resolve().parent == command.output_dir.resolve():
        raise UserError(f"--output-dir {command.output_dir} holds the base model; choose another folder")
    dtype = getattr(torch, command.dtype)
    weights = {
        name: tensor.to(dtype) if tensor.is_floating_point() else tensor
        for name, tensor in content["model"].items()
    }
    config = _config_with_tokens(command.config, table_rows(weights, str(command.checkpoint)) - 1)
    target = command.output_dir / "gpt.pth"
    aside = command.output_dir / ".tmp-gpt.pth"
    try:
        command.output_dir.mkdir(parents=True, exist_ok=True)
        torch.save(weights, aside)
        sync_file(aside)
        write_bytes(command.output_dir / "bpe.model", _tokenizer_file(tokenizer))
        write_bytes(command.output_dir / "config.yaml", config.encode())
        aside.replace(target)
    except OSError as error:
        raise UserError(f"--output-dir {command.output_dir} cannot be written ({error.strerror})") from None
    return target


def _tokenizer_file(tokenizer: dict[str, Any]) -> bytes:
    """Return the SentencePiece file of a checkpoint, which says how the texts of the run were normalised."""
    model: bytes = tokenizer["model"]
    record = tokenizer.get("normalizer")  # absent in older checkpoints
    return model if record is None else with_record(model, record)


def _config_with_tokens(path: Path, num_tokens: int) -> str:
    """Return the YAML of the config at `path` for `num_tokens` text tokens."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        config["gpt"]["number_text_tokens"] = num_tokens
    except OSError as error:
        raise UserError(f"--config {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError):
        raise UserError(f"--config {path}: no config of IndexTTS2, it has no section gpt") from None
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
