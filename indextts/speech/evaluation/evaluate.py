"""What tools/evaluate.py does: held-out sentences, spoken by checkpoints, judged beside their recordings.

OUTPUT_DIR/
  report.md                    the table, with what it was measured with
  summary.jsonl                a `Row` in each line, the recordings first
  clips.jsonl                  a `Clip` in each line, with what was heard
  scores.png                   the rows as curves
  audio/CHECKPOINT/0001.wav    what was said

The reports are written when all is done, each whole or not at all.

What is rendered: sentences of which a manifest has recordings, each in the voice of another clip.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from indextts.commands.sampling_options import Sampling
from indextts.commands.speech import Evaluate
from indextts.data.manifest import Utterance, read_utterances
from indextts.data.pairs import PromptQueue
from indextts.data.quality.measures import measure_text
from indextts.errors import UserError
from indextts.features.audio import MAX_RECORDING_S, MIN_REFERENCE_S, SHORT_REFERENCE_S, load_audio
from indextts.features.campplus import CAMPPlusConfig
from indextts.speech.evaluation.judge import Judge, has_loop
from indextts.speech.evaluation.report import RECORDINGS, Clip, Row, draw, page, row_of
from indextts.speech.synthesis.load import campplus_file, load_campplus
from indextts.speech.synthesis.s2mel import SolverSettings
from indextts.speech.synthesis.sound import load_sound
from indextts.speech.synthesis.speak import Speaker
from indextts.speech.synthesis.synthesize import device_of, sampling_of, write_wav
from indextts.speech.synthesis.trained import load_trained
from indextts.system.files import write_bytes
from indextts.system.json_lines import write_json_lines

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HeldOut:
    """A sentence with its recording, and a clip of the same speaker that says something else."""

    utterance: Utterance
    prompt: Utterance


def read_held_out(manifest: Path, limit: int) -> list[HeldOut]:
    """Return sentences of a manifest, in turn of each speaker, the same each time.

    Args:
        manifest: raw or preprocessed.
        limit: how many at most; 0 for all.

    Raises:
        UserError: the manifest cannot be read, or no speaker has two fitting clips.
    """
    of_speaker: dict[str, list[Utterance]] = {}
    for utterance in read_utterances(manifest):
        known = utterance.features_key or str(utterance.audio)
        of_speaker.setdefault(utterance.speaker, []).append(replace(utterance, features_key=known))
    dealt = [list(_deal(clips)) for clips in of_speaker.values()]
    chosen = [one for turn in zip_longest(*dealt) for one in turn if one is not None]
    if not chosen:
        raise UserError(
            f"--manifest {manifest}: no speaker has two clips with different texts, one of them a second or "
            "longer to speak like; give a larger manifest"
        )
    num_without = sum(map(len, of_speaker.values())) - len(chosen)
    if num_without:
        logger.warning(
            "%d clips of %s have no other clip of their speaker to speak like", num_without, manifest
        )
    return chosen[:limit] if limit else chosen


def _deal(clips: list[Utterance]) -> Iterator[HeldOut]:
    """Yield a speaker's sentences with their prompts, long enough ones where there are any."""
    long = [clip for clip in clips if SHORT_REFERENCE_S <= clip.duration_s <= MAX_RECORDING_S]
    fitting = [clip for clip in clips if MIN_REFERENCE_S <= clip.duration_s <= MAX_RECORDING_S]
    queue = PromptQueue(long if len(long) > 1 else fitting)
    for clip in clips:
        for prompt in queue.take(clip, 1):
            yield HeldOut(clip, prompt)


RECORDING_RATE_HZ = 24_000
PROGRESS_CLIPS = 10  # between two lines of the log


