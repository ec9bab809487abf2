import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
import torch
import yaml

from indextts.command_line import to_argv
from indextts.commands import Preprocess
from indextts.data import preprocess as preprocess_module
from indextts.data.encoding import ClipEncoder
from indextts.data.feature_store import FeatureStore
from indextts.data.preprocess import PreprocessResult, preprocess
from indextts.errors import DISK_FULL, UserError
from indextts.features import builtin
from indextts.features.audio import load_audio
from indextts.gpt.config import load_config
from indextts.gpt.initialise import random_model
from indextts.manifest import read_utterances, write_utterances
from tools.preprocess_data import main

CONDITION_MODULE = {
    "output_size": 8,
    "linear_units": 16,
    "attention_heads": 2,
    "num_blocks": 1,
    "input_layer": "conv2d2",
    "perceiver_mult": 1,
}
TINY_GPT = {
    "model_dim": 16,
    "layers": 1,
    "heads": 2,
    "max_mel_tokens": 60,  # 1.2 s
    "max_text_tokens": 20,
    "number_text_tokens": 30,
    "number_mel_codes": 18,
    "start_mel_token": 16,
    "stop_mel_token": 17,
    "start_text_token": 0,
    "stop_text_token": 1,
    "condition_module": CONDITION_MODULE,
    "emo_condition_module": CONDITION_MODULE,
    "emo_perceiver_dim": 16,
    "num_latents": 4,
    "pe_length": 100,
}


