import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, namedtuple
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import yaml

from indextts.commands import Preprocess
from indextts.data import preprocess as preprocess_module
from indextts.data.feature_store import FeatureStore
from indextts.data.preprocess import PreprocessResult, preprocess
from indextts.data.split import split_utterances
from indextts.errors import UserError
from indextts.features import builtin
from indextts.features.audio import load_audio
from indextts.gpt.config import load_config
from indextts.gpt.initialise import random_model
from indextts.manifest import Utterance, read_utterances
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
        "val_ratio": 0.2,
        "device": "cpu",
    }
    return Preprocess.model_validate(settings | changes)


def run(project: Path, **changes: object) -> PreprocessResult:
    return preprocess(command(project, **changes))


def store_of(project: Path) -> FeatureStore:
    return FeatureStore.open(project / "out/features")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_every_utterance_has_codes_of_its_true_length(project):  # D1
    result = run(project)
    assert (result.num_train, result.num_val, result.num_encoded) == (20, 4, 24)
    store = store_of(project)
    written = read_utterances(project / "out/train_manifest.jsonl")
    written += read_utterances(project / "out/val_manifest.jsonl")
    assert sorted(u.id for u in written) == sorted(store.ids)
    for utterance in written:
        num_samples = soundfile.info(utterance.audio).frames
        assert utterance.num_codes == num_samples // 480 == len(store.codes(utterance.id))
        assert utterance.features == project / "out/features"
        assert store.codes(utterance.id).max() < 16


def test_features_are_those_of_the_clip_alone(project):  # pitfalls 9 and 10
    run(project)
    store = store_of(project)
    backend = builtin.load(project / "out/features/builtin.npz")
    model = random_model(load_config(project / "model/config.yaml"), seed=0).eval()
    for utterance in read_utterances(project / "data/manifest.jsonl"):
        features = backend.features(load_audio(utterance.audio, 24_000))
        with torch.no_grad():
            condition, emo_vec = model.conditioning(features[None])[0], model.emotion(features[None])[0]
        np.testing.assert_array_equal(store.codes(utterance.id), backend.codes(features))
        np.testing.assert_allclose(store.condition(utterance.id), condition, rtol=0, atol=1e-5)
        np.testing.assert_allclose(store.emo_vec(utterance.id), emo_vec, rtol=0, atol=1e-5)


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
    first = {id: store_of(project).codes(id).tolist() for id in store_of(project).ids}
    manifest.write_text(whole, encoding="utf-8")
    result = run(project)
    assert (result.num_encoded, result.num_kept) == (9, 15)
    assert len(store_of(project).ids) == 24
    assert all(store_of(project).codes(id).tolist() == codes for id, codes in first.items())


def test_a_recording_that_changed_under_its_id_is_encoded_anew(project, caplog):  # D3
    run(project)
    write_audio(project / "data/audio/0.wav", 0.9, seed=99)
    result = run(project)
    assert "1 recordings changed since they were encoded and are encoded anew: a000" in caplog.text
    assert (result.num_encoded, result.num_kept) == (24, 0)  # the whole shard
    assert store_of(project).num_codes("a000") == 45


def test_features_of_another_base_checkpoint_or_config_are_refused(project):  # D3
    run(project)
    before = files_of(project / "out")
    write_model(project / "model", seed=1)
    with pytest.raises(UserError, match="made with another base checkpoint or config, choose another"):
        run(project)
    write_model(project / "model", number_mel_codes=20, start_mel_token=18, stop_mel_token=19)
    with pytest.raises(UserError, match="have 16 codes, the config asks for 18"):
        run(project)
    assert files_of(project / "out") == before


def test_another_vocabulary_leaves_features_valid(project):
    run(project)
    weights = torch.load(project / "model/gpt.pth")
    write_model(project / "model", number_text_tokens=40)
    larger = torch.load(project / "model/gpt.pth")
    torch.save(
        weights | {k: v for k, v in larger.items() if k.startswith("text_")}, project / "model/gpt.pth"
    )
    assert run(project).num_kept == 24


def test_another_codebook_is_refused(project):
    run(project)
    builtin.fit([project / "data/audio/6.wav"], 16, seed=1).save(project / "out/features/builtin.npz")
    with pytest.raises(UserError, match="made with another codebook"):
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
    assert store_of(project).num_codes("x3") == 60
    assert store_of(project).num_codes("x4") == 3


def test_a_full_disk_is_told_before_the_work(project, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(preprocess_module.shutil, "disk_usage", lambda folder: usage(1, 1, 0))
    with pytest.raises(UserError, match=r"24 utterances need 0\.0 GB, the disk has 0\.0 GB left"):
        run(project)


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
    on_card = FeatureStore.open(project / "card/features")
    run(project)
    for id in on_card.ids:
        np.testing.assert_array_equal(on_card.codes(id), store_of(project).codes(id))
        np.testing.assert_allclose(on_card.condition(id), store_of(project).condition(id), atol=1e-4)


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


def utterances(speakers: str) -> list[Utterance]:
    return [Utterance(f"{s}{n}", Path(f"/{s}{n}"), "ሀ", s, 1.0) for n, s in enumerate(speakers)]


def test_the_split_is_disjoint_and_takes_a_share_of_each_speaker():
    everything = utterances("a" * 100 + "b" * 6 + "c" * 5 + "d" * 40)
    split = split_utterances(everything, 0.1, seed=0)
    assert Counter(u.speaker for u in split.val) == {"a": 10, "b": 2, "d": 4}
    assert split.small_speakers == ["c"]
    assert {u.id for u in split.train} | {u.id for u in split.val} == {u.id for u in everything}
    assert len(split.train) + len(split.val) == len(everything)


def test_the_split_depends_on_ids_and_seed_and_not_on_the_order():
    everything = utterances("a" * 50 + "b" * 50)
    ids = {u.id for u in split_utterances(everything, 0.1, seed=0).val}
    assert {u.id for u in split_utterances(everything[::-1], 0.1, seed=0).val} == ids
    assert {u.id for u in split_utterances(everything, 0.1, seed=1).val} != ids


def test_even_a_large_ratio_leaves_a_pair_to_train_on():
    split = split_utterances(utterances("a" * 8), 0.99, seed=0)
    assert (len(split.train), len(split.val)) == (2, 6)


def kill_when(path: Path, arguments: list[str]) -> None:
    """Run the program and kill it in the moment in which `path` exists."""
    program = subprocess.Popen(
        [sys.executable, "-m", "tools.preprocess_data", *arguments],
        stdout=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 60
    while not path.exists() and program.poll() is None and time.monotonic() < deadline:
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
        for name in ("manifest", "output_dir", "config", "gpt_checkpoint", "val_ratio", "device")
    ]
    features = settings.output_dir / "features"
    kill_when(features / "store.json", arguments)
    kill_when(features / "shard_00000", arguments)
    assert not (settings.output_dir / "train_manifest.jsonl").exists()
    assert 128 <= len(FeatureStore.open(features).ids) < 300

    result = run(tmp_path)
    assert 128 <= result.num_kept < 300
    resumed = files_of(settings.output_dir)
    shutil.rmtree(settings.output_dir)
    run(tmp_path)
    assert files_of(settings.output_dir) == resumed
