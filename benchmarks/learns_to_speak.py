"""Closed proof: a model learns to speak a new language with these tools, and a recognizer listens.

    python -m benchmarks.learns_to_speak --folder DIR --base demo/checkpoints [--size cpu] [--seeds=0 ...]

1. The tokenizer of the base is extended for Amharic, and the base is fine-tuned on Amharic phrases with its
   old text rows frozen. espeak-ng speaks them in the four voices of the demo. They have words of
   the demo's sentences and words of random letters; the last 40 sentences are held out with all their
   recordings.
2. tools/evaluate.py speaks the held-out sentences in the voices of held-out recordings.
3. A recognizer that was trained on other recordings (tests/espeak_recognizer.py) gives the character error
   rate of the recordings, of the recordings through the codes (the ceiling), and of what was spoken.

Each step is a program of the project with its own folder in DIR. A step that has finished is not
repeated and a training resumes, so the same command continues after a kill.
"""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import soundfile
import soxr
import torch
import yaml
from matplotlib.figure import Figure
from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, publish, table
from demo.make_demo import VOICES, Voice, at_constant_rms, trimmed
from demo.phrases import NUM_HELD_OUT, joined_halves, words
from indextts.commands.base import Command
from indextts.commands.bases import BASE_2_5
from indextts.commands.data import BuildPairs, ExtendTokenizer, Preprocess
from indextts.commands.speech import Evaluate
from indextts.commands.terminal import parse, run, to_argv
from indextts.commands.train import Train
from indextts.data.manifest import Utterance, read_utterances, write_utterances
from indextts.errors import UserError
from indextts.features.audio import load_audio
from indextts.features.builtin import BuiltinBackend, voice_of
from indextts.features.builtin_networks import NUM_CODES
from indextts.features.recognizers.loading import load_recognizer
from indextts.features.recognizers.recognizer import Recognizer
from indextts.runs.directory import read_metrics
from indextts.speech.evaluation.judge import Judge, SpokenText
from indextts.speech.synthesis.source_filter import render
from indextts.text.ethiopic import amharic_letters
from indextts.text.transcripts import error_rate
from tests.espeak_recognizer import TrainRecognizer
from tests.spoken_languages import spoken

SAMPLE_RATE_HZ = 24_000
TEXTS = REPOSITORY / "demo/sentences.txt"
BASE_TOKENIZER = REPOSITORY / "demo/checkpoints" / BASE_2_5.tokenizer_file
CONFIG = REPOSITORY / "demo/checkpoints/config.yaml"
NUM_PIECES = 2861  # of the extended tokenizer
CHECKPOINTS = 6  # of a curve
MAX_CODES = 200  # of a sentence: 8 s
NUM_BEAMS = 4
INVENTED = 0.6  # share of invented words in the Amharic phrases
FINE_TUNING: Mapping[str, object] = {"learning_rate": 3e-3}  # other settings than the base's training


@dataclass(frozen=True)
class Size:
    """Amounts of a run."""

    phrases: int
    steps: int
    batch: int
    recognizer: Mapping[str, int]


SIZES = {
    "test": Size(
        phrases=24,
        steps=6,
        batch=4,
        recognizer={"num_phrases": 40, "steps": 24, "hidden_size": 32, "layers": 1},
    ),
    "cpu": Size(phrases=24_000, steps=7200, batch=16, recognizer={"num_phrases": 12_000, "steps": 4000}),
}


class LearnsToSpeak(Benchmark):
    """Train an Amharic voice, and measure how well its speech is understood."""

    program: ClassVar[str] = "benchmarks.learns_to_speak"
    folder: Path = Field(description="Folder for everything that is made; the same folder resumes.")
    base: Path = Field(REPOSITORY / "demo/checkpoints", description="Folder of the base.")
    texts: Path | None = Field(None, description="File of sentences to speak instead of the held-out ones.")
    size: Literal["test", "cpu"] = Field("cpu", description="Amount of speech, model and steps.")
    seeds: list[int] = Field([0, 1, 2], min_length=1, description="Seeds of the fine-tuning.")


