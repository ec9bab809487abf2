import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from indextts.errors import UserError
from indextts.features import indextts2
from indextts.speech.synthesis.acoustic import AcousticModel, Reference, Utterance
from indextts.speech.synthesis.s2mel import SolverSettings, target_frames
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


@pytest.mark.parametrize(("num_samples", "num_vectors"), [(33_075, 74), (33_075 + 221, 75), (32_855, 74)])
def test_an_odd_last_frame_of_a_reference_counts(model, num_samples, num_vectors):
    voice = model.voice_of(noise(num_samples / 22_050, seed=1))  # 148, 149 and 147 frames
    assert voice.features.shape == (num_vectors, FEATURE_DIM)


def test_autograd_can_save_the_features_of_a_voice(voice):
    weight = torch.ones_like(voice.features, requires_grad=True)
    (weight * voice.features).sum().backward()
    assert torch.equal(weight.grad, voice.features)  # the gradient of a product is exact on any CPU


def utterance(speech: tuple[torch.Tensor, torch.Tensor], voice: Reference, seed: int) -> Utterance:
    return Utterance(*speech, voice, seed)


def rendered(
    model: AcousticModel,
    codes: torch.Tensor,
    latents: torch.Tensor,
    voice: Reference,
    seed: int = 0,
    settings: SolverSettings = FAST,
) -> np.ndarray:
    [samples] = model.render([utterance((codes, latents), voice, seed)], settings)
    return samples


@pytest.mark.parametrize(("num_codes", "num_frames"), [(1, 1), (25, 43), (26, 44)])
def test_a_code_becomes_172_hundredths_of_a_mel_frame(model, voice, num_codes, num_frames):
    samples = rendered(model, *speech(num_codes), voice)
    assert samples.shape == (256 * num_frames,)
    assert samples.dtype == np.float32
    assert np.isfinite(samples).all()
    assert samples.std() > 0


def test_no_codes_give_no_samples(model, voice):
    assert rendered(model, *speech(0), voice).shape == (0,)


@pytest.mark.parametrize("code", [-1, NUM_CODES])
def test_a_code_outside_the_codebook_is_refused(model, voice, code):
    codes, latents = speech(3)
    codes[1] = code
    with pytest.raises(ValueError, match=rf"\b{NUM_CODES - 1}\b"):
        rendered(model, codes, latents, voice)


@pytest.mark.parametrize("guidance_rate", [0.0, 0.7])
def test_utterances_of_a_batch_sound_as_each_does_alone(model, voice, guidance_rate):
    """Texts and reference recordings of different lengths, so that every row but one is padded."""
    settings = SolverSettings(steps=3, guidance_rate=guidance_rate)
    voices = [voice, model.voice_of(noise(2.6, seed=2)), model.voice_of(noise(1.2, seed=3))]
    utterances = [
        utterance(speech(num_codes, seed=number), voices[number % 3], number)
        for number, num_codes in enumerate((7, 31, 1, 25))
    ]
    together = model.render_batch(utterances, settings)
    for samples, each in zip(together, utterances, strict=True):
        [alone] = model.render([each], settings)
        np.testing.assert_allclose(samples, alone, rtol=0, atol=1e-5)


def test_a_gpu_gets_batches_of_similar_lengths_and_utterances_keep_their_order(model, voice, monkeypatch):
    seen = []
    whole = AcousticModel.render_batch
    monkeypatch.setattr(AcousticModel, "_frames_at_once", lambda _: 330.0)
    monkeypatch.setattr(
        AcousticModel,
        "render_batch",
        lambda self, given, *rest: seen.append(len(given)) or whole(self, given, *rest),
    )
    sizes = (7, 40, 0, 9, 41)
    found = model.render([utterance(speech(n), voice, 0) for n in sizes], FAST)
    assert [len(samples) for samples in found] == [256 * target_frames(n) for n in sizes]
    assert seen == [2, 1, 1]


def test_half_precision_of_the_flow_matching_stays_near_float32(model, voice, folder):
    half = AcousticModel.load(folder, torch.device("cpu"))
    half.s2mel.cfm.estimator.set_precision(torch.bfloat16)
    exact, rounded = (
        rendered(each, *speech(40), voice, settings=SolverSettings(steps=8)) for each in (model, half)
    )
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
        rendered(model, codes, latents, voice, seed=5, settings=SolverSettings(steps=3, guidance_rate=0)),
        rendered(model, codes, latents, voice, seed=5, settings=SolverSettings(steps=3, temperature=0.5)),
    ):
        assert np.abs(different - first).max() > 1e-3


def test_rendering_does_not_change_the_global_random_state(model, voice):
    state = torch.get_rng_state()
    rendered(model, *speech(5), voice)
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
