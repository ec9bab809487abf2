import hashlib
import json
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from indextts.commands.terminal import to_argv
from indextts.data.encoding import ClipEncoder
from indextts.data.feature_store import FeatureStore
from indextts.data.manifest import read_utterances, write_utterances
from indextts.errors import DISK_FULL, UserError
from tests.preprocess_project import (
    command,
    files_of,
    kill_when,
    make_project,
    run,
    spoil,
    store_of,
    utterances_of,
    write_audio,
    write_dataset,
    write_model,
)
from tools.preprocess_data import main


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def test_every_utterance_has_codes_of_its_true_length(project):  # D1
    result = run(project)
    assert (result.num_train, result.num_val, result.num_encoded) == (20, 4, 24)
    store = store_of(project / "out")
    written = utterances_of(project / "out")
    assert sorted(u.features_key for u in written) == sorted(store.keys)
    for utterance in written:
        num_samples = soundfile.info(utterance.audio).frames
        codes = store.codes(utterance.features_key)
        assert utterance.num_codes == num_samples // 480 == len(codes)
        assert utterance.features_key == hashlib.sha256(utterance.audio.read_bytes()).hexdigest()
        assert codes.max() < 16


def test_other_ids_speakers_texts_and_splits_encode_nothing_again(project):
    run(project)
    before = files_of(project / "out/features")
    manifest = project / "data/manifest.jsonl"
    renamed = [
        replace(u, id=f"{24 - number}x", speaker="abc"[number % 3], text=f"ሰላም ነው {number}")
        for number, u in enumerate(read_utterances(manifest))
    ]
    write_utterances(manifest, renamed)
    result = run(project, val_ratio=0.3, seed=5)
    assert (result.num_encoded, result.num_kept) == (0, 24)
    assert files_of(project / "out/features") == before
    written = utterances_of(project / "out")
    assert {u.id: u.audio for u in written} == {u.id: u.audio for u in renamed}
    for utterance in written:
        assert utterance.features_key == hashlib.sha256(utterance.audio.read_bytes()).hexdigest()


@pytest.mark.long
def test_utterances_with_the_same_recording_share_its_features(project):
    (project / "data/audio/copy.wav").write_bytes((project / "data/audio/0.wav").read_bytes())
    manifest = project / "data/manifest.jsonl"
    first, *rest = read_utterances(manifest)
    copies = [replace(first, id="copy", audio=project / "data/audio/copy.wav"), replace(first, id="again")]
    write_utterances(manifest, [first, *rest, *copies])
    result = run(project, val_ratio=0)
    assert (result.num_train, result.num_encoded, result.num_kept) == (26, 24, 0)
    assert len(store_of(project / "out").keys) == 24
    written = {u.id: u for u in read_utterances(project / "out/train_manifest.jsonl")}
    assert written["copy"].features_key == written["again"].features_key == written["a000"].features_key
    assert run(project, val_ratio=0).num_kept == 26


def test_another_base_checkpoint_adds_only_conditioning(project):
    run(project)
    first, before = store_of(project / "out"), files_of(project / "out")
    old_weights = (project / "model/gpt.pth").read_bytes()
    write_model(project / "model", seed=1)
    result = run(project)
    assert (result.num_encoded, result.num_kept) == (24, 0)
    second, after = store_of(project / "out"), files_of(project / "out")
    assert second.info.encoders_identity != first.info.encoders_identity
    assert {name for name in after if "/codes/" in name} == {name for name in before if "/codes/" in name}
    assert {name: after[name] for name in before if "manifest" not in name}.items() <= before.items()
    for key in first.keys:
        assert second.codes(key).tolist() == first.codes(key).tolist()
        assert not np.allclose(second.condition(key), first.condition(key))
    (project / "model/gpt.pth").write_bytes(old_weights)
    result = run(project)
    assert (result.num_encoded, result.num_kept) == (0, 24)
    assert files_of(project / "out") == after | before  # the manifests refer to the first store again


