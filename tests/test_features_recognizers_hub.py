"""Tests of indextts/features/recognizers/loading.py: recognizers of a local hub, with the real library."""

from pathlib import Path

import numpy as np
import pytest
import torch

from indextts.errors import UserError
from indextts.features.recognizers.loading import load_recognizers, needed_files
from indextts.features.recognizers.recognizer import Recognizer
from tests.hub_server import Hub, repository, use_hub
from tests.recognizers import ENGLISH, LETTERS, write_mms

NAME = "someone/mms"


def load(name: str, folder: Path) -> Recognizer:
    [recognizer] = load_recognizers([name], torch.device("cpu"), "am", folder)
    return recognizer


def test_a_model_of_the_hub_is_downloaded_once_and_used_without_the_hub(
    hub: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    folder = write_mms(tmp_path / "published", {"eng": ENGLISH, "amh": LETTERS})
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    unused = ["adapter.eng.safetensors", "optimizer.pt", "pytorch_model.bin", "onnx/model.safetensors"]
    hub.repositories[NAME] = repository(dict.fromkeys(unused, b"x") | contents)
    recognizer = load(NAME, tmp_path)
    assert recognizer.name == "someone--mms"
    assert recognizer.transcribe([np.ones(16_000, np.float32)]) == ["ዓ"]
    names = hub.names()
    assert {"config.json", "model.safetensors", "adapter.amh.safetensors"} < set(names)
    assert set(names).isdisjoint(unused)
    load(NAME, tmp_path)
    assert hub.names() == names
    with pytest.raises(UserError, match="someone/absent"):
        load("someone/absent", tmp_path)
    hub.repositories["someone/empty"] = repository({"config.json": b"{}"})
    with pytest.raises(UserError, match=r"model\.safetensors"):
        load("someone/empty", tmp_path)
    use_hub(monkeypatch, "", tmp_path)
    load(NAME, tmp_path)
    (tmp_path / "someone--mms/model.safetensors").unlink()
    with pytest.raises(UserError, match=NAME):
        load(NAME, tmp_path)


def test_the_files_that_are_read_are_chosen():
    names = ["README.md", "config.json", "vocab.json", "trainer_state.json", "model.safetensors.index.json"]
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    adapters = [
        f"adapter.{code}.{suffix}" for code in ("amh", "swh", "eng") for suffix in ("bin", "safetensors")
    ]
    chosen = ["config.json", "model.safetensors.index.json", "vocab.json"]
    assert needed_files([*names, *shards, "pytorch_model.bin", "sub/config.json"], "am") == [*chosen, *shards]
    assert needed_files([*names, "pytorch_model.bin", "training_args.bin"], "am") == [
        *chosen,
        "pytorch_model.bin",
    ]
    found = needed_files([*adapters, "model.safetensors"], "sw")
    assert found == ["adapter.swh.bin", "adapter.swh.safetensors", "model.safetensors"]
