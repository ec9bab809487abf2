"""Tests of indextts/speech/export: a checkpoint becomes a model folder."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from torch import Tensor

from indextts.commands.bases import BASES
from indextts.commands.normalizer_options import NORMALIZER_VERSION, NormalizerOptions
from indextts.commands.speech import ExportModel
from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.data.sources import DataSource, record_licences, write_source
from indextts.errors import CHECK_FAILED, DISK_FULL, UserError
from indextts.models.checkpoint import read_weights, write_and_sync
from indextts.models.gpt.config import load_config
from indextts.models.gpt.weights import load_model
from indextts.runs.directory import CheckpointMeta
from indextts.speech.export import comparison, model_folder
from indextts.speech.export.card import model_card, official_usage, usage_of
from indextts.speech.export.client import Client
from indextts.speech.export.model_folder import config_with_tokens, export
from indextts.speech.export.source import read_source
from indextts.text.tokenizer import Tokenizer, with_record
from tests.conftest import REPOSITORY
from tests.small_disk import largest_file
from tests.tiny_run import TinyRun, describe_restore, make_tiny_run
from tools import export_gpt

SMALL_FILES = {"bpe.model", "config.yaml", "README.md", "LICENSE-NOTE.txt", "export.json", "spoken_text"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    run = make_tiny_run(tmp_path_factory.mktemp("export") / "tiny")
    assert run.train(max_steps=6, keep_checkpoints=9) == 0
    return run


def command(run: TinyRun, output: Path, **changes: object) -> ExportModel:
    fields = {"checkpoint": run.output / "latest.pth", "config": run.folder / "base/config.yaml", **changes}
    return ExportModel(output_dir=output, **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def exported(trained: TinyRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights of an export without further options."""
    return export(command(trained, tmp_path_factory.mktemp("exported") / "model"))


@pytest.fixture
def own_export(exported: Path, tmp_path: Path) -> Path:
    """The weights of a copy of `exported` at tmp_path/model, for tests that change it."""
    return shutil.copytree(exported.parent, tmp_path / "model") / exported.name


def card_of(checkpoint: Path, has_builtin_codes: bool = False) -> str:
    source = read_source(checkpoint, 1)
    base = BASES["2.0"]
    usage = usage_of("builtin", base) if has_builtin_codes else official_usage(base, source, Client())
    return model_card(base, source, "float32", {}, usage)


def test_the_folder_fits_together_and_holds_the_trained_weights(trained: TinyRun, exported: Path):
    path = exported
    assert {file.name for file in path.parent.iterdir()} == {"gpt.pth", *SMALL_FILES}
    config, tokenizer = load_config(path.parent / "config.yaml"), Tokenizer.load(path.parent / "bpe.model")
    assert config.number_text_tokens == tokenizer.size == 720
    model = load_model(config, read_weights(path), str(path))
    checkpoint = torch.load(trained.output / "latest.pth", weights_only=True)["model"]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, checkpoint[name]), name


def test_the_normaliser_options_go_from_the_tokenizer_into_run_checkpoint_and_export(
    trained: TinyRun, exported: Path
):
    record = Tokenizer.load(trained.folder / "tokenizer.model").options.record
    assert record == NormalizerOptions().record
    assert json.loads((trained.output / "config.json").read_text("utf-8"))["normalizer"] == record
    assert CheckpointMeta.read(trained.output / "latest.json").normalizer == record
    checkpoint = torch.load(trained.output / "latest.pth", weights_only=True)
    assert checkpoint["tokenizer"]["normalizer"] == record
    of_run = Tokenizer.load(trained.output / "tokenizer.model")
    tokenizer = Tokenizer.load(exported.with_name("bpe.model"))
    assert (tokenizer.pieces, tokenizer.options) == (of_run.pieces, of_run.options)
    assert not tokenizer.normalizer_warning


