"""Which first rows let the pieces of an extended tokenizer learn fastest? Measured on a small base.

    python -m benchmarks.new_rows        # from the repository root; needs espeak-ng; stopped, it goes on

1. demo/english.txt, spoken by espeak-ng in four voices; its tokenizer is the demo's base tokenizer
2. a small GPT with random weights, trained on it by the project's trainer: the base
3. the base's tokenizer extended by Amharic pieces, as tools/extend_bpe.py does
4. per rule and seed: the base fine-tuned on the demo's Amharic by the same trainer; of one seed all rules see
   the same batches and the same dropout
5. benchmarks/results/new_rows.md: validation losses at a few steps

What is spoken is formant synthesis, its codes are k-means of log-mel: this says something about the rules,
not about the published weights.
"""

import os
import platform
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import sentencepiece
import soundfile
import soxr
import torch
import yaml
from pydantic import Field
from torch import Tensor

from benchmarks.transliterate import transliterate
from demo.make_demo import DEMO, RMS, SAMPLE_RATE_HZ, VOICES, Voice, as_opus, read_lines, trimmed
from indextts.commands.base import Command
from indextts.commands.data import Preprocess
from indextts.commands.terminal import parse, run, to_argv
from indextts.commands.train import Train
from indextts.data.manifest import Utterance, read_pairs, read_utterances, write_pairs, write_utterances
from indextts.data.pairs import build_pairs
from indextts.data.preprocess import preprocess
from indextts.errors import UserError
from indextts.models.checkpoint import TEXT_TABLES, move_text_rows, read_weights
from indextts.models.gpt.config import GPTConfig, load_config
from indextts.models.gpt.weights import random_model
from indextts.runs.directory import CheckpointMeta, read_metrics
from indextts.system.processes import git_commit
from indextts.text.extend import extend_file
from indextts.text.tokenizer import WORD_START, Tokenizer
from indextts.training import start
from trainers import train_gpt_v2

RESULTS = Path(__file__).parent / "results/new_rows.md"
MODULE = "benchmarks.new_rows"
LOSSES = {
    "mel_loss": "mel_loss: the semantic codes",
    "text_loss": "text_loss: all text tokens",
    "new_text_loss": "new_text_loss: the new pieces alone",
}
Losses = dict[str, list[dict[int, dict[str, Any]]]]  # rule -> one for each seed -> step -> the [Val] line
BASE_BATCH, BATCH = 8, 4
LEARNING_RATE = 5e-4
REPORTED_STEPS = (0, 50, 100, 200, 300)
NOISE_STD = 0.02
VOICES_PER_SENTENCE = 2
LAYERS, MODEL_DIM = 4, 256

RULES = {
    "random": "N(0, 0.02); head bias 0",
    "mean": "mean of the base rows + N(0, 0.02); head bias their mean",
    "transliteration": "mean of the base rows of the piece in Latin letters + N(0, 0.02); bias likewise",
}


class NewRows(Command):
    """Compare rules for the first rows of new pieces; writes benchmarks/results/new_rows.md."""

    program: ClassVar[str] = "benchmarks/new_rows.py"
    work_dir: Path = Field(Path("workspace/new_rows"), description="Folder for audio, features and runs.")
    base_steps: int = Field(1000, ge=1, description="Steps of English that the base is trained for.")
    steps: int = Field(300, ge=50, description="Steps of Amharic for each rule and seed.")
    seeds: int = Field(3, ge=1, description="Seeds for each rule.")
    target_size: int = Field(1000, ge=700, description="Pieces of the extended tokenizer.")
    processes: int = Field(2, ge=1, description="Trainings at a time, one thread each.")
    output: Path = Field(RESULTS, description="The page to write.")


@dataclass(frozen=True)
class Files:
    """What the runs start from."""

    config: Path
    base: Path
    tokenizer: Path
    pairs: dict[str, Path]


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(NewRows, argv)
    if shutil.which("espeak-ng") is None:
        raise UserError("espeak-ng is not on the PATH, install it (apt-get install espeak-ng) and run again")
    torch.set_num_threads(command.processes)
    work = command.work_dir.resolve()
    pairs = prepare_pairs(work)
    base_losses = train_base(work, pairs, command)
    texts = [line.text for line in read_utterances(DEMO / "manifest.jsonl")]
    extend_file(work / "base/bpe.model", texts, work / "tokenizer.model", command.target_size)
    files = Files(work / "base/config.yaml", work / "base/gpt.pth", work / "tokenizer.model", pairs)
    page = describe(command, files, base_losses, fine_tune_all(work, files, command))
    command.output.parent.mkdir(parents=True, exist_ok=True)
    command.output.write_text(page, encoding="utf-8")
    print(page)
    return 0


