"""Listening during training: fixed held-out sentences, spoken with the current weights and judged.

    RUN/samples/part{P}_step{N}/   001.wav 002.wav 003.wav spoken.jsonl   as written by tools/synthesize.py
                                   clips.jsonl                            what was heard of every sentence

The sentences are targets of validation pairs, their voices the prompts, whose conditioning is in the feature
store. The score is an error, so lower is better: the character error rate of the recognizer --listen-asr,
else the mean `fault_of`. Without the files for the sound only the codes are judged: length, loops, silence.

A listening changes nothing that the training depends on. It has its own seeds, and weights, dropout and
averages stay as they are. It is skipped, or given up, where it would take more than --listen-share of the
time since the process started. With several ranks, rank 0 listens and the others wait.
"""

import hashlib
import json
import logging
import math
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.commands.options import RECOGNIZERS_NAME
from indextts.commands.sampling_options import Sampling
from indextts.data.feature_store import IMPORTED, read_info
from indextts.data.manifest import Pair, read_utterances
from indextts.data.networks import BACKEND_NAME, NUM_SPECIAL_CODES
from indextts.data.preprocess import TRAIN_NAME, VAL_NAME
from indextts.data.quality.measures import measure_text
from indextts.errors import UserError
from indextts.features import builtin
from indextts.features.audio import load_audio
from indextts.features.campplus import CAMPPlusConfig, load_campplus
from indextts.features.published_files import find_published
from indextts.features.recognizers.recognizer import Recognizer
from indextts.models.out_of_memory import is_out_of_memory
from indextts.speech.evaluation.evaluate import RECORDING_RATE_HZ
from indextts.speech.evaluation.judge import Judge, Judgement, SpokenText, fault, has_loops
from indextts.speech.evaluation.report import Clip, groups_of, summarize
from indextts.speech.synthesis.acoustic import CAMPPLUS, AcousticModel, find_backend, find_files
from indextts.speech.synthesis.renderer import BuiltinRenderer, Reference, Renderer, Segment
from indextts.speech.synthesis.segments import Line, VoicePrompt, generate_segments
from indextts.speech.synthesis.synthesize import model_record, speech_record, write_wav
from indextts.speech.synthesis.text_to_speech import Speech, render_lines, split_for_model
from indextts.speech.synthesis.trained_model import TrainedModel
from indextts.system.json_lines import write_json_lines
from indextts.system.signals import StopRequest
from indextts.training.batches import PairDataset, Unreadable
from indextts.training.lora import blocks_in_float32
from indextts.training.metrics import MetricsLog
from indextts.training.order import validation_order
from indextts.training.run import Inputs, Run

logger = logging.getLogger(__name__)

NUM_SAMPLES = 3  # sentences whose sound is kept
SAMPLES_NAME = "samples"
MAX_LENGTH_RATIO = 3  # to the longest recording, plus a second: a limit for a model that does not stop
SEARCHED_PAIRS = 1_000  # for kinds of sentences, which takes about a second
FIRST_EXPECTED_S = 15.0  # of a run that never listened: a start of a few minutes does not listen
RENDERED_AT_ONCE = 8
MAX_LISTEN_S = 900.0  # the other ranks wait for at most 30 minutes


@dataclass(frozen=True)
class Sentence:
    """A held-out sentence, with the conditioning of its prompt."""

    pair: Pair
    condition: Tensor
    emo_vec: Tensor


@dataclass(frozen=True)
class Heard:
    """Result of a listening."""

    by: str  # identity of the sentences and of what judged them; only scores of one identity are compared
    score: float | None = None  # an error, 0 to 1; None where the listening failed


class _StoppedError(Exception):
    """A stop was requested during a listening, or it took too long."""


