import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import SeamlessM4TFeatureExtractor, Wav2Vec2BertModel

from indextts.errors import UserError
from indextts.features.campplus import CAMPPlus, CAMPPlusConfig
from indextts.features.log_mel import log_mel_pairs, num_vectors
from indextts.features.speech_encoder import SpeechEncoder, load_speech_encoder
from tests.published_files import FEATURE_DIM, noisy_speech, randomise, write_speech_encoder, write_stats


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("speech")
    write_speech_encoder(folder / "w2v-bert-2.0")
    write_stats(folder / "stats.pt")
    return folder


@pytest.fixture
def copied(files, tmp_path) -> Path:
    """Copy of the files for tests that change them."""
    return Path(shutil.copytree(files, tmp_path / "speech"))


@pytest.fixture(scope="module")
def encoder(files) -> SpeechEncoder:
    return load(files)


def load(folder: Path) -> SpeechEncoder:
    return load_speech_encoder(folder / "w2v-bert-2.0", folder / "stats.pt")


@pytest.mark.parametrize("num_samples", [16_000, 16_160, 560, 719, 40_240])
@torch.no_grad()
def test_features_equal_layer_17_of_the_full_model(files, encoder, num_samples):
    extractor = SeamlessM4TFeatureExtractor.from_pretrained(files / "w2v-bert-2.0")
    whole = Wav2Vec2BertModel.from_pretrained(files / "w2v-bert-2.0").eval()
    stats = torch.load(files / "stats.pt", weights_only=True)
    inputs = extractor(noisy_speech(num_samples), sampling_rate=16_000, return_tensors="pt")
    states = whole(**inputs, output_hidden_states=True).hidden_states[17][0]
    wanted = (states - stats["mean"]) / stats["var"].sqrt()
    num_real = int(inputs["attention_mask"].sum())
    assert num_real == num_vectors(num_samples)
    (found,) = encoder([torch.from_numpy(log_mel_pairs(noisy_speech(num_samples)))])
    assert found.shape == (num_real, FEATURE_DIM)
    torch.testing.assert_close(found, wanted[:num_real], rtol=0, atol=1e-4)
    # An odd last frame has the features of the published inference.
    pairs = torch.from_numpy(log_mel_pairs(noisy_speech(num_samples), keeps_odd_frame=True))
    (found,) = encoder([pairs], [num_real])
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)


def test_the_identity_changes_with_everything_that_features_depend_on(files, encoder, copied):
    identity = encoder.identity()
    assert load(files).identity() == identity
    folder = copied / "w2v-bert-2.0"
    weights = load_file(folder / "model.safetensors")
    unheard = weights | {"encoder.layers.18.ffn1.output_dense.bias": torch.zeros(FEATURE_DIM)}
    save_file(unheard, folder / "model.safetensors")
    assert load(copied).identity() == identity
    save_file(
        weights | {"encoder.layers.16.ffn1.output_dense.bias": torch.zeros(FEATURE_DIM)},
        folder / "model.safetensors",
    )
    assert load(copied).identity() != identity
    save_file(weights, folder / "model.safetensors")
    change_json(folder / "config.json", layer_norm_eps=1e-3)
    assert load(copied).identity() != identity
    shutil.copy(files / "w2v-bert-2.0/config.json", folder)
    write_stats(copied / "stats.pt", seed=1)
    assert load(copied).identity() != identity


def change_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_error_names_every_missing_unexpected_and_misshapen_tensor(copied):
    path = copied / "w2v-bert-2.0/model.safetensors"
    weights = load_file(path)
    for name in ("encoder.layers.3.ffn1.output_dense.bias", "feature_projection.layer_norm.weight"):
        del weights[name]
    weights["encoder.layers.16.self_attn.distance_embedding.weight"] = torch.zeros(5, 8)
    save_file(weights | {"lm_head.weight": torch.zeros(2)}, path)
    with pytest.raises(UserError) as caught:
        load(copied)
    message = str(caught.value)
    assert "encoder.layers.3.ffn1.output_dense.bias" in message
    assert "feature_projection.layer_norm.weight" in message
    assert ": lm_head.weight;" in message
    assert "distance_embedding.weight is (5, 8), expected (73, 16)" in message
    assert "facebook/w2v-bert-2.0" in message


@pytest.mark.parametrize(
    ("file", "changes", "what"),
    [
        ("config.json", {"model_type": "wav2vec2"}, "model_type is 'wav2vec2'"),
        ("config.json", {"num_hidden_layers": 16}, "num_hidden_layers is 16"),
        ("config.json", {"position_embeddings_type": "rotary"}, "'rotary'.*'relative_key'"),
        ("preprocessor_config.json", {"sampling_rate": 8000}, "sampling_rate is 8000, .*16000"),
        ("preprocessor_config.json", {"num_mel_bins": 40, "stride": 1}, "stride is 1.*num_mel_bins is 40"),
    ],
)
def test_a_folder_of_another_encoder_is_refused(copied, file, changes, what):
    change_json(copied / "w2v-bert-2.0" / file, **changes)
    with pytest.raises(UserError, match=what) as caught:
        load(copied)
    assert str(caught.value).startswith(f"{copied}/w2v-bert-2.0/{file}: ")


@pytest.mark.parametrize("file", ["config.json", "preprocessor_config.json", "model.safetensors"])
@pytest.mark.parametrize("content", [None, b"[]"])
def test_a_missing_or_corrupt_file_is_a_one_line_error(copied, file, content):
    path = copied / "w2v-bert-2.0" / file
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"; .*facebook/w2v-bert-2\.0") as caught:
        load(copied)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"mean": torch.zeros(31)}, r"mean .*\(32,\), found \(31,\)"),
        ({"var": None}, r"var .*\(32,\), found None"),
        ({"var": torch.zeros(32)}, "mean or var"),
        ({"mean": torch.full((32,), math.nan)}, "mean or var"),
    ],
)
def test_invalid_statistics_are_refused(copied, changes, what):
    write_stats(copied / "stats.pt", **changes)
    with pytest.raises(UserError, match=rf"stats\.pt: .*{what}"):
        load(copied)


@pytest.fixture(scope="module")
def network() -> CAMPPlus:
    config = CAMPPlusConfig(embedding_size=6, growth_rate=4, bn_size=2, init_channels=8)
    return randomise(CAMPPlus(config), seed=0).eval().requires_grad_(False)


@pytest.mark.parametrize("num_frames", [3, 4, 199, 200, 201, 437])
def test_any_number_of_frames_gives_one_vector(network, num_frames):
    frames = torch.randn(2, num_frames, 80, generator=torch.Generator().manual_seed(0))
    vectors = network(frames)
    assert vectors.shape == (2, 6)
    assert vectors.isfinite().all()
    torch.testing.assert_close(network(frames[1:]), vectors[1:], rtol=1e-4, atol=1e-5)
