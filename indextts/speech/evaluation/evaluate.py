"""Implementation of tools/evaluate.py: checkpoints speak held-out sentences, scored beside the recordings.

OUTPUT_DIR/
  report.md                    the table, with the settings of the measurement
  summary.jsonl                a `Row` of all clips in each line, the recordings first
  groups.jsonl                 the same of each group
  differences.jsonl            a `Difference` in each line, of each pair of checkpoints
  clips.jsonl                  a `Clip` in each line, with the transcripts
  scores.png                   the rows as curves
  audio/CHECKPOINT/0001.wav    the synthesized audio
  minimal_pairs/               of --minimal-pairs, see minimal_pairs.py

Each sentence has a recording in the manifest and is synthesized in the voice of another clip of its speaker,
once with each seed, and in that of a clip of --prompts. The reports are written at the end, atomically.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from itertools import cycle, islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from indextts.commands.normalizer_options import NormalizerOptions, of_language
from indextts.commands.sampling_options import Sampling
from indextts.commands.speech import Evaluate
from indextts.data.manifest import Utterance, read_utterances
from indextts.data.pairs import ANY_VOICE, PromptQueue, facts_of
from indextts.data.quality.measures import measure_text
from indextts.errors import UserError, disk_errors
from indextts.features.audio import MAX_RECORDING_S, MIN_REFERENCE_S, SHORT_REFERENCE_S, load_audio
from indextts.features.recognizers.first_transcripts import NUM_FIRST, require_language
from indextts.speech.evaluation.differences import MIN_SENTENCES, differences, rising_length
from indextts.speech.evaluation.judge import Judge, SpokenText, has_loops, load_judge
from indextts.speech.evaluation.minimal_pairs import (
    FOLDER,
    Answer,
    read_minimal_pairs,
    shuffled_files,
    speak_pairs,
    write_sheet,
)
from indextts.speech.evaluation.report import (
    ALL,
    Clip,
    draw_scores,
    groups_of,
    markdown_report,
    pace_range,
    summarize,
)
from indextts.speech.evaluation.scores import DIFFERENCES_NAME, GROUPS_NAME, RECORDINGS, SUMMARY_NAME, Row
from indextts.speech.synthesis.acoustic import CAMPPLUS
from indextts.speech.synthesis.renderer import Renderer
from indextts.speech.synthesis.synthesize import load_tts, resolve_sampling, synthesis_device, write_wav
from indextts.speech.synthesis.text_to_speech import TextToSpeech
from indextts.system.amounts import counted
from indextts.system.files import write_bytes, written_aside
from indextts.system.json_lines import write_json_lines
from indextts.text.languages import AMHARIC

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HeldOut:
    """A sentence with its recording, and a prompt: another clip of the same speaker with another text.

    Args:
        seed: to speak it with.
        is_added: whether the prompt is from --prompts, so that the sentence is not in the group ALL.
    """

    utterance: Utterance
    prompt: Utterance
    seed: int = 0
    is_added: bool = False

    @property
    def language(self) -> str:
        return self.utterance.language or AMHARIC

    def groups(self, options: NormalizerOptions) -> list[str]:
        """Return the groups of the sentence."""
        own = [ALL, *groups_of(self.utterance.text, options), *filter(None, [self.utterance.group])]
        return [FOREIGN_PROMPT] if self.is_added else own


def read_held_out(manifest: Path, limit: int) -> list[HeldOut]:
    """Return sentences of a manifest, alternating between speakers; deterministic.

    Args:
        manifest: raw or preprocessed.
        limit: the largest number of sentences; 0 for all.

    Raises:
        UserError: the manifest cannot be read, or no speaker has two suitable clips.
    """
    of_speaker: dict[str, list[Utterance]] = {}
    for utterance in read_utterances(manifest):
        known = utterance.features_key or str(utterance.audio)
        of_speaker.setdefault(utterance.speaker, []).append(replace(utterance, features_key=known))
    by_speaker = [list(_with_prompts(clips)) for clips in of_speaker.values()]
    chosen = [item for turn in zip_longest(*by_speaker) for item in turn if item is not None]
    if not chosen:
        raise UserError(
            f"--manifest {manifest}: no speaker has two clips with different texts, one of them at least "
            f"{MIN_REFERENCE_S:g} s long; use a larger manifest"
        )
    num_without = sum(map(len, of_speaker.values())) - len(chosen)
    if num_without:
        logger.warning(
            "Skipped %s of %s without a suitable prompt of the same speaker",
            counted(num_without, "clip"),
            manifest,
        )
    return chosen[:limit] if limit else chosen


def read_foreign(manifest: Path, held_out: Sequence[HeldOut]) -> list[HeldOut]:
    """Return the sentences with prompts of another language in turn.

    Raises:
        UserError: the manifest cannot be read, or has no clip in another language.
    """
    own = _main_language(held_out)
    others = [clip for clip in read_utterances(manifest) if (clip.language or AMHARIC) != own]
    fitting = [clip for clip in others if MIN_REFERENCE_S <= clip.duration_s <= MAX_RECORDING_S]
    if not fitting:
        raise UserError(
            f"--prompts {manifest}: no clip of at least {MIN_REFERENCE_S:g} s is in another language than "
            f"{own!r}; fill in the field language"
        )
    return [replace(item, prompt=prompt, is_added=True) for item, prompt in zip(held_out, cycle(fitting))]


def _with_prompts(clips: list[Utterance]) -> Iterator[HeldOut]:
    """Yield a speaker's sentences with their prompts, which are long if the speaker has two long clips."""
    long = [clip for clip in clips if SHORT_REFERENCE_S <= clip.duration_s <= MAX_RECORDING_S]
    fitting = [clip for clip in clips if MIN_REFERENCE_S <= clip.duration_s <= MAX_RECORDING_S]
    prompts = long if len(long) > 1 else fitting
    queue = PromptQueue(prompts, facts_of(clips, ANY_VOICE), ANY_VOICE.limit)
    for clip in clips:
        for prompt in queue.take(clip, 1):
            yield HeldOut(clip, prompt)