# --- data and base ---------------------------------------------------------------------------------------


def prepare_pairs(work: Path) -> dict[str, Path]:
    """Speak, encode and pair; return the pairs files by "en_train", "en_val", "am_train" and "am_val".

    Both languages go through the encoders in one run: they share the codebook, as they would share the
    published codec.
    """
    base = work / "base"
    base.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(DEMO / "checkpoints/bpe.model", base / "bpe.model")
    config = small_config()
    (base / "config.yaml").write_text(yaml.safe_dump({"gpt": asdict(config)}))
    torch.save(random_model(config, seed=0).state_dict(), work / "random.pth")
    utterances = [*speak_english(work / "audio"), *read_utterances(DEMO / "manifest.jsonl")]
    write_utterances(work / "manifest.jsonl", utterances)
    preprocess(
        Preprocess(
            manifest=work / "manifest.jsonl",
            output_dir=work / "preprocessed",
            config=base / "config.yaml",
            gpt_checkpoint=work / "random.pth",
            val_ratio=0.15,
            device="cpu",
        )
    )
    return {
        f"{language}_{split}": write_pairs_of(work, language, split)
        for language in ("en", "am")
        for split in ("train", "val")
    }


def small_config() -> GPTConfig:
    return replace(load_config(DEMO / "checkpoints/config.yaml"), layers=LAYERS, model_dim=MODEL_DIM)


def speak_english(folder: Path) -> list[Utterance]:
    """Return the sentences of demo/english.txt, each spoken by two of the demo's four voices."""
    folder.mkdir(exist_ok=True)
    utterances = []
    for number, text in enumerate(read_lines(DEMO / "english.txt")):
        for turn in range(VOICES_PER_SENTENCE):
            voice = VOICES[(number + turn) % len(VOICES)]
            name = f"en_{number:04d}_{voice.variant}"
            audio = folder / f"{name}.opus"
            if not audio.is_file():
                audio.write_bytes(spoken(text, voice))
            speaker = f"en_{voice.speaker}"
            duration_s = round(soundfile.info(audio).duration, 3)
            utterances.append(Utterance(name, audio, text, speaker, duration_s, language="en"))
    return utterances


def spoken(text: str, voice: Voice) -> bytes:
    """Return an English sentence as an Ogg/Opus file, made as the demo's Amharic is."""
    settings = ["-v", f"en+{voice.variant}", "-p", str(voice.pitch), "-s", str(voice.words_per_minute)]
    with tempfile.TemporaryDirectory() as folder:
        wave = Path(folder) / "speech.wav"
        subprocess.run(["espeak-ng", *settings, "-w", str(wave), "--", text], check=True)
        samples, sample_rate_hz = soundfile.read(wave)
    speech = trimmed(soxr.resample(samples, sample_rate_hz, SAMPLE_RATE_HZ, quality="VHQ"))
    # the demo's level, lower where English peaks would clip
    return as_opus(speech * min(RMS / np.sqrt(np.mean(speech**2)), 0.9 / np.abs(speech).max()))


def write_pairs_of(work: Path, language: str, split: str) -> Path:
    utterances = read_utterances(work / f"preprocessed/{split}_manifest.jsonl")
    of_language = [u for u in utterances if u.language == language]
    path = work / f"{language}_{split}_pairs.jsonl"
    write_pairs(path, build_pairs(of_language, pairs_per_target=1, seed=0).pairs)
    return path


def train_base(work: Path, pairs: dict[str, Path], command: NewRows) -> dict[str, float]:
    """Train the base on English unless that is done; return its best validation losses."""
    output = work / "base_run"
    flags = Train(
        train_manifest=[pairs["en_train"]],
        val_manifest=[pairs["en_val"]],
        tokenizer=work / "base/bpe.model",
        config=work / "base/config.yaml",
        base_checkpoint=work / "random.pth",
        output_dir=output,
        resume="auto",
        epochs=10_000,
        max_steps=command.base_steps,
        batch_size=BASE_BATCH,
        learning_rate=1e-3,
        warmup_steps=100,
        val_interval=100,
        save_interval=command.base_steps,
        keep_checkpoints=1,
        seed=0,
        allow_cpu=True,
    )
    subprocess.run([sys.executable, "-m", "trainers.train_gpt_v2", *to_argv(flags)], check=True)
    torch.save(read_weights(output / "best.pth"), work / "base/gpt.pth")
    best = validations(output)[CheckpointMeta.read(output / "best.json").step]
    return {name: best[name] for name in ("step", "mel_loss", "mel_top1", "text_loss")}


# --- the rules -------------------------------------------------------------------------------------------