class Listener:
    """Speaks fixed sentences with the model in training and judges them; `decide` says at which steps."""

    def __init__(self, inputs: Inputs) -> None:
        """Choose the sentences, and check what the sound and its recognition need.

        Raises:
            UserError: no sentence is readable, or --listen-asr cannot be used.
        """
        command = inputs.command
        self.inputs, self.models = inputs, command.config.parent
        self.sentences = read_sentences(inputs, command.listen_sentences)
        pairs = [sentence.pair for sentence in self.sentences]
        backend = read_info(pairs[0].features).backend
        campplus = find_published(self.models / CAMPPLUS, "funasr/campplus")
        self.campplus = campplus if campplus.is_file() else None
        self.fitted: builtin.BuiltinBackend | None = None
        self.recordings: dict[str, Path] = {}
        self.has_sound = True
        try:
            if backend == BuiltinRenderer.name:
                self.fitted = builtin.load(pairs[0].features.parent / BACKEND_NAME)
            elif backend in (AcousticModel.name, IMPORTED):
                find_files(self.models)
                find_backend(self.models)
            else:
                raise UserError(f"there is no synthesis for codes of the backend {backend}")
            self.recordings = recordings_of(pairs, [file.path for file in command.val_files])
            num_unknown = len({pair.prompt_key for pair in pairs} - self.recordings.keys())
            if self.fitted is None and num_unknown:
                raise UserError(
                    f"the recordings of {num_unknown} prompts are missing; {VAL_NAME} beside "
                    f"{command.val_files[0].path} must name them"
                )
        except UserError as error:
            self.has_sound = False
            logger.warning("Listening judges only length, loops and silence of the codes: %s", error)
        longest = max(pair.target_num_codes for pair in pairs)
        rate = inputs.config.of_base.codes_per_second
        self.sampling = Sampling.of_backend(backend, {"max_codes": MAX_LENGTH_RATIO * longest + rate})
        ears = [asr.name + asr.identity for asr in self._recognizers(torch.device("cpu"))]
        heard = (
            [(pair.target_text, pair.prompt_key) for pair in pairs],
            (self.sampling.model_dump(), self.has_sound, self.campplus is not None, ears),
        )
        self.by = hashlib.sha256(json.dumps(heard).encode()).hexdigest()[:16]
        self.started, self.spent_s = time.perf_counter(), 0.0
        self.expected_s = _last_seconds(command.output_dir / "metrics.jsonl") or FIRST_EXPECTED_S

    def listen(self, run: Run, metrics: MetricsLog, stop: StopRequest) -> Heard | None:
        """Return what was heard, or None where that is left to a later validation: a stop, or no time for it.

        A lack of memory or of disk space is only logged.
        """
        step, share = run.state.step, self.inputs.command.listen_share
        began = time.perf_counter()
        allowed_s = share * (began - self.started) - self.spent_s if share < 1 else math.inf
        if self.expected_s > allowed_s:
            text = "No listening at step %d: it may take %.0f s, and --listen-share %g allows %.0f s by now"
            logger.info(text, step, self.expected_s, share, max(0.0, allowed_s))
            return None

        def check(_: int = 0) -> None:
            if stop.is_requested or time.perf_counter() - began > min(allowed_s, MAX_LISTEN_S):
                raise _StoppedError

        was_training, problem = run.model.training, ""
        clips: list[Clip] = []
        run.model.eval()
        try:
            clips = self._clips(run, metrics, check)
        except _StoppedError:
            logger.info("Gave up the listening of step %d after %.0f s", step, time.perf_counter() - began)
        except (UserError, OSError, RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError | MemoryError) and not is_out_of_memory(error):
                raise
            problem = str(error).splitlines()[0]
            logger.warning("The speech of step %d was not judged: %s", step, problem)
        finally:
            run.model.train(was_training)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # after the except clauses: an error holds the tensors
        now = time.perf_counter()
        self.spent_s += now - began
        if not clips:
            self.expected_s = 2 * (now - began)  # not at once again
            return Heard(self.by) if problem else None
        self.expected_s = now - began
        row = summarize(f"step {step}", step, clips)
        score = statistics.fmean(row.cer.values()) if row.cer else statistics.fmean(map(fault_of, clips))
        names = ("length_ratio", "no_stop", "loops", "silent", "likeness")
        numbers = {"score": score, **({"cer": score} if row.cer else {})}
        numbers |= {name: getattr(row, name) for name in names}
        cost = {"seconds": now - began, "time_share": self.spent_s / (now - self.started)}
        metrics.heard(step, run.state.epoch_of_step, {**numbers, **cost})
        return Heard(self.by, score)

    def _clips(self, run: Run, metrics: MetricsLog, check: Callable[..., None]) -> list[Clip]:
        """Speak and judge the sentences; `check` is called often and may raise."""
        state, inputs = run.state, self.inputs
        device = run.model.mel_head.weight.device
        folder = inputs.command.output_dir / SAMPLES_NAME / f"part{state.part}_step{state.step}"
        trained = TrainedModel(run.model, inputs.tokenizer, folder, state.step, state.part)
        no_reference = Reference(torch.zeros(0, device=device))
        lines = [
            Line(
                tuple(split_for_model(trained, sentence.pair.target_text)),
                VoicePrompt(no_reference, sentence.condition.to(device), sentence.emo_vec.to(device)),
                seed=number,
            )
            for number, sentence in enumerate(self.sentences)
        ]
        if device.type == "cuda":
            torch.cuda.empty_cache()  # what is free decides how many sentences are spoken at once
        num_codes = inputs.config.number_mel_codes - NUM_SPECIAL_CODES
        with blocks_in_float32(run.model), _quiet(generate_segments.__module__):
            segments = generate_segments(trained, lines, self.sampling, num_codes, check)
        rate = inputs.config.of_base.codes_per_second
        if self.has_sound:
            speeches = self._speeches(segments, device, check)
            judged = self._judged(speeches, device, check)
        else:
            counts = [sum(len(segment.codes) for segment in parts) for parts in segments]
            judged = [Judgement(count / rate, {}, {}, None, is_silent=not count) for count in counts]
        clips = [
            Clip(
                id=pair.target_id,
                text=pair.target_text,
                num_syllables=measure_text(pair.target_text, inputs.tokenizer.options).num_syllables,
                recorded_s=pair.target_duration_s,
                prompt_id=pair.prompt_id,
                judgement=judgement,
                has_stopped=all(segment.has_stopped for segment in parts),
                is_loop=has_loops(parts, rate),
            )
            for pair, parts, judgement in zip(self._pairs, segments, judged, strict=True)
        ]
        write_json_lines(folder / "clips.jsonl", (clip.record(folder.name, state.step) for clip in clips))
        if self.has_sound:
            made_by = model_record(trained, "builtin" if self.fitted else AcousticModel.name, self.sampling)
            records = []
            for number, (pair, speech) in enumerate(
                zip(self._pairs, speeches[:NUM_SAMPLES], strict=False), 1
            ):
                path = folder / f"{number:03}.wav"
                if speech.num_codes:
                    write_wav(path, speech)
                    metrics.audio(f"samples/{number}", state.step, speech.samples, speech.sample_rate_hz)
                records.append(speech_record(pair.target_text, speech, path, made_by))
            write_json_lines(folder / "spoken.jsonl", records)
        return clips

    @property
    def _pairs(self) -> list[Pair]:
        return [sentence.pair for sentence in self.sentences]

    def _speeches(
        self, segments: Sequence[tuple[Segment, ...]], device: torch.device, check: Callable[..., None]
    ) -> list[Speech]:
        # loaded each time: between two listenings the networks would take the memory that training needs
        renderer: Renderer
        if self.fitted is not None:
            renderer = BuiltinRenderer(self.fitted, device, self.inputs.config.style_dim)
        else:
            renderer = AcousticModel.load(self.models, device)
        voices = []
        for pair in self._pairs:
            check()
            prompt = self.recordings.get(pair.prompt_key)  # None only for the built-in features
            voices.append(renderer.read_reference(prompt) if prompt else Reference(torch.zeros(0)))
        spoken = list(zip(segments, voices, strict=True))
        speeches = []
        for start in range(0, len(spoken), RENDERED_AT_ONCE):
            check()
            speeches += render_lines(spoken[start : start + RENDERED_AT_ONCE], renderer)
        return speeches

    def _judged(
        self, speeches: Sequence[Speech], device: torch.device, check: Callable[..., None]
    ) -> list[Judgement]:
        campplus = None
        if self.campplus is not None:
            campplus = load_campplus(self.campplus, CAMPPlusConfig().embedding_size, device)
        judge = Judge(self._recognizers(device), campplus)
        spoken = []
        for pair, speech in zip(self._pairs, speeches, strict=True):
            prompt = self.recordings.get(pair.prompt_key)
            style = judge.style(load_audio(prompt, RECORDING_RATE_HZ), RECORDING_RATE_HZ) if prompt else None
            options = self.inputs.tokenizer.options
            spoken.append(SpokenText(speech.samples, speech.sample_rate_hz, pair.target_text, style, options))
        check()
        return judge.judge(spoken)

    def _recognizers(self, device: torch.device) -> list[Recognizer]:
        asr = self.inputs.command.listen_asr
        if not asr or not self.has_sound:
            return []
        from indextts.features.recognizers.loading import load_recognizers  # it imports transformers

        language = self.inputs.tokenizer.options.language
        return load_recognizers([asr], device, language, self.models / RECOGNIZERS_NAME)