# index of the sentence, samples (S,), their rate, and what the clip says of the synthesis
Sound = tuple[int, NDArray[np.float32], int, dict[str, Any]]

RECORDING_RATE_HZ = 24_000
JUDGED_AT_ONCE = NUM_FIRST  # clips that the recognizers transcribe together, and between two log lines
SEED_STRIDE = 1000  # a later part of a text has the next seed
FOREIGN_PROMPT = "foreign"  # group: the prompt is in another language


def evaluate(command: Evaluate) -> list[Row]:
    """Write the reports; return the rows of all clips, the recordings first.

    Raises:
        UserError: an argument cannot be used, or the reports cannot be written.
    """
    names = checkpoint_names(command.checkpoint)
    held_out = read_held_out(command.manifest, command.num_clips)
    device = synthesis_device(command.checkpoint[0], command.device)
    num_seeds = command.seeds if command.do_sample else 1
    notes = [
        f"{date.today().isoformat()}, {command.manifest.name}: {counted(len(held_out), 'sentence')}, "
        f"{counted(num_seeds, 'seed')}"
    ]
    judge = _judge(command, device, _main_language(held_out), notes)
    items = held_out
    if command.prompts:
        items = held_out + read_foreign(command.prompts, held_out)
        notes.append("no emotion similarity: the only emotion encoder is a part of the model that is scored")
    seeds = [(command.seed + number * SEED_STRIDE) % 2**63 for number in range(num_seeds)]
    items = [replace(item, seed=seed) for item in items for seed in seeds]
    prompts = {item.prompt.audio for item in items}
    styles = {audio: judge.style(*_recording(audio)) for audio in prompts}
    pairs = read_minimal_pairs(command.minimal_pairs) if command.minimal_pairs else []
    answers: list[Answer] = []
    listening = command.output_dir / FOLDER
    files = shuffled_files(listening, 2 * len(pairs) * len(names), command.seed)
    clips_of: dict[str, list[Clip]] = {}
    step_of: dict[str, int | None] = {RECORDINGS: None}
    renderer: Renderer | None = None
    for name, path in zip(names, command.checkpoint, strict=True):
        tts = load_tts(command, path, device, renderer)
        renderer, options = tts.renderer, tts.trained.tokenizer.options
        if not clips_of:  # the recordings are compared with the texts as the first checkpoint reads them
            recorded: Iterator[Sound]
            recorded = ((n, *_recording(item.utterance.audio), {}) for n, item in enumerate(held_out))
            clips_of[RECORDINGS] = _judged(RECORDINGS, judge, held_out, styles, options, recorded)
        sampling = resolve_sampling(command, tts.renderer.name, tts.trained.positions)
        spoken = _spoken(tts, items, sampling, command.output_dir / "audio" / name)
        clips_of[name] = _judged(name, judge, items, styles, options, spoken)
        if pairs:
            audios = list(dict.fromkeys(item.prompt.audio for item in held_out))[: len(pairs)]
            voices = [tts.read_voice(audio) for audio in audios]
            own, files = files[: 2 * len(pairs)], files[2 * len(pairs) :]
            answers += speak_pairs(tts, name, pairs, voices, sampling, own)
        step_of[name] = tts.trained.step
        notes.append(f"{name}: {tts.renderer.name} codes, {command.precision}, {_settings(sampling)}")
    if pairs:
        write_sheet(listening, answers)
        notes.append(f"{FOLDER}/: {counted(len(answers), 'file')} for blind listening, see sheet.tsv")
    rows, of_groups = _rows(clips_of, step_of)
    found = differences({name: _in(ALL, clips_of[name]) for name in names})
    notes = [*map(str, found), *rising_length(found, rows), *notes]
    if len(names) > 1 and not found:
        notes.insert(0, f"no difference shown: fewer than {MIN_SENTENCES} sentences")
    lines = [clip.record(name, step_of[name]) for name, clips in clips_of.items() for clip in clips]
    write_json_lines(command.output_dir / DIFFERENCES_NAME, map(asdict, found))
    write_json_lines(command.output_dir / GROUPS_NAME, (row.model_dump() for row in of_groups))
    write_json_lines(command.output_dir / SUMMARY_NAME, (row.model_dump() for row in rows))
    _write(command.output_dir, [*rows, *of_groups], lines, notes)
    return rows


