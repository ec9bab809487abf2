"""The failure table, rows 1-16, 51 and 58-62: how damaged checkpoints are handled."""

import math
import os
import pickle
import random
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.models.checkpoint import TEXT_TABLES, read_file, recover_meta
from indextts.runs.directory import MAX_META_BYTES, CheckpointMeta, verify_checkpoint
from indextts.runs.find_checkpoint import find_checkpoint
from indextts.runs.owner import publish, run_lock
from indextts.system.digest import file_digest
from indextts.text.bases import base_tokenizer
from indextts.text.byte_level import ByteLevelTokenizer
from indextts.text.extend import extend_file
from indextts.text.tokenizer import parse_model
from indextts.training import loop
from indextts.training.resume import plan_from_weights, resume
from indextts.training.run import Run, load_inputs
from tests.conftest import REPOSITORY
from tests.corruption import flip_bit, truncate, zero_page
from tests.test_models_checkpoint import Payload
from tests.test_trainer import copy_checkpoint, load, numbers
from tests.tiny_run import SENTENCES, TinyRun, load_pairs, text_ids_of


@pytest.fixture
def two_steps(complete_run: TinyRun, tiny: TinyRun) -> TinyRun:
    """Return a run with the checkpoints of steps 4 and 6, the newer of them published as latest.pth."""
    for step in (4, 6):
        copy_checkpoint(complete_run, step, tiny)
    with run_lock(tiny.output):  # publishes latest.pth and best.pth
        return tiny


def command(run: TinyRun, **changes: object) -> Train:
    return parse(Train, run.flags(**changes))


def newest_valid(run: TinyRun) -> Path | None:
    """Return what a trainer that comes into the folder would go on from."""
    with run_lock(run.output):
        return find_checkpoint("auto", run.output, recover_meta)


def rewrite(path: Path, change: Callable[[dict], object]) -> None:
    """Change the content of a checkpoint, and its meta file so that it verifies."""
    content = load(path)
    change(content)
    path.unlink()
    torch.save(content, path)
    meta = CheckpointMeta.read(path.with_suffix(".json"))
    meta.model_copy(update={"num_bytes": path.stat().st_size, "digest": file_digest(path)}).write(
        path.with_suffix(".json")
    )


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.pth"))}


# ---- rows 1 to 4: damage


NUM_APPENDED = 320  # pieces of a tiny run of 2.0
MORE_SENTENCES = (REPOSITORY / "demo/sentences.txt").read_text(encoding="utf-8").split("\n")[60:90]


@pytest.mark.parametrize("share", [0, 0.5, 0.999])
@pytest.mark.failure(1)
def test_row_1_a_truncated_checkpoint_is_quarantined_and_the_one_before_it_taken(
    two_steps: TinyRun, caplog: pytest.LogCaptureFixture, share: float
):
    path = two_steps.output / "model_step6.pth"
    os.truncate(path, int(share * path.stat().st_size))
    assert newest_valid(two_steps) == two_steps.output / "model_step4.pth"
    assert verify_checkpoint(two_steps.output / "latest.pth").step == 4
    assert "model_step6.pth" in caplog.text
    assert "from step 6 to step 4" in caplog.text
    assert (two_steps.output / "damaged-model_step6.pth").is_file()


@pytest.mark.failure(2)
def test_row_2_all_100_random_corruptions_of_a_real_checkpoint_are_detected(
    complete_run: TinyRun, tiny: TinyRun
):
    copy_checkpoint(complete_run, 6, tiny)
    path = tiny.output / "model_step6.pth"
    whole = path.read_bytes()
    choose = random.Random(0)
    for _ in range(100):
        if path.read_bytes() != whole:
            path.write_bytes(whole)
        damage = choose.choice((flip_bit, flip_bit, zero_page, truncate))
        damage(path, choose)
        assert path.read_bytes() != whole
        with pytest.raises(ValueError, match=r"model_step6\.pth"):
            verify_checkpoint(path)
    path.write_bytes(whole)
    assert verify_checkpoint(path).step == 6


