"""The failure table, rows 35-48, 50, 54 and 55: unusable data, losses, clocks, TensorBoard."""

import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from demo.make_base_checkpoint import random_model
from indextts.data.feature_store import FeatureStore
from indextts.data.feature_store_writer import EncodedUtterance
from indextts.data.manifest import read_pairs, write_pairs
from indextts.models.checkpoint import TEXT_TABLES
from indextts.runs.directory import CheckpointMeta, verify_checkpoint
from indextts.training import loop, metrics
from indextts.training.batches import MicroBatch, collate_padded
from indextts.training.gradients import TokenCounts
from indextts.training.loop import accumulate
from indextts.training.run import Run
from tests.run_checks import differences
from tests.test_exact_resume import one_utterance_a_file, words_with_own_tokens
from tests.test_models_checkpoint import Payload
from tests.test_trainer import load, numbers
from tests.tiny_run import TinyRun, array_file, features_of, load_pairs, make_tiny_run, pair, rewrite_features


@pytest.fixture
def spread(tiny: TinyRun) -> TinyRun:
    """Return a run whose utterances each have files of their own, so that one can be damaged alone."""
    one_utterance_a_file(tiny.folder / "features")
    return tiny


# ---- rows 35 to 41: arrays


def lie_in_the_header(path: Path) -> None:
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (10**12, 3, 16)}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(192))


def as_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def with_value(path: Path, value: float) -> None:
    array = np.load(path)
    array.flat[3] = value
    np.save(path, array)


# what is damaged of which utterance; codes are read of a target, the other two of a prompt
DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "u0": ("codes", Path.unlink),
    "u2": ("codes", lambda path: os.truncate(path, path.stat().st_size - 2)),
    "u4": ("codes", as_a_folder),
    "u6": (
        "condition",
        lambda path: np.save(path, np.array([Payload(path.parent / "canary")], object), allow_pickle=True),
    ),
    "u8": ("condition", lie_in_the_header),
    "u10": ("codes", lambda path: np.save(path, np.load(path).astype(np.float32))),
    "u12": ("emo_vec", lambda path: np.save(path, np.load(path)[:, :-1])),
    "u14": ("condition", lambda path: np.save(path, np.load(path)[0])),
    "u16": ("emo_vec", lambda path: with_value(path, float("nan"))),
    "u18": ("condition", lambda path: with_value(path, float("inf"))),
}
UNREADABLE = {
    f"u{number}__u{number + 1}" if name == "codes" else f"u{number - 1}__u{number}"
    for number, name in ((int(id[1:]), name) for id, (name, _) in DAMAGES.items())
}


def damage(run: TinyRun) -> None:
    for id, (name, spoil) in DAMAGES.items():
        spoil(array_file(run, id, name))


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.failure(35, 36, 37, 38, 39, 40)
def test_rows_35_to_40_pairs_with_unusable_arrays_are_skipped_named_and_never_replaced(
    spread: TinyRun, monkeypatch: pytest.MonkeyPatch, workers: int
):
    store = FeatureStore.open(features_of(spread.folder))
    readable = sorted(
        tuple(store.codes(each.target_key).tolist())
        for each in read_pairs(spread.folder / "train_pairs.jsonl")
        if each.id not in UNREADABLE
    )
    damage(spread)
    seen: list[tuple[int, ...]] = []

    def noting(run: Run, group: list[MicroBatch], tokens: TokenCounts) -> object:
        for batch in (part.batch for part in group if part.batch is not None):
            starts = (batch.mel_positions == 0).nonzero().flatten().tolist()
            ends = [*starts[1:], len(batch.mel_inputs)]
            seen.extend(
                tuple(batch.mel_inputs[first + 1 : end].tolist())
                for first, end in zip(starts, ends, strict=True)
            )
        return accumulate(run, group, tokens)

    monkeypatch.setattr(loop, "accumulate", noting)
    # with the target's emotion vector, other pairs would read a damaged one
    assert spread.train(epochs=2, num_workers=workers, emotion_from="prompt") == 0
    assert sorted(seen) == sorted(2 * readable)
    skipped = [line for line in spread.log.splitlines() if line.startswith("[Warn] Skipped ")]
    assert {line.split()[2] for line in skipped} == UNREADABLE
    assert [line.split("(")[1].split()[0] for line in skipped] == [str(n) for n in range(1, 11)]
    assert all("/features" in line for line in skipped)
    assert load(spread.output / "latest.pth")["epoch"] == 2
    assert not list(spread.folder.rglob("canary"))


