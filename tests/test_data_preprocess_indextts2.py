"""Tests of preprocessing with the backend of the published weights, on the recordings of the demo."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import yaml

from indextts.commands.data import Preprocess
from indextts.commands.terminal import to_argv
from indextts.data.batch_sizing import Throughput
from indextts.data.encoding import ClipEncoder
from indextts.data.preprocess import preprocess
from indextts.errors import UserError
from indextts.features import indextts2
from indextts.features.audio import load_audio
from indextts.models.checkpoint import read_weights
from indextts.models.gpt.config import load_config
from indextts.models.gpt.weights import load_model
from tests.conftest import REPOSITORY
from tests.preprocess_project import store_of, utterances_of
from tests.published_files import write_published_files
from tools.preprocess_data import main

NUM_CLIPS = 6


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_published_files(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Manifest of a few clips of one speaker of the demo, and of short clips cut from the first."""
    folder = tmp_path_factory.mktemp("data")
    lines = (REPOSITORY / "demo/manifest.jsonl").read_text(encoding="utf-8").splitlines()[:NUM_CLIPS]
    utterances = [json.loads(line) | {"speaker": "a"} for line in lines]
    for utterance in utterances:
        utterance["audio"] = str(REPOSITORY / "demo" / utterance["audio"])
    samples = load_audio(Path(utterances[0]["audio"]), 24_000)
    # 74 ms have two codes, one fewer than the conformer needs; 75.2 and 76 ms have three
    for num_samples in (1776, 1805, 1824):
        path = folder / f"{num_samples}.wav"
        soundfile.write(path, samples[10_000 : 10_000 + num_samples], 24_000, subtype="FLOAT")
        short = {"id": f"short_{num_samples}", "audio": str(path), "duration": num_samples / 24_000}
        utterances.append(utterances[0] | short)
    text = "".join(json.dumps(utterance, ensure_ascii=False) + "\n" for utterance in utterances)
    (folder / "manifest.jsonl").write_text(text, encoding="utf-8")
    return folder / "manifest.jsonl"


def command(model: Path, data: Path, output_dir: Path, **changes: object) -> Preprocess:
    settings: dict[str, object] = {
        "manifest": data,
        "output_dir": output_dir,
        "latents": "float32",
        "config": model / "config.yaml",
        "gpt_checkpoint": model / "gpt.pth",
        "backend": "indextts2",
        "speech_encoder": model / "w2v-bert-2.0",
        "semantic_codec": model / "semantic_codec/model.safetensors",
        "stats": model / "wav2vec2bert_stats.pt",
        "val_ratio": 0.4,
        "device": "cpu",
    }
    return Preprocess.model_validate(settings | changes)


def encoder_of(model: Path, batch_s: float = 0) -> ClipEncoder:
    files = (model / "w2v-bert-2.0", model / "semantic_codec/model.safetensors")
    stats = model / "wav2vec2bert_stats.pt"
    backend = indextts2.load(model / "config.yaml", *files, stats, torch.device("cpu"))
    weights = read_weights(model / "gpt.pth")
    gpt = load_model(load_config(model / "config.yaml"), weights, "gpt.pth").eval()
    return ClipEncoder(backend, gpt, torch.device("cpu"), Throughput(batch_s, num_readers=1, num_threads=2))


@pytest.mark.parametrize(
    ("changes", "flag"),
    [({"amp": True}, "--amp"), ({"backend": "builtin"}, "builtin"), ({"engine": "ray"}, "--engine ray")],
)
def test_a_faster_encoder_refuses_other_flags_of_precision_and_engine(
    model: Path, data: Path, tmp_path: Path, changes: dict[str, object], flag: str
):
    settings = {"encoder_precision": "split", **changes}
    with pytest.raises(UserError, match=flag):
        preprocess(command(model, data, tmp_path / "out", **settings))


def test_the_tool_encodes_each_recording_as_if_alone_and_resumes(model, data, tmp_path, capsys, caplog):
    assert main(to_argv(command(model, data, tmp_path / "out"))) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"{tmp_path}/out: 5 utterances for training, 3 for validation; 8 encoded, 0 kept, "
        "1 rejected (1 too_short)"
    )
    assert " s: short_1776" in caplog.text
    assert "--backend builtin" not in caplog.text
    store = store_of(tmp_path / "out")
    assert store.info.backend == "indextts2"
    encoder = encoder_of(model)
    written = utterances_of(tmp_path / "out")
    assert sorted(u.features_key for u in written) == sorted(store.keys)
    assert len(written) == NUM_CLIPS + 2
    for utterance in written:
        with torch.inference_mode():
            features = encoder.backend.features(load_audio(utterance.audio, 24_000))
            condition = encoder.model.conditioning(features[None])[0]
            emo_vec = encoder.model.emotion(features[None])[0]
        num_codes = int((utterance.duration_s - 0.015) * 50)
        assert utterance.num_codes == len(features) == num_codes == store.num_codes(utterance.features_key)
        np.testing.assert_array_equal(store.codes(utterance.features_key), encoder.backend.codes(features))
        np.testing.assert_allclose(store.condition(utterance.features_key), condition, rtol=0, atol=1e-5)
        np.testing.assert_allclose(store.emo_vec(utterance.features_key), emo_vec, rtol=0, atol=1e-5)
    again = preprocess(command(model, data, tmp_path / "out"))
    assert (again.num_encoded, again.num_kept, len(again.rejected)) == (0, 8, 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("section", "changes", "what"),
    [
        ("gpt", {"feature_dim": 48}, "feature_dim is 48, .* 32"),
        (
            "gpt",
            {"number_mel_codes": 34, "start_mel_token": 32, "stop_mel_token": 33},
            "codebook_size is 64, .*number_mel_codes .* 32 codes",
        ),
        ("semantic_codec", {"codebook_size": 32}, r"codebook\.weight is \(64, 8\), expected \(32, 8\)"),
    ],
)
def test_a_config_that_does_not_match_the_codec_is_refused(model, data, tmp_path, section, changes, what):
    content = yaml.safe_load((model / "config.yaml").read_text())
    content[section] |= changes
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match=what):
        preprocess(command(model, data, tmp_path / "out", config=tmp_path / "config.yaml"))
    assert not (tmp_path / "out").exists()