@pytest.mark.parametrize("spoilt", [".pth", "both"])
@pytest.mark.failure(3)
def test_row_3_a_folder_with_only_corrupt_checkpoints_is_refused_with_status_3(
    two_steps: TinyRun, spoilt: str
):
    for path in two_steps.output.glob("model_step*"):
        if spoilt in (path.suffix, "both"):
            os.truncate(path, 100)
    assert two_steps.train(resume="auto") == 3
    assert f"Resume failed: {two_steps.output}" in two_steps.log
    assert two_steps.train(resume=None) == 2  # nor does a new run begin among them
    assert not (two_steps.output / "metrics.jsonl").exists()


def replaced(old: str, new: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(re.sub(old, new, path.read_text()))


BAD_METAS: dict[str, Callable[[Path], object]] = {
    "no file": Path.unlink,
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "no UTF-8": lambda path: path.write_bytes(b'{"step": "\xff"}'),
    "a list": lambda path: path.write_text("[]"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "huge": lambda path: os.truncate(path, MAX_META_BYTES + 1),
    "a field missing": replaced(r'"digest": "\w+",\n"pieces"', '"pieces"'),
    "of another type": replaced('"step": 6', '"step": "six"'),
    "of a newer format": replaced('"format_version": 1', '"format_version": 2'),
}


@pytest.mark.parametrize("name", BAD_METAS)
@pytest.mark.failure(4)
def test_row_4_a_bad_meta_file_is_rewritten_from_the_checkpoint(
    complete_run: TinyRun, tiny: TinyRun, name: str
):
    for step in (4, 6):
        copy_checkpoint(complete_run, step, tiny)
    meta = tiny.output / "model_step6.json"
    before = meta.read_bytes()
    BAD_METAS[name](meta)
    assert not meta.is_file() or meta.stat().st_size > MAX_META_BYTES or meta.read_bytes() != before
    assert newest_valid(tiny) == tiny.output / "model_step6.pth"
    assert meta.read_bytes() == before


@pytest.mark.failure(4)
def test_row_4_a_single_file_of_a_run_resumes_it_exactly(two_steps: TinyRun, complete_run: TinyRun):
    for path in two_steps.output.iterdir():
        if path.name != "latest.pth":
            path.unlink()
    assert plan_from_weights(command(two_steps, resume="auto")).startswith("latest.pth: step 6,")
    assert two_steps.train(resume="auto") == 0
    assert not list(two_steps.output.glob("*foreign*"))
    assert verify_checkpoint(two_steps.output / "latest.pth").part == 1
    mine, expected = (load(run.output / "latest.pth") for run in (two_steps, complete_run))
    assert all(torch.equal(mine["model"][key], expected["model"][key]) for key in expected["model"])


def flip_in_a_tensor(path: Path) -> None:
    """Flip a bit in the largest tensor of a checkpoint."""
    with zipfile.ZipFile(path) as archive:
        tensors = [entry for entry in archive.infolist() if "/data/" in entry.filename]
    record = max(tensors, key=lambda entry: entry.file_size)
    content = bytearray(path.read_bytes())
    content[record.header_offset + 200 + record.file_size // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("damage", ["truncated", "flipped bit"])
@pytest.mark.failure(1, 2, 4)
def test_row_4_a_corrupt_file_without_a_meta_file_is_skipped_and_named(
    two_steps: TinyRun, complete_run: TinyRun, damage: str
):
    newer = two_steps.output / "model_step8.pth"
    content = (complete_run.output / "model_step8.pth").read_bytes()
    newer.write_bytes(content[:-1000] if damage == "truncated" else content)
    if damage == "flipped bit":
        flip_in_a_tensor(newer)
    assert two_steps.train(resume="auto", max_steps=7, keep_checkpoints=9) == 0
    assert "Step: 6," in two_steps.log
    assert [line for line in two_steps.log.splitlines() if "model_step8.pth" in line]
    # what cannot be read at all may be of another program, and stays
    assert newer.is_file() == (damage == "truncated")


@pytest.mark.failure(4)
def test_row_4_a_newer_latest_that_was_copied_over_an_older_one_is_resumed(
    two_steps: TinyRun, complete_run: TinyRun
):
    latest = two_steps.output / "latest.pth"
    latest.unlink()  # otherwise model_step6.pth and best.pth, the same file, are overwritten too
    latest.write_bytes((complete_run.output / "model_step8.pth").read_bytes())
    assert ": step 8, " in plan_from_weights(command(two_steps, resume="auto")).splitlines()[0]
    taken = newest_valid(two_steps)
    assert taken is not None
    assert verify_checkpoint(taken).step == 8  # best.pth may be the same file
    assert verify_checkpoint(latest).step == 8
    assert CheckpointMeta.read(latest.with_suffix(".json")).step == 8


@pytest.mark.failure(4)
def test_row_4_a_newer_latest_without_its_meta_file_is_not_replaced_by_an_older_checkpoint(
    two_steps: TinyRun, complete_run: TinyRun
):
    for name in ("latest.pth", "latest.json"):
        (two_steps.output / name).unlink()
    shutil.copy(complete_run.output / "model_step8.pth", two_steps.output / "latest.pth")
    assert newest_valid(two_steps) == two_steps.output / "latest.pth"
    assert verify_checkpoint(two_steps.output / "latest.pth").step == 8
    assert not list(two_steps.output.glob("*foreign*"))


# ---- rows 5 and 6: weights that are not this model's


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda weights: [weights.pop(name) for name in ("gpt.ln_f.weight", "mel_head.bias")],
            r"2 of \d+ .*: gpt\.ln_f\.weight, mel_head\.bias",
        ),
        (lambda weights: weights["mel_head.weight"][1].fill_(math.nan), r"1 of \d+ .*: mel_head\.weight"),
    ],
)
@pytest.mark.failure(5, 6)
def test_rows_5_and_6_weights_that_do_not_fit_are_named_and_refused_before_anything_is_written(
    two_steps: TinyRun, change: Callable[[dict], object], message: str
):
    rewrite(two_steps.output / "model_step6.pth", lambda content: change(content["model"]))
    publish(two_steps.output / "model_step6.pth", two_steps.output / "latest.pth")
    before = content_of(two_steps.output)
    assert two_steps.train(resume="auto") == 3
    errors = [line for line in two_steps.log.splitlines() if line.startswith("[Error]")]
    assert len(errors) == 1
    assert re.search(message, errors[0]), errors[0]
    assert content_of(two_steps.output) == before


