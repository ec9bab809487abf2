"""Implementation of tools/synthesize.py: texts, a checkpoint and a recording in, WAV files out.

    OUTPUT.wav                  of one text; or
    OUTPUT/ 001.wav 002.wav ... 16 bit, one channel
            spoken.jsonl        {"file": "001.wav", or null where the model generated no codes, "text": as
                                 given, "spoken": the normalised text, "seconds": 2.1, "num_codes": 105,
                                 "has_stopped": true, "checkpoint": "best.pth", "strength": 1.0,
                                 "step": 236, "part": 1, "backend": "builtin", "sampling": {...},
                                 "candidates": with --candidates [{"seed": 0, "fault": 0.12,
                                 "is_chosen": true, ...}]}; written last

For subtitles and with --joined, OUTPUT/ also contains one file of all texts (script.py).

With --stream, each text also has a folder of its pieces, written while it is spoken: 001.pieces/001.wav ...

WAV files are written atomically: an interrupted program leaves complete files only.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

from indextts.commands.base import Device
from indextts.commands.sampling_options import Sampling
from indextts.commands.speech import CheckpointSpeech, Synthesize
from indextts.data.batch_sizing import choose_device
from indextts.data.importing.subtitles import read_subtitles, spoken_cues
from indextts.data.manifest import read_utterances
from indextts.data.networks import NUM_SPECIAL_CODES, require_rate_of
from indextts.data.preprocess import TRAIN_NAME, VAL_NAME
from indextts.errors import RESUME_REFUSED, UserError
from indextts.features import builtin
from indextts.models.gpt.config import load_config
from indextts.models.gpt.generate import set_precision
from indextts.runs.owner import is_training
from indextts.speech.evaluation.judge import choose_best, load_judge
from indextts.speech.synthesis.acoustic import DEFAULT_SETTINGS, AcousticModel
from indextts.speech.synthesis.emotion import check_weights
from indextts.speech.synthesis.renderer import BuiltinRenderer, Renderer
from indextts.speech.synthesis.s2mel import SolverSettings
from indextts.speech.synthesis.script import Item, item_of, join, require_voices, voices_in
from indextts.speech.synthesis.segments import Line
from indextts.speech.synthesis.streaming import SpeechStream
from indextts.speech.synthesis.text_to_speech import Emotion, Speech, TextToSpeech, parse_emotion
from indextts.speech.synthesis.trained_model import TrainedModel, find_builtin_backend, load_trained
from indextts.system.amounts import counted
from indextts.system.disk import read_text_lines
from indextts.system.files import written_aside
from indextts.system.json_lines import write_json_lines

logger = logging.getLogger(__name__)

MAX_TEXTS = 1000
PIECES_SUFFIX = ".pieces"
SEED_STRIDE = 1_000_000  # between candidates; a later part of a text has the next seed
SUBTITLE_SUFFIXES = (".srt", ".vtt")
PROGRESS_CODES = 100  # between two lines of the log: 2 s of speech


def synthesize(command: Synthesize) -> Iterator[str]:
    """Write the audio; yield the lines to print for each finished text, the longest texts first.

    Raises:
        UserError: an argument cannot be used, or the model generated no codes for any text.
    """
    items = read_items(command)
    is_joined = command.joined or any(item.cue for item in items)
    weights = parse_emotion(command.emotion)
    if weights:
        check_weights(weights)
    if command.output.suffix == ".wav" and (is_joined or len(items) > 1):
        raise UserError(f"--output {command.output}: {len(items)} texts need a folder; pass its path")
    if command.candidates > 1 and (command.stream or not command.do_sample):
        raise UserError(
            "--candidates needs complete texts that are sampled; remove --stream or --no-do-sample"
        )
    device = synthesis_device(command.checkpoint, command.device)
    solver = SolverSettings(guidance_rate=command.guidance, duration_factor=command.duration_factor)
    tts = load_tts(command, command.checkpoint, device, solver=solver)
    trained, renderer = tts.trained, tts.renderer
    recording = find_voice(command, trained)
    recordings = [item.voice or recording for item in items]
    for item in items:  # find unusable texts before the voice is read
        tts.split(item.text)
    emotion = Emotion(command.emotion_voice, command.emotion_alpha, weights, command.models)
    voices = {path: tts.read_voice(path, emotion) for path in dict.fromkeys(recordings)}
    sampling = resolve_sampling(command, renderer.name, trained.positions)
    step = "" if trained.step is None else f", step {trained.step}"
    pieces = counted(trained.tokenizer.size, "piece")
    yield f"{trained.source}{step}, {pieces}; {renderer.name} codes, on {device.type}"
    made_by = model_record(trained, renderer.name, sampling)
    records: dict[int, dict[str, Any]] = {}
    lines = [
        tts.line(item.text, voices[path], (sampling.seed + number * SEED_STRIDE) % 2**63)
        for item, path in zip(items, recordings, strict=True)
        for number in range(command.candidates)
    ]
    spoken = (
        _stream(tts, lines, sampling, command)
        if command.stream
        else tts.speak(lines, sampling, _log_progress)
    )
    for index, speech, found in _chosen(spoken, items, tts, command, recordings):
        text, path = items[index].text, wav_path(command, index)
        found["voice"] = recordings[index].stem
        records[index] = {**speech_record(text, speech, path, made_by), **found}
        yield f"{text}\n  read as: {speech.text}"
        for one in found.get("candidates", ()):
            yield f"  seed {one['seed']}: fault {one['fault']:.3f}{', chosen' * one['is_chosen']}"
        if speech.num_codes:
            write_wav(path, speech)
            ending = "" if speech.has_stopped else ", cut off at the limit"
            yield f"  {path}: {speech.duration_s:.2f} s, {counted(speech.num_codes, 'code')}{ending}"
        else:
            yield "  the model stopped before the first code: no audio"
    if is_joined:
        name = command.text_file.stem if command.text_file else "all"
        path = command.output / f"{name}{'.wav' if any(item.cue for item in items) else '.m4b'}"
        files = [wav_path(command, index) if records[index]["file"] else None for index in range(len(items))]
        yield from join(path, items, files, renderer.sample_rate_hz)
    if command.output.suffix != ".wav":
        write_json_lines(command.output / "spoken.jsonl", [records[index] for index in range(len(items))])
    if not any(record["file"] for record in records.values()):
        raise UserError(
            f"{trained.source}: the model generated no codes for any text; try a different --seed or "
            "train longer"
        )


def _chosen(
    spoken: Iterator[tuple[int, Speech]],
    items: Sequence[Item],
    tts: TextToSpeech,
    command: Synthesize,
    recordings: Sequence[Path],
) -> Iterator[tuple[int, Speech, dict[str, Any]]]:
    """Yield the number of each text, its best candidate, and for the record what was found of all."""
    if command.candidates == 1:
        yield from ((index, speech, {}) for index, speech in spoken)
        return
    device, language = tts.trained.gpt.mel_head.weight.device, tts.trained.tokenizer.options.language
    judge = load_judge(command.asr, command.asr_folder, command.models, device, language)
    styles = {path: judge.style_of(path) for path in set(recordings)}
    waiting: dict[int, dict[int, Speech]] = {}
    for line, speech in spoken:
        index, number = divmod(line, command.candidates)
        of_text = waiting.setdefault(index, {})
        of_text[number] = speech
        if len(of_text) == command.candidates:
            speeches = [each for _, each in sorted(waiting.pop(index).items())]
            style = styles[recordings[index]]
            best, found = choose_best(judge, tts.trained, speeches, items[index].text, style)
            yield index, speeches[best], {"candidates": found}


def _stream(
    tts: TextToSpeech, lines: Sequence[Line], sampling: Sampling, command: Synthesize
) -> Iterator[tuple[int, Speech]]:
    """Speak one line after another, and write each piece of sound when it is ready."""
    for index, line in enumerate(lines):
        folder = wav_path(command, index).with_suffix(PIECES_SUFFIX)
        stream = SpeechStream(tts, line, sampling, _log_progress)
        for number, samples in enumerate(stream, 1):
            path = folder / f"{number:03}.wav"
            write_wav(path, Speech(samples, tts.renderer.sample_rate_hz, ()))
            logger.info("%s/%s: %.2f s", folder.name, path.name, len(samples) / tts.renderer.sample_rate_hz)
        yield index, stream.speech


def wav_path(command: Synthesize, index: int) -> Path:
    """Return the file for text number `index`."""
    return command.output if command.output.suffix == ".wav" else command.output / f"{index + 1:03}.wav"


def read_items(command: Synthesize) -> list[Item]:
    """Return the texts to synthesize, at least one.

    Raises:
        UserError: there is no text, there are too many, or a file cannot be read.
    """
    require_voices(command.voices)
    voices, path, texts = voices_in(command.voices), command.text_file, [*command.text]
    cues: list[Item] = []
    if path is not None and path.suffix.lower() in SUBTITLE_SUFFIXES:
        try:
            read = read_subtitles(path)
        except OSError as error:
            raise UserError(f"--text-file {path}: {error.strerror}; check the path") from None
        cues = [item_of(cue.text, voices, cue) for cue in spoken_cues(path, read) if cue.text]
        for rejection in read.rejections:
            logger.warning("%s:%s: not spoken: %s", path, rejection.where.line, rejection.reason)
    elif path is not None:
        texts += read_text_lines(path, "--text-file")
    items = [item_of(text, voices) for text in texts if text.strip()] + cues
    if not items:
        raise UserError("there is no text; pass a sentence with --text, or a file with --text-file")
    if len(items) > MAX_TEXTS:
        raise UserError(f"{len(items)} texts were given, the limit is {MAX_TEXTS}; split the list")
    return items


def synthesis_device(checkpoint: Path, device: Device) -> torch.device:
    """Return the device to compute on; a trainer that owns the run keeps the GPU to itself."""
    run_dir = checkpoint if checkpoint.is_dir() else checkpoint.parent
    if device == "auto" and is_training(run_dir):
        logger.info("A training run is using %s, so synthesis runs on the CPU (--device auto)", run_dir)
        return torch.device("cpu")
    return choose_device(device)


def load_tts(
    command: CheckpointSpeech,
    checkpoint: Path,
    device: torch.device,
    loaded: Renderer | None = None,
    solver: SolverSettings = DEFAULT_SETTINGS,
) -> TextToSpeech:
    """Return a checkpoint with the renderer of its codes, in the type of `--precision`.

    Args:
        loaded: the renderer of an earlier call with the same command.
        solver: guidance and duration factor; the command decides the rest.

    Raises:
        UserError: files are missing or do not fit each other, or the device cannot compute with the type.
    """
    if command.precision == "float16" and device.type != "cuda":
        raise UserError(
            f"--precision float16: needs a GPU; use float32 on the {device.type}, or a GPU with --device"
        )
    dtype: torch.dtype = getattr(torch, command.precision)
    trained = load_trained(checkpoint, device, command.weights, (command.models,), command.adapter_strength)
    settings = replace(solver, steps=command.solver_steps, dtype=dtype)
    renderer = load_renderer(trained, command.features, command.models, device, settings, loaded)
    set_precision(trained.gpt, dtype)
    return TextToSpeech(trained, renderer)


def load_renderer(
    trained: TrainedModel,
    features: Path | None,
    models: Path,
    device: torch.device,
    settings: SolverSettings,
    loaded: Renderer | None = None,
) -> Renderer:
    """Return the renderer for the codes of a model.

    Args:
        features: the feature store that the model was trained on, or its folder; None to take the store that
            the run's pairs name, or builtin.npz in a model folder.
        device: the device of the published acoustic model; the built-in backend runs on the CPU.
        loaded: an earlier result for the same `models`, `device` and `settings`, which is returned if the
            model has its codes.

    Raises:
        UserError: files are missing, cannot be read, or do not belong to the model's codes.
    """
    config = trained.gpt.config
    fitted = find_builtin_backend(trained.pairs, trained.source, features)
    renderer: Renderer
    if fitted is not None:
        backend = builtin.load(fitted)
        if trained.codes not in (None, backend.identity):
            raise UserError(
                f"{fitted}: was regenerated after {trained.source} was trained, so its codes differ; use "
                "the features that the model was trained on with --features, or train again"
            )
        require_rate_of(config.of_base, backend, fitted)
        renderer = BuiltinRenderer(backend, device, config.style_dim)
    else:
        if not isinstance(loaded, AcousticModel):
            loaded = AcousticModel.load(models, device, settings)
        _require_base(loaded, trained, models)
        renderer = loaded
    expected = config.number_mel_codes - NUM_SPECIAL_CODES
    if renderer.num_codes != expected:
        raise UserError(
            f"{fitted or models}: has {renderer.num_codes} codes, but {trained.source} has {expected}; use "
            "the features that the model was trained on with --features"
        )
    return renderer


def _require_base(acoustic: AcousticModel, trained: TrainedModel, models: Path) -> None:
    """Raise a UserError unless the acoustic model belongs to the GPT's base and has the asked settings."""
    base, own, factor = acoustic.path.base, trained.gpt.config.of_base, acoustic.settings.duration_factor
    if base != own:
        raise UserError(
            f"{models}: the codec belongs to {base.title}, but {trained.source} to {own.title}; use "
            f"the published files of {own.title} with --models",
            RESUME_REFUSED,
        )
    if factor != 1 and not base.has_duration_factor:
        raise UserError(f"--duration-factor {factor:g}: {base.title} has no duration factor; leave it at 1")
    width = load_config(models / "config.yaml").model_dim
    if width != trained.gpt.config.model_dim:
        raise UserError(
            f"{models}: s2mel.pth needs a GPT of width {width}, but {trained.source} has width "
            f"{trained.gpt.config.model_dim}; use the files of its base model with --models"
        )


