"""Does a model speak a new language after training with these tools? A recognizer listens.

    python -m benchmarks.learns_to_speak --folder DIR [--size cpu] [--seeds 0 --seeds 1 ...]

1. espeak-ng speaks phrases of English and Swahili in the four voices of the demo (demo/make_demo.py). A small
   GPT with random weights learns them with the base tokenizer: the base.
2. The tokenizer is extended for Amharic, and the base is fine-tuned on Amharic phrases with its old text rows
   frozen. The phrases have words of the demo's sentences and invented words; the last 40 sentences are held
   out with all their recordings.
3. tools/synthesize.py speaks the held-out sentences in the voices of held-out recordings.
4. A recognizer that was trained on other recordings (tests/espeak_recognizer.py) gives the character error
   rate of the recordings, of the recordings through the codes (the ceiling), and of what was spoken.

Every case of `CASES` but the first has a planted fault that the error must show. Each step is a program of
the project with its own folder in DIR. A step that has finished is not repeated and a training resumes, so
the same command continues after a kill.
"""

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import soundfile
import soxr
import torch
import yaml
from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, publish, table
from demo.make_demo import VOICES, Voice, at_constant_rms, trimmed
from indextts.commands.app import MakeBaseCheckpoint
from indextts.commands.base import Command
from indextts.commands.data import BuildPairs, ExtendTokenizer, Preprocess
from indextts.commands.speech import ExportModel, Synthesize
from indextts.commands.terminal import parse, run, to_argv
from indextts.commands.train import Train
from indextts.data.manifest import (
    Utterance,
    read_pairs,
    read_utterances,
    write_pairs,
    write_utterances,
)
from indextts.errors import UserError
from indextts.features import builtin
from indextts.features.audio import load_audio
from indextts.features.recognizers.ctc import CtcRecognizer
from indextts.features.recognizers.loading import load_recognizer
from indextts.runs.directory import read_metrics
from indextts.speech.synthesis.griffin_lim import render_codes
from indextts.text.transcripts import Errors, count_errors, error_rate
from tests.espeak_recognizer import TrainRecognizer
from tests.spoken_languages import sentences, spoken

SAMPLE_RATE_HZ = 24_000
TEXTS = REPOSITORY / "demo/sentences.txt"
ENGLISH = REPOSITORY / "demo/english.txt"
BASE_TOKENIZER = REPOSITORY / "demo/checkpoints/bpe.model"
CONFIG = REPOSITORY / "demo/checkpoints/config.yaml"
NUM_HELD_OUT = 40
NUM_PIECES = 720  # of the extended tokenizer: 400, 291 letters of the script, and a few merges
MAX_BASE_S = 2.6  # short clips teach where the sound is in the text sooner
CHECKPOINTS = 6  # of a curve

Case = Literal["trained", "random base", "shuffled texts", "optimizer lost"]
CASES: tuple[Case, ...] = ("trained", "random base", "shuffled texts", "optimizer lost")


@dataclass(frozen=True)
class Size:
    """Amounts of a run; the GPT is that of the demo, or `width` and `layers`."""

    base_phrases: int
    base_steps: int
    phrases: int
    steps: int
    batch: int
    recognizer: Mapping[str, int]
    gpt: Mapping[str, int]


SIZES = {
    "test": Size(60, 6, 24, 6, 4, {"num_phrases": 40, "steps": 24, "hidden_size": 32, "layers": 1}, {}),
    "cpu": Size(6000, 5500, 1500, 3000, 16, {"num_phrases": 12_000, "steps": 4000}, {}),
    "gpu": Size(
        40_000,
        30_000,
        6000,
        8000,
        64,
        {"num_phrases": 12_000, "steps": 4000},
        {"model_dim": 384, "layers": 8, "heads": 6},
    ),
}


class LearnsToSpeak(Benchmark):
    """Train a base and an Amharic voice, and measure how well its speech is understood."""

    program: ClassVar[str] = "benchmarks.learns_to_speak"
    folder: Path = Field(description="Folder for everything that is made; the same folder resumes.")
    size: Literal["test", "cpu", "gpu"] = Field("cpu", description="Amount of speech, model and steps.")
    seeds: list[int] = Field([0, 1, 2], min_length=1, description="Seeds of the fine-tuning.")
    cases: list[Case] = Field(list(CASES), min_length=1, description="Fine-tunings to compare.")
    until: Literal["base", "end"] = Field("end", description="Last step: base stops with the base model.")


