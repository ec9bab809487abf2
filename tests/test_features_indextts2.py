"""Tests of indextts/features/indextts2.py, and of its features in the GPT's encoders."""

import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch

from indextts.data.encoding import ClipEncoder
from indextts.data.reading import Clip
from indextts.errors import UserError
from indextts.features import indextts2, log_mel
from indextts.features.indextts2 import IndexTTS2Backend, find_files
from indextts.features.semantic_codec import HalvingCodec
from indextts.models.checkpoint import read_weights
from indextts.models.gpt.config import load_config
from indextts.models.gpt.weights import load_model
from indextts.runs.restore_facts import codebook_identity
from tests.published_files import noisy_speech, randomise, write_published_files

ONE_FRAME = 840  # samples at 24 kHz: 560 at 16 kHz, two log-mel frames


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    return write_published_files(tmp_path_factory.mktemp("checkpoints"))


def load(folder: Path, device: str = "cpu", config: Path | None = None, **options: str) -> IndexTTS2Backend:
    paths = (
        folder / "w2v-bert-2.0",
        folder / "semantic_codec/model.safetensors",
        folder / "wav2vec2bert_stats.pt",
    )
    return indextts2.load(config or folder / "config.yaml", *paths, torch.device(device), **options)


@pytest.fixture(scope="module")
def backend(files) -> IndexTTS2Backend:
    return load(files)


@pytest.mark.parametrize("precision", ["split", "tf32"])
def test_a_faster_precision_is_only_inside_the_encoder(
    files: Path, backend: IndexTTS2Backend, precision: str
):
    other = load(files, precision=precision)
    assert other.identity != backend.identity
    assert codebook_identity(other.identity) == codebook_identity(backend.identity)
    allowed = []
    other.encoder.register_forward_hook(lambda *_: allowed.append(torch.backends.cuda.matmul.allow_tf32))
    exact = backend.features(noisy_speech(24_000, 24_000))
    found = other.features(noisy_speech(24_000, 24_000))
    assert allowed == [precision == "tf32"]
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.equal(found, exact) == (precision == "tf32")  # a CPU has no TensorFloat-32
    torch.testing.assert_close(found, exact, rtol=0, atol=2e-4)


@pytest.fixture(scope="module")
def encoder(files, backend) -> ClipEncoder:
    weights = read_weights(files / "gpt.pth")
    model = load_model(load_config(files / "config.yaml"), weights, "gpt.pth").eval()
    return ClipEncoder(backend, model, torch.device("cpu"))


def clip_of(audio: np.ndarray, id: str = "x") -> Clip:
    return Clip(id, Path(f"/{id}.wav"), "0", len(audio) / 24_000, log_mel.prepare(audio))


def clips_of_all_kinds() -> dict[str, np.ndarray]:
    return {
        "0.1 s": noisy_speech(2400, 24_000),
        "one frame": noisy_speech(ONE_FRAME, 24_000, seed=1),
        "odd number of log-mel frames": noisy_speech(24_240, 24_000, seed=2),  # 99
        "even number of log-mel frames": noisy_speech(24_000, 24_000, seed=3),  # 98
        "silence": np.zeros(30_000, np.float32),
        "3 frames": noisy_speech(1800, 24_000, seed=5),
        "2.3 s": noisy_speech(55_200, 24_000, seed=6),
    }