# ---- rows 8 to 10 and 12: vocabulary and matched set


def reorder_and_replace(pieces: list) -> None:
    """Turn the order of the appended pieces around, and put others in the place of five."""
    appended = list(range(len(pieces) - NUM_APPENDED, len(pieces)))
    texts = [pieces[index].piece for index in reversed(appended)]
    texts[:5] = [f"ዥጵጰ{number}" for number in range(5)]
    for index, text in zip(appended, texts, strict=True):
        pieces[index].piece = text


def change_pieces(run: TinyRun) -> None:
    """Give the run's tokenizer other appended pieces, as many as before, some of them in other places."""
    path = run.folder / "tokenizer.model"
    if not isinstance(run.tokenizer, ByteLevelTokenizer):
        model = parse_model(path.read_bytes())
        reorder_and_replace(model.pieces)
        path.write_bytes(model.SerializeToString())
        return
    base = base_tokenizer(run.folder / "base/gpt.pth")
    extend_file(base, SENTENCES[20:] + MORE_SENTENCES, path, run.tokenizer.size)


@pytest.mark.failure(8)
def test_row_8_other_pieces_of_the_same_number_keep_common_rows_bit_identical_and_restart(two_steps: TinyRun):
    saved = load(two_steps.output / "model_step6.pth")
    change_pieces(two_steps)
    now = two_steps.tokenizer.pieces
    before = saved["tokenizer"]["pieces"]
    assert len(now) == len(before)
    shared = [piece for piece in now if piece in before]
    assert len(now) - 100 < len(shared) <= len(now) - 5
    assert [now.index(piece) for piece in shared] != [before.index(piece) for piece in shared]
    run = resume(
        load_inputs(command(two_steps, resume="auto", warmup_steps=4)), two_steps.output / "model_step6.pth"
    )
    for name in TEXT_TABLES:
        old, new = saved["model"][name], run.model.state_dict()[name]
        assert torch.equal(
            new[[now.index(piece) for piece in shared]], old[[before.index(piece) for piece in shared]]
        )
        assert torch.equal(new[-1], old[-1])
    assert (run.state.step, run.state.epoch, run.state.samples_done) == (0, 0, 0)
    assert run.state.best_mel_loss == float("inf")
    assert run.schedule.learning_rate(1) == pytest.approx(0.01 / 4)
    assert all(not state["exp_avg"].any() and not state["step"] for state in run.optimizer.state.values())