def place_rows(
    weights: Mapping[str, Tensor],
    row_of: tuple[int, ...],
    *,
    base_size: int,
    seed: int,
    rule: str,
    tokenizer: Tokenizer,
) -> dict[str, Tensor]:
    """Do what `move_text_rows` does, with the new pieces' rows by `rule`."""
    moved = move_text_rows(weights, row_of, base_size=base_size, seed=seed)
    if rule == "mean":  # the one that the project has
        return moved
    new_rows = [row for row, old in enumerate(row_of) if old < 0]
    tokens = latin_tokens(tokenizer, [tokenizer.pieces[row] for row in new_rows])
    generator = torch.Generator().manual_seed(seed)
    for name in TEXT_TABLES:
        base = weights[name][: new_rows[0]].float()  # (base size, D) or (base size,)
        if rule == "random":
            rows = torch.zeros(len(new_rows), *base.shape[1:])
        else:
            rows = torch.stack([base[ids or slice(None)].mean(dim=0) for ids in tokens])
        if base.dim() == 2:
            rows += NOISE_STD * torch.randn(rows.shape, generator=generator)
        moved[name][torch.tensor(new_rows)] = rows.to(moved[name].dtype)
    return moved


def latin_tokens(tokenizer: Tokenizer, pieces: Sequence[str]) -> list[list[int]]:
    """Return for each piece the tokens of its transliteration; none where it has no Amharic letter.

    The appended pieces are Ethiopic, so these are the tokens that the base tokenizer gives.
    """
    at_start, inside = (processor(tokenizer, is_start) for is_start in (True, False))
    all_tokens = []
    for piece in pieces:
        cut = at_start if piece.startswith(WORD_START) else inside
        tokens = cut.encode(transliterate(piece.strip(WORD_START)))
        all_tokens.append([token for token in tokens if token != tokenizer.unknown_id])
    return all_tokens


def processor(tokenizer: Tokenizer, is_start: bool) -> Any:
    """Return the SentencePiece processor for a text at a word's start, or for one inside of a word."""
    proto = tokenizer.proto
    proto.normalizer_spec.add_dummy_prefix = is_start
    return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())


# --- the runs --------------------------------------------------------------------------------------------


