import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from indextts.commands.sampling_options import Sampling
from indextts.commands.speech import Synthesize
from indextts.projects.project import Project
from indextts.speech.synthesis.s2mel import SolverSettings
from indextts.speech.synthesis.streaming import SpeechStream
from indextts.speech.synthesis.synthesize import load_renderer, synthesize
from indextts.speech.synthesis.text_to_speech import TextToSpeech
from indextts.speech.synthesis.trained_model import load_trained
from tests.acoustic_files import write_acoustic_files, write_files_of_2_5
from tests.speaking_run import clips_of
from tests.tiny_run import BASE_TOKENIZER

CPU = torch.device("cpu")
TEXT = "ሰላም ለዓለም ሁሉ ይሁን"
BUILTIN = Sampling(num_beams=1, repetition_penalty=1, max_codes=190, temperature=4, top_k=0, top_p=1)
BEAMS = Sampling(num_beams=3, max_codes=150, temperature=2)


def load(folder: Path, models: Path = Path("absent")) -> TextToSpeech:
    trained = load_trained(folder, CPU)
    trained.gpt.mel_head.bias.data[trained.gpt.config.stop_mel_token] -= 1e4  # it never stops by itself
    return TextToSpeech(trained, load_renderer(trained, None, models, CPU, SolverSettings(steps=4)))


@pytest.fixture(scope="module")
def builtin(tuned: Project) -> TextToSpeech:
    return load(tuned.run_dir / "latest.pth")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> TextToSpeech:
    folder = write_acoustic_files(tmp_path_factory.mktemp("published"))
    shutil.copy(BASE_TOKENIZER, folder / "bpe.model")
    return load(folder, folder)


def log_spectrum(samples: np.ndarray) -> np.ndarray:
    frames = torch.from_numpy(samples).unfold(0, 512, 128) * torch.hann_window(512)
    return 20 * torch.log10(torch.fft.rfft(frames).abs() + 1e-4).numpy()  # dB


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the mean absolute difference of two spectra in dB."""
    return float(np.abs(log_spectrum(a) - log_spectrum(b)).mean())


@pytest.fixture(scope="module")
def published_2_5(tmp_path_factory: pytest.TempPathFactory) -> TextToSpeech:
    folder = write_files_of_2_5(tmp_path_factory.mktemp("published_2_5"))
    return load(folder, folder)


@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        ("builtin", BUILTIN),
        ("published", BEAMS),
        ("published_2_5", BEAMS.model_copy(update={"max_codes": 75})),
    ],
)
def test_a_stream_is_the_complete_speech_within_the_difference_of_its_windows(
    name: str, sampling: Sampling, tuned: Project, request: pytest.FixtureRequest
):
    tts: TextToSpeech = request.getfixturevalue(name)
    voice = tts.read_voice(clips_of(tuned)[0].audio)
    line = tts.line(TEXT, voice, seed=3)
    [(_, whole)] = tts.speak([line], sampling)
    stream = SpeechStream(tts, line, sampling)
    pieces = list(stream)
    streamed = np.concatenate(pieces)
    np.testing.assert_array_equal(stream.speech.samples, streamed)
    assert stream.speech.text == whole.text
    assert torch.equal(stream.speech.segments[0].codes, whole.segments[0].codes)
    assert len(pieces) >= 3
    assert len(streamed) == len(whole.samples) > 2 * whole.sample_rate_hz
    off = distance(streamed, whole.samples)
    shuffled = distance(np.roll(streamed, len(streamed) // 2), whole.samples)
    assert off < 0.5 * shuffled


def test_the_first_piece_comes_before_the_last_code(builtin: TextToSpeech, tuned: Project):
    voice = builtin.read_voice(clips_of(tuned)[0].audio)
    seen: list[int] = []
    pieces = iter(SpeechStream(builtin, builtin.line(TEXT, voice, seed=3), BUILTIN, seen.append))
    assert len(next(pieces)) >= 0.3 * builtin.renderer.sample_rate_hz
    assert seen[-1] < 60 < BUILTIN.max_codes


def test_a_long_text_is_streamed_with_the_silence_between_its_segments_and_the_later_ones_together(
    builtin: TextToSpeech, tuned: Project
):
    voice = builtin.read_voice(clips_of(tuned)[0].audio)
    line = builtin.line("ሰላም ለዓለም ሁሉ ይሁን ብለው ተናገሩ። " * 8, voice, seed=3)
    short = BUILTIN.model_copy(update={"max_codes": 45})
    [(_, whole)] = builtin.speak([line], short)
    steps: list[int] = []
    stream = SpeechStream(builtin, line, short, steps.append)
    assert len(list(stream)) == len(line.parts) + 1 > 3
    assert steps[-1] < 0.7 * sum(len(segment.codes) for segment in whole.segments)
    assert len(stream.speech.samples) == len(whole.samples)
    assert stream.speech.num_codes == whole.num_codes


def test_the_program_writes_the_pieces_and_the_complete_sound(tuned: Project, tmp_path: Path):
    flags = {"checkpoint": tuned.run_dir / "latest.pth", "voice": str(clips_of(tuned)[0].audio), "seed": 3}
    command = Synthesize(
        **flags, text=[TEXT, "እሺ"], output=tmp_path / "out", stream=True, temperature=4.0, top_k=0, top_p=1.0
    )
    lines = list(synthesize(command))
    assert len(lines) == 5
    for number in (1, 2):
        pieces = sorted((tmp_path / f"out/00{number}.pieces").iterdir())
        sound, _ = soundfile.read(tmp_path / f"out/00{number}.wav", dtype="int16")
        joined = [soundfile.read(piece, dtype="int16")[0] for piece in pieces]
        np.testing.assert_array_equal(np.concatenate(joined), sound)
