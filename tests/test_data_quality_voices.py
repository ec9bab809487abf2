"""Voices in the check: wrong labels and changing voices deviate; vectors are stored and reused."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.data.importing.voice_vectors import VoiceEncoder
from indextts.data.manifest import Utterance
from indextts.data.quality.clips import measure_clips
from indextts.data.quality.voices import hear_voices
from tests.ge2e import GE2E, ge2e_weights
from tests.spoken_languages import speak

VOICES = {"m1": 20, "f2": 60}
NUM_CLIPS = 11  # of each voice
WORDS = ["ሰላም", "ለዓለም", "ዛሬ", "ወደ", "ገበያ", "ሄደን", "ብዙ", "ነገር", "ገዛን", "ነገም", "ማለዳ", "ተነስተን", "ቡና"]


def spoken(folder: Path, voice: str, number: int) -> np.ndarray:
    text = " ".join(WORDS[(number + 3 * k) % len(WORDS)] for k in range(9))
    path = speak(text, f"am+{voice}", folder / f"{voice}{number}.wav", VOICES[voice])
    return soundfile.read(path, dtype="float32")[0]


@pytest.mark.long
def test_wrong_labels_and_changing_voices_deviate_and_vectors_are_stored(tmp_path):
    weights = ge2e_weights()
    clips = {f"{voice} {n}": spoken(tmp_path, voice, n) for voice in VOICES for n in range(NUM_CLIPS)}
    man, woman = spoken(tmp_path, "m1", 12), spoken(tmp_path, "f2", 13)
    clips["m1 changes"] = np.concatenate([man[: len(man) // 2], woman[len(woman) // 2 :]])
    clips["m1 wrong"] = spoken(tmp_path, "f2", 14)
    utterances = []
    for name, samples in clips.items():
        path = tmp_path / f"{name}.wav"
        soundfile.write(path, samples, 22_050)
        utterances.append(Utterance(name, path, "ሰላም", name.split()[0], len(samples) / 22_050))
    measured = measure_clips(utterances, {}, 1)
    heard = []

    def load(path: Path) -> VoiceEncoder:
        encode = GE2E(path)
        return lambda samples: heard.append(len(samples)) or encode(samples)

    hear_voices(measured, weights, tmp_path / "check", load)
    of = {clip.utterance.id: dict(clip.measures) for clip in measured}
    usual = [measures for id, measures in of.items() if id not in ("m1 changes", "m1 wrong")]
    assert of["m1 wrong"]["voice_deviation"] > 5 > max(each["voice_deviation"] for each in usual)
    assert of["m1 changes"]["halves_deviation"] > max(4, *(each["halves_deviation"] for each in usual))

    num_heard = len(heard)
    assert num_heard >= len(clips)
    hear_voices(measured, weights, tmp_path / "check", load)
    assert {clip.utterance.id: clip.measures for clip in measured} == of
    assert len(heard) == num_heard
