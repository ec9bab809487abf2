"""Samples while training: what the model says now of a few sentences, always the same ones.

    RUN/samples/part{P}_step{N}/   001.wav 002.wav 003.wav spoken.jsonl, as tools/synthesize.py writes them

The sentences are those of pairs to validate on, of different speakers as far as there are, in the voices of
their prompts, whose conditioning is in the feature store. They are drawn with a seed of their own: a run with
samples trains exactly as one without.

Only built-in codes are spoken: what makes sound of the published ones would need the memory that the training
has. With these, tab 8 speaks with the checkpoints.
"""

import logging
from pathlib import Path

import torch

from indextts.data.feature_store import read_info
from indextts.data.preprocess import BACKEND_NAME
from indextts.errors import UserError
from indextts.features import builtin
from indextts.json_lines import write_json_lines
from indextts.sampling_options import Sampling
from indextts.stop import StopRequest
from indextts.synthesis.sound import BuiltinSound, Heard
from indextts.synthesis.speak import Speaker, SpeakingVoice
from indextts.synthesis.synthesize import record_of, write_wav
from indextts.synthesis.trained import TrainedModel
from indextts.training.batches import PairDataset, Unreadable
from indextts.training.metrics import MetricsLog
from indextts.training.order import epoch_order
from indextts.training.run import Inputs, Run
from indextts.training.validate import VALIDATION_SEED

logger = logging.getLogger(__name__)

NUM_SAMPLES = 3
SAMPLES_NAME = "samples"


class Samples:
    """Speaks at the first validation at or behind every multiple of `--sample-interval`."""

    def __init__(self, inputs: Inputs) -> None:
        self.interval = inputs.command.sample_interval
        self.chosen = choose(inputs.val_set) if self.interval else []
        self.sound = _sound_of(inputs) if self.interval else None
        self.last_interval = -1

    def speak_if_due(self, this: Run, metrics: MetricsLog, stop: StopRequest) -> None:
        """Write the samples of this moment, if it is their time; a disk that takes none is only said."""
        if self.sound is None or this.state.step // self.interval == self.last_interval:
            return
        self.last_interval = this.state.step // self.interval
        folder = (
            this.inputs.command.output_dir / SAMPLES_NAME / f"part{this.state.part}_step{this.state.step}"
        )
        was_training = this.model.training
        this.model.eval()
        try:
            self._speak(this, self.sound, folder, metrics, stop)
        except _StoppedError:
            logger.info("The samples of step %d were not finished", this.state.step)
        except UserError as error:
            logger.warning("No samples of step %d: %s", this.state.step, error)
        finally:
            this.model.train(was_training)

    def _speak(
        self, this: Run, sound: BuiltinSound, folder: Path, metrics: MetricsLog, stop: StopRequest
    ) -> None:
        def look_for_stop(_: int) -> None:
            if stop.is_asked:
                raise _StoppedError

        state, inputs = this.state, this.inputs
        trained = TrainedModel(this.model, inputs.tokenizer, folder, state.step, state.part)
        speaker, sampling = Speaker(trained, sound), Sampling.of_backend(sound.name, {})
        records = []
        for number, index in enumerate(self.chosen, 1):
            voice = _voice_of(inputs.val_set, index, this.model.mel_head.weight.device)
            if voice is None:
                continue
            text = inputs.val_set.pairs[index].target_text
            spoken = speaker.say(text, voice, sampling, look_for_stop)
            path = folder / f"{number:03}.wav"
            if spoken.num_codes:
                write_wav(path, spoken)
                metrics.audio(f"samples/{number}", state.step, spoken.samples, spoken.sample_rate_hz)
            records.append(record_of(text, spoken, path, trained, sound.name, sampling))
        folder.mkdir(parents=True, exist_ok=True)
        write_json_lines(folder / "spoken.jsonl", records)
        logger.info("Spoke %d samples into %s", len(records), folder)


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


def _sound_of(inputs: Inputs) -> BuiltinSound | None:
    """Return what speaks; None, and a word in the log, where the training's codes cannot be spoken here."""
    path = inputs.val_set.pairs[0].features
    backend = read_info(path).backend
    if backend != BuiltinSound.name:
        logger.warning(
            "--sample-interval: codes of %s are not spoken while training; tab 8 and tools/synthesize.py "
            "speak with the checkpoints",
            backend,
        )
        return None
    if inputs.command.compile:
        logger.warning("--sample-interval: with --compile nothing is spoken while training")
        return None
    return BuiltinSound(builtin.load(path.parent / BACKEND_NAME), inputs.device)