def _rows(
    clips_of: Mapping[str, Sequence[Clip]], step_of: Mapping[str, int | None]
) -> tuple[list[Row], list[Row]]:
    """Return the rows of all clips, the recordings first, and those of each group."""
    usual = pace_range(clips_of[RECORDINGS])
    groups = dict.fromkeys(group for clips in clips_of.values() for clip in clips for group in clip.groups)
    rows = [
        summarize(name, step_of[name], own, group, usual)
        for group in groups
        for name, clips in clips_of.items()
        if (own := _in(group, clips))
    ]
    return rows[: len(clips_of)], rows[len(clips_of) :]  # ALL is the first group


def _in(group: str, clips: Sequence[Clip]) -> list[Clip]:
    return [clip for clip in clips if group in clip.groups]


def checkpoint_names(paths: Sequence[Path]) -> list[str]:
    """Return a unique name for each checkpoint, usable as a folder name: the file's, or FOLDER-FILE."""
    found = [path.resolve() for path in paths]
    if len(set(found)) < len(found):
        twice = next(path for path in found if found.count(path) > 1)
        raise UserError(f"--checkpoint {twice}: listed twice; list each checkpoint once")
    names = [path.stem for path in found]
    if len(set(names)) < len(names):
        names = [f"{path.parent.name}-{path.stem}" for path in found]
    if len(set(names)) < len(names):
        names = [f"{number}-{name}" for number, name in enumerate(names, 1)]
    return [re.sub(r"[^\w.-]", "_", name) for name in names]


def _judge(command: Evaluate, device: torch.device, language: str, notes: list[str]) -> Judge:
    judge = load_judge(command.asr, command.asr_folder, command.models, device, language)
    if judge.recognizers:
        notes.append("CER without punctuation and spaces, homophones merged, numbers as words")
    else:
        notes.append("no character error rate: pass a speech recognizer with --asr")
    if judge.campplus is None:
        notes.append(f"no voice similarity: {Path(CAMPPLUS).name} is not in {command.models.name}/campplus")
    for note in notes[1:]:
        logger.info("%s", note)
    return judge


