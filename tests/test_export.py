"""Tests of indextts/export.py: a checkpoint becomes a model folder."""

from pathlib import Path

import pytest
import torch

from indextts.checkpoint import read_weights
from indextts.commands import ExportModel
from indextts.errors import UserError
from indextts.export import export
from indextts.gpt.config import load_config
from indextts.gpt.load import load_model
from indextts.text.tokenizer import Tokenizer
from tests.tiny_run import TinyRun, make_tiny_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    run = make_tiny_run(tmp_path_factory.mktemp("export") / "tiny")
    assert run.train(max_steps=2) == 0
    return run


def command(run: TinyRun, output: Path, **changes: object) -> ExportModel:
    fields = {"checkpoint": run.output / "latest.pth", "config": run.folder / "base/config.yaml", **changes}
    return ExportModel(output_dir=output, **fields)  # type: ignore[arg-type]


def test_the_folder_fits_together_and_holds_the_trained_weights(trained: TinyRun, tmp_path: Path):
    path = export(command(trained, tmp_path / "model"))
    assert {file.name for file in path.parent.iterdir()} == {"gpt.pth", "bpe.model", "config.yaml"}
    config, tokenizer = load_config(path.parent / "config.yaml"), Tokenizer.load(path.parent / "bpe.model")
    assert config.number_text_tokens == tokenizer.size == 720
    model = load_model(config, read_weights(path), str(path))
    checkpoint = torch.load(trained.output / "latest.pth", weights_only=True)["model"]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, checkpoint[name]), name


def test_the_optimizer_is_left_out_and_half_precision_halves_the_rest(trained: TinyRun, tmp_path: Path):
    whole = export(command(trained, tmp_path / "whole"))
    half = export(command(trained, tmp_path / "half", dtype="bfloat16"))
    assert whole.stat().st_size < 0.5 * (trained.output / "latest.pth").stat().st_size
    assert half.stat().st_size < 0.7 * whole.stat().st_size  # small tensors: the file's own index weighs
    assert {tensor.dtype for tensor in read_weights(half).values()} == {torch.bfloat16}


def test_weights_without_a_tokenizer_are_refused(trained: TinyRun, tmp_path: Path):
    with pytest.raises(UserError, match=r"gpt\.pth: holds no model with its tokenizer"):
        export(command(trained, tmp_path / "model", checkpoint=trained.folder / "base/gpt.pth"))
    assert not (tmp_path / "model").exists()


def test_a_config_that_is_none_is_refused_before_anything_is_written(trained: TinyRun, tmp_path: Path):
    (tmp_path / "config.yaml").write_text("a: 1\n")
    with pytest.raises(UserError, match="it has no section gpt"):
        export(command(trained, tmp_path / "model", config=tmp_path / "config.yaml"))
    assert not (tmp_path / "model").exists()


def test_the_base_model_is_never_written_over(trained: TinyRun):
    with pytest.raises(UserError, match="holds the base model"):
        export(command(trained, trained.folder / "base"))


def test_a_folder_that_cannot_be_written_is_one_sentence(trained: TinyRun, tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"--output-dir .* cannot be written"):
        export(command(trained, tmp_path / "file/model"))