@pytest.mark.long
@pytest.mark.failure(35)
def test_row_35_more_than_ten_unreadable_samples_of_a_small_set_end_the_run(spread: TinyRun):
    damage(spread)
    array_file(spread, "u20", "codes").unlink()
    assert spread.train(save_interval=1) == 2
    assert re.search(r"\[Error\] 11 of 22 .*check_amharic_data\.py", spread.log)
    done = verify_checkpoint(spread.output / "latest.pth").step
    assert done == max(load(path)["step"] for path in spread.output.glob("model_step*.pth"))


@pytest.mark.long
@pytest.mark.failure(35)
def test_row_35_a_resume_knows_the_unreadable_samples_until_they_are_readable_again(spread: TinyRun):
    file = array_file(spread, "u3", "codes")
    content = file.read_bytes()
    file.unlink()
    assert spread.train(max_steps=4) == 0
    assert load(spread.output / "latest.pth")["state"]["unreadable"] == ["u3__u4"]
    assert spread.train(max_steps=8, resume="auto") == 0
    assert spread.log.count("Skipped u3__u4 ") == 1
    file.write_bytes(content)
    assert spread.train(max_steps=12, resume="auto") == 0
    assert load(spread.output / "latest.pth")["state"]["unreadable"] == []


@pytest.mark.long
@pytest.mark.failure(47)
def test_row_47_without_a_readable_validation_pair_the_run_ends_before_its_first_step(spread: TinyRun):
    for number in range(22, 29):
        array_file(spread, f"u{number}", "codes").unlink()
    assert spread.train() == 2
    assert "tools/preprocess_data.py" in spread.log
    assert not list(spread.output.glob("*.pth"))


@pytest.mark.parametrize("code", [8, pytest.param(2**16 - 1, marks=pytest.mark.long)])
@pytest.mark.failure(42, 43)
def test_rows_42_and_43_an_invalid_code_is_refused_at_the_start_with_its_utterance(tiny: TinyRun, code: int):
    def spoil(utterance: EncodedUtterance) -> EncodedUtterance:
        codes = utterance.codes.copy()
        codes[5] = code if utterance.id == "u7" else 7  # 7 is the largest code
        return replace(utterance, codes=codes)

    rewrite_features(tiny, spoil)
    assert tiny.train() == 2
    assert f"utterance u7 has code {code}," in tiny.log
    assert not (tiny.output / "metrics.jsonl").exists()


@pytest.mark.long
@pytest.mark.failure(41)
def test_row_41_a_text_without_tokens_is_skipped_and_counted(tiny: TinyRun):
    first, *rest = read_pairs(tiny.folder / "train_pairs.jsonl")
    write_pairs(tiny.folder / "train_pairs.jsonl", [replace(first, target_text="\u200b\ufeff"), *rest])
    assert tiny.train(max_steps=1) == 0
    assert "1 of 22 pairs: " in tiny.log
    assert "21 pairs to train on" in tiny.log