@dataclass(frozen=True)
class Studio:
    """The folders of a run."""

    folder: Path
    size: Size
    base: Path

    def run(self, command: Command, made: Path) -> None:
        """Run a program of the project unless `made`, its last output, exists."""
        if made.exists():
            return
        log = self.folder / "programs.log"
        with log.open("a") as output:
            argv = [sys.executable, str(REPOSITORY / command.program), *to_argv(command)]
            status = subprocess.run(argv, cwd=REPOSITORY, stdout=output, stderr=output).returncode
        if status:
            raise UserError(f"{command.program} failed with status {status}, see {log}")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(LearnsToSpeak, argv)
    command.folder.mkdir(parents=True, exist_ok=True)
    studio = Studio(command.folder.resolve(), SIZES[command.size], command.base.resolve())
    recognizer_folder = trained_recognizer(studio)
    recognizer = load_recognizer(recognizer_folder, torch.device("cpu"), "am")
    held_out = TEXTS.read_text("utf-8").splitlines()[-NUM_HELD_OUT:]
    texts = command.texts.read_text("utf-8").splitlines() if command.texts else held_out
    speech = studio.folder / (command.texts.stem if command.texts else "held_out")
    manifest = make_speech(speech, [("am", text) for text in texts])
    utterances = read_utterances(manifest)
    clips = [load_audio(utterance.audio, SAMPLE_RATE_HZ) for utterance in utterances]
    through = [through_the_codes(clip) for clip in clips]
    recorded, ceiling = error(recognizer, utterances, clips), error(recognizer, utterances, through)
    rows = [
        ["recordings", "", "", f"{recorded:.3f}", ""],
        ["through the codes", "", "", f"{ceiling:.3f}", "1"],
    ]
    curves: dict[str, list[tuple[int, float, float]]] = {}
    for seed in command.seeds:
        name = f"fine-tuned, seed {seed}"
        run_dir = fine_tuned(studio, seed)
        curves[name] = curve(studio, run_dir, recognizer_folder, manifest)
        rows += [
            [name, str(step), f"{mel_loss:.3f}", f"{found:.3f}", f"{found / ceiling:.2f}"]
            for step, mel_loss, found in curves[name]
        ]
    draw(curves, ceiling, studio.folder / "learns_to_speak.png")
    header = ["what is heard", "step", "validation mel loss", "character error rate", "of the ceiling"]
    lines = table(header, rows)
    publish(command, "Speech of a new language, as a recognizer hears it", lines)
    return 0


def through_the_codes(clip: np.ndarray, is_reversed: bool = False) -> np.ndarray:
    """Return a clip at SAMPLE_RATE_HZ as the built-in codes render it, or its codes from last to first."""
    backend = BuiltinBackend(NUM_CODES)
    features = backend.features(clip)
    codes = backend.codes(features)
    return render(backend.parameters(codes.flip(0) if is_reversed else codes, voice_of(features)))


def draw(curves: Mapping[str, Sequence[tuple[int, float, float]]], ceiling: float, path: Path) -> None:
    """Draw error rate and validation mel loss over the steps of each fine-tuning."""
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    heard, losses = figure.subplots(1, 2)
    for name, points in curves.items():
        steps = [step for step, _, _ in points]
        heard.plot(steps, [100 * found for _, _, found in points], marker=".", label=name)
        losses.plot(steps, [mel_loss for _, mel_loss, _ in points], marker=".", label=name)
    heard.axhline(100 * ceiling, color="grey", linestyle="--", label="recordings through the codes")
    heard.set(xlabel="step", ylabel="character error rate, %", ylim=(0, None))
    losses.set(xlabel="step", ylabel="validation mel loss")
    heard.legend()
    figure.savefig(path, dpi=100)


# --- speech -------------------------------------------------------------------------------------------