@pytest.mark.long
def test_a_run_resumed_with_other_options_logs_them_and_the_export_uses_those_of_the_run(tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny")
    path = run.folder / "tokenizer.model"
    path.write_bytes(without_record(path))
    assert run.train(max_steps=2) == 0
    assert "no normaliser record" in run.log
    first = Tokenizer.load(export(command(run, tmp_path / "first")).with_name("bpe.model"))
    assert (first.options, first.recorded_version) == (NormalizerOptions(), NORMALIZER_VERSION)

    path.write_bytes(with_record(path.read_bytes(), NormalizerOptions(homophones="strict").record))
    described = describe_restore(parse(Train, run.flags(resume="auto", max_steps=4)))
    assert "normalizer homophones: off -> strict" in str(described)
    assert run.train(resume="auto", max_steps=4) == 0
    assert "[Warn] normalizer homophones: off -> strict: " in run.log
    assert "   Epoch: 0, Step: 2, Batch: " in run.log  # the pieces are the same: all continues
    second = Tokenizer.load(export(command(run, tmp_path / "second")).with_name("bpe.model"))
    assert second.normalize("ፀሐይ") == "ጸሀይ"


def without_record(path: Path) -> bytes:
    proto = Tokenizer.load(path).proto
    proto.DiscardUnknownFields()
    return bytes(proto.SerializeToString())


def test_the_export_omits_the_optimizer_and_half_precision_halves_its_size(
    trained: TinyRun, exported: Path, tmp_path: Path
):
    half = export(command(trained, tmp_path / "half", dtype="bfloat16"))
    assert exported.stat().st_size < 0.5 * (trained.output / "latest.pth").stat().st_size
    assert half.stat().st_size < 0.7 * exported.stat().st_size  # small tensors: the file's own index weighs
    assert {tensor.dtype for tensor in read_weights(half).values()} == {torch.bfloat16}


def test_an_export_that_cannot_succeed_is_refused_before_anything_is_written(
    trained: TinyRun, tmp_path: Path
):
    (tmp_path / "config.yaml").write_text("a: 1\n")
    (tmp_path / "file").touch()
    base, model = trained.folder / "base", tmp_path / "model"
    deeper = (base / "config.yaml").read_text().replace("  layers: 2\n", "  layers: 3\n")
    (tmp_path / "deeper.yaml").write_text(deeper)
    corrupt = bytearray((trained.output / "latest.pth").read_bytes())
    corrupt[len(corrupt) // 2] ^= 1
    (tmp_path / "latest.pth").write_bytes(corrupt)
    shutil.copy(trained.output / "latest.json", tmp_path)
    cases: list[tuple[Path, dict[str, object], str]] = [
        (model, {"checkpoint": base / "gpt.pth"}, r"gpt\.pth: .*tokenizer"),
        (model, {"config": tmp_path / "config.yaml"}, r"--config .*config\.yaml: .*section gpt"),
        (model, {"average_last": 99}, r"--average-last 99: .* \d checkpoints .*latest\.pth"),
        (
            model,
            {"config": tmp_path / "deeper.yaml"},
            r"latest\.pth: .*2 blocks gpt\.h\.N, .*gpt\.layers .*3; ",
        ),
        (model, {"checkpoint": tmp_path / "latest.pth"}, r"latest\.pth.*digest"),
        (base, {}, r"--output-dir \S+/base: "),  # the base model is never overwritten
        (tmp_path / "file/model", {}, r"--output-dir \S+/file/model: "),
    ]
    for output, changes, problem in cases:
        with pytest.raises(UserError, match=problem):
            export(command(trained, output, **changes))
    assert not model.exists()


def test_the_export_has_all_weights_and_tables_of_the_model_and_nothing_else(
    trained: TinyRun, tmp_path: Path
):
    names = set(read_weights(trained.folder / "base/gpt.pth"))
    both = export(command(trained, tmp_path / "model", format="both"))
    as_pth, as_safetensors = read_weights(both), read_weights(both.with_name("gpt.safetensors"))
    assert set(as_pth) == set(as_safetensors) == names
    assert "conditioning_encoder.embed.pos_enc.pe" in names
    assert all(torch.equal(as_pth[name], as_safetensors[name]) for name in names)
    untouched = read_weights(trained.folder / "base/gpt.pth")
    encoders = [name for name in names if "conditioning_encoder" in name]
    assert encoders
    assert all(torch.equal(as_pth[name], untouched[name]) for name in encoders)


def test_the_config_keeps_all_sections_keys_and_comments_except_the_number_of_tokens(tmp_path: Path):
    path = tmp_path / "config.yaml"
    text = (
        "dataset:\n  bpe_model: bpe.model\n\ngpt:\n  layers: 24\n  number_text_tokens: 12000  # pieces\n"
        's2mel:\n  preprocess_params:\n    spect_params: {fmax: "None"}\nemo_num: [3, 17]\nversion: 2.0\n'
    )
    path.write_text(text)
    assert config_with_tokens(path, 24000) == text.replace("12000", "24000")
    path.write_text("gpt: {layers: 24, number_text_tokens: 12000}\ns2mel: {number_text_tokens: 7}\n")
    in_one_line = yaml.safe_load(config_with_tokens(path, 24000))
    assert in_one_line == {
        "gpt": {"layers": 24, "number_text_tokens": 24000},
        "s2mel": {"number_text_tokens": 7},
    }


def test_the_mean_of_the_last_checkpoints_is_exported(trained: TinyRun, tmp_path: Path):
    newest = export(command(trained, tmp_path / "mean", average_last=3))
    names = json.loads(newest.with_name("export.json").read_text())["checkpoints"]
    assert names[:2] == ["latest.pth", "model_step4.pth"]
    one, two, three = (torch.load(trained.output / name, weights_only=True)["model"] for name in names)
    found = read_weights(newest)
    name = "mel_head.weight"
    expected = (one[name].double() + two[name].double() + three[name].double()) / 3
    assert not torch.equal(one[name], two[name])
    assert torch.equal(found[name], expected.float())
    never_trained = "conditioning_encoder.after_norm.weight"
    assert torch.equal(found[never_trained], one[never_trained])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"part": 9}, r"model_step4\.pth .*part 9 .*latest\.pth .*part 1"),
        ({"tokenizer_fingerprint": "0"}, r"model_step4\.pth .*vocabular"),
    ],
)
def test_checkpoints_of_another_part_or_vocabulary_are_not_averaged(
    trained: TinyRun, tmp_path: Path, changes: dict[str, object], problem: str
):
    run = TinyRun(tmp_path / "copy")
    shutil.copytree(trained.folder, run.folder)
    path = run.output / "model_step4.json"
    CheckpointMeta.read(path).model_copy(update=changes).write(path)
    with pytest.raises(UserError, match=problem):
        export(command(run, tmp_path / "model", average_last=2))
    assert not (tmp_path / "model").exists()


