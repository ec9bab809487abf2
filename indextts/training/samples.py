"""Samples during training: a few sentences, always the same, synthesized with the current weights.

    RUN/samples/part{P}_step{N}/   001.wav 002.wav 003.wav spoken.jsonl, as written by tools/synthesize.py

The sentences are targets of validation pairs, of different speakers if possible. Their voices are the prompts
of the pairs, whose conditioning is in the feature store. Sampling has a seed of its own: a run with samples
trains exactly like a run without.

Built-in codes are synthesized immediately. Published codes take minutes on a CPU and 3.4 GB of memory, so the
training writes the codes and a separate process synthesizes the sound (`published_samples.py`).
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from indextts.commands.sampling_options import Sampling
from indextts.data.feature_store import IMPORTED, read_info
from indextts.data.manifest import Pair
from indextts.data.networks import BACKEND_NAME, NUM_SPECIAL_CODES
from indextts.errors import UserError
from indextts.features import builtin
from indextts.models.out_of_memory import is_out_of_memory
from indextts.speech.synthesis.acoustic import AcousticModel
from indextts.speech.synthesis.renderer import BuiltinRenderer, Reference, Segment
from indextts.speech.synthesis.segments import Line, VoicePrompt, generate_segments
from indextts.speech.synthesis.synthesize import model_record, speech_record, write_wav
from indextts.speech.synthesis.text_to_speech import render_lines, split_for_model
from indextts.speech.synthesis.trained_model import TrainedModel
from indextts.system.amounts import counted
from indextts.system.json_lines import write_json_lines
from indextts.system.signals import StopRequest
from indextts.training.batches import PairDataset, Unreadable
from indextts.training.lora import blocks_in_float32
from indextts.training.metrics import MetricsLog
from indextts.training.order import validation_order
from indextts.training.published_samples import PublishedSamples, recordings_of
from indextts.training.run import Inputs, Run

logger = logging.getLogger(__name__)

NUM_SAMPLES = 3
SAMPLES_NAME = "samples"

Spoken = tuple[Pair, tuple[Segment, ...]]  # a sentence, and the segments that the model generated


class SampleSynthesizer:
    """Speaks a few sentences with the model in training; `decide` says at which steps."""

    def __init__(self, inputs: Inputs, run_dir: Path, models: Path, manifests: Sequence[Path]) -> None:
        """Choose the sentences and prepare their synthesis.

        Args:
            models: the folder of the published files.
            manifests: of the validation pairs.

        Raises:
            UserError: there is no synthesis for the codes of the run.
        """
        self.root = run_dir / SAMPLES_NAME
        self.chosen = choose_pairs(inputs.val_set)
        self.published: PublishedSamples | None = None
        path = inputs.val_set.pairs[0].features
        backend = read_info(path).backend
        if backend == BuiltinRenderer.name:
            fitted = builtin.load(path.parent / BACKEND_NAME)
            self.builtin = BuiltinRenderer(fitted, inputs.device, inputs.config.style_dim)
        elif backend in (AcousticModel.name, IMPORTED):
            recordings = recordings_of([inputs.val_set.pairs[index] for index in self.chosen], manifests)
            num_codes = inputs.config.number_mel_codes - NUM_SPECIAL_CODES
            self.published = PublishedSamples(models, self.root, num_codes, recordings)
        else:
            raise UserError(f"cannot synthesize codes of the backend {backend}")

    def collect(self, metrics: MetricsLog) -> None:
        """Write the samples finished since the last call to TensorBoard."""
        if self.published is not None:
            self.published.collect(metrics)

    def synthesize(self, run: Run, metrics: MetricsLog, stop: StopRequest) -> None:
        """Synthesize the sentences; an error, such as a lack of memory, is only logged."""
        name = f"part{run.state.part}_step{run.state.step}"
        was_training, has_run_out = run.model.training, False
        run.model.eval()
        try:
            self._generate(run, self.root / name, metrics, stop)
        except _StoppedError:
            logger.info("Stopped before the samples of step %d were finished", run.state.step)
        except (UserError, OSError) as error:
            logger.warning("No samples of step %d: %s", run.state.step, error)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            logger.warning(
                "No samples of step %d, out of memory: %s", run.state.step, str(error).splitlines()[0]
            )
            has_run_out = True
        finally:
            run.model.train(was_training)
        if has_run_out and torch.cuda.is_available():
            torch.cuda.empty_cache()  # after the except clause: the error holds the tensors

    def finish(self, metrics: MetricsLog, stop: StopRequest) -> None:
        """Wait for unfinished sounds, unless a stop is requested."""
        if self.published is not None:
            self.published.finish(stop)
            self.published.collect(metrics)

    def _generate(self, run: Run, folder: Path, metrics: MetricsLog, stop: StopRequest) -> None:
        def raise_if_stopped(_: int) -> None:
            if stop.is_requested:
                raise _StoppedError

        state, inputs, published = run.state, run.inputs, self.published
        backend = published or self.builtin
        trained = TrainedModel(run.model, inputs.tokenizer, folder, state.step, state.part)
        sampling = Sampling.of_backend(backend.name, {})
        if published is not None:
            sampling = published.sampling([inputs.val_set.pairs[index] for index in self.chosen])
        pairs: list[Pair] = []
        lines: list[Line] = []
        for index in self.chosen:
            voice = _voice_of(inputs.val_set, index, run.model.mel_head.weight.device)
            if voice is None:
                continue
            pairs.append(inputs.val_set.pairs[index])
            parts = split_for_model(trained, pairs[-1].target_text)
            lines.append(Line(tuple(parts), voice, sampling.seed))
        with blocks_in_float32(run.model):
            segments = generate_segments(trained, lines, sampling, backend.num_codes, raise_if_stopped)
        spoken = list(zip(pairs, segments, strict=True))
        made_by = model_record(trained, backend.name, sampling)
        if published is not None:
            published.write(folder, spoken, made_by)
        else:
            self._write_builtin(folder, spoken, made_by, metrics)

    def _write_builtin(
        self, folder: Path, lines: Sequence[Spoken], made_by: Mapping[str, Any], metrics: MetricsLog
    ) -> None:
        no_reference = Reference(torch.zeros(0))
        speeches = render_lines([(segments, no_reference) for _, segments in lines], self.builtin)
        records = []
        for number, ((pair, _), spoken) in enumerate(zip(lines, speeches, strict=True), 1):
            path = folder / f"{number:03}.wav"
            if spoken.num_codes:
                write_wav(path, spoken)
                metrics.audio(f"samples/{number}", made_by["step"], spoken.samples, spoken.sample_rate_hz)
            records.append(speech_record(pair.target_text, spoken, path, made_by))
        folder.mkdir(parents=True, exist_ok=True)
        write_json_lines(folder / "spoken.jsonl", records)
        logger.info("Wrote %s to %s", counted(len(records), "sample"), folder)


class _StoppedError(Exception):
    """A stop was requested during the synthesis of a sample."""


def choose_pairs(dataset: PairDataset) -> list[int]:
    """Return the indices of NUM_SAMPLES pairs, always the same, of as many speakers as possible.

    Pairs of other languages are left out: the samples are read with the rules of the run's language.
    """
    order = [
        index for index in validation_order(len(dataset), 0, max_batches=0) if not dataset.language_of(index)
    ]
    by_speaker: dict[str, list[int]] = {}
    for index in order:
        by_speaker.setdefault(dataset.pairs.speaker_of(index), []).append(int(index))
    rounds = [
        (number, speaker, index)
        for speaker, own in enumerate(by_speaker.values())
        for number, index in enumerate(own)
    ]
    return [index for *_, index in sorted(rounds)][:NUM_SAMPLES]


def _voice_of(dataset: PairDataset, index: int, device: torch.device) -> VoicePrompt | None:
    sample = dataset[index]
    if isinstance(sample, Unreadable):
        logger.warning("No sample of %s: %s", sample.id, sample.reason)
        return None
    no_reference = Reference(torch.zeros(0, device=device))
    return VoicePrompt(no_reference, sample.condition.to(device), sample.emo_vec.to(device))