def fine_tune_all(work: Path, files: Files, command: NewRows) -> Losses:
    """Train all rules with all seeds; runs that are done are kept, stopped ones go on."""
    jobs = {
        (rule, seed): fine_tuning(work, files, command, rule, seed)
        for rule in RULES
        for seed in range(1, command.seeds + 1)
    }
    with ProcessPoolExecutor(
        command.processes, mp_context=get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        futures = {
            key: pool.submit(fine_tune, to_argv(flags), key[0], files.tokenizer)
            for key, flags in jobs.items()
        }
        for (rule, seed), future in futures.items():
            if future.result() != 0:
                raise UserError(f"the run of rule {rule!r}, seed {seed} failed; see its train.log")
            print(f"{rule}, seed {seed}: done", flush=True)
    return {
        rule: [validations(jobs[rule, seed].output_dir) for seed in range(1, command.seeds + 1)]
        for rule in RULES
    }


def validations(run_dir: Path) -> dict[int, dict[str, Any]]:
    """Return the [Val] lines of a run by step."""
    lines = read_metrics(run_dir / "metrics.jsonl")
    return {line["step"]: line for line in lines if line["kind"] == "val"}


def fine_tuning(work: Path, files: Files, command: NewRows, rule: str, seed: int) -> Train:
    output = work / "runs" / f"{rule}-{seed}"
    return Train(
        train_manifest=[files.pairs["am_train"]],
        val_manifest=[files.pairs["am_val"]],
        tokenizer=files.tokenizer,
        config=files.config,
        base_checkpoint=files.base,
        output_dir=output,
        resume="auto",
        epochs=10_000,
        max_steps=command.steps,
        batch_size=BATCH,
        learning_rate=LEARNING_RATE,
        warmup_steps=30,
        log_interval=10,
        val_interval=50,
        save_interval=command.steps,
        keep_checkpoints=1,
        seed=seed,
        allow_cpu=True,
    )


def fine_tune(argv: list[str], rule: str, tokenizer: Path) -> int:
    """Train once, in a process of its own; nothing but the new rows differs from a training by hand."""
    torch.set_num_threads(1)
    rows_by_rule = partial(place_rows, rule=rule, tokenizer=Tokenizer.load(tokenizer))
    with mock.patch.object(start, "move_text_rows", rows_by_rule):
        return train_gpt_v2.main(argv)


# --- the page --------------------------------------------------------------------------------------------


def describe(
    command: NewRows,
    files: Files,
    base_losses: dict[str, float],
    losses: Losses,
) -> str:
    """Return the page of results, as Markdown."""
    extended = Tokenizer.load(files.tokenizer)
    config = load_config(files.config)
    num_base = config.number_text_tokens
    pieces = extended.pieces[num_base:]
    tokens = latin_tokens(extended, pieces)
    cut = [ids for ids in tokens if ids]
    pairs = {name: len(read_pairs(path)) for name, path in files.pairs.items()}
    lines = [
        "# First rows of new pieces\n",
        f"`python -m {MODULE} {shlex.join(to_argv(command))}`".replace(" `", "`")
        + ", written by that program.\n",
        f"* {date.today()}, commit {git_commit() or 'unknown'}, {processor_name()}, {os.cpu_count()} cores",
        f"* Python {platform.python_version()}, torch {torch.__version__}, "
        f"sentencepiece {sentencepiece.__version__}, {espeak_version()}",
        f"* base: {config.layers} layers x {config.model_dim}, {num_base} English pieces, built-in features, "
        f"trained for {command.base_steps} steps of batch {BASE_BATCH} on {pairs['en_train']} pairs of "
        f"English; the best, of step {base_losses['step']}, has on "
        f"{pairs['en_val']} validation pairs mel loss {base_losses['mel_loss']:.3f}, top 1 "
        f"{base_losses['mel_top1']:.3f}, text loss {base_losses['text_loss']:.3f} (their sentences, in other "
        "voices, are partly in the training)",
        f"* fine-tuning: {len(pieces)} new pieces, {command.steps} steps of batch {BATCH}, learning rate "
        f"up to {LEARNING_RATE:g}, on {pairs['am_train']} pairs of Amharic, {command.seeds} seeds; "
        f"{pairs['am_val']} validation pairs",
        f"* in Latin letters {len(cut)} of the {len(pieces)} pieces have tokens of the base, "
        f"{statistics.mean(map(len, cut)):.2f} each (a piece without any would start as with `mean`):",
        "\n| piece | tokens |\n|---|---|",
        *(f"| {pieces[i]} | {' '.join(extended.pieces[t] for t in tokens[i])} |" for i in shown(pieces)),
        "\n| rule | rows of embedding and head |\n|---|---|",
        *(f"| {rule} | {meaning} |" for rule, meaning in RULES.items()),
        "\nAll losses are on the validation pairs, in nats per token: mean over the seeds (smallest to "
        "largest). The second table of each is the difference to `mean` with the same seed, that is the same "
        "batches and dropout.",
    ]
    for loss, title in LOSSES.items():
        lines += [f"\n## {title}\n", *loss_table(losses, loss), "", *difference_table(losses, loss)]
    return "\n".join(lines) + "\n"


def loss_table(losses: Losses, loss: str) -> Iterator[str]:
    yield from table_head(losses)
    for rule, runs in losses.items():
        yield row(rule, [shown_spread([run[step][loss] for run in runs]) for step in steps_of(losses)])


def difference_table(losses: Losses, loss: str) -> Iterator[str]:
    yield from table_head(losses)
    for rule in RULES:
        if rule != "mean":
            pairs = list(zip(losses[rule], losses["mean"], strict=True))
            cells = [
                shown_spread([run[step][loss] - mean[step][loss] for run, mean in pairs], sign="+")
                for step in steps_of(losses)
            ]
            yield row(f"{rule} - mean", cells)


def steps_of(losses: Losses) -> list[int]:
    return [step for step in REPORTED_STEPS if step in losses["mean"][0]]


def table_head(losses: Losses) -> list[str]:
    steps = steps_of(losses)
    return [row("rule", [f"step {step}" for step in steps]), "|---" * (len(steps) + 1) + "|"]


def row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def shown_spread(values: Sequence[float], sign: str = "") -> str:
    """Return the mean with the smallest and largest value."""
    mean, low, high = (f"{value:{sign}.3f}" for value in (statistics.mean(values), min(values), max(values)))
    return f"{mean} ({low} to {high})"


def shown(pieces: Sequence[str], count: int = 8) -> list[int]:
    """Return some pieces of several letters, evenly spread."""
    several = [index for index, piece in enumerate(pieces) if len(piece.strip(WORD_START)) > 1]
    return several[:: max(1, len(several) // count)][:count]


def espeak_version() -> str:
    answer = subprocess.run(["espeak-ng", "--version"], capture_output=True, text=True, check=True)
    return answer.stdout.split("  ")[0].replace(" text-to-speech:", "").strip()


def processor_name() -> str:
    """Return the name of the CPU, as Linux shows it."""
    path = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", path.read_text()) if path.is_file() else []
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    run(main)