@pytest.mark.failure(10)
def test_row_10_texts_are_tokenized_with_the_tokenizer_of_the_run(tiny: TinyRun):
    before = load_pairs([tiny.folder / "train_pairs.jsonl"], tiny.tokenizer, tiny.config)
    change_pieces(tiny)
    tokenizer = tiny.tokenizer
    now = load_pairs([tiny.folder / "train_pairs.jsonl"], tokenizer, tiny.config)
    for pair, ids in zip(now.pairs, text_ids_of(now), strict=True):
        assert ids.tolist() == tokenizer.encode(pair.target_text)
    assert any(a.tolist() != b.tolist() for a, b in zip(text_ids_of(before), text_ids_of(now), strict=True))


# ---- rows 14 to 16: files that mean harm


def zip_with(path: Path, content: object, *, more: str = "") -> None:
    torch.save(content, path)
    if more:  # what tells torch that the archive is TorchScript
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(archive.namelist()[0].split("/")[0] + "/" + more, b"\x80\x02).")


def tar_with(path: Path, payload: object, folder: Path) -> None:
    folder.mkdir()
    with tarfile.open(path, "w") as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            (folder / name).write_bytes(pickle.dumps(payload))
            archive.add(folder / name, arcname=name)


@pytest.mark.parametrize("kind", ["zip", "legacy", "bare pickle", "tar", "TorchScript"])
@pytest.mark.failure(14)
def test_row_14_a_file_with_code_is_refused_and_runs_nothing(tiny: TinyRun, tmp_path: Path, kind: str):
    canary, path = tmp_path / "canary", tmp_path / "model_step5.pth"
    content = {"model": Payload(canary), "optimizer": Payload(canary), "epoch": 0, "step": 5}
    if kind == "zip":
        zip_with(path, content)
    elif kind == "TorchScript":
        zip_with(path, content, more="constants.pkl")
    elif kind == "legacy":
        torch.save(content, path, _use_new_zipfile_serialization=False)
    elif kind == "tar":
        tar_with(path, content, tmp_path / "parts")
    else:
        path.write_bytes(pickle.dumps(content))
    with pytest.raises(UserError, match=r"model_step5\.pth: "):
        read_file(path)
    assert tiny.train(resume=path) == 3
    assert not list(tiny.output.glob("*.pth"))
    assert not canary.exists()


@pytest.mark.failure(15)
def test_row_15_paths_in_a_checkpoint_are_never_opened_or_deleted(two_steps: TinyRun, tmp_path: Path):
    victims = [tmp_path / "victim.pth", two_steps.folder / "victim.pth", tmp_path / "manifest.jsonl"]
    for victim in victims:
        victim.write_bytes(b"precious")

    def point_elsewhere(content: dict) -> None:
        content["recent_checkpoints"] = [str(victims[0]), "../victim.pth", "../../manifest.jsonl"]
        content["manifests"] = {"train": [str(victims[2])], "val": ["/nowhere"]}
        settings = content["meta"]["settings"]
        settings |= {"train_manifest": ["/nowhere"], "tokenizer": "/nowhere", "output_dir": str(tmp_path)}
        settings |= {"config": "/nowhere", "base_checkpoint": "/nowhere", "resume": "/nowhere"}
        content["meta"]["base"]["path"] = "/nowhere"

    rewrite(two_steps.output / "model_step6.pth", point_elsewhere)
    names = {path.name for path in tmp_path.iterdir()}
    assert two_steps.train(resume=two_steps.output / "model_step6.pth", keep_checkpoints=1) == 0
    assert all(victim.read_bytes() == b"precious" for victim in victims)
    assert {path.name for path in tmp_path.iterdir()} == names
    assert load(two_steps.output / "latest.pth")["step"] == 12


# ---- row 51: symbolic links


