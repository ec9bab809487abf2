"""Tests of indextts/features/recognizers/hub_models.py: recognizers of a local hub, with the real library."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from indextts.features.recognizers.hub_models import needed_files
from tests.conftest import REPOSITORY
from tests.hub_server import Hub, HubFile, serve
from tests.recognizers import ENGLISH, LETTERS, write_mms
from tests.waiting import PATIENCE_S

NAME = "someone/mms"
PROGRAM = """
import sys
from pathlib import Path
import numpy, torch
from indextts.errors import UserError
from indextts.features.recognizers.loading import load_recognizers
try:
    [recognizer] = load_recognizers([sys.argv[1]], torch.device("cpu"), "am", Path(sys.argv[2]))
except UserError as error:
    sys.exit(str(error))
print(recognizer.name, *recognizer.transcribe([numpy.ones(16_000, numpy.float32)]))
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = write_mms(tmp_path / "published", {"eng": ENGLISH, "amh": LETTERS})
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    contents |= {"optimizer.pt": b"x", "onnx/model.safetensors": b"x", "pytorch_model.bin": b"x"}
    files = {
        (NAME, name): HubFile(content, is_large=name.endswith("safetensors"))
        for name, content in contents.items()
    }
    with serve(files) as running:
        yield running


def load(name: str, folder: Path, endpoint: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    env = {**kept, "HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "hf"), "PYTHONPATH": str(REPOSITORY)}
    env |= {"NO_PROXY": "127.0.0.1,localhost"}
    argv = [sys.executable, "-c", PROGRAM, name, str(folder)]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PATIENCE_S)


def test_a_model_of_the_hub_is_downloaded_once_and_used_without_the_hub(hub: Hub, tmp_path: Path):
    downloads = tmp_path / "downloads"
    first = load(NAME, downloads, hub.url)
    assert first.stdout.split() == ["someone--mms", "ዓ"], first.stderr
    found = {path.name for path in (downloads / "someone--mms").iterdir()}
    assert {"config.json", "model.safetensors", "adapter.amh.safetensors"} < found
    assert found.isdisjoint(["adapter.eng.safetensors", "optimizer.pt", "pytorch_model.bin", "onnx"])
    assert load(NAME, downloads, hub.url).stdout == first.stdout
    assert len(hub.fetched("model.safetensors")) == 1
    unreachable = load(NAME, downloads, "http://127.0.0.1:1")
    assert unreachable.stdout == first.stdout
    (downloads / "someone--mms" / "model.safetensors").unlink()
    assert NAME in load(NAME, downloads, "http://127.0.0.1:1").stderr


def test_what_cannot_be_loaded_from_the_hub_is_named(hub: Hub, tmp_path: Path):
    assert "someone/absent" in load("someone/absent", tmp_path, hub.url).stderr
    for name in [place for place in hub.files if place[1] in ("model.safetensors", "pytorch_model.bin")]:
        del hub.files[name]
    assert "model.safetensors" in load(NAME, tmp_path, hub.url).stderr


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
