"""What tools/synthesize.py does: texts, a checkpoint and a recording in, WAV files out.

    OUTPUT.wav                  of one text; or
    OUTPUT/ 001.wav 002.wav ... 16 bit, one channel
            spoken.jsonl        {"file": "001.wav", or null where the model said nothing, "text": as given,
                                 "spoken": as the model got it, "seconds": 2.1, "num_codes": 105,
                                 "has_stopped": true, "checkpoint": "best.pth", "step": 236, "part": 1,
                                 "backend": "builtin", "sampling": {...}}; written last

A WAV file is written aside and renamed, so that stopping leaves whole ones only.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

from indextts.commands.base import Device
from indextts.commands.sampling_options import Sampling
from indextts.commands.speech import Synthesize
from indextts.data.manifest import read_utterances
from indextts.data.preprocess import TRAIN_NAME, VAL_NAME
from indextts.data.throughput import choose_device
from indextts.errors import UserError
from indextts.runs.owner import is_training
from indextts.speech.synthesis.emotion import check_weights
from indextts.speech.synthesis.s2mel import SolverSettings
from indextts.speech.synthesis.sound import load_sound
from indextts.speech.synthesis.speak import Emotion, Speaker, Spoken, parse_emotion
from indextts.speech.synthesis.trained import TrainedModel, load_trained
from indextts.system.json_lines import write_json_lines

logger = logging.getLogger(__name__)

MAX_TEXTS = 1000
PROGRESS_CODES = 100  # between two lines of the log: 2 s of speech


def synthesize(command: Synthesize) -> Iterator[str]:
    """Write the sounds; yield what to print, a few lines for each text as it is done.

    Raises:
        UserError: something that was given cannot be used, or the model said nothing at all.
    """
    texts = read_texts(command)
    weights = parse_emotion(command.emotion)
    if weights:
        check_weights(weights)
    if command.output.suffix == ".wav" and len(texts) > 1:
        raise UserError(f"--output {command.output}: {len(texts)} texts need a folder")
    device = device_of(command.checkpoint, command.device)
    trained = load_trained(command.checkpoint, device, command.weights)
    recording = find_voice(command, trained)
    settings = SolverSettings(steps=command.solver_steps, guidance_rate=command.guidance)
    sound = load_sound(trained, command.features, command.models, device, settings)
    speaker = Speaker(trained, sound)
    for text in texts:  # before the first is spoken: one that cannot be
        speaker.split(text)
    emotion = Emotion(command.emotion_voice, command.emotion_alpha, weights, command.models)
    voice = speaker.voice(recording, emotion)
    sampling = sampling_of(command, sound.name)
    step = "" if trained.step is None else f", step {trained.step}"
    yield f"{trained.source}{step}, {trained.tokenizer.size:,} pieces; {sound.name} codes, on {device.type}"
    made_by = maker_of(trained, sound.name, sampling)
    records = []
    for number, text in enumerate(texts, 1):
        spoken = speaker.say(text, voice, sampling, _log_progress)
        path = command.output
        if path.suffix != ".wav":
            path = path / f"{number:03}.wav"
        record = record_of(text, spoken, path, made_by)
        records.append(record)
        yield f"{text}\n  read as: {spoken.text}"
        if spoken.num_codes:
            write_wav(path, spoken)
            ending = "" if spoken.has_stopped else ", cut off at the limit"
            yield f"  {path}: {spoken.duration_s:.2f} s, {spoken.num_codes} codes{ending}"
        else:
            yield "  the model stopped at once: nothing to hear"
    if command.output.suffix != ".wav":
        write_json_lines(command.output / "spoken.jsonl", records)
    if not any(record["file"] for record in records):
        raise UserError(
            f"{trained.source}: the model stopped before it said anything; try another --seed, or train on"
        )


def read_texts(command: Synthesize) -> list[str]:
    """Return what to say, at least one text.

    Raises:
        UserError: there is none, there are too many, or the file cannot be read.
    """
    texts = list(command.text)
    if command.text_file is not None:
        try:
            texts += command.text_file.read_text(encoding="utf-8-sig").splitlines()
        except OSError as error:
            raise UserError(f"--text-file {command.text_file}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UserError(f"--text-file {command.text_file}: not UTF-8 text; save it as UTF-8") from None
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise UserError("there is nothing to say; give a sentence with --text, or --text-file")
    if len(texts) > MAX_TEXTS:
        raise UserError(f"{len(texts)} texts are more than {MAX_TEXTS}; split the list")
    return texts


def device_of(checkpoint: Path, device: Device) -> torch.device:
    """Return where to compute; a trainer that owns the run keeps the card for itself."""
    run_dir = checkpoint if checkpoint.is_dir() else checkpoint.parent
    if device == "auto" and is_training(run_dir):
        logger.info("%s is being trained, so the CPU speaks (--device auto)", run_dir)
        return torch.device("cpu")
    return choose_device(device)


def find_voice(command: Synthesize, trained: TrainedModel) -> Path:
    """Return the recording that --voice means.

    Raises:
        UserError: it is neither a file nor the id of an utterance.
    """
    path = Path(command.voice)
    if command.voice.strip() and path.is_file():
        return path
    beside = [pairs.parent / name for pairs in trained.pairs for name in (TRAIN_NAME, VAL_NAME)]
    manifests = command.manifest or [path for path in dict.fromkeys(beside) if path.is_file()]
    for manifest in manifests:
        for utterance in read_utterances(manifest):
            if utterance.id == command.voice:
                return utterance.audio
    where = ", ".join(map(str, manifests)) or "any manifest, as there is none: give it with --manifest"
    raise UserError(f"--voice {command.voice}: no such file, and no utterance of this id in {where}")


def sampling_of(command: Sampling, backend: str) -> Sampling:
    """Return the settings: those that were typed, the others as the backend's codes ask for them."""
    typed = command.model_fields_set & Sampling.model_fields.keys()
    return Sampling.of_backend(backend, {name: getattr(command, name) for name in typed})


def _log_progress(num_codes: int) -> None:
    if num_codes and num_codes % PROGRESS_CODES == 0:
        logger.info("%d codes", num_codes)


def maker_of(trained: TrainedModel, backend: str, sampling: Sampling) -> dict[str, Any]:
    """Return what the lines of spoken.jsonl say of who spoke."""
    return {
        "checkpoint": trained.source.name,
        "step": trained.step,
        "part": trained.part,
        "backend": backend,
        "sampling": sampling.model_dump(),
    }


def record_of(text: str, spoken: Spoken, path: Path, made_by: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of spoken.jsonl for a text that was spoken into `path` by what `maker_of` describes."""
    return {
        "file": path.name if spoken.num_codes else None,
        "text": text,
        "spoken": spoken.text,
        "seconds": round(spoken.duration_s, 3),
        "num_codes": spoken.num_codes,
        "has_stopped": spoken.has_stopped,
        **made_by,
    }


def write_wav(path: Path, spoken: Spoken) -> None:
    """Write what was spoken, aside and renamed; a UserError if that is not possible."""
    aside = path.with_name(f".tmp-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        samples = np.clip(spoken.samples, -1, 1)
        soundfile.write(aside, samples, spoken.sample_rate_hz, subtype="PCM_16", format="WAV")
        aside.replace(path)
    except (OSError, soundfile.LibsndfileError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"--output {path}: cannot be written ({reason}); look at rights and space") from None
