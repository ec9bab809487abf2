"""A trained GPT and the tokenizer that it was trained with, which are never chosen apart.

model_step{N}.pth, latest.pth, best.pth   of a run: the tokenizer and the sizes stand in the file itself
FOLDER/ gpt.pth bpe.model config.yaml     an export, or the published model
RUN/                                      a run directory: its best.pth, else its latest.pth
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from indextts.commands.speech import Weights
from indextts.errors import UserError
from indextts.models.averaged_weights import chosen_weights
from indextts.models.checkpoint import codes_identity, read_file, read_weights, table_rows
from indextts.models.gpt.config import GPTConfig, config_of, config_with_text_tokens, load_config
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.weights import load_model
from indextts.runs.directory import LINKS
from indextts.text.normalizer_record import stored_tokenizer
from indextts.text.tokenizer import Tokenizer

ADVICE = "give a model_step*.pth, latest.pth or best.pth of a run, or a folder that tools/export_gpt.py wrote"
WEIGHTS_NAMES = ("gpt.pth", "gpt.safetensors")  # of a folder, the first that is there


@dataclass(frozen=True)
class TrainedModel:
    """What speaks.

    Args:
        gpt: in eval mode, without gradients.
        tokenizer: the one it was trained with.
        source: the file with the weights.
        step, part: of the run, at which it was saved; None for a model folder.
        pairs: the files that the run was trained on, as it named them; none for a model folder.
        codes: the identity of the speech backend whose codes it speaks; None where nobody wrote it down.
    """

    gpt: UnifiedVoice
    tokenizer: Tokenizer
    source: Path
    step: int | None = None
    part: int | None = None
    pairs: tuple[Path, ...] = ()
    codes: str | None = None


def load_trained(path: Path, device: torch.device, chosen: Weights = "raw") -> TrainedModel:
    """Return the model in a checkpoint of a run, or in a model folder.

    Args:
        chosen: which weights of a checkpoint.

    Raises:
        UserError: the files are missing, cannot be read, do not belong to each other, or hold no average.
    """
    if path.is_dir() and not any((path / name).is_file() for name in WEIGHTS_NAMES):
        path = _newest_of_run(path)
    if not path.is_dir():
        return _of_run(path, device, chosen)
    if chosen != "raw":
        raise UserError(
            f"{path}: a model folder has one set of weights; leave out --weights {chosen}, and give it to "
            "tools/export_gpt.py"
        )
    return _of_folder(path, device)


def _newest_of_run(folder: Path) -> Path:
    found = [folder / name for name in reversed(LINKS) if (folder / name).is_file()]
    if not found:
        raise UserError(f"{folder}: has neither gpt.pth nor best.pth or latest.pth; {ADVICE}")
    return found[0]


def _of_run(path: Path, device: torch.device, chosen: Weights) -> TrainedModel:
    content = read_file(path)
    entry, meta, weights = content.get("tokenizer"), content.get("meta"), content.get("model")
    has_tokenizer = isinstance(entry, dict) and isinstance(entry.get("model"), bytes)
    if not has_tokenizer or not isinstance(meta, dict) or not isinstance(weights, dict):
        raise UserError(f"{path}: does not hold its tokenizer; {ADVICE}")
    assert isinstance(entry, dict)
    tokenizer = Tokenizer(stored_tokenizer(entry), path)
    if tokenizer.vocabulary.fingerprint != entry.get("fingerprint"):
        raise UserError(f"{path}: the tokenizer in it is not the one it was trained with; take another one")
    weights = chosen_weights(content, chosen, path)
    gpt = _load(config_of(meta.get("gpt_config"), path), weights, tokenizer, path, device)
    manifests = content.get("manifests") or {}
    pairs = tuple(Path(name) for name in manifests.get("train", ()))
    return TrainedModel(
        gpt, tokenizer, path, content.get("step"), meta.get("part"), pairs, codes_identity(content)
    )


def _of_folder(folder: Path, device: torch.device) -> TrainedModel:
    path = next(folder / name for name in WEIGHTS_NAMES if (folder / name).is_file())
    tokenizer = Tokenizer.load(folder / "bpe.model")
    gpt = _load(load_config(folder / "config.yaml"), read_weights(path), tokenizer, path, device)
    return TrainedModel(gpt, tokenizer, path)


def _load(
    config: GPTConfig, weights: Mapping[str, Any], tokenizer: Tokenizer, path: Path, device: torch.device
) -> UnifiedVoice:
    tensors: dict[str, Tensor] = {n: value for n, value in weights.items() if isinstance(value, Tensor)}
    num_pieces = table_rows(tensors, str(path)) - 1
    if num_pieces != tokenizer.size:
        raise UserError(
            f"{path}: was trained with a tokenizer of {num_pieces:,} pieces, {tokenizer.path} has "
            f"{tokenizer.size:,}; put the bpe.model back that belongs to it"
        )
    sized = config_with_text_tokens(config, num_pieces)
    return load_model(sized, tensors, str(path), lambda _: device).eval().requires_grad_(False)