@pytest.mark.long
def test_another_vocabulary_leaves_features_valid(project):
    run(project)
    before = files_of(project / "out")
    weights = torch.load(project / "model/gpt.pth")
    write_model(project / "model", number_text_tokens=40)
    larger = torch.load(project / "model/gpt.pth")
    torch.save(
        weights | {k: v for k, v in larger.items() if k.startswith("text_")}, project / "model/gpt.pth"
    )
    assert run(project).num_kept == 24
    assert files_of(project / "out") == before


def test_a_recording_that_changes_while_it_is_encoded_is_rejected(project, monkeypatch):
    def encode_all(self, utterances):
        write_audio(project / "data/audio/4.wav", 0.7, seed=98)
        measured = [replace(u, duration_s=soundfile.info(u.audio).duration) for u in utterances]
        yield from encode(self, measured)

    encode = ClipEncoder.encode_all
    monkeypatch.setattr(ClipEncoder, "encode_all", encode_all)
    result = run(project)
    assert [(one.id, one.code) for one in result.rejected] == [("a004", "changed")]
    monkeypatch.undo()
    again = run(project)
    assert (again.num_kept, again.rejected) == (24, [])
    assert len(store_of(project / "out").keys) == 24


def test_clips_beyond_the_limits_of_the_model_are_rejected_and_counted(project, caplog):  # D17
    manifest = project / "data/manifest.jsonl"
    for number, duration_s in enumerate((1.22, 3.0, 0.05, 1.215, 0.07)):
        write_audio(project / f"data/audio/x{number}.wav", duration_s, seed=number)
        line = {
            "id": f"x{number}",
            "audio": f"audio/x{number}.wav",
            "text": "ሀ",
            "speaker": "a",
            "duration": 1,
        }
        with manifest.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    assert str(run(project)).endswith("26 encoded, 0 kept, 3 rejected (2 too_long, 1 too_short)")
    assert " s: x2" in caplog.text
    assert "longer than 1.220 s: x0, x1" in caplog.text
    num_codes = {u.id: u.num_codes for u in read_utterances(project / "out/train_manifest.jsonl")}
    num_codes |= {u.id: u.num_codes for u in read_utterances(project / "out/val_manifest.jsonl")}
    assert (num_codes["x3"], num_codes["x4"]) == (60, 3)


def test_unreadable_recordings_are_listed_and_the_rest_is_encoded(project, caplog):
    wanted = spoil(project)
    result = run(project)
    assert {one.id: one.code for one in result.rejected} == wanted
    assert str(result).endswith(
        "17 encoded, 0 kept, 7 rejected (1 empty, 1 missing, 1 not_finite, 1 too_long, 1 too_short, "
        "1 truncated, 1 unreadable)"
    )
    rows = [json.loads(line) for line in (project / "out/rejected.jsonl").read_text().splitlines()]
    assert {row["id"]: row["code"] for row in rows} == wanted
    assert rows[0]["audio"] == str(project / "data/audio/0.wav")
    assert all(row["reason"] for row in rows)
    assert "3600.000 s" in rows[6]["reason"]
    assert "1.220 s" in rows[6]["reason"]
    written = utterances_of(project / "out")
    assert len(written) == 17
    assert not {utterance.id for utterance in written} & wanted.keys()
    assert " a004: " in caplog.text  # its header is valid


def test_a_repaired_recording_is_encoded_by_the_next_run(project):
    whole = (project / "data/audio/3.wav").read_bytes()
    (project / "data/audio/3.wav").write_bytes(whole[:1000])
    assert [one.id for one in run(project).rejected] == ["b003"]
    (project / "data/audio/3.wav").write_bytes(whole)
    again = run(project)
    assert (again.num_encoded, again.num_kept, again.rejected) == (1, 23, [])
    assert not (project / "out/rejected.jsonl").exists()


