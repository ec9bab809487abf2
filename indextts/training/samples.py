"""Samples while training: what the model says now of a few sentences, always the same ones.

    RUN/samples/part{P}_step{N}/   001.wav 002.wav 003.wav spoken.jsonl, as tools/synthesize.py writes them

The sentences are those of pairs to validate on, of different speakers as far as there are, in the voices of
their prompts, whose conditioning is in the feature store. They are drawn with a seed of their own: a run with
samples trains exactly as one without.

Built-in codes become sound at once. The published ones take minutes of a CPU and 3.4 GB of memory, so the
training writes down the codes and a process of its own makes the sound (`published_samples.py`).
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from indextts.commands.sampling_options import Sampling
from indextts.data.feature_store import IMPORTED, read_info
from indextts.data.manifest import Pair
from indextts.data.networks import BACKEND_NAME
from indextts.errors import UserError
from indextts.features import builtin
from indextts.speech.synthesis.sound import BuiltinSound, Heard, PublishedSound
from indextts.speech.synthesis.speak import Segment, SpeakingVoice, say_codes, sound_of, split_for
from indextts.speech.synthesis.synthesize import maker_of, record_of, write_wav
from indextts.speech.synthesis.trained import TrainedModel
from indextts.system.json_lines import write_json_lines
from indextts.system.signals import StopRequest
from indextts.training.batches import PairDataset, Unreadable
from indextts.training.metrics import MetricsLog
from indextts.training.order import epoch_order
from indextts.training.published_samples import PublishedSamples
from indextts.training.run import Inputs, Run
from indextts.training.validate import VALIDATION_SEED

logger = logging.getLogger(__name__)

NUM_SAMPLES = 3
SAMPLES_NAME = "samples"

Line = tuple[Pair, tuple[Segment, ...]]  # a sentence, and what the model said of it


class Way(Protocol):
    """How codes become sound."""

    name: str
    num_codes: int

    def settings(self, pairs: Sequence[Pair]) -> Sampling:
        """Return how codes are drawn."""

    def take(
        self, folder: Path, lines: Sequence[Line], made_by: Mapping[str, Any], metrics: MetricsLog
    ) -> None:
        """Write the sounds into `folder`, now or later; a UserError where that is not possible."""

    def collect(self, metrics: MetricsLog) -> None:
        """Show what became sound since."""

    def finish(self, stop: StopRequest) -> None:
        """Wait for what is not sound yet, unless the training shall stop."""


class SampleSynthesizer:
    """Speaks a few sentences with the model in training; `decide` says at which steps."""

    def __init__(self, inputs: Inputs) -> None:
        self.interval = inputs.command.sample_interval
        self.chosen = choose(inputs.val_set) if self.interval else []
        self.way = self._way(inputs) if self.interval else None

    def collect(self, metrics: MetricsLog) -> None:
        """Show the samples that were rendered since the last call."""
        if self.way is not None:
            self.way.collect(metrics)

    def synthesize(self, run: Run, metrics: MetricsLog, stop: StopRequest) -> None:
        """Speak the sentences; a disk that takes no samples is only logged."""
        if self.way is None:
            return
        name = f"part{run.state.part}_step{run.state.step}"
        was_training = run.model.training
        run.model.eval()
        try:
            self._speak(run, self.way, run.inputs.command.output_dir / SAMPLES_NAME / name, metrics, stop)
        except _StoppedError:
            logger.info("The samples of step %d were not finished", run.state.step)
        except UserError as error:
            logger.warning("No samples of step %d: %s", run.state.step, error)
        finally:
            run.model.train(was_training)

    def finish(self, metrics: MetricsLog, stop: StopRequest) -> None:
        """Wait for sounds that are still made, unless the training was asked to stop."""
        if self.way is not None:
            self.way.finish(stop)
            self.way.collect(metrics)

    def _speak(self, run: Run, way: Way, folder: Path, metrics: MetricsLog, stop: StopRequest) -> None:
        def look_for_stop(_: int) -> None:
            if stop.is_requested:
                raise _StoppedError

        state, inputs = run.state, run.inputs
        trained = TrainedModel(run.model, inputs.tokenizer, folder, state.step, state.part)
        sampling = way.settings([inputs.val_set.pairs[index] for index in self.chosen])
        lines: list[Line] = []
        for index in self.chosen:
            voice = _voice_of(inputs.val_set, index, run.model.mel_head.weight.device)
            if voice is None:
                continue
            pair = inputs.val_set.pairs[index]
            parts = split_for(trained, pair.target_text)
            lines.append((pair, say_codes(trained, parts, voice, sampling, way.num_codes, look_for_stop)))
        way.take(folder, lines, maker_of(trained, way.name, sampling), metrics)

    def _way(self, inputs: Inputs) -> Way | None:
        """Return what makes sound; None, and a word in the log, where nothing here can."""
        path = inputs.val_set.pairs[0].features
        backend = read_info(path).backend
        if inputs.command.compile:
            logger.warning("--sample-interval: with --compile nothing is spoken while training")
            return None
        if backend == BuiltinSound.name:
            return BuiltinSamples(BuiltinSound(builtin.load(path.parent / BACKEND_NAME), inputs.device))
        if backend not in (PublishedSound.name, IMPORTED):
            logger.warning("--sample-interval: nothing here makes sound of codes of %s", backend)
            return None
        try:
            pairs = [inputs.val_set.pairs[index] for index in self.chosen]
            return PublishedSamples(inputs, inputs.command.output_dir / SAMPLES_NAME, pairs)
        except UserError as error:
            logger.warning("--sample-interval: nothing is spoken while training: %s", error)
            return None


class BuiltinSamples:
    """Built-in codes, which become sound at once."""

    name = BuiltinSound.name

    def __init__(self, sound: BuiltinSound) -> None:
        self.sound, self.num_codes = sound, sound.num_codes

    def settings(self, pairs: Sequence[Pair]) -> Sampling:
        return Sampling.of_backend(self.name, {})

    def take(
        self, folder: Path, lines: Sequence[Line], made_by: Mapping[str, Any], metrics: MetricsLog
    ) -> None:
        nothing_heard = Heard(torch.zeros(0))
        records = []
        for number, (pair, segments) in enumerate(lines, 1):
            spoken = sound_of(segments, self.sound, nothing_heard)
            path = folder / f"{number:03}.wav"
            if spoken.num_codes:
                write_wav(path, spoken)
                metrics.audio(f"samples/{number}", made_by["step"], spoken.samples, spoken.sample_rate_hz)
            records.append(record_of(pair.target_text, spoken, path, made_by))
        folder.mkdir(parents=True, exist_ok=True)
        write_json_lines(folder / "spoken.jsonl", records)
        logger.info("Spoke %d samples into %s", len(records), folder)

    def collect(self, metrics: MetricsLog) -> None:
        pass

    def finish(self, stop: StopRequest) -> None:
        pass


class _StoppedError(Exception):
    """Somebody asked the training to end while a sample was spoken."""


def choose(dataset: PairDataset) -> list[int]:
    """Return which pairs are spoken, always the same: NUM_SAMPLES of as many speakers as there are."""
    order = epoch_order(len(dataset), VALIDATION_SEED, epoch=0)
    by_speaker: dict[str, list[int]] = {}
    for index in order:
        by_speaker.setdefault(dataset.pairs[index].speaker, []).append(int(index))
    rounds = [
        (place, n, index) for n, own in enumerate(by_speaker.values()) for place, index in enumerate(own)
    ]
    return [index for *_, index in sorted(rounds)][:NUM_SAMPLES]


def _voice_of(dataset: PairDataset, index: int, device: torch.device) -> SpeakingVoice | None:
    sample = dataset[index]
    if isinstance(sample, Unreadable):
        logger.warning("No sample of %s: %s", sample.id, sample.reason)
        return None
    nothing_heard = Heard(torch.zeros(0, device=device))
    return SpeakingVoice(nothing_heard, sample.condition.to(device), sample.emo_vec.to(device))
