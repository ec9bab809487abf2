"""Comparison of the clips that can give the emotion vector in training: prompt, target, or a share of both.

    python -m benchmarks.emotion_source --folder DIR [--steps 750] [--seeds 0 --seeds 1 ...]

DIR is a folder of benchmarks/learns_to_speak.py with a base; what is missing is made. Four voices speak
Amharic phrases in two styles: slow, low and soft, and fast, high and bright. A pair's prompt is any clip of
the target's voice, so half of the prompts have the other style. After training, held-out sentences are spoken
with a slow prompt and with a fast one, each with a slow and with a fast recording for the emotion, of the
same voice or of another.

The emotion encoder of this base has random weights. It hears the mean spectrum, but neither pitch nor tempo:
therefore the fast style is bright. Its vectors differ little between clips: therefore its last layer is
scaled by GAIN around the mean of the vectors.

Three things are measured. The tempo: how much shorter is the speech if only the emotion recording is fast,
beside the recordings of the same sentences? The voice: of the mean spectra of all voices in both styles, is
the nearest one of the prompt's voice? And the character error rate. The built-in codes keep no pitch, so
pitch is not measured.
"""

import json
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from benchmarks.frame import publish, table
from benchmarks.learns_to_speak import (
    FINE_TUNING,
    MAX_CODES,
    SAMPLE_RATE_HZ,
    SIZES,
    FromTrainedBase,
    Studio,
    Style,
    amharic_pairs,
    amharic_phrases,
    curve,
    held_out_texts,
    make_base,
    make_speech,
    preprocessed,
    spread,
    train,
    trained_recognizer,
    training,
)
from indextts.commands.sampling_options import Sampling
from indextts.commands.terminal import parse, run
from indextts.data.manifest import Utterance, read_utterances
from indextts.features import builtin
from indextts.features.audio import load_audio
from indextts.speech.synthesis.renderer import load_renderer
from indextts.speech.synthesis.s2mel import SolverSettings
from indextts.speech.synthesis.text_to_speech import Emotion, Speech, TextToSpeech
from indextts.speech.synthesis.trained_model import load_trained

GAIN = 8.0  # the vectors then differ between clips by about as much as their mean differs from 0
STYLES = (Style("slow", pitch=-15, speed=0.8, tilt=-0.4), Style("fast", pitch=15, speed=1.35, tilt=0.4))
SHARES = {"prompt": 0.0, "mixed": 0.75, "target": 1.0}
NUM_SENTENCES = 16
CPU = torch.device("cpu")


