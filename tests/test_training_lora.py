"""Tests of LoRA: what is trained and saved, exact resume, changes of the adapters, and every reader."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from indextts.commands.speech import ExportModel
from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.data.manifest import read_pairs
from indextts.errors import RESUME_REFUSED, UserError
from indextts.models.checkpoint import read_file, read_weights, select_weights
from indextts.models.lora import LoraRecord, is_block_matrix, merge, resized
from indextts.models.weight_names import LANGUAGE_ROWS
from indextts.runs.directory import CheckpointMeta
from indextts.runs.lora_base import kept_name
from indextts.speech.export.model_folder import export, in_official_order, official_order
from indextts.speech.synthesis.trained_model import load_trained
from indextts.system.digest import file_digest
from indextts.training import loop
from indextts.training.run import Run
from tests.run_checks import problems_at_end
from tests.tiny_gpt import tiny_batch
from tests.tiny_run import TinyRun, describe_restore, make_tiny_run, signalled_in_step
from tools import export_gpt

LORA: dict[str, object] = {"lora_rank": 4, "lora_alpha": 8, "max_steps": 6, "keep_checkpoints": 9}
CPU = torch.device("cpu")
TABLES = ("text_embedding.weight", "text_head.weight", "text_head.bias")


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    run = make_tiny_run(tmp_path_factory.mktemp("lora") / "tiny")
    assert run.train(**LORA) == 0
    return run


@pytest.fixture
def copied(lora: TinyRun, tmp_path: Path) -> TinyRun:
    """Return a run whose folder is a copy, with the inputs of the original."""
    shutil.copytree(lora.output, tmp_path / "run")
    return lora


def test_a_checkpoint_holds_adapters_and_new_rows_and_the_rest_is_the_base_bit_for_bit(lora: TinyRun):
    content = read_file(lora.output / "latest.pth")
    adapters = {name for name in content["model"] if name.endswith((".adapter.a", ".adapter.b"))}
    assert len(adapters) == 2 * 2 * 4  # a and b, of 4 matrices in each of 2 blocks
    assert content["model"].keys() - adapters == rows_beside(lora)
    assert content["lora"]["base"]["path"] == str((lora.folder / "base/gpt.pth").resolve())
    names = [name for group in content["optimizer"]["param_groups"] for name in group["param_names"]]
    assert set(names) == content["model"].keys()
    base, merged = read_weights(lora.folder / "base/gpt.pth"), read_weights(lora.output / "latest.pth")
    for name, tensor in base.items():
        if name in TABLES:
            assert torch.equal(merged[name][: lora.base_size], tensor[: lora.base_size])
            assert not torch.equal(merged[name][lora.base_size :], merged[name][lora.base_size :] * 0)
        else:
            is_trained = is_block_matrix(name) or name in rows_beside(lora)
            assert torch.equal(merged[name], tensor) != is_trained, name


def test_used_rows_and_the_code_head_are_trained_beside_the_adapters(lora: TinyRun, tmp_path: Path):
    more = {"train_text_rows": "used", "lora_code_head": True}
    assert lora.train(output_dir=tmp_path / "run", **LORA, **more) == 0
    base, merged = read_weights(lora.folder / "base/gpt.pth"), read_weights(tmp_path / "run/latest.pth")
    pairs = read_pairs(lora.folder / "train_pairs.jsonl")
    used = {token for pair in pairs for token in lora.tokenizer.encode(pair.target_text)}
    moved = (merged["text_head.bias"][: lora.base_size] != base["text_head.bias"][: lora.base_size]).nonzero()
    assert set(moved.flatten().tolist()) == {row for row in {*used, 0, 1} if row < lora.base_size}
    assert not torch.equal(merged["mel_head.weight"], base["mel_head.weight"])
    assert torch.equal(merged["mel_embedding.weight"], base["mel_embedding.weight"])


def rows_beside(run: TinyRun) -> set[str]:
    """Return the tables whose rows a LoRA run trains besides its adapters."""
    return {*TABLES, *({LANGUAGE_ROWS} & run.base_weights.keys())}


@pytest.mark.long
def test_merged_weights_compute_what_base_and_adapters_compute(lora: TinyRun, tmp_path, monkeypatch):
    kept: list[Run] = []
    finish = loop.finish_saving
    monkeypatch.setattr(loop, "finish_saving", lambda run, *rest: (kept.append(run), finish(run, *rest)))
    assert lora.train(**LORA, output_dir=tmp_path / "run") == 0
    [run] = kept
    merged = load_trained(tmp_path / "run/latest.pth", CPU).gpt
    config, row = merged.config, run.inputs.tokenizer.language_row
    batch = replace(
        tiny_batch(),
        condition=torch.randn(2, *config.condition_shape, generator=torch.Generator().manual_seed(1)),
        languages=None if row is None else torch.full((2,), row),
    )
    with torch.no_grad():
        ours, theirs = run.model.eval()(batch), merged(batch)
    for name in ("text_logits", "mel_logits"):
        one, other = getattr(ours, name), getattr(theirs, name)
        assert float((one - other).norm() / one.norm()) < 1e-6
    assert torch.equal(
        read_file(lora.output / "latest.pth")["model"][TABLES[0]],
        read_file(tmp_path / "run/latest.pth")["model"][TABLES[0]],
    )


@pytest.mark.failure(19)
def test_a_stopped_run_ends_bit_identical(lora: TinyRun, tmp_path: Path):
    resumed = tmp_path / "resumed"
    with signalled_in_step(4):
        assert lora.train(output_dir=resumed, **LORA) == 143
    # it knows its rank
    assert lora.train(output_dir=resumed, resume="auto", max_steps=6, keep_checkpoints=9) == 0
    assert problems_at_end(lora.output, resumed, lora.folder / "base/gpt.pth") == []


# --- the base ---


@pytest.mark.long
@pytest.mark.failure(61)
def test_the_base_is_found_where_it_was_or_beside_the_checkpoint_else_every_place_is_named(
    lora: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(lora.folder / "base", tmp_path / "base")
    moved = TinyRun(tmp_path)
    checkpoint = tmp_path / "run/latest.pth"
    assert lora.train(base_checkpoint=tmp_path / "base/gpt.pth", output_dir=tmp_path / "run", **LORA) == 0
    expected = read_weights(checkpoint)
    (tmp_path / "base/gpt.pth").rename(tmp_path / "elsewhere.pth")
    (tmp_path / "models").mkdir()
    config = shutil.copy(lora.folder / "base/config.yaml", tmp_path / "models")
    (tmp_path / "models/gpt.pth").write_bytes(b"x" * (tmp_path / "elsewhere.pth").stat().st_size)
    content = read_file(checkpoint)
    with pytest.raises(UserError) as refusal:
        select_weights(content, "raw", checkpoint, [tmp_path / "models"])
    for place in ("base/gpt.pth", "run/gpt.pth", "models/gpt.pth"):
        assert str(tmp_path / place) in str(refusal.value)
    for read in (
        lambda: load_trained(checkpoint, CPU),
        lambda: export(export_command(lora, checkpoint, tmp_path, config=config)),
    ):
        with pytest.raises(UserError, match=r"run/gpt\.pth"):
            read()
    changes = {"base_checkpoint": tmp_path / "base/gpt.pth", "output_dir": moved.output, "max_steps": 8}
    assert lora.train(resume="auto", **changes) == RESUME_REFUSED
    # the plan says so before the start, on the page and with --plan
    with pytest.raises(UserError) as planned_refusal:
        planned(lora, **changes)
    assert str(tmp_path / "run/gpt.pth") in str(planned_refusal.value)
    assert planned_refusal.value.exit_status == RESUME_REFUSED
    shutil.move(tmp_path / "elsewhere.pth", tmp_path / "run/gpt.pth")
    found = read_weights(checkpoint)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert "step 6" in planned(lora, **changes)
    assert lora.train(resume="auto", **changes) == 0


def export_command(run: TinyRun, checkpoint: Path, folder: Path, **changes: object) -> ExportModel:
    fields = {"config": run.folder / "base/config.yaml", "output_dir": folder / "model", **changes}
    return ExportModel(checkpoint=checkpoint, **fields)  # type: ignore[arg-type]


def test_an_export_is_a_gpt_pth_with_the_merged_weights(lora: TinyRun, tmp_path: Path):
    path = export(export_command(lora, lora.output / "latest.pth", tmp_path, average_last=2))
    written = torch.load(path, weights_only=True)
    older, newer = (read_weights(lora.output / f"model_step{step}.pth") for step in (4, 6))
    means = {name: (newer[name].double() + older[name].double()) / 2 for name in newer}
    expected = in_official_order(means, official_order(lora.tokenizer))
    assert written.keys() == expected.keys()
    for name, tensor in written.items():
        assert torch.equal(tensor, expected[name].float()), name
    assert load_trained(path.parent, CPU).gpt.config.number_text_tokens == lora.tokenizer.size


# --- the adapter file ---


def test_an_adapter_file_is_the_merged_model_at_1_and_the_base_at_0(lora: TinyRun, tmp_path: Path):
    checkpoint, folders = lora.output / "latest.pth", [lora.folder / "base"]
    path = export(export_command(lora, checkpoint, tmp_path, format="adapter"))
    assert {each.name for each in path.parent.iterdir()} == ADAPTER_FILES
    assert export_gpt.main([f"--check={path.parent}"]) == 1
    written = path.read_bytes()
    assert len(written) < checkpoint.stat().st_size / 1.5  # most of both is their tokenizer here
    assert str(lora.folder).encode() not in written
    base, merged = lora.base_weights, load_trained(checkpoint, CPU)

    def weights(strength: float) -> dict[str, Tensor]:
        found = load_trained(path.parent, CPU, "raw", folders, strength)
        assert found.tokenizer.pieces == merged.tokenizer.pieces
        return found.gpt.state_dict()

    at = {strength: weights(strength) for strength in (0, 0.5, 1, 1.5)}
    for name, tensor in merged.gpt.state_dict().items():
        assert torch.equal(at[1][name], tensor), name
        num_old = lora.base_size if name in TABLES else len(base[name])
        old, new = base[name][:num_old], tensor[:num_old]
        assert torch.equal(at[0][name][:num_old], old), name
        assert torch.equal(at[0][name][num_old:], tensor[num_old:]), name
        for strength in (0.5, 1.5):
            assert torch.allclose(at[strength][name][:num_old], old + strength * (new - old), atol=1e-6), name
    half = load_trained(checkpoint, CPU, strength=0.5).gpt.state_dict()
    assert all(torch.equal(half[name], tensor) for name, tensor in at[0.5].items())
    again = export(export_command(lora, path, tmp_path / "again"))
    assert read_weights(again).keys() == base.keys()


ADAPTER_FILES = {"adapter.safetensors", "README.md", "LICENSE-NOTE.txt", "export.json"}


def test_another_base_is_refused_with_both_digests_and_a_strength_without_a_lora(lora: TinyRun, tmp_path):
    adapter = export(export_command(lora, lora.output / "latest.pth", tmp_path, format="adapter"))
    other = shutil.copytree(lora.folder / "base", tmp_path / "other") / "gpt.pth"
    torch.save({name: each + 1 for name, each in lora.base_weights.items()}, other)
    digests = [file_digest(path)[:16] for path in (lora.folder / "base/gpt.pth", other)]
    with pytest.raises(UserError, match=rf"{digests[0]}.*{other} .*{digests[1]}"):
        load_trained(adapter, CPU, folders=[other.parent])
    with pytest.raises(UserError, match=r"--adapter-strength 0\.5: .*base is no LoRA"):
        load_trained(lora.folder / "base", CPU, strength=0.5)
    full = lora.folder / "full"
    assert lora.train(output_dir=full, max_steps=2) == 0
    with pytest.raises(UserError, match=r"--format adapter: .*--lora-rank"):
        export(export_command(lora, full / "latest.pth", tmp_path / "full", format="adapter"))


# --- what a changed setting does ---


def planned(run: TinyRun, **changes: object) -> str:
    return describe_restore(parse(Train, run.flags(resume="auto", **changes))) or ""


def weights_at_step_0(
    run: TinyRun, output: Path, monkeypatch: pytest.MonkeyPatch, **changes: object
) -> dict[str, Tensor]:
    """Resume, and return what the restarted model computes with before its first step, as merged weights."""
    found: list[dict[str, Tensor]] = []
    train_steps = loop.train_steps

    def watched(this: Run, *given: object) -> bool:
        state = {name: tensor.detach().clone() for name, tensor in this.model.state_dict().items()}
        command = this.inputs.command
        if command.lora_rank:
            record = LoraRecord(
                rank=command.lora_rank, alpha=command.lora_alpha, targets="all", first_rows={}, base=this.base
            )
            state = {name: t for name, t in merge(state, state, record).items() if ".adapter." not in name}
        found.append(state)
        return train_steps(this, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "train_steps", watched)
    assert run.train(output_dir=output, resume="auto", **{**LORA, "max_steps": 2, **changes}) == 0
    monkeypatch.undo()
    return found[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lora_rank": 8}, "lora_rank: 4 -> 8"),
        pytest.param({"lora_alpha": 16}, "lora_alpha: 8 -> 16", marks=pytest.mark.long),
        pytest.param({"lora_rank": 0}, "merged into the weights", marks=pytest.mark.long),
    ],
    ids=["rank", "alpha", "full"],
)
@pytest.mark.failure(74)
def test_other_adapters_and_none_start_over_with_the_same_function(
    copied: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], words: str
):
    output = tmp_path / "run"
    before = read_weights(output / "latest.pth")
    assert "step 0" in planned(copied, output_dir=output, **LORA | changes)
    assert words in planned(copied, output_dir=output, **LORA | changes)
    found = weights_at_step_0(copied, output, monkeypatch, **changes)
    for name, tensor in before.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6, msg=name)
    meta = json.loads((output / "latest.json").read_text("utf-8"))
    assert (meta["step"], meta["part"]) == (2, 2)
    assert ("lora" in read_file(output / "latest.pth")) == bool({**LORA, **changes}["lora_rank"])


@pytest.mark.failure(74)
def test_a_lower_rank_keeps_the_nearest_adapters():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(16, 8, generator=generator), torch.randn(8, 24, generator=generator)
    values = torch.linalg.svdvals(2 * a @ b)
    kept_a, kept_b = resized(a, b, 3, factor=2.0)
    assert (kept_a.shape, kept_b.shape) == ((16, 3), (3, 24))
    error = torch.linalg.matrix_norm(2 * a @ b - kept_a @ kept_b)
    torch.testing.assert_close(error, values[3:].norm(), rtol=1e-4, atol=0)  # no product of rank 3 is nearer


@pytest.mark.long
@pytest.mark.failure(8)
def test_other_pieces_move_the_rows_and_keep_the_adapters(copied: TinyRun, tmp_path, monkeypatch):
    output = tmp_path / "run"
    larger = TinyRun(shutil.copytree(copied.folder, tmp_path / "larger"))
    larger.resize_tokenizer(by=3)
    before = read_weights(output / "latest.pth")
    tokenizer = larger.folder / "tokenizer.model"
    found = weights_at_step_0(copied, output, monkeypatch, tokenizer=tokenizer)
    assert torch.equal(found[TABLES[0]][: copied.tokenizer.size], before[TABLES[0]][:-1])
    assert len(found[TABLES[0]]) == len(before[TABLES[0]]) + 3
    for name in filter(is_block_matrix, before):
        assert torch.equal(found[name], before[name])


def test_a_base_that_changed_under_its_time_stamp_is_refused_by_start_and_export(copied: TinyRun, tmp_path):
    output, path = tmp_path / "run", copied.folder / "base/gpt.pth"
    content, times = path.read_bytes(), path.stat()
    assert "the start verifies its content" in planned(copied, output_dir=output, **LORA)
    offset = content.index(read_weights(path)["gpt.h.1.mlp.c_fc.weight"].numpy().tobytes())
    try:
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(bytes(512))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert copied.train(output_dir=output, resume="auto", **LORA | {"max_steps": 8}) == RESUME_REFUSED
        command = ExportModel(
            checkpoint=output / "latest.pth",
            config=copied.folder / "base/config.yaml",
            output_dir=tmp_path / "model",
        )
        with pytest.raises(UserError, match="another file of this size"):
            export(command)
    finally:
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert copied.train(output_dir=output, resume="auto", **LORA | {"max_steps": 8}) == 0
    assert (output / "model_step8.pth").is_file()


def test_a_base_of_another_run_stays_when_that_run_goes_on(lora: TinyRun, tmp_path: Path):
    full, output = tmp_path / "full", tmp_path / "run"
    once = {"max_steps": 2, "keep_checkpoints": 1}
    assert lora.train(output_dir=full, **once) == 0
    (tmp_path / "gpt.pth").symlink_to(full / "latest.pth")
    settings = {**LORA, "base_checkpoint": tmp_path / "gpt.pth", "output_dir": output}
    assert lora.train(**settings) == 0
    assert "stays with this run as" in (output / "train.log").read_text("utf-8")
    before = read_weights(output / "latest.pth")
    assert lora.train(output_dir=full, resume="auto", **once | {"max_steps": 4}) == 0
    assert not (full / "model_step2.pth").exists()
    assert "the run continues" in planned(lora, **settings | {"max_steps": 8})
    moved = {**settings, "output_dir": shutil.move(output, tmp_path / "moved")}
    assert lora.train(**moved | {"max_steps": 8}, resume="auto") == 0
    command = ExportModel(
        checkpoint=tmp_path / "moved/model_step6.pth",
        config=lora.folder / "base/config.yaml",
        output_dir=tmp_path / "model",
    )
    for name, tensor in read_weights(export(command)).items():
        torch.testing.assert_close(tensor, before[name].float(), msg=name)
    # a run on another base, which goes on from a checkpoint of this one, keeps both
    second = {**settings, "output_dir": tmp_path / "second"}
    assert lora.train(**second | {"max_steps": 2}) == 0
    own = read_weights(tmp_path / "second/model_step2.pth")
    resumed = {"resume": tmp_path / "moved/model_step8.pth", "max_steps": 10}
    assert lora.train(**second | resumed) == 0
    assert len(list((tmp_path / "second").glob("base-*.pth"))) == 2
    shutil.rmtree(tmp_path / "moved")
    again = read_weights(tmp_path / "second/model_step2.pth")
    assert all(torch.equal(tensor, again[name]) for name, tensor in own.items())
    assert read_weights(tmp_path / "second/model_step10.pth").keys() == own.keys()


def test_the_base_of_a_base_with_adapters_is_kept_too(lora: TinyRun, tmp_path: Path):
    """The first base is found beside a checkpoint that was moved, and not where its run had it."""
    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(lora.output, first)
    meta = CheckpointMeta.read(first / "latest.json")
    shutil.move(lora.folder / "base/gpt.pth", first / "gpt.pth")
    try:
        settings = {**LORA, "base_checkpoint": first / "latest.pth", "output_dir": second}
        assert lora.train(**settings | {"max_steps": 2}) == 0
        shutil.move(first / "gpt.pth", lora.folder / "base/gone.pth")
        assert len(list(second.glob("base-*.pth"))) == 2
        assert (
            read_weights(second / "latest.pth").keys()
            == read_weights(second / kept_name(meta.base.digest)).keys()
        )
    finally:
        for place in (first / "gpt.pth", lora.folder / "base/gone.pth"):
            if place.exists():
                shutil.move(place, lora.folder / "base/gpt.pth")


@pytest.mark.failure(74)
def test_adapters_on_a_full_checkpoint_and_lost_targets_are_refused(copied: TinyRun, tmp_path: Path):
    output = tmp_path / "run"
    changes = {"lora_targets": "mlp"}
    with pytest.raises(UserError, match="--lora-targets") as refusal:
        planned(copied, output_dir=output, **LORA | changes)
    assert refusal.value.exit_status == RESUME_REFUSED
    assert copied.train(output_dir=output, resume="auto", **LORA | changes) == RESUME_REFUSED
    full = tmp_path / "full"
    assert copied.train(output_dir=full, max_steps=2) == 0
    with pytest.raises(UserError, match="--lora-rank"):
        planned(copied, output_dir=full, lora_rank=4)
    assert copied.train(output_dir=full, resume="auto", lora_rank=4, max_steps=4) == RESUME_REFUSED