def test_a_batch_gives_the_features_and_codes_of_each_clip_alone(backend):  # pitfall 10
    clips = clips_of_all_kinds()
    together = backend.features_of_batch([backend.prepare(audio) for audio in clips.values()])
    codes = backend.codes_of_batch(together)
    assert [len(row) for row in codes] == [4, 1, 49, 49, 61, 3, 114]
    for name, audio, rows, row_codes in zip(clips, clips.values(), together, codes, strict=True):
        alone = backend.features(audio)
        torch.testing.assert_close(rows, alone, rtol=0, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")
        assert rows.isfinite().all(), name
        assert torch.equal(row_codes, backend.codes(alone)), name


def test_a_batch_gives_the_conditioning_and_emotion_of_each_clip_alone(encoder):  # pitfall 9
    clips = [clip_of(audio, name) for name, audio in clips_of_all_kinds().items() if name != "one frame"]
    clips.sort(key=lambda clip: clip.duration_s)
    for clip, padded in zip(clips, encoder.encode(clips), strict=True):
        (alone,) = encoder.encode([clip])
        assert padded.id == clip.id
        np.testing.assert_array_equal(padded.codes, alone.codes, err_msg=clip.id)
        np.testing.assert_allclose(padded.condition, alone.condition, rtol=0, atol=1e-4, err_msg=clip.id)
        np.testing.assert_allclose(padded.emo_vec, alone.emo_vec, rtol=0, atol=1e-4, err_msg=clip.id)


def test_the_codec_of_2_5_gives_a_batch_one_code_for_two_features_of_each_clip(backend):
    codec = randomise(HalvingCodec(backend.codec.config), seed=0).eval()
    halving = IndexTTS2Backend(backend.encoder, codec, torch.device("cpu"))
    features = halving.features_of_batch(
        [backend.prepare(noisy_speech(count, 24_000)) for count in (500, 1800, 24_000)]
    )
    codes = halving.codes_of_batch(features)
    assert [len(rows) for rows in features] == [0, 3, 49]
    assert [len(row) for row in codes] == [0, 2, 25]
    for rows, row in zip(features[1:], codes[1:], strict=True):
        assert torch.equal(halving.codes(rows), row)


def test_the_identity_depends_on_encoder_statistics_and_codec(files, backend, tmp_path):
    assert load(files).identity == backend.identity
    others = load(write_published_files(tmp_path, seed=1))
    assert others.identity != backend.identity
    with_other_codec = IndexTTS2Backend(backend.encoder, others.codec, torch.device("cpu"))
    with_other_encoder = IndexTTS2Backend(others.encoder, backend.codec, torch.device("cpu"))
    identities = {backend.identity, others.identity, with_other_codec.identity, with_other_encoder.identity}
    assert len(identities) == 4


def test_the_error_lists_all_missing_files_and_their_sources(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError) as caught:
        find_files(tmp_path / "w2v", tmp_path / "codec", tmp_path / "stats.pt", look_in_cache=True)
    message = str(caught.value)
    assert f"--speech-encoder {tmp_path}/w2v: config.json, preprocessor_config.json, model." in message
    assert "facebook/w2v-bert-2.0" in message
    assert f"--semantic-codec {tmp_path}/codec: " in message
    assert "amphion/MaskGCT" in message
    assert f"--stats {tmp_path}/stats.pt: " in message
    assert "IndexTeam/IndexTTS-2 to" in message
    assert "\n" not in message
    with pytest.raises(UserError, match=r"download codec\.pth of IndexTeam/IndexTTS-2\.5 to this path"):
        find_files(tmp_path / "w2v", tmp_path / "codec.pth", tmp_path / "stats.pt", look_in_cache=False)


def test_the_hugging_face_cache_replaces_only_the_default_folder(files, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--facebook--w2v-bert-2.0"
    others = (files / "config.yaml", files / "wav2vec2bert_stats.pt")
    cached = shutil.copytree(files / "w2v-bert-2.0", repository / "snapshots" / ("0" * 40))
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("0" * 40)
    assert find_files(tmp_path / "w2v", *others, look_in_cache=True) == cached
    assert find_files(cached, *others, look_in_cache=True) == cached
    with pytest.raises(UserError, match=r"w2v: config\.json"):
        find_files(tmp_path / "w2v", *others, look_in_cache=False)


def test_files_that_do_not_match_are_refused(files, tmp_path):
    text = (files / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(text.replace("hidden_size: 32", "hidden_size: 48"))
    with pytest.raises(UserError, match=r"hidden_size is 48, .* 32;"):
        load(files, config=tmp_path / "config.yaml")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_codes_and_features_on_a_gpu_equal_those_on_a_cpu(files, backend):
    clips = list(clips_of_all_kinds().values())
    on_gpu = load(files, "cuda")
    found = on_gpu.features_of_batch([on_gpu.prepare(audio) for audio in clips])
    for audio, rows, codes in zip(clips, found, on_gpu.codes_of_batch(found), strict=True):
        alone = backend.features(audio)
        torch.testing.assert_close(rows.cpu(), alone, rtol=0, atol=1e-3)
        assert torch.equal(codes.cpu(), backend.codes(alone))
