"""A LoRA as a small file, adapter.safetensors: what a run trained, its tokenizer and the digest of its base.

    tensors     those of the entry "model" of a LoRA checkpoint (indextts.models.lora); "tokenizer": its bytes
    metadata    {"checkpoint": JSON of the entries lora, tokenizer, meta, step and state of a checkpoint}

It is read as the content of a LoRA checkpoint, so every reader of checkpoints loads it on its base. It names
files of the run, but no folders.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

NAME = "adapter.safetensors"
KEY, TOKENIZER = "checkpoint", "tokenizer"
PATH_SETTINGS = frozenset(
    {"train_manifest", "val_manifest", "tokenizer", "config", "base_checkpoint", "output_dir", "resume"}
)


def tensors_of(
    content: Mapping[str, Any], trained: Mapping[str, Tensor], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Return the tensors of an adapter file for the values that a LoRA checkpoint trained."""
    tokenizer = torch.frombuffer(bytearray(content["tokenizer"]["model"]), dtype=torch.uint8)
    return {name: each.to(dtype).contiguous() for name, each in trained.items()} | {TOKENIZER: tokenizer}


def metadata_of(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the metadata of an adapter file for the content of a LoRA checkpoint."""
    lora, meta = content["lora"], content["meta"]
    entries = {
        "lora": {**lora, "base": _without_folder(lora["base"])},
        "tokenizer": {name: each for name, each in content["tokenizer"].items() if name != "model"},
        "meta": {
            **meta,
            "base": _without_folder(meta["base"]),
            "manifests": [_without_folder(file) for file in meta["manifests"]],
            "settings": {name: v for name, v in meta["settings"].items() if name not in PATH_SETTINGS},
        },
        "step": content.get("step"),
        "state": {"codes": (content.get("state") or {}).get("codes")},
    }
    return {KEY: json.dumps(entries, ensure_ascii=False)}


def content_of(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of a LoRA checkpoint for an adapter file; the tensors of any other file."""
    if KEY not in metadata:
        return dict(tensors)
    content: dict[str, Any] = json.loads(metadata[KEY])
    content["tokenizer"]["model"] = tensors[TOKENIZER].numpy().tobytes()
    content["model"] = {name: each.float() for name, each in tensors.items() if name != TOKENIZER}
    return content


def _without_folder(file: Mapping[str, Any]) -> dict[str, Any]:
    return {**file, "path": Path(file["path"]).name}