def make_speech(folder: Path, texts: Sequence[tuple[str, str]]) -> Path:
    """Speak (language, text) in the four voices in turn; return the manifest."""
    manifest = folder / "manifest.jsonl"
    if manifest.exists():
        return manifest
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for number, (language, text) in enumerate(texts):
        voice: Voice = VOICES[number // 2 % len(VOICES)]
        name = f"{VOICES.index(voice)}_{number:05d}"
        samples, rate_hz = spoken(text, f"{language}+{voice.variant}", voice.pitch, voice.words_per_minute)
        clip = soxr.resample(samples.astype(np.float64), rate_hz, SAMPLE_RATE_HZ)
        clip = at_constant_rms(trimmed(clip))
        path = folder / f"{name}.flac"
        soundfile.write(path, clip, SAMPLE_RATE_HZ)
        found.append(Utterance(name, path, text, voice.speaker, round(len(clip) / SAMPLE_RATE_HZ, 3)))
    write_utterances(manifest, found)
    return manifest


Invent = Callable[[Sequence[str], random.Random], str]


def random_letters(known: Sequence[str], chance: random.Random) -> str:
    """Return 2 to 6 letters, as frequent as in the known words or, for half of the words, any of Amharic."""
    letters = amharic_letters() if chance.random() < 0.5 else "".join(known)
    return "".join(chance.choices(letters, k=chance.randint(2, 6)))


def phrases(
    vocabulary: Mapping[str, Sequence[str]], count: int, invented: float, invent: Invent = joined_halves
) -> list[tuple[str, str]]:
    """Return phrases of 1 to 6 words, the languages in turn.

    Args:
        vocabulary: the sorted words of each language.
        invented: share of words that `invent` makes.
    """
    chance = random.Random(0)
    languages = list(vocabulary)

    def word(known: Sequence[str]) -> str:
        return chance.choice(known) if chance.random() >= invented else invent(known, chance)

    found = []
    for number in range(count):
        language = languages[number % len(languages)]
        known = vocabulary[language]
        found.append((language, " ".join(word(known) for _ in range(chance.randint(1, 6)))))
    return found


def amharic_phrases(count: int) -> list[tuple[str, str]]:
    """Return the demo's sentences that are not held out, then phrases of their and of invented words."""
    texts = TEXTS.read_text("utf-8").splitlines()[:-NUM_HELD_OUT]
    known = words(texts, "[\u1200-\u135a]")
    more = phrases({"am": known}, max(0, count - len(texts)), INVENTED, random_letters)
    return [*(("am", text) for text in texts[:count]), *more]


# --- training -----------------------------------------------------------------------------------------


def preprocessed(studio: Studio, manifest: Path, folder: Path) -> Path:
    """Encode a manifest and pair it; return the folder with train_pairs.jsonl and val_pairs.jsonl."""
    encode = Preprocess(
        manifest=manifest,
        output_dir=folder,
        config=studio.base / "config.yaml",
        gpt_checkpoint=studio.base / "gpt.pth",
        val_ratio=0.1 if studio.size.phrases < 100 else 0.03,
    )
    studio.run(encode, folder / "val_manifest.jsonl")
    for split in ("train", "val"):
        output = folder / f"{split}_pairs.jsonl"
        studio.run(
            BuildPairs(manifest=folder / f"{split}_manifest.jsonl", output=output, pairs_per_target=1), output
        )
    return folder


def training(
    studio: Studio,
    pairs: Path,
    base: Path,
    tokenizer: Path,
    run_dir: Path,
    steps: int,
    seed: int,
    **changed: object,
) -> Train:
    """Return the command of a training until `steps`, which resumes."""
    settings: dict[str, Any] = {
        "train_manifest": [pairs / "train_pairs.jsonl"],
        "val_manifest": [pairs / "val_pairs.jsonl"],
        "tokenizer": tokenizer,
        "config": base / "config.yaml",
        "base_checkpoint": base / "gpt.pth",
        "output_dir": run_dir,
        "resume": "auto",
        "epochs": 100_000,
        "max_steps": steps,
        "batch_size": studio.size.batch,
        "learning_rate": 1.5e-3,
        "warmup_steps": min(200, steps // 4),
        "text_loss_weight": 0.05,
        "mel_loss_weight": 0.95,
        "val_interval": max(1, steps // CHECKPOINTS),
        "save_interval": max(1, steps // CHECKPOINTS),
        "keep_checkpoints": CHECKPOINTS + 1,
        "seed": seed,
        "emotion_from": "prompt",  # the speech has one style
        "allow_cpu": True,
    }
    return Train(**settings | changed)


def fine_tuned(studio: Studio, seed: int) -> Path:
    """Fine-tune the base on Amharic; return the run directory."""
    steps = studio.size.steps
    folder = studio.folder / f"{steps}_steps"
    folder.mkdir(exist_ok=True, parents=True)
    pairs, tokenizer = amharic_pairs(studio)
    run_dir = folder / f"run_{seed}"
    command = training(studio, pairs, studio.base, tokenizer, run_dir, steps, seed, **FINE_TUNING)
    command = command.model_copy(update={"config": without_dropout(studio)})
    studio.run(command, run_dir / f"model_step{steps}.json")
    return run_dir


def without_dropout(studio: Studio) -> Path:
    """Return the base's config without dropout, which keeps the losses of a model of this size high."""
    path = studio.folder / "without_dropout.yaml"
    config = yaml.safe_load((studio.base / "config.yaml").read_text("utf-8"))
    config["gpt"]["dropout"] = 0.0
    path.write_text(yaml.safe_dump(config))
    return path


def amharic_pairs(studio: Studio) -> tuple[Path, Path]:
    """Return the folder of Amharic pairs to train on, and the extended tokenizer."""
    manifest = make_speech(studio.folder / "amharic", amharic_phrases(studio.size.phrases))
    tokenizer = studio.folder / BASE_2_5.extended_file
    command = ExtendTokenizer(
        base_model=BASE_TOKENIZER, manifests=[manifest], output_model=tokenizer, target_size=NUM_PIECES
    )
    studio.run(command, tokenizer)
    return preprocessed(studio, manifest, studio.folder / "amharic_features"), tokenizer


# --- listening ----------------------------------------------------------------------------------------


def trained_recognizer(studio: Studio) -> Path:
    folder = studio.folder / "recognizer"
    if not (folder / "vocab.json").exists():
        settings = {"output_dir": folder, "num_held_out": NUM_HELD_OUT, **studio.size.recognizer}
        argv = to_argv(TrainRecognizer(**settings))
        subprocess.run([sys.executable, "-m", "tests.espeak_recognizer", *argv], cwd=REPOSITORY, check=True)
    return folder


def curve(studio: Studio, run_dir: Path, recognizer: Path, manifest: Path) -> list[tuple[int, float, float]]:
    """Let checkpoints of a run speak; return step, validation mel loss and error rate of each."""
    losses = {
        line["step"]: line["mel_loss"]
        for line in read_metrics(run_dir / "metrics.jsonl")
        if line.get("kind") == "val"
    }
    checkpoints = sorted(run_dir.glob("model_step*.pth"), key=lambda path: int(path.stem[10:]))
    evaluation = run_dir / f"evaluation_{manifest.parent.name}"
    command = Evaluate(
        checkpoint=checkpoints,
        manifest=manifest,
        output_dir=evaluation,
        asr=[str(recognizer)],
        device="cpu",
        max_codes=MAX_CODES,
        do_sample=False,  # one answer, whatever the seed
        num_beams=NUM_BEAMS,
    )
    studio.run(command, evaluation / "report.md")
    rows = [json.loads(line) for line in (evaluation / "summary.jsonl").read_text("utf-8").splitlines()]
    return [(row["step"], losses[row["step"]], *row["cer"].values()) for row in rows if row["step"]]


def error(recognizer: Recognizer, meant: Sequence[Utterance], clips: Sequence[np.ndarray]) -> float:
    """Return the character error rate of clips at SAMPLE_RATE_HZ, counted as tools/evaluate.py counts it."""
    judged = Judge([recognizer], None).judge(
        [SpokenText(clip, SAMPLE_RATE_HZ, each.text, None) for each, clip in zip(meant, clips, strict=True)]
    )
    return error_rate([found for each in judged for found in each.errors.values()])


if __name__ == "__main__":
    run(main)