def write_audio(path: Path, duration_s: float, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    times = np.arange(round(duration_s * 24_000)) / 24_000
    tone = np.sin(2 * np.pi * rng.uniform(100, 4000) * times) * rng.uniform(0.1, 0.5)
    soundfile.write(path, tone + rng.normal(0, 0.02, len(times)), 24_000)


def write_dataset(folder: Path, speakers: str, max_duration_s: float = 1.0) -> Path:
    """Write one recording per letter of `speakers`, 0.3 s or longer; return their manifest."""
    lines = []
    for number, speaker in enumerate(speakers):
        duration_s = 0.3 + (max_duration_s - 0.3) * (number % 7) / 7
        write_audio(folder / f"audio/{number}.wav", duration_s, seed=number)
        line = {"id": f"{speaker}{number:03d}", "audio": f"audio/{number}.wav", "text": f"ሰላም {number}"}
        lines.append(
            json.dumps(line | {"speaker": speaker, "duration": duration_s}, ensure_ascii=False) + "\n"
        )
    (folder / "manifest.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder / "manifest.jsonl"


def write_model(folder: Path, seed: int = 0, **changes: object) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"gpt": TINY_GPT | changes}))
    model = random_model(load_config(folder / "config.yaml"), seed)
    torch.save(model.state_dict(), folder / "gpt.pth")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a data set of 24 clips by a, b (11 each) and c (2), and a tiny model."""
    write_dataset(tmp_path / "data", "ab" * 11 + "cc")
    write_model(tmp_path / "model")
    return tmp_path


def command(project: Path, **changes: object) -> Preprocess:
    settings: dict[str, object] = {
        "manifest": project / "data/manifest.jsonl",
        "output_dir": project / "out",
        "config": project / "model/config.yaml",
        "gpt_checkpoint": project / "model/gpt.pth",
        "latents": "float32",
        "val_ratio": 0.2,
        "device": "cpu",
    }
    return Preprocess.model_validate(settings | changes)


def run(project: Path, **changes: object) -> PreprocessResult:
    return preprocess(command(project, **changes))


def store_of(project: Path) -> FeatureStore:
    features = read_utterances(project / "out/train_manifest.jsonl")[0].features
    assert features is not None
    return FeatureStore.open(features)


def codes_by_key(project: Path) -> dict[str, list[int]]:
    return {key: store_of(project).codes(key).tolist() for key in store_of(project).keys}


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_every_utterance_has_codes_of_its_true_length(project):  # D1
    result = run(project)
    assert (result.num_train, result.num_val, result.num_encoded) == (20, 4, 24)
    store = store_of(project)
    written = read_utterances(project / "out/train_manifest.jsonl")
    written += read_utterances(project / "out/val_manifest.jsonl")
    assert sorted(u.features_key for u in written) == sorted(store.keys)
    for utterance in written:
        num_samples = soundfile.info(utterance.audio).frames
        codes = store.codes(utterance.features_key)
        assert utterance.num_codes == num_samples // 480 == len(codes)
        assert utterance.features_key == hashlib.sha256(utterance.audio.read_bytes()).hexdigest()
        assert codes.max() < 16


def test_features_are_those_of_the_clip_alone(project):  # pitfalls 9 and 10
    run(project)
    store = store_of(project)
    backend = builtin.load(project / "out/features/builtin.npz")
    model = random_model(load_config(project / "model/config.yaml"), seed=0).eval()
    for utterance in read_utterances(project / "out/train_manifest.jsonl"):
        key = utterance.features_key
        features = backend.features(load_audio(utterance.audio, 24_000))
        with torch.no_grad():
            condition, emo_vec = model.conditioning(features[None])[0], model.emotion(features[None])[0]
        np.testing.assert_array_equal(store.codes(key), backend.codes(features))
        np.testing.assert_allclose(store.condition(key), condition, rtol=0, atol=1e-5)
        np.testing.assert_allclose(store.emo_vec(key), emo_vec, rtol=0, atol=1e-5)


def test_preprocessing_twice_changes_nothing(project):  # D12, D19
    run(project)
    before = files_of(project / "out")
    result = run(project)
    assert (result.num_encoded, result.num_kept) == (0, 24)
    assert files_of(project / "out") == before


def test_features_do_not_depend_on_the_order_of_lines(project):
    run(project)
    before = files_of(project / "out")
    manifest = project / "data/manifest.jsonl"
    lines = manifest.read_text(encoding="utf-8").splitlines(keepends=True)
    manifest.write_text("".join(reversed(lines)), encoding="utf-8")
    shutil.rmtree(project / "out")
    run(project)
    assert files_of(project / "out") == before


def test_new_utterances_are_added_to_the_old_ones(project):
    manifest = project / "data/manifest.jsonl"
    whole = manifest.read_text(encoding="utf-8")
    manifest.write_text("".join(whole.splitlines(keepends=True)[:15]), encoding="utf-8")
    run(project)
    first = codes_by_key(project)
    shards = files_of(project / "out/features/codes") | files_of(project / "out/features/conditioning")
    manifest.write_text(whole, encoding="utf-8")
    result = run(project)
    assert (result.num_encoded, result.num_kept) == (9, 15)
    assert len(store_of(project).keys) == 24
    assert codes_by_key(project).items() >= first.items()
    now = files_of(project / "out/features/codes") | files_of(project / "out/features/conditioning")
    assert now.items() > shards.items()


def test_a_recording_that_changed_under_its_id_costs_itself_alone(project):  # D3
    run(project)
    first = codes_by_key(project)
    [old] = [u for u in read_utterances(project / "out/train_manifest.jsonl") if u.id == "a002"]
    write_audio(old.audio, 0.9, seed=99)
    result = run(project)
    assert (result.num_encoded, result.num_kept) == (1, 23)
    [new] = [u for u in read_utterances(project / "out/train_manifest.jsonl") if u.id == "a002"]
    assert (old.num_codes, new.num_codes) == (len(first[old.features_key]), 45)
    assert old.features_key != new.features_key
    assert codes_by_key(project).items() > first.items()  # nothing is taken from who still needs it


def test_other_ids_speakers_texts_and_splits_cost_nothing(project):
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
    written = read_utterances(project / "out/train_manifest.jsonl")
    written += read_utterances(project / "out/val_manifest.jsonl")
    assert {u.id: u.audio for u in written} == {u.id: u.audio for u in renamed}
    for utterance in written:
        assert utterance.features_key == hashlib.sha256(utterance.audio.read_bytes()).hexdigest()


def test_utterances_with_the_same_recording_share_its_features(project):
    (project / "data/audio/copy.wav").write_bytes((project / "data/audio/0.wav").read_bytes())
    manifest = project / "data/manifest.jsonl"
    first, *rest = read_utterances(manifest)
    copies = [replace(first, id="copy", audio=project / "data/audio/copy.wav"), replace(first, id="again")]
    write_utterances(manifest, [first, *rest, *copies])
    result = run(project, val_ratio=0)
    assert (result.num_train, result.num_encoded, result.num_kept) == (26, 24, 0)
    assert len(store_of(project).keys) == 24
    written = {u.id: u for u in read_utterances(project / "out/train_manifest.jsonl")}
    assert written["copy"].features_key == written["again"].features_key == written["a000"].features_key
    assert run(project, val_ratio=0).num_kept == 26


def test_another_base_checkpoint_redoes_the_conditioning_alone_and_the_former_one_is_found_again(project):
    run(project)
    first, before = store_of(project), files_of(project / "out")
    old_weights = (project / "model/gpt.pth").read_bytes()
    write_model(project / "model", seed=1)
    result = run(project)
    assert (result.num_encoded, result.num_kept) == (24, 0)
    second, after = store_of(project), files_of(project / "out")
    assert second.info.encoders_identity != first.info.encoders_identity
    assert {name for name in after if "/codes/" in name} == {name for name in before if "/codes/" in name}
    assert {name: after[name] for name in before if "manifest" not in name}.items() <= before.items()
    for key in first.keys:
        assert second.codes(key).tolist() == first.codes(key).tolist()
        assert not np.allclose(second.condition(key), first.condition(key))
    (project / "model/gpt.pth").write_bytes(old_weights)
    result = run(project)
    assert (result.num_encoded, result.num_kept) == (0, 24)
    assert files_of(project / "out") == after | before  # the manifests name the first again


def test_another_number_of_codes_is_refused(project):
    run(project)
    before = files_of(project / "out")
    write_model(project / "model", number_mel_codes=20, start_mel_token=18, stop_mel_token=19)
    with pytest.raises(UserError, match="have 16 codes, the config asks for 18"):
        run(project)
    assert files_of(project / "out") == before


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


def test_features_of_another_codebook_are_not_mixed_with_the_first(project):  # D3
    run(project)
    first = store_of(project)
    builtin.fit([project / "data/audio/6.wav"], 16, seed=1).save(project / "out/features/builtin.npz")
    assert run(project).num_encoded == 24
    second = store_of(project)
    assert second.info.backend_identity != first.info.backend_identity
    assert first.keys == second.keys
    assert any(first.codes(key).tolist() != second.codes(key).tolist() for key in first.keys)


@pytest.mark.parametrize(("latents", "most"), [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_latents_may_be_stored_in_half_the_room_with_a_loss_of_half_a_digit(project, latents, most):
    run(project)
    exact = store_of(project)
    assert run(project, latents=latents).num_encoded == 24
    rounded = store_of(project)
    for key in exact.keys:
        error = np.abs(rounded.condition(key) - exact.condition(key))
        assert 0 < error.max() <= most * np.abs(exact.condition(key)).max()
        np.testing.assert_array_equal(rounded.emo_vec(key), exact.emo_vec(key))
    assert Preprocess.model_fields["latents"].default == "float16"


def test_a_recording_that_changes_while_it_is_encoded_is_not_taken_for_what_it_was(project, monkeypatch):
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
    assert len(store_of(project).keys) == 24


def test_features_of_the_format_before_are_told_to_be_made_again(project):
    (project / "out/features").mkdir(parents=True)
    (project / "out/features/store.json").write_text("{}")
    with pytest.raises(UserError, match="of a format that is no longer read, choose another --output-dir"):
        run(project)


def test_clips_that_the_model_cannot_take_are_excluded_and_counted(project, caplog):  # D17
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
    result = run(project)
    assert str(result).endswith("26 encoded, 0 kept, 3 rejected (2 too_long, 1 too_short)")
    assert "1 recordings are rejected, they have fewer than 3 codes: x2" in caplog.text
    assert "2 recordings are rejected, they have more than 60 codes: x0, x1" in caplog.text
    num_codes = {u.id: u.num_codes for u in read_utterances(project / "out/train_manifest.jsonl")}
    num_codes |= {u.id: u.num_codes for u in read_utterances(project / "out/val_manifest.jsonl")}
    assert (num_codes["x3"], num_codes["x4"]) == (60, 3)


def spoil(project: Path) -> dict[str, str]:
    """Break recordings of the data set in all ways; return what is wrong with each, by id."""
    audio = project / "data/audio"
    whole = {number: (audio / f"{number}.wav").read_bytes() for number in range(24)}
    (audio / "0.wav").unlink()
    (audio / "1.wav").write_bytes(b"no audio")
    (audio / "2.wav").write_bytes(b"")
    (audio / "3.wav").write_bytes(whole[3][: len(whole[3]) // 2])
    soundfile.write(audio / "4.wav", np.full(9600, np.nan), 24_000, subtype="FLOAT")
    write_audio(audio / "5.wav", 0.05, seed=5)
    soundfile.write(audio / "6.wav", np.zeros(8_000 * 3600, np.int16), 8_000)
    codes = ("missing", "unreadable", "empty", "truncated", "not_finite", "too_short", "too_long")
    return {f"{'ab'[number % 2]}{number:03d}": code for number, code in enumerate(codes)}


def test_broken_recordings_are_rows_and_the_others_are_encoded(project, caplog):
    wanted = spoil(project)
    result = run(project)
    assert {one.id: one.code for one in result.rejected} == wanted
    assert str(result).endswith(
        "17 encoded, 0 kept, 7 rejected (1 missing, 1 unreadable, 1 empty, 1 truncated, 1 not_finite, "
        "1 too_short, 1 too_long)"
    )
    rows = [json.loads(line) for line in (project / "out/rejected.jsonl").read_text().splitlines()]
    assert {row["id"]: row["code"] for row in rows} == wanted
    assert rows[0]["audio"] == str(project / "data/audio/0.wav")
    assert rows[0]["reason"] == "there is no such file, restore it or remove its line"
    assert "lasts 3600.000 s, the model takes 1.220 s" in rows[6]["reason"]
    written = read_utterances(project / "out/train_manifest.jsonl")
    written += read_utterances(project / "out/val_manifest.jsonl")
    assert len(written) == 17
    assert not {utterance.id for utterance in written} & wanted.keys()
    assert "a004 is rejected" in caplog.text  # its header is right


def test_a_repaired_recording_is_encoded_by_the_next_run(project):
    whole = (project / "data/audio/3.wav").read_bytes()
    (project / "data/audio/3.wav").write_bytes(whole[:1000])
    assert [one.id for one in run(project).rejected] == ["b003"]
    (project / "data/audio/3.wav").write_bytes(whole)
    again = run(project)
    assert (again.num_encoded, again.num_kept, again.rejected) == (1, 23, [])
    assert not (project / "out/rejected.jsonl").exists()


def test_both_utterances_of_a_broken_recording_are_rejected(project):
    for number in (0, 1):
        soundfile.write(project / f"data/audio/{number}.wav", np.full(9600, np.inf), 24_000, subtype="FLOAT")
    assert [(one.id, one.code) for one in run(project).rejected] == [
        ("a000", "not_finite"),
        ("b001", "not_finite"),
    ]


def test_most_recordings_rejected_is_status_1_after_the_others_are_written(project, capsys):
    for number in range(13):
        (project / f"data/audio/{number}.wav").write_bytes(b"no audio")
    with pytest.raises(UserError, match=r"most recordings were rejected; .*/out/rejected\.jsonl") as caught:
        main(to_argv(command(project, val_ratio=0)))
    assert caught.value.exit_status == 1
    assert "11 encoded, 0 kept, 13 rejected (13 unreadable)" in capsys.readouterr().out
    assert len(read_utterances(project / "out/train_manifest.jsonl")) > 0


def test_no_recording_left_is_status_1_with_the_reasons_written(project):
    for number in range(24):
        (project / f"data/audio/{number}.wav").unlink()
    with pytest.raises(UserError, match=r"no recording can be used, 24 rejected \(24 missing\)") as caught:
        run(project)
    assert caught.value.exit_status == 1
    assert len((project / "out/rejected.jsonl").read_text().splitlines()) == 24


def test_any_rate_number_of_channels_and_format_is_encoded(project):
    samples, _ = soundfile.read(project / "data/audio/6.wav")  # 0.9 s
    lines = []
    for number, (rate_hz, num_channels, suffix, subtype) in enumerate(
        [
            (8_000, 1, "wav", "PCM_U8"),
            (96_000, 2, "wav", "FLOAT"),
            (24_000, 6, "wav", "DOUBLE"),
            (44_100, 2, "flac", "PCM_24"),
            (48_000, 1, "ogg", "VORBIS"),
            (48_000, 2, "opus", "OPUS"),
            (44_100, 1, "mp3", "MPEG_LAYER_III"),
        ]
    ):
        path = project / f"data/audio/f{number}.{suffix}"
        sound = np.tile(soxr.resample(samples, 24_000, rate_hz)[:, None], (1, num_channels))
        container = {"opus": "OGG"}.get(suffix, suffix.upper())
        soundfile.write(path, sound, rate_hz, format=container, subtype=subtype)
        line = {
            "id": f"f{number}",
            "audio": f"audio/{path.name}",
            "text": "ሀ",
            "speaker": "f",
            "duration": 0.9,
        }
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    (project / "data/manifest.jsonl").write_text("".join(lines), encoding="utf-8")
    result = run(project, val_ratio=0)
    assert (result.num_train, result.rejected) == (7, [])
    num_codes = [u.num_codes for u in read_utterances(project / "out/train_manifest.jsonl")]
    assert num_codes == [45] * 7


def test_a_full_disk_is_told_before_the_work(project, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(preprocess_module.shutil, "disk_usage", lambda folder: usage(1, 1, 0))
    with pytest.raises(
        UserError, match=r"24 utterances need \d+\.\d+ kB, the disk has 0 bytes left"
    ) as caught:
        run(project)
    assert caught.value.exit_status == DISK_FULL


def test_without_a_ratio_there_is_no_validation_manifest(project):
    run(project)
    result = run(project, val_ratio=0)
    assert (result.num_train, result.num_val) == (24, 0)
    assert not (project / "out/val_manifest.jsonl").exists()
    assert len(read_utterances(project / "out/train_manifest.jsonl")) == 24


def test_a_ratio_that_keeps_nothing_is_refused_before_the_work(project):  # D16
    write_dataset(project / "data", "aaaaabbbbb")
    with pytest.raises(UserError, match=r"--val-ratio 0\.2 keeps no utterance for validation"):
        run(project)
    assert not (project / "out").exists()


def test_a_missing_checkpoint_is_told_before_anything_is_written(project):
    (project / "model/gpt.pth").unlink()
    with pytest.raises(UserError, match=r"gpt\.pth"):
        run(project)
    assert not (project / "out").exists()


def test_a_checkpoint_that_does_not_fit_is_told_before_anything_is_written(project):
    weights = torch.load(project / "model/gpt.pth", weights_only=True)
    torch.save({**weights, "gpt.h.1.ln_1.weight": torch.ones(16)}, project / "model/deeper.pth")
    with pytest.raises(
        UserError, match=r"the checkpoint has 2 blocks gpt\.h\.N, gpt\.layers in the config says 1"
    ):
        run(project, gpt_checkpoint=project / "model/deeper.pth")
    weights["emo_layer.bias"][0] = torch.nan
    torch.save(weights, project / "model/spoiled.pth")
    with pytest.raises(
        UserError, match=r"spoiled\.pth: 1 of \d+ weights hold NaN or infinity: emo_layer\.bias"
    ):
        run(project, gpt_checkpoint=project / "model/spoiled.pth")
    assert not (project / "out").exists()


def test_a_file_in_the_way_of_the_folder_is_named(project):
    (project / "out").write_text("x")
    with pytest.raises(UserError, match="out/features: cannot be made"):
        run(project)


def test_the_manifest_in_the_output_folder_is_not_overwritten(project):
    run(project)
    with pytest.raises(UserError, match="would be overwritten, choose another --output-dir"):
        run(project, manifest=project / "out/train_manifest.jsonl")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"start_mel_token": 3}, "must be the last 2 of number_mel_codes"),
        ({"feature_dim": 512}, "feature_dim is 512, the speech encoder makes 1024"),
        ({"number_mel_codes": 2000, "start_mel_token": 1998, "stop_mel_token": 1999}, "asks for 1998 codes"),
    ],
)
def test_a_config_that_does_not_fit_the_speech_encoder_is_refused(project, changes, what):
    write_model(project / "model", **changes)
    with pytest.raises(UserError, match=what):
        run(project)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_cuda_device_is_a_sentence(project):
    with pytest.raises(UserError, match="no CUDA device was found"):
        run(project, device="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_features_on_a_card_are_those_on_a_cpu(project):
    run(project, device="cuda")
    shutil.move(project / "out", project / "card")
    [path] = (project / "card/features").glob("*.json")
    on_card = FeatureStore.open(path)
    run(project)
    for key in on_card.keys:
        np.testing.assert_array_equal(on_card.codes(key), store_of(project).codes(key))
        np.testing.assert_allclose(on_card.condition(key), store_of(project).condition(key), atol=1e-4)


def test_the_program_prints_a_short_result(project, capsys):
    settings = command(project)
    assert (
        main(
            [
                f"--manifest={settings.manifest}",
                f"--output-dir={settings.output_dir}",
                f"--config={settings.config}",
                f"--gpt-checkpoint={settings.gpt_checkpoint}",
            ]
        )
        == 0
    )
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"{project}/out: 20 utterances for training, 4 for validation; 24 encoded, 0 kept, 0 rejected"
    )


def kill_when(folder: Path, pattern: str, arguments: list[str]) -> None:
    """Run the program and kill it in the moment in which the folder has what matches `pattern`."""
    program = subprocess.Popen(
        [sys.executable, "-m", "tools.preprocess_data", *arguments],
        stdout=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 60
    while not any(folder.glob(pattern)) and program.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    program.send_signal(signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL, "it ended before it was killed"


@pytest.mark.slow
def test_a_killed_preprocessing_goes_on_and_ends_byte_identical(tmp_path):  # D13
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

    result = run(tmp_path)
    assert 128 <= result.num_kept < 300
    resumed = files_of(settings.output_dir)
    shutil.rmtree(settings.output_dir)
    run(tmp_path)
    assert files_of(settings.output_dir) == resumed
