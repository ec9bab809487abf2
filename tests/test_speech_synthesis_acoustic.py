"""Tests of indextts/speech/synthesis/acoustic.py and bigvgan.py, and of the loading of their networks."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import speech_models as published
from indextts.errors import UserError
from indextts.features import speech_encoder
from indextts.features.campplus import CAMPPlus, CAMPPlusConfig
from indextts.features.semantic_codec import without_weight_norm
from indextts.speech.synthesis.acoustic import AcousticModel, find_backend, find_files
from indextts.speech.synthesis.bigvgan import BigVGAN, load_bigvgan
from indextts.speech.synthesis.config import S2MelConfig
from indextts.speech.synthesis.renderer import Reference, Segment
from indextts.speech.synthesis.s2mel import S2Mel, SolverSettings, load_s2mel, target_frames
from tests.acoustic_files import BIGVGAN, S2MEL, write_acoustic_files
from tests.published_files import FEATURE_DIM, GPT, NUM_CODES

CPU = torch.device("cpu")
FAST = SolverSettings(steps=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_acoustic_files(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="module")
def model(folder) -> AcousticModel:
    return AcousticModel.load(folder, CPU, FAST)


def noise(duration_s: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, int(duration_s * 22_050)).astype(np.float32)


@pytest.fixture(scope="module")
def voice(model):
    return model.voice_of(noise(1.5, seed=1))


def speech(num_codes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(NUM_CODES, (num_codes,), generator=generator)
    return codes, torch.randn(num_codes, GPT["model_dim"], generator=generator)


@pytest.mark.parametrize(("num_samples", "num_vectors"), [(33_075, 74), (33_075 + 221, 75), (32_855, 74)])
def test_an_odd_last_frame_of_a_reference_counts(model, num_samples, num_vectors):
    voice = model.voice_of(noise(num_samples / 22_050, seed=1))  # 148, 149 and 147 frames
    assert voice.features.shape == (num_vectors, FEATURE_DIM)


def spoken(
    codes: torch.Tensor, latents: torch.Tensor, voice: Reference, seed: int = 0
) -> tuple[Segment, Reference]:
    return Segment("", codes, latents, True, seed), voice


def rendered(
    model: AcousticModel,
    codes: torch.Tensor,
    latents: torch.Tensor,
    voice: Reference,
    seed: int = 0,
    **settings: float,
) -> np.ndarray:
    changed = AcousticModel(
        model.backend, model.s2mel, model.campplus, model.vocoder, replace(model.settings, **settings)
    )
    [samples] = changed.render([spoken(codes, latents, voice, seed)])
    return samples


@pytest.mark.parametrize(("num_codes", "num_frames"), [(1, 1), (25, 43), (26, 44)])
def test_a_code_becomes_172_hundredths_of_a_mel_frame(model, voice, num_codes, num_frames):
    samples = rendered(model, *speech(num_codes), voice)
    assert samples.shape == (256 * num_frames,)
    assert samples.dtype == np.float32
    assert np.isfinite(samples).all()
    assert samples.std() > 0


@pytest.mark.parametrize("code", [-1, NUM_CODES])
def test_a_code_outside_the_codebook_is_refused(model, voice, code):
    codes, latents = speech(3)
    codes[1] = code
    with pytest.raises(ValueError, match=rf"\b{NUM_CODES - 1}\b"):
        rendered(model, codes, latents, voice)


@pytest.mark.parametrize("guidance_rate", [0.0, 0.7])
def test_segments_of_a_batch_sound_as_each_does_alone(model, voice, guidance_rate, monkeypatch):
    """Texts and reference recordings of different lengths, so that every row but one is padded."""
    monkeypatch.setattr(model, "settings", replace(FAST, guidance_rate=guidance_rate))
    voices = [voice, model.voice_of(noise(2.6, seed=2)), model.voice_of(noise(1.2, seed=3))]
    segments = [
        spoken(*speech(num_codes, seed=number), voices[number % 3], number)
        for number, num_codes in enumerate((7, 31, 1, 25))
    ]
    together = model.render_batch([model._target(*each) for each in segments])
    for samples, alone in zip(together, model.render(segments), strict=True):
        np.testing.assert_allclose(samples, alone, rtol=0, atol=1e-5)


def test_a_gpu_gets_batches_of_similar_lengths_and_segments_keep_their_order(model, voice, monkeypatch):
    seen = []
    whole = AcousticModel.render_batch
    monkeypatch.setattr(AcousticModel, "_frames_at_once", lambda _: 330.0)
    monkeypatch.setattr(
        AcousticModel,
        "render_batch",
        lambda self, given, *rest: seen.append(len(given)) or whole(self, given, *rest),
    )
    sizes = (7, 40, 0, 9, 41)
    found = model.render([spoken(*speech(n), voice) for n in sizes])
    assert [len(samples) for samples in found] == [256 * target_frames(n) for n in sizes]
    assert seen == [2, 1, 1]


def test_half_precision_of_the_flow_matching_stays_near_float32(model, voice, folder):
    half = AcousticModel.load(folder, CPU, SolverSettings(steps=8, dtype=torch.bfloat16))
    exact, rounded = (rendered(each, *speech(40), voice, steps=8) for each in (model, half))
    error = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
    assert 0 < error < 0.2


def test_audio_depends_on_seed_codes_latents_and_voice(model, voice):
    codes, latents = speech(20)
    first = rendered(model, codes, latents, voice, seed=5)
    again = rendered(model, codes, latents, voice, seed=5)
    np.testing.assert_array_equal(again, first)
    other_voice = model.voice_of(noise(1.5, seed=2))
    for different in (
        rendered(model, codes, latents, voice, seed=6),
        rendered(model, (codes + 1) % NUM_CODES, latents, voice, seed=5),
        rendered(model, codes, latents + 1, voice, seed=5),
        rendered(model, codes, latents, other_voice, seed=5),
        rendered(model, codes, latents, voice, seed=5, guidance_rate=0),
        rendered(model, codes, latents, voice, seed=5, temperature=0.5),
    ):
        assert np.abs(different - first).max() > 1e-3


def test_a_config_of_other_features_is_refused(folder, tmp_path):
    other = write_acoustic_files(tmp_path)
    text = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(text.replace("in_channels: 32", "in_channels: 31"))
    with pytest.raises(UserError, match=r"s2mel\.pth: .*length_regulator\.content_in_proj\.weight"):
        AcousticModel.load(other, CPU)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("s2mel_net", lambda: S2Mel(published.S2MEL, published.PUBLISHED.model_dim)),
        ("campplus", lambda: CAMPPlus(CAMPPlusConfig())),
        ("bigvgan_generator", lambda: BigVGAN(published.BIGVGAN)),
    ],
)
def test_names_shapes_and_types_are_the_published_ones(shared, name, build):
    listed = json.loads((shared / f"vectors/published_keys/{name}.json").read_text())
    with torch.device("meta"):
        tensors = build().state_dict()
    found = {key: [list(tensor.shape), str(tensor.dtype)] for key, tensor in tensors.items()}
    assert found == {  # without weight normalisation
        key.removesuffix("_v"): [shape, f"torch.{dtype}"]
        for key, (shape, dtype) in listed.items()
        if not key.endswith("weight_g")
    }


def test_weights_load_as_saved(folder):
    model = load_s2mel(folder / "s2mel.pth", S2MelConfig.model_validate(S2MEL), GPT["model_dim"], CPU)
    net = torch.load(folder / "s2mel.pth", weights_only=True)["net"]
    saved = {part: without_weight_norm(weights) for part, weights in net.items()}
    for name, tensor in model.state_dict().items():
        part, rest = name.split(".", 1)
        wanted = saved[part].get(rest, saved[part].get(f"module.{rest}"))
        torch.testing.assert_close(tensor, wanted, rtol=0, atol=0)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    "content", [{}, {"net": {}}, {"net": {"cfm": {}, "length_regulator": {}}}, {"net": 3}]
)
def test_a_file_without_the_three_parts_is_refused_as_s2mel(tmp_path, content):
    torch.save(content, tmp_path / "s2mel.pth")
    with pytest.raises(UserError, match=r"s2mel\.pth: .*cfm, length_regulator, gpt_layer"):
        load_s2mel(tmp_path / "s2mel.pth", S2MelConfig.model_validate(S2MEL), GPT["model_dim"], CPU)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"upsample_rates": [8, 8, 2]}, "128 samples .*80 mel"),
        ({"num_mels": 100}, "256 samples .*100 mel"),
        ({"sampling_rate": 24000}, "sampling_rate is 24000.*22050"),
        ({"activation": "snake"}, "activation is .snake.*'snakebeta'"),
    ],
)
def test_a_vocoder_of_another_kind_is_refused(folder, tmp_path, change, what):
    (tmp_path / "config.json").write_text(json.dumps(BIGVGAN | change))
    with pytest.raises(UserError, match=rf"config\.json: .*{what}.*nvidia/bigvgan"):
        load_bigvgan(tmp_path / "config.json", folder / "bigvgan/bigvgan_generator.pt", CPU)


def test_all_missing_files_are_named_with_their_source(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError) as caught:
        find_files(tmp_path)
    for name, source in {
        "config.yaml": "IndexTeam/IndexTTS-2",
        "s2mel.pth": "IndexTeam/IndexTTS-2",
        "campplus/campplus_cn_common.bin": "funasr/campplus",
        "bigvgan/config.json": "nvidia/bigvgan_v2_22khz_80band_256x",
        "bigvgan/bigvgan_generator.pt": "nvidia/bigvgan_v2_22khz_80band_256x",
    }.items():
        assert re.search(rf"{tmp_path}/{name} of {source}[,)]", str(caught.value))
    assert f"tools/download_checkpoints.py --what all --base 2.0 --output-dir {tmp_path}" in str(caught.value)


def test_a_folder_of_2_5_asks_for_files_of_2_5_and_takes_its_own_codec(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "multilingual_zh_ja_yue_char_del.tiktoken").touch()
    with pytest.raises(UserError, match=r"s2mel\.pth of IndexTeam/IndexTTS-2\.5, "):
        find_files(tmp_path)
    files = ("wav2vec2bert_stats.pt", "codec.pth", "semantic_codec/model.safetensors")
    for name in (*files, *(f"w2v-bert-2.0/{name}" for name in speech_encoder.FILES)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_backend(tmp_path)[1] == tmp_path / "codec.pth"