@pytest.mark.parametrize("kind", ["to a file", pytest.param("loop", marks=pytest.mark.long)])
@pytest.mark.failure(15, 51)
def test_row_51_a_symbolic_link_to_no_checkpoint_is_never_written_through(
    complete_run: TinyRun, tiny: TinyRun, tmp_path: Path, kind: str
):
    copy_checkpoint(complete_run, 6, tiny)
    target = tmp_path / "elsewhere.pth"
    if kind == "to a file":
        target.write_bytes(b"precious")
        newer = CheckpointMeta.read(tiny.output / "model_step6.json").model_copy(update={"serial": 99})
        newer.write(target.with_suffix(".json"))
    for name in ("latest", "best", "model_step99", "model_step8"):
        for suffix in (".pth", ".json"):
            link = tiny.output / f"{name}{suffix}"
            link.symlink_to(link.name if kind == "loop" else target.with_suffix(suffix))
    before = {path.name: path.read_bytes() for path in tmp_path.glob("elsewhere*")}
    assert tiny.train(resume="auto") == 0
    assert "found checkpoint at " + str(tiny.output / "model_step6.pth") in tiny.log
    assert {path.name: path.read_bytes() for path in tmp_path.glob("elsewhere*")} == before
    for name in ("latest.pth", "latest.json", "model_step8.pth", "model_step8.json"):
        assert not (tiny.output / name).is_symlink(), name
    assert verify_checkpoint(tiny.output / "latest.pth").step == 12


@pytest.mark.failure(15, 51)
def test_row_51_a_symbolic_link_to_a_checkpoint_is_resumed_and_its_target_kept(
    complete_run: TinyRun, tiny: TinyRun, tmp_path: Path
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    tiny.output.mkdir()
    for step in (4, 6):
        for suffix in (".pth", ".json"):
            name = f"model_step{step}{suffix}"
            (elsewhere / name).write_bytes((complete_run.output / name).read_bytes())
            (tiny.output / name).symlink_to(Path("../..") / "elsewhere" / name)
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
    assert plan_from_weights(command(tiny, resume="auto")).startswith("model_step6.pth: step 6,")
    assert tiny.train(resume="auto", keep_checkpoints=1) == 0
    assert "Step: 6," in tiny.log
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before
    assert not [path for path in tiny.output.iterdir() if path.is_symlink()]  # deleted as surplus
    assert verify_checkpoint(tiny.output / "latest.pth").step == 12


@pytest.mark.failure(51)
def test_row_51_the_link_to_a_corrupt_checkpoint_is_quarantined(
    complete_run: TinyRun, tiny: TinyRun, tmp_path: Path
):
    elsewhere = tmp_path / "elsewhere.pth"
    elsewhere.write_bytes((complete_run.output / "model_step6.pth").read_bytes())
    flip_in_a_tensor(elsewhere)
    copy_checkpoint(complete_run, 4, tiny)
    (tiny.output / "model_step6.pth").symlink_to(elsewhere)
    assert newest_valid(tiny) == tiny.output / "model_step4.pth"
    assert (tiny.output / "damaged-model_step6.pth").readlink() == elsewhere
    assert elsewhere.is_file()


# ---- rows 59, 61, 62


@pytest.mark.failure(59)
def test_row_59_a_finished_run_continues_when_its_end_is_moved(tiny: TinyRun):
    assert tiny.train(log_interval=1, epochs=1) == 0
    before = content_of(tiny.output)
    assert tiny.train(log_interval=1, resume="auto", epochs=1) == 0  # the same again: nothing is left to do
    assert content_of(tiny.output) == before
    assert tiny.train(log_interval=1, resume="auto", epochs=2) == 0
    rates = {step: line["lr"] for step, line in numbers(tiny, kind="train").items()}
    assert list(rates) == list(range(1, 9))
    assert 0 < rates[5] <= 1.5 * rates[4] + 0.1 * 0.01  # anchored where it was


@pytest.mark.failure(62)
def test_row_62_rows_that_the_optimizer_no_longer_shares_end_the_run_before_a_save(
    tiny: TinyRun, monkeypatch: pytest.MonkeyPatch
):
    accumulate = loop.accumulate

    def break_before_step_4(run: Run, group: list, tokens: object) -> object:
        if run.state.step == 3:
            copies = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
            run.model.load_state_dict(copies, assign=True)
        return accumulate(run, group, tokens)

    monkeypatch.setattr(loop, "accumulate", break_before_step_4)
    with pytest.raises(AssertionError):
        tiny.train(save_interval=2, val_interval=100)
    assert '"status": 1' in (tiny.output / "exit.json").read_text()
    assert verify_checkpoint(tiny.output / "latest.pth").step == 2
    assert not (tiny.output / "model_step4.pth").exists()