def test_the_model_card_lists_data_training_and_base_without_paths(trained: TinyRun, exported: Path):
    card = exported.with_name("README.md").read_text("utf-8")
    meta = CheckpointMeta.read(trained.output / "latest.json")
    # 22 targets of 0.4 s to train on, 7 to validate on
    texts = "50.0 % came with the recordings; 50.0 % were heard by two speech recognizers that agree"
    assert f"| train_pairs.jsonl | training | 22 | 1 | 0.00 | {texts} |" in card
    assert "| val_pairs.jsonl | validation | 7 | 1 | 0.00 |" in card
    for entry in (
        "| step | 6 |",
        f"| last mel loss | {meta.losses['mel_loss']:.4f} |",
        "| learning_rate | 0.01 |",
        meta.tokenizer_fingerprint,
        meta.base.digest,
        "| normaliser: thousand | ሺህ |",
    ):
        assert entry in card
    assert str(trained.folder) not in card
    assert str(REPOSITORY) not in card


def test_the_model_card_lists_the_data_sets_of_the_project_and_does_not_count_changed_pairs_files(
    trained: TinyRun, tmp_path: Path
):
    project, checkpoint = tmp_path / "project", tmp_path / "latest.pth"
    (project / "dataset").mkdir(parents=True)
    (project / "preprocessed").mkdir()
    pairs = project / "preprocessed/train_pairs.jsonl"
    pairs.write_text((trained.folder / pairs.name).read_text("utf-8") + "\n", "utf-8")
    content = torch.load(trained.output / "latest.pth", weights_only=True)
    train, val = content["meta"]["manifests"]
    train["path"], val["path"] = str(pairs), str(pairs.with_name("gone.jsonl"))
    torch.save(content, checkpoint)
    url = "https://huggingface.co/datasets/almaz/voices"
    entry = DataSource(name="almaz/voices", url=url, revision="e" * 40, licence="cc-by-4.0")
    write_source(project / "dataset", "hub/almaz--voices", entry)
    record_licences(project / "dataset", "in", tmp_path / "in", ["MIT", "CC-BY-4.0"])

    card = card_of(checkpoint)
    assert "* trained on: in; licence: CC-BY-4.0, MIT" in card.splitlines()
    [line] = [line for line in card.splitlines() if url in line]
    assert "almaz/voices" in line
    assert "cc-by-4.0" in line
    for name, use in (("train_pairs", "training"), ("gone", "validation")):
        assert re.search(rf"^\| {name}\.jsonl \| {use} \| unknown: [^|]+\| \| \| \|$", card, re.MULTILINE)
    (project / "dataset/sources.json").write_text("{")
    assert url not in card_of(checkpoint)