@pytest.mark.failure(44)
def test_row_44_the_longest_fitting_sample_is_kept_and_a_longer_one_is_skipped(tiny: TinyRun, caplog):
    config = replace(tiny.config, max_text_tokens=600, max_mel_tokens=1815)
    tokenizer = tiny.tokenizer
    word = words_with_own_tokens(tiny)[0]
    lengths = {"u1": 1815, "u2": 1816}
    rewrite_features(
        tiny,
        lambda utterance: replace(
            utterance, codes=np.resize(utterance.codes, lengths.get(utterance.id, len(utterance.codes)))
        ),
    )
    num_words = 600 if tokenizer.language_row is None else 599  # besides the tag of the language
    texts = {3: " ".join([word] * num_words), 4: " ".join([word] * (num_words + 1))}
    assert [len(tokenizer.encode(text)) for text in texts.values()] == [600, 601]
    path = tiny.folder / "train_pairs.jsonl"
    write_pairs(path, [pair(tiny.folder, number, 5, texts.get(number)) for number in (0, 1, 2, 3, 4)])
    dataset = load_pairs([path], tokenizer, config)
    assert [each.target_id for each in dataset.pairs] == ["u0", "u1", "u3"]
    assert "2 of 5 pairs: " in caplog.text
    samples = [dataset[number] for number in range(3)]
    batch = collate_padded(samples, tokenizer.language_row)  # type: ignore[arg-type]
    assert batch.code_lengths[1] == 1815
    assert batch.text_lengths[2] == 600
    model = random_model(replace(config, number_text_tokens=tokenizer.size), seed=0)
    with torch.no_grad():
        assert model(batch).mel_logits.isfinite().all()


@pytest.mark.failure(47)
def test_row_47_a_validation_set_smaller_than_a_batch_has_a_real_loss(tiny: TinyRun):
    write_pairs(tiny.folder / "val_pairs.jsonl", [pair(tiny.folder, 22, 23)])
    assert tiny.train() == 0
    losses = [line["mel_loss"] for line in numbers(tiny, kind="val").values()]
    assert all(loss > 0.1 for loss in losses)
    assert min(losses[1:]) == load(tiny.output / "best.pth")["best_mel_loss"]


@pytest.mark.parametrize(
    "name", ["train_pairs.jsonl", pytest.param("val_pairs.jsonl", marks=pytest.mark.long)]
)
@pytest.mark.failure(47)
def test_row_47_a_set_without_usable_pairs_is_refused(tiny: TinyRun, name: str):
    write_pairs(tiny.folder / name, [pair(tiny.folder, 22, 23, "ሰላም ነው " * 300)])
    assert tiny.train() == 2
    assert f"{name}: " in tiny.log


# ---- row 48: a loss that is not finite


@pytest.mark.failure(48)
def test_row_48_a_batch_with_nan_is_skipped_and_the_rest_is_as_without_its_step(tmp_path, monkeypatch):
    def poison(utterance: EncodedUtterance) -> EncodedUtterance:
        huge = np.full_like(utterance.condition, 3e38)  # finite, and no layer norm survives it
        return replace(utterance, condition=huge) if utterance.id == "u9" else utterance

    poisoned, reference = make_tiny_run(tmp_path / "a"), make_tiny_run(tmp_path / "b")
    for run in (poisoned, reference):
        rewrite_features(run, poison)
    assert poisoned.train(epochs=1) == 0
    [line] = [line for line in poisoned.log.splitlines() if line.startswith("[Warn] Skipped step ")]
    assert "u8__u9" in line
    bad_step = int(line.split("step ")[1].split(":")[0])

    def skipping(run: Run, group: list[MicroBatch], tokens: TokenCounts) -> object:
        return (None, None) if run.state.step + 1 == bad_step else accumulate(run, group, tokens)

    monkeypatch.setattr(loop, "accumulate", skipping)
    assert reference.train(epochs=1) == 0
    mine, other = (load(run.output / "latest.pth") for run in (poisoned, reference))
    assert mine["step"] == other["step"] == 4
    for name in ("model", "optimizer"):
        assert list(differences(mine[name], other[name], name)) == []
    assert all(tensor.isfinite().all() for tensor in mine["model"].values())
    assert (mine["state"]["num_skipped"], other["state"]["num_skipped"]) == (1, 0)
    base = load(poisoned.folder / "base/gpt.pth")
    for name in TEXT_TABLES:
        assert torch.equal(mine["model"][name][: poisoned.base_size], base[name][: poisoned.base_size])


def poisoning(run: Run, group: list[MicroBatch], tokens: TokenCounts) -> object:
    """Accumulate as the loop does, with a loss that is NaN from the fourth step on."""
    sums, loss = accumulate(run, group, tokens)
    return sums, loss * math.nan if run.state.step >= 3 else loss