def fault_of(clip: Clip) -> float:
    """Return the fault of a clip, whose recording has the expected length."""
    return fault(clip.judgement, clip.recorded_s, bool(clip.is_loop) or not clip.has_stopped)


def read_sentences(inputs: Inputs, number: int) -> list[Sentence]:
    """Return at most `number` readable sentences, always the same.

    Raises:
        UserError: none is readable.
    """
    dataset = inputs.val_set
    samples = ((index, dataset[index]) for index in choose_pairs(dataset, inputs.tokenizer.options))
    readable = (
        Sentence(dataset.pairs[index], sample.condition, sample.emo_vec)
        for index, sample in samples
        if not isinstance(sample, Unreadable)
    )
    found = list(islice(readable, number))
    if not found:
        raise UserError("no validation pair of the run's language is readable; listening needs one")
    return found


def choose_pairs(dataset: PairDataset, options: NormalizerOptions) -> list[int]:
    """Return pairs of different texts: questions, numbers, names, short, long and others in turn.

    Each kind has as many speakers as possible at its start. Pairs of other languages are left out: texts are
    read with the rules of the run's language. Capital letters within a sentence tell names.
    """
    pairs = dataset.pairs
    order = validation_order(len(dataset), 0, max_batches=0)[:SEARCHED_PAIRS]
    by_text = {int(pairs.text[index]): index for index in reversed(order) if not dataset.language_of(index)}
    indices = [index for index in order if by_text.get(int(pairs.text[index])) == index]
    if not indices:
        return []
    long = np.quantile(pairs.num_text_ids[indices], 0.75)

    def kind(index: int) -> str:
        text = pairs.texts.text(int(pairs.text[index]))
        groups = groups_of(text, options)
        if any(word[0].isupper() for word in text.split()[1:]):
            groups.append("names")
        # the last one, since short sentences are of other groups too
        return groups[-1] if groups else "long" if pairs.num_text_ids[index] >= long else "other"

    turns: dict[str, int] = {}
    ranked: dict[str, list[tuple[int, int]]] = {}
    for index in indices:
        speaker = pairs.speaker_of(index)
        turns[speaker] = turns.get(speaker, -1) + 1
        ranked.setdefault(kind(index), []).append((turns[speaker], index))
    columns = zip_longest(*(sorted(ranked[name], key=lambda item: item[0]) for name in sorted(ranked)))
    return [item[1] for column in columns for item in column if item is not None]


def recordings_of(pairs: Sequence[Pair], manifests: Sequence[Path]) -> dict[str, Path]:
    """Return the recordings of prompts by their keys, as far as the manifests beside the pairs name them."""
    wanted = {pair.prompt_key for pair in pairs}
    found: dict[str, Path] = {}
    for manifest in dict.fromkeys(
        path.parent / name for name in (VAL_NAME, TRAIN_NAME) for path in manifests
    ):
        if manifest.is_file() and found.keys() != wanted:
            for utterance in read_utterances(manifest):
                if utterance.features_key in wanted and utterance.audio.is_file():
                    found[str(utterance.features_key)] = utterance.audio
    return found


def _last_seconds(metrics: Path) -> float:
    """Return the duration of the last listening of a run, also of a step that is repeated; 0 for none."""
    text = metrics.read_text(encoding="utf-8", errors="replace") if metrics.is_file() else ""
    found = re.findall(r'"kind": "listen".*"seconds": ([\d.]+)', text)
    return float(found[-1]) if found else 0.0


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Drop the warnings of a logger about single sentences: the scores count them."""
    module = logging.getLogger(name)
    was, module.disabled = module.disabled, True
    try:
        yield
    finally:
        module.disabled = was