def _recording(path: Path) -> tuple[NDArray[np.float32], int]:
    return load_audio(path, RECORDING_RATE_HZ), RECORDING_RATE_HZ


def _spoken(tts: TextToSpeech, items: Sequence[HeldOut], sampling: Sampling, folder: Path) -> Iterator[Sound]:
    """Speak all sentences in batches of similar lengths and write their files."""
    voices = {audio: tts.read_voice(audio) for audio in dict.fromkeys(item.prompt.audio for item in items)}
    lines = [tts.line(item.utterance.text, voices[item.prompt.audio], item.seed) for item in items]
    rate = tts.trained.gpt.config.of_base.codes_per_second
    for index, speech in tts.speak(lines, sampling):
        path, item = folder / f"{index + 1:04}.wav", items[index]
        options = of_language(tts.trained.tokenizer.options, item.language)
        if speech.num_codes:
            write_wav(path, speech)
        facts = {
            "has_stopped": speech.has_stopped,
            "is_loop": has_loops(speech.segments, rate),
            "file": f"audio/{folder.name}/{path.name}" if speech.num_codes else None,
            "seed": item.seed,
            "paces": [
                measure_text(segment.text, options).num_syllables * rate / len(segment.codes)
                for segment in speech.segments
                if len(segment.codes)
            ],
        }
        yield index, speech.samples, speech.sample_rate_hz, facts


def _judged(
    name: str,
    judge: Judge,
    items: Sequence[HeldOut],
    styles: Mapping[Path, Tensor | None],
    options: NormalizerOptions,
    sounds: Iterator[Sound],
) -> list[Clip]:
    """Return the clips of the sounds of all sentences, in the order of `items`."""
    clips: dict[int, Clip] = {}
    while batch := list(islice(sounds, JUDGED_AT_ONCE)):
        read = {index: of_language(options, items[index].language) for index, *_ in batch}
        to_judge = [
            SpokenText(samples, rate_hz, one.text, styles[prompt.audio], read[index], prompt.text)
            for index, samples, rate_hz, _ in batch
            for one, prompt in [(items[index].utterance, items[index].prompt)]
        ]
        for (index, *_, facts), judgement in zip(batch, judge.judge(to_judge), strict=True):
            utterance, prompt = items[index].utterance, items[index].prompt
            num_syllables = measure_text(utterance.text, read[index]).num_syllables
            clips[index] = Clip(
                id=utterance.id,
                text=utterance.text,
                num_syllables=num_syllables,
                recorded_s=utterance.duration_s,
                prompt_id=prompt.id,
                judgement=judgement,
                groups=items[index].groups(read[index]),
                **{"paces": [num_syllables / utterance.duration_s], **facts},
            )
        logger.info("%s: %d of %d sentences", name, len(clips), len(items))
        if name == RECORDINGS and len(clips) <= NUM_FIRST:  # before anything is spoken
            first = [clip.judgement for clip in clips.values()]
            for asr in judge.recognizers:
                heard = [each.heard[asr.name] for each in first]
                errors = [each.errors[asr.name] for each in first]
                require_language(asr.name, _main_language(items), heard, errors)
    return [clips[index] for index in range(len(items))]


def _main_language(held_out: Sequence[HeldOut]) -> str:
    [(language, _)] = Counter(item.language for item in held_out).most_common(1)
    return language


def _settings(sampling: Sampling) -> str:
    return ", ".join(f"{name} {value}" for name, value in sampling.model_dump().items())


def _write(
    folder: Path, rows: Sequence[Row], lines: Sequence[dict[str, object]], notes: Sequence[str]
) -> None:
    write_json_lines(folder / "clips.jsonl", lines)
    with disk_errors(f"--output-dir {folder}"):
        write_bytes(folder / "report.md", markdown_report(rows, notes).encode())
        with written_aside(folder / "scores.png") as aside:
            draw_scores(rows, aside)