@pytest.mark.long
@pytest.mark.failure(48)
def test_row_48_weights_that_are_not_finite_are_never_saved_also_across_a_resume(tiny: TinyRun, monkeypatch):
    monkeypatch.setattr(loop, "accumulate", poisoning)
    assert tiny.train(max_steps=8, save_interval=1, epochs=10) == 0
    assert load(tiny.output / "latest.pth")["state"]["num_skipped_in_a_row"] == 5
    assert tiny.train(max_steps=40, save_interval=1, epochs=10, resume="auto") == 6  # they count on
    assert re.search(r"\[Error\] .*10 steps .* step 13\b", tiny.log)
    for path in tiny.output.glob("model_step*.pth"):
        content = load(path)
        assert all(tensor.isfinite().all() for tensor in content["model"].values())
        assert content["state"]["num_skipped"] == max(0, content["step"] - 3)


# ---- row 50: clocks


@pytest.mark.long
@pytest.mark.failure(50)
def test_row_50_a_clock_set_back_a_day_changes_nothing(tiny: TinyRun, monkeypatch: pytest.MonkeyPatch):
    assert tiny.train(log_interval=1, max_steps=4) == 0
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() - 86_400)
    for path in tiny.output.glob("model_step4.*"):
        os.utime(path, (0, 0))
    assert tiny.train(log_interval=1, max_steps=8, resume="auto") == 0
    assert "found checkpoint at " + str(tiny.output / "model_step4.pth") in tiny.log
    assert list(numbers(tiny, kind="train")) == list(range(1, 9))
    assert verify_checkpoint(tiny.output / "latest.pth").step == 8
    serials = [CheckpointMeta.read(tiny.output / f"model_step{step}.json").serial for step in (4, 6, 8)]
    assert serials == sorted(set(serials))


# ---- rows 54 and 55: TensorBoard


def scalars(folder: Path, tag: str = "train/mel_loss") -> list[int]:
    """Return the steps of the points that TensorBoard finds in one run's folder."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return [point.step for point in events.Scalars(tag)] if tag in events.Tags()["scalars"] else []


class StoppedClock(datetime):
    @classmethod
    def now(cls, _tz: object = None) -> "StoppedClock":  # type: ignore[override]
        return cls(2026, 10, 25, 2, 30)


@pytest.mark.parametrize("is_stopped", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.failure(55)
def test_row_55_a_repeated_step_is_in_a_separate_curve(tiny: TinyRun, monkeypatch, is_stopped: bool):
    if is_stopped:
        monkeypatch.setattr(metrics, "datetime", StoppedClock)
    for resume in (None, "auto"):
        assert tiny.train(log_interval=1, max_steps=6, save_interval=4, resume=resume) == 0
        for path in [*tiny.output.glob("model_step6.*"), *tiny.output.glob("*st.*")]:
            path.unlink(missing_ok=True)  # as if it had been killed before the save
    curves = [scalars(folder) for folder in sorted((tiny.output / "logs").iterdir())]
    assert curves == [[1, 2, 3, 4, 5, 6], [5, 6]]


@pytest.mark.long
@pytest.mark.parametrize("how", ["cut", "one byte"])
@pytest.mark.failure(54)
def test_row_54_a_corrupt_tensorboard_file_affects_neither_the_run_nor_later_points(tiny: TinyRun, how: str):
    assert tiny.train(log_interval=1, max_steps=6) == 0
    [folder] = (tiny.output / "logs").iterdir()
    [events] = folder.iterdir()
    content = bytearray(events.read_bytes())
    if how == "cut":
        events.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 1
        events.write_bytes(content)
    assert tiny.train(log_interval=1, max_steps=9, resume="auto") == 0
    [later] = [other for other in (tiny.output / "logs").iterdir() if other != folder]
    assert scalars(later) == [7, 8, 9]
    assert list(numbers(tiny, kind="train")) == list(range(1, 10))
