"""Pairs of one voice: labels that hide several people, planted, by the limit of the similarity.

python -m benchmarks.voices_of_pairs --voices CC0_VOICES --human AMHARIC_HUMAN
"""

import csv
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, publish, table
from indextts.commands.terminal import parse, run
from indextts.data.manifest import Utterance, read_utterances
from indextts.data.pair_voices import ANY_VOICE, BUILTIN_LIMIT, Voices
from indextts.data.pairs import build_pairs
from indextts.data.speaker_vectors import VectorOfClip
from indextts.features.audio import load_audio
from indextts.features.backend import SAMPLE_RATE_HZ
from indextts.features.builtin import style_vector

STORE, WIDTH, NUM_CLIPS, MAX_S = Path("/features.json"), 192, 200, 15
LIMITS = (0.0, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.96)


class VoicesOfPairs(Benchmark):
    """Plant labels of several people, and count the pairs of two."""

    program: ClassVar[str] = "benchmarks.voices_of_pairs"
    voices: Path = Field(description="Folder with metadata.tsv of three women.")
    human: Path = Field(description="Folder with metadata.tsv of a man.")


def people(command: VoicesOfPairs) -> dict[str, list[Utterance]]:
    """Return clips of each person and each voice of the demo, by name."""
    found: dict[str, list[Utterance]] = {}
    for folder in (command.voices, command.human):
        with (folder / "metadata.tsv").open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                path, name = folder / line["file"], line["file"].partition("/")[0]
                clip = Utterance(path.stem, path, line["text"], name, float(line["seconds"]))
                found.setdefault(name, []).append(clip)
    for clip in read_utterances(REPOSITORY / "demo/manifest.jsonl"):
        found.setdefault(clip.speaker, []).append(clip)
    return {name: random.Random(0).sample(own, min(NUM_CLIPS, len(own))) for name, own in found.items()}


def shares(clips: Sequence[Utterance], vectors: VectorOfClip, limit: float) -> str:
    """Return the shares of pairs of two people and of utterances without a pair, in %."""
    one_label = [
        replace(clip, id=clip.features_key or "", speaker="label", features=STORE, num_codes=9)
        for clip in clips
    ]
    voices = Voices(vectors, limit) if limit else ANY_VOICE
    pairs = build_pairs(one_label, 2, 0, voices={STORE: voices}).pairs
    speaker_of = {clip.features_key: clip.speaker for clip in clips}
    mixed = np.mean([speaker_of[pair.prompt_id] != speaker_of[pair.target_id] for pair in pairs])
    return f"{100 * mixed:.1f} / {100 * (1 - len({pair.target_id for pair in pairs}) / len(clips)):.1f}"


def main(argv: Sequence[str] | None = None) -> int:
    command, vectors = parse(VoicesOfPairs, argv), {}
    found = people(command)
    for number, own in enumerate(found.values()):
        for place, clip in enumerate(own):
            key = f"{number:032d}{place:032d}"
            own[place] = replace(clip, features_key=key)
            sound = load_audio(clip.audio, SAMPLE_RATE_HZ)[: MAX_S * SAMPLE_RATE_HZ]
            style = style_vector(sound, WIDTH).numpy()
            vectors[key] = style / np.linalg.norm(style)
    human, espeak = list(found)[:4], list(found)[4:]
    mixed = [human[:2], human[1:3], [human[0], human[2]], human[:3], human]
    mixed += [[human[3], espeak[0]], espeak[::2], espeak, [*human, *espeak]]
    rows = []
    for names in [*([name] for name in found), *mixed]:
        clips = [clip for name in names for clip in found[name]]
        rows.append([", ".join(names), *(shares(clips, vectors, limit) for limit in LIMITS)])
    header = ["people under one label", "no limit", *(f"{limit:g}" for limit in LIMITS[1:])]
    about = (
        "Pairs of two people / utterances without a pair, in %, by the minimum similarity of built-in voice "
        f"vectors (the default is {BUILTIN_LIMIT:g}); {NUM_CLIPS} clips of each person, 64 of each voice of "
        "espeak-ng, of which m1 and m3 differ little. CAM++ was not measured: its weights were not at hand."
    )
    publish(command, "Pairs of one voice", [about, "", *table(header, rows)])
    return 0


if __name__ == "__main__":
    run(main)