@dataclass(frozen=True)
class Studio:
    """The folders of a run."""

    folder: Path
    size: Size

    @property
    def base(self) -> Path:
        """The exported base: gpt.pth in half precision, config.yaml, bpe.model, builtin.npz."""
        return self.folder / "base"

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
    studio = Studio(command.folder.resolve(), SIZES[command.size])
    make_base(studio)
    if command.until == "base":
        print(studio.base)
        return 0
    recognizer = trained_recognizer(studio)
    held_out = held_out_recordings(studio)
    backend = builtin.load(studio.base / "builtin.npz")
    clips = [load_audio(utterance.audio, SAMPLE_RATE_HZ) for utterance in held_out]
    through = [render_codes(backend, backend.codes(backend.features(clip))) for clip in clips]
    recorded, ceiling = error(recognizer, held_out, clips), error(recognizer, held_out, through)
    rows = [
        ["recordings", "", "", f"{recorded:.3f}", ""],
        ["through the codes", "", "", f"{ceiling:.3f}", "1"],
    ]
    for seed in command.seeds:
        for case in command.cases:
            for step, mel_loss, found in curve(studio, case, seed, recognizer, held_out):
                name = f"{case}, seed {seed}"
                rows.append([name, str(step), f"{mel_loss:.3f}", f"{found:.3f}", f"{found / ceiling:.2f}"])
    header = ["what is heard", "step", "validation mel loss", "character error rate", "of the ceiling"]
    publish(command, "Speech of a new language, as a recognizer hears it", table(header, rows))
    return 0


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