class EmotionSource(FromTrainedBase):
    """Compare the sources of the emotion vector in training."""

    program: ClassVar[str] = "benchmarks.emotion_source"


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(EmotionSource, argv)
    studio = Studio(command.folder.resolve(), SIZES[command.size])
    make_base(studio)
    recognizer = trained_recognizer(studio)
    _, tokenizer = amharic_pairs(studio)
    texts = [("am", text) for text in held_out_texts()]
    plain = make_speech(studio.folder / "held_out", texts)
    base = expressive_base(studio, read_utterances(plain))
    spoken = make_speech(studio.folder / "styles", amharic_phrases(studio.size.phrases // 4), STYLES)
    pairs = preprocessed(studio, spoken, base, studio.folder / "styles_features")
    held_out = read_utterances(make_speech(studio.folder / "styles_held_out", texts, STYLES))
    of_style = [[each for each in held_out if each.id.endswith(style.name)] for style in STYLES]
    rows = [
        ["recordings", f"{ratio(*[[each.duration_s for each in of] for of in of_style]):.2f}", "", "", "", ""]
    ]
    for name, share in SHARES.items():
        heard = []
        for seed in command.seeds:
            run_dir = studio.folder / "emotion_source" / f"share_{share}_{command.steps}_{seed}"
            run_dir.parent.mkdir(exist_ok=True)
            changed = {**FINE_TUNING, "emotion_from": "mixed", "emotion_target_share": share}
            train(
                studio,
                training(studio, pairs, base, tokenizer, run_dir, command.steps, seed, **changed),
            )
            [(_, _, errors)] = curve(studio, run_dir, recognizer, plain, only_last=True)
            listened = run_dir / "listened.json"
            if not listened.exists():
                listened.write_text(json.dumps(listen(run_dir / "latest.pth", of_style)))
            heard.append((*json.loads(listened.read_text("utf-8")), errors))
        rows.append([name, *(spread(values) for values in zip(*heard, strict=True))])
    header = [
        "emotion from",
        "slow / fast by the emotion recording",
        "slow / fast by the prompt",
        "voice of the prompt, emotion recording of the same voice",
        "of another voice",
        "character error rate",
    ]
    text = (
        f"{command.steps} steps each; mean over the seeds (smallest to largest). Columns 2 and 3: median "
        "ratio of the durations of a sentence with only that recording exchanged; 1 is no effect. Columns 4 "
        "and 5: share of the sentences whose mean spectrum is nearest to the prompt's voice; 0.25 is chance. "
        "Column 6: of the held-out sentences in the plain style, without an emotion recording."
    )
    publish(command, "Source of the emotion vector", [text, "", *table(header, rows)])
    return 0


def expressive_base(studio: Studio, clips: Sequence[Utterance]) -> Path:
    """Copy the base with an emotion encoder whose vectors differ more between clips; return its folder."""
    folder = studio.folder / "expressive_base"
    if not (folder / "gpt.pth").exists():
        backend, gpt = builtin.load(studio.base / "builtin.npz"), load_trained(studio.base, CPU).gpt
        features = [backend.features(load_audio(clip.audio, SAMPLE_RATE_HZ)) for clip in clips]
        with torch.inference_mode():
            mean = torch.cat([gpt.emotion(each[None]) for each in features]).mean(0)  # (D,)
        shutil.copytree(studio.base, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("gpt.pth"))
        weights = torch.load(studio.base / "gpt.pth", map_location=CPU, weights_only=True)
        weights["emo_layer.bias"] = mean + GAIN * (weights["emo_layer.bias"] - mean)
        weights["emo_layer.weight"] = GAIN * weights["emo_layer.weight"]
        torch.save(weights, folder / "gpt.pth")
    return folder


def listen(checkpoint: Path, of_style: Sequence[Sequence[Utterance]]) -> tuple[float, float, float, float]:
    """Return the effect of the emotion recording and of the prompt on the tempo, and the shares of voices."""
    trained = load_trained(checkpoint, CPU)
    tts = TextToSpeech(trained, load_renderer(trained, None, Path("absent"), CPU, SolverSettings()))
    spectra = [mean_spectra(recordings) for recordings in of_style]
    sampling = Sampling.of_backend("builtin", {"max_codes": MAX_CODES})
    durations: dict[tuple[int, int], list[float]] = {}
    own_voice: dict[bool, list[bool]] = {True: [], False: []}
    for prompt_style in (0, 1):
        for emotion_style in (0, 1):
            for is_own in (True, False):
                lines = []
                for number, utterance in enumerate(of_style[0][:NUM_SENTENCES]):
                    of_voice = [each for each in of_style[prompt_style] if each.speaker == utterance.speaker]
                    prompt = next(each for each in of_voice if each.text != utterance.text)
                    source = next(
                        each
                        for each in of_style[emotion_style][number + 2 :]
                        if (each.speaker == utterance.speaker) == is_own and each.text != utterance.text
                    )
                    voice = tts.read_voice(prompt.audio, Emotion(recording=source.audio))
                    lines.append(tts.line(utterance.text, voice, seed=number))
                for number, speech in sorted(tts.speak(lines, sampling), key=lambda item: item[0]):
                    if is_own:
                        durations.setdefault((prompt_style, emotion_style), []).append(speech.duration_s)
                    own_voice[is_own].append(nearest(speech, spectra) == of_style[0][number].speaker)
    by_emotion = ratio(durations[0, 0] + durations[1, 0], durations[0, 1] + durations[1, 1])
    by_prompt = ratio(durations[0, 0] + durations[0, 1], durations[1, 0] + durations[1, 1])
    return by_emotion, by_prompt, statistics.fmean(own_voice[True]), statistics.fmean(own_voice[False])


def ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """Return the median ratio of the durations of each sentence."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def mean_spectra(recordings: Sequence[Utterance]) -> dict[str, np.ndarray]:
    """Return the mean log-mel spectrum of each voice (M,), relative to its mean over the bands."""
    found: dict[str, list[np.ndarray]] = {}
    for each in recordings:
        found.setdefault(each.speaker, []).append(spectrum(load_audio(each.audio, SAMPLE_RATE_HZ)))
    return {speaker: np.mean(each, axis=0) for speaker, each in found.items()}


def spectrum(samples: np.ndarray) -> np.ndarray:
    return builtin.style_vector(samples, builtin.NUM_BANDS).numpy()


def nearest(speech: Speech, spectra: Sequence[Mapping[str, np.ndarray]]) -> str:
    """Return the voice of the nearest mean spectrum of any style."""
    own = spectrum(speech.samples)
    found = [(float(np.linalg.norm(own - mean)), voice) for style in spectra for voice, mean in style.items()]
    return min(found)[1]


if __name__ == "__main__":
    run(main)