def test_an_export_that_fails_verification_is_removed_and_the_earlier_export_stays(
    trained: TinyRun, own_export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = own_export.read_bytes()

    def spoil(path: Path, content: dict[str, Tensor]) -> tuple[int, str]:
        content["mel_head.bias"] = content["mel_head.bias"] + 1e-3
        return write_and_sync(path, content)

    monkeypatch.setattr(model_folder, "write_and_sync", spoil)
    with pytest.raises(UserError, match=r"gpt\.pth: 1 .*mel_head\.bias") as caught:
        export(command(trained, tmp_path / "model"))
    assert caught.value.exit_status == CHECK_FAILED
    assert own_export.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_logits_that_differ_from_the_checkpoints_fail_the_export(
    trained: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(comparison.TOLERANCES, torch.bfloat16, 1e-9)
    with pytest.raises(UserError, match=r"gpt\.pth: .*1e-09.*bfloat16") as caught:
        export(command(trained, tmp_path / "model", dtype="bfloat16"))
    assert caught.value.exit_status == CHECK_FAILED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", ["pth", pytest.param("safetensors", marks=pytest.mark.long)])
def test_a_full_disk_gives_its_status_and_leaves_nothing(trained: TinyRun, tmp_path: Path, format: str):
    with largest_file(20_000), pytest.raises(UserError, match=r"--output-dir \S+/model: ") as caught:
        export(command(trained, tmp_path / "model", format=format))
    assert caught.value.exit_status == DISK_FULL
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_unknown_files_is_refused_and_unchanged(
    trained: TinyRun, own_export: Path, tmp_path: Path
):
    for name in ("s2mel.pth", "gpt.pth"):
        folder = tmp_path / name.removesuffix(".pth")
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(UserError, match=rf"--output-dir {folder}: .*{name}"):
            export(command(trained, folder))
        assert (folder / name).read_text() == "mine"
    (own_export.parent / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes\.txt"):
        export(command(trained, tmp_path / "model"))


def test_an_interrupted_rename_is_recovered(trained: TinyRun, own_export: Path, tmp_path: Path):
    own_export.parent.rename(tmp_path / ".old-model")
    (tmp_path / ".tmp-model-dead").mkdir()
    with pytest.raises(UserError, match=r"gpt\.pth"):  # nothing new is written
        export(command(trained, tmp_path / "model", checkpoint=trained.folder / "base/gpt.pth"))
    export(command(trained, tmp_path / "model"))
    assert {path.name for path in tmp_path.iterdir()} == {"model"}


NAMES = """
s2mel.pth wav2vec2bert_stats.pt feat1.pt feat2.pt qwen0.6bemo4-merge/config.json w2v-bert-2.0/config.json
w2v-bert-2.0/preprocessor_config.json w2v-bert-2.0/model.safetensors semantic_codec/model.safetensors
campplus/campplus_cn_common.bin bigvgan/config.json bigvgan/bigvgan_generator.pt
"""
PUBLISHED = NAMES.split()
# What the official start of version 2 looks for, by the facts about it.
OFFICIAL_NAMES = """
bpe.model gpt.pth config.yaml s2mel.pth wav2vec2bert_stats.pt feat1.pt feat2.pt qwen0.6bemo4-merge/config.json
hf_cache/w2v-bert-2.0/config.json hf_cache/w2v-bert-2.0/preprocessor_config.json
hf_cache/w2v-bert-2.0/model.safetensors hf_cache/semantic_codec_model.safetensors
hf_cache/campplus_cn_common.bin hf_cache/bigvgan/config.json hf_cache/bigvgan/bigvgan_generator.pt
"""
LOOKED_FOR = OFFICIAL_NAMES.split()


def write_published(folder: Path) -> Path:
    for name in PUBLISHED:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
    return folder


def run_check(folder: Path) -> int:
    return export_gpt.main([f"--check={folder}"])


@pytest.mark.parametrize("is_copied", [False, True])
def test_the_folder_has_every_file_that_the_official_page_looks_for(
    trained: TinyRun, tmp_path: Path, is_copied: bool
):
    published = write_published(tmp_path / "published")
    for _ in range(2):  # the second export replaces the first and leaves the published files alone
        fields = {"published": published, "self_contained": is_copied}
        folder = export(command(trained, tmp_path / "model", **fields)).parent
    assert all((published / path).read_text() == f"content of {path}" for path in PUBLISHED)
    assert [name for name in LOOKED_FOR if not (folder / name).is_file()] == []
    assert (
        folder / "hf_cache/campplus_cn_common.bin"
    ).read_text() == "content of campplus/campplus_cn_common.bin"
    assert (folder / "s2mel.pth").is_symlink() is not is_copied
    assert not (folder / "gpt.pth").is_symlink()
    assert run_check(folder) == 0
    shutil.rmtree(published)
    assert run_check(folder) == (0 if is_copied else 1)


def test_missing_published_files_are_named_with_what_the_official_page_would_do(
    trained: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    published = write_published(tmp_path / "published")
    (published / "s2mel.pth").unlink()
    (published / "feat1.pt").unlink()
    (published / "bigvgan/config.json").unlink()
    shutil.rmtree(published / "qwen0.6bemo4-merge")
    with caplog.at_level("WARNING"):
        folder = export(command(trained, tmp_path / "model", published=published)).parent
    assert run_check(folder) == 1
    printed = capsys.readouterr().out
    for text in (caplog.text, printed):
        assert re.search(r"s2mel\.pth: .*gpt\.pth", text)
        assert re.search(r"feat1\.pt, qwen0\.6bemo4-merge/: missing, .* will not start", text)
        assert "hf_cache/bigvgan/config.json" in text
    assert "wav2vec2bert_stats.pt" not in printed


def test_a_model_with_built_in_codes_is_not_sent_to_the_official_page(trained: TinyRun, tmp_path: Path):
    folder = export(command(trained, tmp_path / "model", published=write_published(tmp_path / "p"))).parent
    card = (folder / "README.md").read_text("utf-8")
    assert run_check(folder) == 0
    assert "webui.py --version 2" in card
    (folder / "builtin.npz").touch()
    assert run_check(folder) == 1
    card = card_of(trained.output / "latest.pth", has_builtin_codes=True)
    assert "webui.py" not in card
    assert "tools/synthesize.py --checkpoint THIS_FOLDER" in card


def test_a_small_disk_is_asked_for_the_copies_too(trained: TinyRun, tmp_path: Path):
    published = write_published(tmp_path / "published")
    with (published / "s2mel.pth").open("r+b") as file:
        file.truncate(1 << 43)  # sparse
    with pytest.raises(UserError, match="--output-dir") as raised:
        export(command(trained, tmp_path / "model", published=published, self_contained=True))
    assert raised.value.exit_status == DISK_FULL
