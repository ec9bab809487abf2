"""Train the base of demo/checkpoints: a small model that speaks eleven languages, but not Amharic.

    python -m demo.train_base --folder DIR --cc0 CC0 [--steps 8000] ...

    DIR/speech/         phrases of eight languages that espeak-ng speaks (demo/phrases.py)
    DIR/LANGUAGE.jsonl  manifests, with the CC0 recordings of three more languages
    DIR/LANGUAGE/       features and pairs
    DIR/start/          the weights of the first step
    DIR/run/            training; it resumes
    DIR/base/           gpt.pth in half precision: copy it into demo/checkpoints/

A step that has finished is not repeated, so the same command continues after a kill. The rows of the codes
start as a random projection of the centroids: codes of similar sounds have similar rows. The extra `dev` has
the packages.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field
from safetensors.torch import load_file

from benchmarks.frame import REPOSITORY
from benchmarks.learns_to_speak import SIZES, Studio, training
from demo.phrases import recordings, speak_phrases, vocabularies
from indextts.commands.app import MakeBaseCheckpoint
from indextts.commands.base import Command
from indextts.commands.bases import BASE_2_5
from indextts.commands.data import BuildPairs, Preprocess
from indextts.commands.speech import ExportModel
from indextts.commands.terminal import parse, run
from indextts.data.manifest import Utterance, read_utterances, write_utterances
from indextts.features import builtin
from indextts.system.files import written_aside

SPOKEN = ["sw", "it", "id", "es", "hr", "tr", "fi", "hu"]
SHORTEST_S, LONGEST_S = 0.3, 8.0
ROW_STD = 0.02  # of the other rows


class TrainBase(Command):
    """Train the base of the demo."""

    program: ClassVar[str] = "demo/train_base.py"
    folder: Path = Field(description="Folder for everything that is made.")
    cc0: Path | None = Field(
        None, description="Folder of voices with metadata.tsv, which has their languages."
    )
    languages: list[str] = Field(SPOKEN, min_length=1, description="Languages of the phrases.")
    seeds: list[int] = Field([11, 12, 13, 14], min_length=1, description="Seeds of the phrases.")
    phrases: int = Field(2600, ge=1, description="Number of phrases for each of these seeds.")
    steps: int = Field(8000, ge=1, description="Number of steps.")
    seed: int = Field(0, ge=0, description="Seed of the weights and of the training.")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(TrainBase, argv)
    folder = command.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    studio = Studio(folder, SIZES["cpu"], folder / "start")
    write_start(studio, command.seed)
    manifests = write_manifests(command, folder)
    pairs = [preprocessed(studio, manifest) for manifest in manifests]
    settings = training(
        studio,
        pairs[0],
        studio.base,
        studio.base / BASE_2_5.tokenizer_file,
        folder / "run",
        command.steps,
        command.seed,
        train_manifest=[f"{pair / 'train_pairs.jsonl'}@{pair.name}" for pair in pairs],
        val_manifest=[f"{pair / 'val_pairs.jsonl'}@{pair.name}" for pair in pairs],
        train_text_rows="all",
        val_interval=min(1000, command.steps),
        save_interval=min(1000, command.steps),
    )
    studio.run(settings, folder / f"run/model_step{command.steps}.json")
    export = ExportModel(
        checkpoint=folder / "run/latest.pth",
        config=studio.base / "config.yaml",
        output_dir=folder / "base",
        dtype="float16",
    )
    studio.run(export, folder / "base/export.json")
    return 0


def write_start(studio: Studio, seed: int) -> None:
    """Write config, tokenizer and the first weights of the base."""
    base = studio.base
    base.mkdir(exist_ok=True)
    for name in ("config.yaml", BASE_2_5.tokenizer_file):
        shutil.copy(REPOSITORY / "demo/checkpoints" / name, base)
    if (base / "gpt.pth").exists():
        return
    path = base / "random.pth"
    studio.run(MakeBaseCheckpoint(config=base / "config.yaml", output=path, seed=seed), path)
    weights = torch.load(path, weights_only=True)
    centroids = load_file(builtin.WEIGHTS)["centroids"].float()
    centroids = (centroids - centroids.mean(dim=0)) / centroids.std()
    generator = torch.Generator().manual_seed(seed)
    for name in ("mel_embedding.weight", "mel_head.weight"):
        rows = centroids @ torch.randn(centroids.shape[1], weights[name].shape[1], generator=generator)
        weights[name][: len(rows)] = rows * (ROW_STD / rows.std())
    with written_aside(base / "gpt.pth") as aside:
        torch.save(weights, aside)


def write_manifests(command: TrainBase, folder: Path) -> list[Path]:
    """Write the manifest of each language."""
    vocabulary = vocabularies(command.languages)
    found: list[Utterance] = recordings(command.cc0) if command.cc0 else []
    for seed in command.seeds:
        found += read_utterances(
            speak_phrases(folder / "speech", vocabulary, command.languages, command.phrases, seed)
        )
    manifests = []
    for language in sorted({utterance.language for utterance in found}):
        manifests.append(folder / f"{language}.jsonl")
        write_utterances(
            manifests[-1],
            [
                each
                for each in found
                if each.language == language and SHORTEST_S < each.duration_s < LONGEST_S
            ],
        )
    return manifests


def preprocessed(studio: Studio, manifest: Path) -> Path:
    """Encode a manifest and pair it; return the folder of the language."""
    folder = manifest.with_suffix("")
    encode = Preprocess(
        manifest=manifest,
        output_dir=folder,
        config=studio.base / "config.yaml",
        gpt_checkpoint=studio.base / "gpt.pth",
        backend="builtin",
        val_ratio=0.02,
    )
    studio.run(encode, folder / "val_manifest.jsonl")
    for split in ("train", "val"):
        output = folder / f"{split}_pairs.jsonl"
        source = folder / f"{split}_manifest.jsonl"
        studio.run(BuildPairs(manifest=source, output=output, pairs_per_target=1), output)
    return folder


if __name__ == "__main__":
    run(main)