def phrases(vocabulary: Mapping[str, Sequence[str]], count: int, invented: float) -> list[tuple[str, str]]:
    """Return phrases of 1 to 6 words, the languages in turn.

    Args:
        vocabulary: the sorted words of each language.
        invented: share of words that are joined from the halves of two words.
    """
    chance = random.Random(0)
    languages = list(vocabulary)

    def word(known: Sequence[str]) -> str:
        if chance.random() >= invented:
            return chance.choice(known)
        first, second = chance.choice(known), chance.choice(known)
        return first[: (len(first) + 1) // 2] + second[len(second) // 2 :]

    found = []
    for number in range(count):
        language = languages[number % len(languages)]
        known = vocabulary[language]
        found.append((language, " ".join(word(known) for _ in range(chance.randint(1, 6)))))
    return found


def words(texts: Sequence[str], letter: str = "[a-z']") -> list[str]:
    return sorted({word for text in texts for word in re.findall(f"{letter}+", text.lower())})


def base_phrases(count: int) -> list[tuple[str, str]]:
    english = words(ENGLISH.read_text("utf-8").splitlines())
    return phrases({"en": english, "sw": words(sentences("sw", 600))}, count, invented=0.4)


def amharic_phrases(count: int) -> list[tuple[str, str]]:
    """Return the demo's sentences that are not held out, then phrases of their words."""
    texts = TEXTS.read_text("utf-8").splitlines()[:-NUM_HELD_OUT]
    more = phrases({"am": words(texts, "[\u1200-\u135a]")}, max(0, count - len(texts)), invented=0.2)
    return [*(("am", text) for text in texts[:count]), *more]


def held_out_recordings(studio: Studio) -> list[Utterance]:
    texts = TEXTS.read_text("utf-8").splitlines()[-NUM_HELD_OUT:]
    return read_utterances(make_speech(studio.folder / "held_out", [("am", text) for text in texts]))


# --- training -----------------------------------------------------------------------------------------


def make_base(studio: Studio) -> None:
    """Train the base on English and Swahili, with codes that are fitted to Amharic too."""
    folder, size = studio.folder / "base_training", studio.size
    folder.mkdir(exist_ok=True)
    config = yaml.safe_load(CONFIG.read_text("utf-8"))
    config["gpt"] |= size.gpt
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    shutil.copy(BASE_TOKENIZER, folder / "bpe.model")
    random_base = folder / "gpt.pth"
    studio.run(MakeBaseCheckpoint(config=folder / "config.yaml", output=random_base), random_base)
    foreign = make_speech(folder / "speech", base_phrases(size.base_phrases))
    amharic = make_speech(studio.folder / "amharic", amharic_phrases(size.phrases))
    mixed = [*read_utterances(foreign)[: 2 * size.phrases], *read_utterances(amharic)]
    write_utterances(folder / "mixed.jsonl", mixed)
    codes = folder / "builtin.npz"  # beside the base, so that preprocessing uses it
    if not codes.exists():
        num_codes = config["gpt"]["number_mel_codes"] - 2
        builtin.fit([utterance.audio for utterance in mixed], num_codes, seed=17).save(codes)
    short = folder / "short.jsonl"
    write_utterances(short, [each for each in read_utterances(foreign) if each.duration_s <= MAX_BASE_S])
    pairs = preprocessed(studio, short, folder, folder / "features")
    train(studio, pairs, folder, BASE_TOKENIZER, folder / "run", size.base_steps, 1.5e-3, seed=0)
    export(studio, folder / "run/latest.pth", folder, studio.base)


def preprocessed(studio: Studio, manifest: Path, base: Path, folder: Path) -> Path:
    """Encode a manifest and pair it; return the folder with train_pairs.jsonl and val_pairs.jsonl."""
    encode = Preprocess(
        manifest=manifest,
        output_dir=folder,
        config=base / "config.yaml",
        gpt_checkpoint=base / "gpt.pth",
        val_ratio=0.1 if studio.size.phrases < 100 else 0.03,
    )
    studio.run(encode, folder / "val_manifest.jsonl")
    for split in ("train", "val"):
        output = folder / f"{split}_pairs.jsonl"
        studio.run(
            BuildPairs(manifest=folder / f"{split}_manifest.jsonl", output=output, pairs_per_target=1), output
        )
    return folder


def train(
    studio: Studio,
    pairs: Path,
    base: Path,
    tokenizer: Path,
    run_dir: Path,
    steps: int,
    learning_rate: float,
    seed: int,
) -> None:
    """Train until `steps`; a run that was killed resumes."""
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
        "learning_rate": learning_rate,
        "warmup_steps": min(200, steps // 4),
        "text_loss_weight": 0.05,
        "mel_loss_weight": 0.95,
        "val_interval": max(1, steps // CHECKPOINTS),
        "save_interval": max(1, steps // CHECKPOINTS),
        "keep_checkpoints": CHECKPOINTS + 1,
        "seed": seed,
        "allow_cpu": True,
    }
    studio.run(Train(**settings), run_dir / f"model_step{steps}.json")


def export(studio: Studio, checkpoint: Path, base: Path, folder: Path) -> None:
    command = ExportModel(
        checkpoint=checkpoint, config=base / "config.yaml", output_dir=folder, dtype="float16"
    )
    studio.run(command, folder / "export.json")


def curve(
    studio: Studio, case: Case, seed: int, recognizer: CtcRecognizer, held_out: Sequence[Utterance]
) -> list[tuple[int, float, float]]:
    """Fine-tune a case; return step, validation mel loss and error rate of each checkpoint."""
    run_dir = fine_tuned(studio, case, seed)
    losses = {
        line["step"]: line["mel_loss"]
        for line in read_metrics(run_dir / "metrics.jsonl")
        if line.get("kind") == "val"
    }
    found = []
    for checkpoint in sorted(run_dir.glob("model_step*.pth"), key=lambda path: int(path.stem[10:])):
        step = int(checkpoint.stem[10:])
        clips = spoken_by(studio, checkpoint, held_out)
        found.append((step, losses.get(step, float("nan")), error(recognizer, held_out, clips)))
    return found


def fine_tuned(studio: Studio, case: Case, seed: int) -> Path:
    """Fine-tune a base on Amharic; return the run directory."""
    folder, steps = studio.folder / case.replace(" ", "_"), studio.size.steps
    folder.mkdir(exist_ok=True)
    base = studio.base if case != "random base" else studio.folder / "base_training"
    manifest = make_speech(studio.folder / "amharic", amharic_phrases(studio.size.phrases))
    tokenizer = studio.folder / "amharic_bpe.model"
    studio.run(
        ExtendTokenizer(
            base_model=BASE_TOKENIZER, manifests=[manifest], output_model=tokenizer, target_size=NUM_PIECES
        ),
        tokenizer,
    )
    pairs = preprocessed(studio, manifest, base, folder / "features")
    if case == "shuffled texts":
        pairs = shuffled(pairs, folder / "shuffled", seed)
    run_dir = folder / f"run_{seed}"
    if case == "optimizer lost":
        half = folder / f"half_{seed}"
        train(studio, pairs, base, tokenizer, half, steps // 2, 1.5e-3, seed)
        base = folder / f"half_model_{seed}"
        export(studio, half / "latest.pth", studio.base, base)
    train(
        studio, pairs, base, tokenizer, run_dir, steps // (2 if case == "optimizer lost" else 1), 1.5e-3, seed
    )
    return run_dir


def shuffled(pairs: Path, folder: Path, seed: int) -> Path:
    """Copy pairs with the texts of other targets."""
    folder.mkdir(exist_ok=True)
    for split in ("train", "val"):
        found = read_pairs(pairs / f"{split}_pairs.jsonl")
        texts = [pair.target_text for pair in found]
        if split == "train":
            random.Random(seed).shuffle(texts)
        changed = [replace(pair, target_text=text) for pair, text in zip(found, texts, strict=True)]
        write_pairs(folder / f"{split}_pairs.jsonl", changed)
    return folder


# --- listening ----------------------------------------------------------------------------------------


def trained_recognizer(studio: Studio) -> CtcRecognizer:
    folder = studio.folder / "recognizer"
    if not (folder / "vocab.json").exists():
        settings = {"output_dir": folder, "num_held_out": NUM_HELD_OUT, **studio.size.recognizer}
        argv = to_argv(TrainRecognizer(**settings))
        subprocess.run([sys.executable, "-m", "tests.espeak_recognizer", *argv], cwd=REPOSITORY, check=True)
    recognizer = load_recognizer(folder, torch.device("cpu"), "am")
    assert isinstance(recognizer, CtcRecognizer)
    return recognizer


def spoken_by(studio: Studio, checkpoint: Path, held_out: Sequence[Utterance]) -> list[np.ndarray]:
    """Speak each held-out text in the voice of another held-out recording of the same speaker."""
    output = checkpoint.parent / f"spoken_{checkpoint.stem}"
    output.mkdir(exist_ok=True)
    paths = {}
    for speaker in sorted({utterance.speaker for utterance in held_out}):
        own = [utterance for utterance in held_out if utterance.speaker == speaker]
        for part, voice in ((own[1:], own[0]), (own[:1], own[1])):
            place = output / voice.id
            place.mkdir(exist_ok=True)
            (place / "texts.txt").write_text("".join(f"{each.text}\n" for each in part), encoding="utf-8")
            command = Synthesize(
                checkpoint=checkpoint,
                text_file=place / "texts.txt",
                voice=str(voice.audio),
                output=place / "speech",
                device="cpu",
                max_codes=400,
            )
            studio.run(command, place / "speech/spoken.jsonl")
            for number, each in enumerate(part, start=1):
                paths[each.id] = place / f"speech/{number:03d}.wav"
    return [load_audio(paths[utterance.id], SAMPLE_RATE_HZ) for utterance in held_out]


def error(recognizer: CtcRecognizer, meant: Sequence[Utterance], clips: Sequence[np.ndarray]) -> float:
    """Return the character error rate of clips at SAMPLE_RATE_HZ."""
    return error_rate(errors(recognizer, meant, clips))


def errors(
    recognizer: CtcRecognizer, meant: Sequence[Utterance], clips: Sequence[np.ndarray]
) -> list[Errors]:
    found = []
    for utterance, clip in zip(meant, clips, strict=True):
        heard = soxr.resample(clip, SAMPLE_RATE_HZ, recognizer.sample_rate_hz)
        [scores] = recognizer.log_probabilities([heard])
        found.append(count_errors(utterance.text, recognizer.text_of(scores)))
    return found


if __name__ == "__main__":
    run(main)