@pytest.mark.long
def test_most_recordings_rejected_is_status_1_after_the_others_are_written(project, capsys):
    for number in range(13):
        (project / f"data/audio/{number}.wav").write_bytes(b"no audio")
    with pytest.raises(UserError, match=r"/out/rejected\.jsonl") as caught:
        main(to_argv(command(project, val_ratio=0)))
    assert caught.value.exit_status == 1
    assert "11 encoded, 0 kept, 13 rejected (13 unreadable)" in capsys.readouterr().out
    assert len(read_utterances(project / "out/train_manifest.jsonl")) > 0


def test_no_recording_left_is_status_1_with_the_reasons_written(project):
    for number in range(24):
        (project / f"data/audio/{number}.wav").unlink()
    with pytest.raises(UserError, match=r"24 rejected \(24 missing\)") as caught:
        run(project)
    assert caught.value.exit_status == 1
    assert len((project / "out/rejected.jsonl").read_text().splitlines()) == 24


def test_a_disk_without_enough_space_is_an_error_before_encoding(project, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(1, 1, 0))
    with pytest.raises(UserError, match=r"24 utterances .*\d+\.\d+ kB.* 0 bytes") as caught:
        run(project)
    assert caught.value.exit_status == DISK_FULL


def test_a_checkpoint_that_does_not_match_is_an_error_before_anything_is_written(project):
    weights = torch.load(project / "model/gpt.pth", weights_only=True)
    torch.save({**weights, "gpt.h.1.ln_1.weight": torch.ones(16)}, project / "model/deeper.pth")
    with pytest.raises(UserError, match=r"gpt\.layers"):
        run(project, gpt_checkpoint=project / "model/deeper.pth")
    weights["emo_layer.bias"][0] = torch.nan
    torch.save(weights, project / "model/spoiled.pth")
    with pytest.raises(UserError, match=r"spoiled\.pth: .*emo_layer\.bias"):
        run(project, gpt_checkpoint=project / "model/spoiled.pth")
    assert not (project / "out").exists()


def test_the_manifest_in_the_output_folder_is_not_overwritten(project):
    run(project)
    with pytest.raises(UserError, match="--output-dir"):
        run(project, manifest=project / "out/train_manifest.jsonl")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_cuda_device_is_an_error(project):
    with pytest.raises(UserError, match="--device cuda: "):
        run(project, device="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_features_on_a_gpu_equal_those_on_a_cpu(project):
    run(project, device="cuda")
    shutil.move(project / "out", project / "moved")
    [path] = (project / "moved/features").glob("*.json")
    on_gpu = FeatureStore.open(path)
    run(project)
    for key in on_gpu.keys:
        np.testing.assert_array_equal(on_gpu.codes(key), store_of(project / "out").codes(key))
        np.testing.assert_allclose(on_gpu.condition(key), store_of(project / "out").condition(key), atol=1e-4)


@pytest.mark.long
@pytest.mark.slow
def test_a_killed_preprocessing_resumes_and_ends_byte_identical(tmp_path):  # D13
    write_dataset(tmp_path / "data", "ab" * 150, max_duration_s=0.4)
    write_model(tmp_path / "model")
    settings = command(tmp_path)
    arguments = [
        f"--{name.replace('_', '-')}={getattr(settings, name)}"
        for name in ("manifest", "output_dir", "config", "gpt_checkpoint", "latents", "val_ratio", "device")
    ]
    features = settings.output_dir / "features"
    kill_when(features, "*.json", arguments)
    kill_when(features, "codes/*/shard_00000", arguments)
    assert not (settings.output_dir / "train_manifest.jsonl").exists()
    kill_when(features, "conditioning/*/shard_00000", arguments)
    [path] = features.glob("*.json")
    assert 128 <= len(FeatureStore.open(path).keys) < 300

    assert 128 <= run(tmp_path).num_kept < 300
    resumed = files_of(settings.output_dir)
    shutil.rmtree(settings.output_dir)
    run(tmp_path)
    assert files_of(settings.output_dir) == resumed
