"""Loading a trained GPT together with its tokenizer.

model_step{N}.pth, latest.pth, best.pth   of a run: the file holds the tokenizer and the sizes
FOLDER/ adapter.safetensors               a LoRA of it, which is the same without the optimizer
FOLDER/ gpt.pth bpe.model config.yaml     an export, or the published model; that of 2.5 has a .tiktoken file
RUN/                                      a run directory: its best.pth, else its latest.pth
USER/NAME                                 a model of the hub (tools/publish.py), where no such folder exists
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants, snapshot_download
from torch import Tensor

from indextts.commands.base import REPOSITORY_NAME
from indextts.commands.bases import BASES
from indextts.commands.speech import Weights
from indextts.data.feature_store import read_info
from indextts.data.networks import BACKEND_NAME
from indextts.errors import UserError
from indextts.features.hub_files import hub_errors, quiet_libraries
from indextts.models.adapter_file import NAME as ADAPTER
from indextts.models.checkpoint import codes_identity, read_file, read_weights, select_weights, table_rows
from indextts.models.gpt.config import (
    GPTConfig,
    config_for,
    config_with_text_tokens,
    load_config,
    parse_config,
)
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.weights import load_model
from indextts.models.lora import require_full_strength
from indextts.runs.directory import LINKS
from indextts.speech.export.client import client_of, with_page_language
from indextts.system.json_lines import read_json_lines
from indextts.text.bases import stored_tokenizer, tokenizer_in, tokenizer_of
from indextts.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

ADVICE = "use a model_step*.pth, latest.pth or best.pth of a run, or a folder that tools/export_gpt.py wrote"
PUBLISHED_WEIGHTS = "gpt.safetensors"
WEIGHTS_NAMES = ("gpt.pth", PUBLISHED_WEIGHTS)  # in a folder, the first that exists
DOWNLOADED = (
    PUBLISHED_WEIGHTS,
    ADAPTER,
    *(base.tokenizer_file for base in BASES.values()),
    "spoken_text/*.json",  # for a tokenizer that cannot contain its options
    "config.yaml",
    BACKEND_NAME,
)


@dataclass(frozen=True)
class TrainedModel:
    """A GPT with its tokenizer and its origin.

    Args:
        gpt: in eval mode, without gradients.
        step, part: of the run, when the checkpoint was saved; None for a model folder.
        pairs: the pairs files of the training run, with the paths of the run; empty for a model folder.
        codes: the identity of the speech backend that made the training codes; None where it is not recorded.
        positions: the numbering of the codes that an export has as its default; None for the usual one.
        strength: of the LoRA, with which it was merged.
    """

    gpt: UnifiedVoice
    tokenizer: Tokenizer
    source: Path
    step: int | None = None
    part: int | None = None
    pairs: tuple[Path, ...] = ()
    codes: str | None = None
    positions: str | None = None
    strength: float = 1.0


def load_trained(
    path: Path,
    device: torch.device,
    choice: Weights = "raw",
    folders: Sequence[Path] = (),
    strength: float = 1.0,
) -> TrainedModel:
    """Return the model in a checkpoint of a run, in a model folder, or of the hub.

    Args:
        folders: where to look for the base of a LoRA checkpoint, besides where it was.
        strength: of a LoRA, see `merge`.

    Raises:
        UserError: files are missing, cannot be read or do not fit each other, or there are no averaged
            weights.
    """
    path = local_model(path)
    if path.is_dir() and not any((path / name).is_file() for name in WEIGHTS_NAMES):
        names = (ADAPTER, *reversed(LINKS))
        checkpoint = next((path / name for name in names if (path / name).is_file()), None)
        if checkpoint is None:
            raise UserError(f"{path}: contains no gpt.pth, best.pth or latest.pth; {ADVICE}")
        path = checkpoint
    if not path.is_dir():
        return _load_checkpoint(path, device, choice, folders, strength)
    require_full_strength(path, strength)
    if choice != "raw":
        raise UserError(
            f"{path}: a model folder has one set of weights; remove --weights {choice} here and pass it to "
            "tools/export_gpt.py"
        )
    return _load_folder(path, device)


def local_model(path: Path) -> Path:
    """Return the folder of a model of the hub, in the Hugging Face cache; any other path unchanged.

    Args:
        path: a file or folder, or USER/NAME of a repository that tools/publish.py filled.

    Raises:
        UserError: the hub refuses or does not answer, or the repository has no such model.
    """
    name = path.as_posix()
    if path.exists() or path.suffix == ".pth" or not REPOSITORY_NAME.fullmatch(name):
        return path
    quiet_libraries()
    logger.info("%s is no file or folder here: looking for this model at %s", name, constants.ENDPOINT)
    with hub_errors(name):
        found = Path(snapshot_download(name, allow_patterns=list(DOWNLOADED)))
    if not any((found / weights).is_file() for weights in (PUBLISHED_WEIGHTS, ADAPTER)):
        raise UserError(
            f"{constants.ENDPOINT}: {name}: contains no {PUBLISHED_WEIGHTS} or {ADAPTER}; it is not from "
            "tools/publish.py"
        )
    return found


def _load_checkpoint(
    path: Path, device: torch.device, choice: Weights, folders: Sequence[Path], strength: float
) -> TrainedModel:
    content = read_file(path)
    entry, meta, weights = content.get("tokenizer"), content.get("meta"), content.get("model")
    has_tokenizer = isinstance(entry, dict) and isinstance(entry.get("model"), bytes)
    if not has_tokenizer or not isinstance(meta, dict) or not isinstance(weights, dict):
        raise UserError(f"{path}: contains no tokenizer; {ADVICE}")
    assert isinstance(entry, dict)
    tokenizer = tokenizer_of(stored_tokenizer(entry), path)
    if tokenizer.vocabulary.fingerprint != entry.get("fingerprint"):
        raise UserError(
            f"{path}: the tokenizer in the file is not the tokenizer of the training run; use another "
            "checkpoint"
        )
    weights = select_weights(content, choice, path, folders, strength)
    gpt = _load_gpt(parse_config(meta.get("gpt_config"), path), weights, tokenizer, path, device)
    manifests = content.get("manifests") or {}
    pairs = tuple(Path(name) for name in manifests.get("train", ()))
    return TrainedModel(
        gpt,
        tokenizer,
        path,
        content.get("step"),
        meta.get("part"),
        pairs,
        codes_identity(content),
        strength=strength,
    )


def _load_folder(folder: Path, device: torch.device) -> TrainedModel:
    path = next(folder / name for name in WEIGHTS_NAMES if (folder / name).is_file())
    weights = read_weights(path)
    config = config_for(load_config(folder / "config.yaml"), weights)
    tokenizer, client = tokenizer_in(folder, config.of_base), client_of(folder)
    own = with_page_language(weights, tokenizer, client.page_language)
    gpt = _load_gpt(config, own, tokenizer, path, device)
    return TrainedModel(gpt, tokenizer, path, positions=client.positions)


def _load_gpt(
    config: GPTConfig, weights: Mapping[str, Any], tokenizer: Tokenizer, path: Path, device: torch.device
) -> UnifiedVoice:
    tensors: dict[str, Tensor] = {n: value for n, value in weights.items() if isinstance(value, Tensor)}
    num_pieces = table_rows(tensors, str(path)) - 1
    if num_pieces != tokenizer.size:
        raise UserError(
            f"{path}: was trained with a tokenizer of {num_pieces:,} pieces, but {tokenizer.path} has "
            f"{tokenizer.size:,}; restore the tokenizer that belongs to the model"
        )
    sized = config_with_text_tokens(config, num_pieces)
    return load_model(sized, tensors, str(path), lambda _: device).eval().requires_grad_(False)


def find_builtin_backend(pairs: Sequence[Path], source: Path, features: Path | None = None) -> Path | None:
    """Return the file of the built-in backend that made a model's features; None for the published backend.

    Args:
        pairs: the pairs files of the training; empty for a model folder, which has the file itself.
        features: the feature store, or its folder, in place of that which the pairs name.

    Raises:
        UserError: the features are missing, so that their backend is unknown.
    """
    folder = features or (_store_of(pairs[0], source) if pairs else source.parent)
    if not folder.exists():
        raise UserError(
            f"{folder}: not found; {source} was trained on these features: pass their folder with --features"
        )
    if folder.is_dir():
        fitted = folder / BACKEND_NAME
        return fitted if fitted.is_file() else None
    return folder.parent / BACKEND_NAME if read_info(folder).backend == "builtin" else None


def _store_of(pairs: Path, source: Path) -> Path:
    """Return the feature store that a pairs file names."""
    if not pairs.is_file():
        raise UserError(
            f"{pairs}: not found; {source} was trained on these pairs: pass the folder of its features with "
            "--features"
        )
    _, record = next(read_json_lines(pairs))
    return pairs.parent.resolve() / str(record.get("features", ""))
