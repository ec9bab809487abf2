import numpy as np
import pytest
import soundfile
import torch
from torch.nn.functional import normalize

from indextts.errors import UserError
from indextts.features import indextts2
from indextts.speech.synthesis.acoustic import AcousticModel
from indextts.speech.synthesis.s2mel import SolverSettings
from tests.acoustic_files import STYLE_DIM, write_acoustic_files
from tests.published_files import FEATURE_DIM, GPT, NUM_CODES

CPU = torch.device("cpu")
FAST = SolverSettings(steps=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_acoustic_files(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="module")
def model(folder) -> AcousticModel:
    return AcousticModel.load(folder, CPU)


def noise(duration_s: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, int(duration_s * 22_050)).astype(np.float32)


@pytest.fixture(scope="module")
def voice(model):
    return model.voice_of(noise(1.5, seed=1))


def speech(num_codes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(NUM_CODES, (num_codes,), generator=generator)
    return codes, torch.randn(num_codes, GPT["model_dim"], generator=generator)


def test_the_lengths_of_a_voice_follow_from_its_recording(model):
    voice = model.voice_of(noise(1.5, seed=1))  # 33,075 samples, 24,000 at 16 kHz, 148 Kaldi frames
    assert voice.mel.shape == (1, 80, 129)
    assert voice.prompt.shape == (1, 129, 16)
    assert voice.style.shape == (1, STYLE_DIM)
    assert voice.features.shape == (74, FEATURE_DIM)


def test_autograd_can_save_the_features_of_a_voice(voice):
    weight = torch.ones_like(voice.features, requires_grad=True)
    (weight * voice.features).sum().backward()
    assert torch.equal(weight.grad, voice.features)  # the gradient of a product is exact on any CPU


def test_a_recording_is_read_at_the_published_rate(model, tmp_path):
    clip = noise(1.5, seed=1)
    soundfile.write(tmp_path / "a.wav", clip, 22_050, subtype="FLOAT")
    from_file, from_samples = model.voice(tmp_path / "a.wav"), model.voice_of(clip)
    for name, value in vars(from_samples).items():
        torch.testing.assert_close(getattr(from_file, name), value, rtol=0, atol=0)


def test_an_emotion_recording_is_read_directly_at_16_khz(model, tmp_path):
    soundfile.write(tmp_path / "a.wav", noise(1.5, seed=1), 22_050, subtype="FLOAT")
    features = model.emotion_features(tmp_path / "a.wav")
    assert features.shape == (74, FEATURE_DIM)
    through_22_khz = model.voice(tmp_path / "a.wav").features
    assert not torch.equal(features, through_22_khz)
    assert (features - through_22_khz).abs().mean() < 0.1 * features.std()


@pytest.mark.parametrize(("num_codes", "num_frames"), [(1, 1), (25, 43), (26, 44)])
def test_a_code_becomes_172_hundredths_of_a_mel_frame(model, voice, num_codes, num_frames):
    samples = model.render(*speech(num_codes), voice, seed=0, settings=FAST)
    assert samples.shape == (256 * num_frames,)
    assert samples.dtype == np.float32
    assert np.isfinite(samples).all()
    assert samples.std() > 0


def test_no_codes_give_no_samples(model, voice):
    assert model.render(*speech(0), voice, seed=0).shape == (0,)


@pytest.mark.parametrize("code", [-1, NUM_CODES])
def test_a_code_outside_the_codebook_is_refused(model, voice, code):
    codes, latents = speech(3)
    codes[1] = code
    with pytest.raises(ValueError, match=rf"\b{NUM_CODES - 1}\b"):
        model.render(codes, latents, voice, seed=0)


def test_audio_depends_on_seed_codes_latents_and_voice(model, voice):
    codes, latents = speech(20)
    rendered = model.render(codes, latents, voice, seed=5, settings=FAST)
    again = model.render(codes, latents, voice, seed=5, settings=FAST)
    np.testing.assert_array_equal(again, rendered)
    other_voice = model.voice_of(noise(1.5, seed=2))
    for different in (
        model.render(codes, latents, voice, seed=6, settings=FAST),
        model.render((codes + 1) % NUM_CODES, latents, voice, seed=5, settings=FAST),
        model.render(codes, latents + 1, voice, seed=5, settings=FAST),
        model.render(codes, latents, other_voice, seed=5, settings=FAST),
        model.render(codes, latents, voice, seed=5, settings=SolverSettings(steps=3, guidance_rate=0)),
        model.render(codes, latents, voice, seed=5, settings=SolverSettings(steps=3, temperature=0.5)),
    ):
        assert np.abs(different - rendered).max() > 1e-3


def test_rendering_does_not_change_the_global_random_state(model, voice):
    state = torch.get_rng_state()
    model.render(*speech(5), voice, seed=0, settings=FAST)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_style_is_that_of_the_frames_minus_their_mean(model, voice):
    louder = model.voice_of(3 * noise(1.5, seed=1))  # a factor moves all log-mel frames by one constant
    torch.testing.assert_close(normalize(louder.style), normalize(voice.style), rtol=1e-3, atol=1e-3)


def test_an_already_loaded_backend_is_used(folder):
    backend = indextts2.load(
        folder / "config.yaml",
        folder / "w2v-bert-2.0",
        folder / "semantic_codec/model.safetensors",
        folder / "wav2vec2bert_stats.pt",
        CPU,
    )
    assert AcousticModel.load(folder, CPU, backend).backend is backend


def test_a_config_of_other_features_is_refused(folder, tmp_path):
    other = write_acoustic_files(tmp_path)
    text = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(text.replace("in_channels: 32", "in_channels: 31"))
    with pytest.raises(UserError, match=r"s2mel\.pth: .*length_regulator\.content_in_proj\.weight"):
        AcousticModel.load(other, CPU)