def evaluate(command: Evaluate) -> list[Row]:
    """Write the reports; return their rows, the recordings first.

    Raises:
        UserError: something that was given cannot be used, or the reports cannot be written.
    """
    names = names_of(command.checkpoint)
    held_out = read_held_out(command.manifest, command.num_clips)
    device = device_of(command.checkpoint[0], command.device)
    notes = [f"{date.today().isoformat()}, {command.manifest.name}: {len(held_out)} sentences"]
    judge = _judge(command, device, notes)
    styles = [judge.style(*_recording(one.prompt.audio)) for one in held_out]
    recorded = [_judge_recording(judge, one, style) for one, style in zip(held_out, styles, strict=True)]
    rows, lines = [row_of(RECORDINGS, None, recorded)], [clip.record(RECORDINGS, None) for clip in recorded]
    for name, path in zip(names, command.checkpoint, strict=True):
        speaker = _speaker(command, path, device)
        sampling = sampling_of(command, speaker.sound.name)
        clips = list(_render(speaker, name, held_out, styles, judge, sampling, command.output_dir))
        step = speaker.trained.step
        rows.append(row_of(name, step, clips))
        lines += [clip.record(name, step) for clip in clips]
        notes.append(f"{name}: {speaker.sound.name} codes, {_settings(sampling)}")
    _write(command.output_dir, rows, lines, notes)
    return rows


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return a name for each checkpoint that is a folder's name too: its own, with its folder's if needed."""
    found = [path.resolve() for path in paths]
    if len(set(found)) < len(found):
        raise UserError("--checkpoint: one checkpoint is given twice; give each once")
    names = [path.stem for path in found]
    if len(set(names)) < len(names):
        names = [f"{path.parent.name}-{path.stem}" for path in found]
    if len(set(names)) < len(names):
        names = [f"{number}-{name}" for number, name in enumerate(names, 1)]
    return [re.sub(r"[^\w.-]", "_", name) for name in names]


def _judge(command: Evaluate, device: torch.device, notes: list[str]) -> Judge:
    recognizers = []
    if command.asr:
        from indextts.features.asr import load_recognizers  # it imports transformers, which takes seconds

        recognizers = load_recognizers(command.asr, device)
        notes.append("CER without marks and spaces, one letter for each sound; numbers are read out")
    else:
        notes.append("no character error rate: give the folder of a CTC model with --asr")
    path = campplus_file(command.models)
    campplus = None
    if path.is_file():
        campplus = load_campplus(path, CAMPPlusConfig().embedding_size, device)
    else:
        notes.append(f"no likeness of the voice: {path.name} is not in {command.models.name}/campplus")
    for note in notes[1:]:
        logger.info("%s", note)
    return Judge(recognizers, campplus)


def _speaker(command: Evaluate, checkpoint: Path, device: torch.device) -> Speaker:
    trained = load_trained(checkpoint, device, command.weights)
    settings = SolverSettings(steps=command.solver_steps)
    return Speaker(trained, load_sound(trained, command.features, command.models, device, settings))


def _recording(path: Path) -> tuple[NDArray[np.float32], int]:
    return load_audio(path, RECORDING_RATE_HZ), RECORDING_RATE_HZ


def _judge_recording(judge: Judge, one: HeldOut, style: Tensor | None) -> Clip:
    samples, rate_hz = _recording(one.utterance.audio)
    judgement = judge.judge(samples, rate_hz, one.utterance.text, style)
    return _clip(one, judgement=judgement)


def _render(
    speaker: Speaker,
    name: str,
    held_out: Sequence[HeldOut],
    styles: Sequence[Tensor | None],
    judge: Judge,
    sampling: Sampling,
    output_dir: Path,
) -> Iterator[Clip]:
    for number, (one, style) in enumerate(zip(held_out, styles, strict=True), 1):
        voice = speaker.voice(one.prompt.audio)
        spoken = speaker.say(one.utterance.text, voice, sampling)
        file = f"audio/{name}/{number:04}.wav" if spoken.num_codes else None
        if file is not None:
            write_wav(output_dir / file, spoken)
        yield _clip(
            one,
            judgement=judge.judge(spoken.samples, spoken.sample_rate_hz, one.utterance.text, style),
            has_stopped=spoken.has_stopped,
            is_loop=any(has_loop(segment.codes.cpu().numpy()) for segment in spoken.segments),
            file=file,
        )
        if number % PROGRESS_CLIPS == 0 or number == len(held_out):
            logger.info("%s: %d of %d sentences", name, number, len(held_out))


def _clip(one: HeldOut, **judged: object) -> Clip:
    return Clip(
        id=one.utterance.id,
        text=one.utterance.text,
        num_fidel=measure_text(one.utterance.text).num_fidel,
        recorded_s=one.utterance.duration_s,
        prompt_id=one.prompt.id,
        **judged,  # type: ignore[arg-type]
    )


def _settings(sampling: Sampling) -> str:
    return ", ".join(f"{name} {value}" for name, value in sampling.model_dump().items())


def _write(
    folder: Path, rows: Sequence[Row], lines: Sequence[dict[str, object]], notes: Sequence[str]
) -> None:
    write_json_lines(folder / "clips.jsonl", lines)
    write_json_lines(folder / "summary.jsonl", (asdict(row) for row in rows))
    picture = folder / ".tmp-scores.png"
    try:
        write_bytes(folder / "report.md", page(rows, notes).encode())
        draw(rows, picture)
        picture.replace(folder / "scores.png")
    except OSError as error:
        raise UserError(f"--output-dir {folder}: cannot be written ({error.strerror})") from None
