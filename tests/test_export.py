"""Tests of indextts/export.py: a checkpoint becomes a model folder."""

import json
import re
from pathlib import Path

import pytest
import torch

from indextts.checkpoint import read_weights
from indextts.commands import ExportModel, Train, parse
from indextts.errors import UserError
from indextts.export import export
from indextts.gpt.config import load_config
from indextts.gpt.load import load_model
from indextts.normalizer_options import NORMALIZER_VERSION, NormalizerOptions
from indextts.restore.meta_plan import plan_command
from indextts.run_dir import CheckpointMeta
from indextts.text.normalizer_record import with_record
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


def test_how_texts_are_normalised_goes_from_the_tokenizer_into_run_checkpoint_and_export(
    trained: TinyRun, tmp_path: Path
):
    record = Tokenizer.load(trained.folder / "tokenizer.model").options.record
    assert record == NormalizerOptions().record
    assert json.loads((trained.output / "config.json").read_text("utf-8"))["normalizer"] == record
    assert CheckpointMeta.read(trained.output / "latest.json").normalizer == record
    checkpoint = torch.load(trained.output / "latest.pth", weights_only=True)
    assert checkpoint["tokenizer"]["normalizer"] == record
    model = export(command(trained, tmp_path / "model")).with_name("bpe.model")
    assert model.read_bytes() == (trained.output / "tokenizer.model").read_bytes()
    assert not Tokenizer.load(model).normalizer_doubt


def test_a_run_resumed_with_other_options_says_so_and_the_export_reads_texts_as_the_run_did(tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny")
    path = run.folder / "tokenizer.model"
    path.write_bytes(without_record(path))
    assert run.train(max_steps=2) == 0
    assert "does not say how texts are normalised for it" in run.log
    first = Tokenizer.load(export(command(run, tmp_path / "first")).with_name("bpe.model"))
    assert (first.options, first.recorded_version) == (NormalizerOptions(), NORMALIZER_VERSION)

    path.write_bytes(with_record(path.read_bytes(), NormalizerOptions(homophones="strict").record))
    said = plan_command(parse(Train, run.flags(resume="auto", max_steps=4)))
    assert re.search("normalizer homophones +off -> strict +texts are read otherwise than before", str(said))
    assert run.train(resume="auto", max_steps=4) == 0
    assert "[Warn] normalizer homophones: off -> strict; texts are read otherwise than before" in run.log
    assert "   Epoch: 0, Step: 2, Batch: " in run.log  # the pieces are the same: all continues
    second = Tokenizer.load(export(command(run, tmp_path / "second")).with_name("bpe.model"))
    assert second.normalize("ፀሐይ") == "ጸሀይ"


def without_record(path: Path) -> bytes:
    proto = Tokenizer.load(path).proto
    proto.DiscardUnknownFields()
    return bytes(proto.SerializeToString())


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