def find_voice(command: Synthesize, trained: TrainedModel) -> Path:
    """Return the recording for --voice, a file or the id of an utterance.

    Raises:
        UserError: --voice is neither.
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
    searched = f"in {', '.join(map(str, manifests))}" if manifests else "(no manifest: pass --manifest)"
    raise UserError(
        f"--voice {command.voice}: no such file, and no utterance with this id {searched}; check the path or "
        "the id"
    )


def resolve_sampling(command: Sampling, backend: str, positions: str | None = None) -> Sampling:
    """Return the settings of the command line; for the rest those of an export, else of the backend."""
    given = {} if positions is None else {"positions": positions}
    typed = command.model_fields_set & Sampling.model_fields.keys()
    return Sampling.of_backend(backend, given | {name: getattr(command, name) for name in typed})


def _log_progress(num_codes: int) -> None:
    if num_codes and num_codes % PROGRESS_CODES == 0:
        logger.info("%d codes", num_codes)


def model_record(trained: TrainedModel, backend: str, sampling: Sampling) -> dict[str, Any]:
    """Return the fields about the model in the lines of spoken.jsonl."""
    source = trained.source  # all exported adapters have the same name
    return {
        "checkpoint": "/".join(source.parts[-3:]) if source.suffix == ".safetensors" else source.name,
        "strength": trained.strength,
        "step": trained.step,
        "part": trained.part,
        "backend": backend,
        "sampling": sampling.model_dump(),
    }


def speech_record(text: str, speech: Speech, path: Path, made_by: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of spoken.jsonl for a text; `made_by` is from `model_record`."""
    return {
        "file": path.name if speech.num_codes else None,
        "text": text,
        "spoken": speech.text,
        "seconds": round(speech.duration_s, 3),
        "num_codes": speech.num_codes,
        "has_stopped": speech.has_stopped,
        **made_by,
    }


def write_wav(path: Path, speech: Speech) -> None:
    """Write a WAV file atomically.

    Raises:
        UserError: the file cannot be written.
    """
    samples = np.clip(speech.samples, -1, 1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(path) as aside:
            soundfile.write(aside, samples, speech.sample_rate_hz, subtype="PCM_16", format="WAV")
    except (OSError, soundfile.LibsndfileError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"--output {path}: cannot be written ({reason}); check permissions and free disk space"
        ) from None
