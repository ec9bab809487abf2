"""Samples of the published codes: the training writes them down, a process of its own makes the sound.

    training    codes and latents of the sentences --write--> samples/part{P}_step{N}/said.pth
    process     said.pth --w2v-BERT, CAM++, flow matching, BigVGAN, on the CPU--> 001.wav ... spoken.jsonl
    training    at the next validation, or at its end: TensorBoard gets the sounds under their step

The process takes all that waits, one after the other, and ends; it gives way to the training's own work, and
ends with it. What a stop leaves is done after the resume.
"""

import logging
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import soundfile
import torch

from indextts.commands.sampling_options import Sampling
from indextts.data.manifest import Pair, read_utterances
from indextts.data.networks import NUM_SPECIAL_CODES
from indextts.data.preprocess import TRAIN_NAME, VAL_NAME
from indextts.errors import USER_MISTAKE, UserError
from indextts.features.backend import CODES_PER_SECOND
from indextts.speech.synthesis.acoustic import AcousticModel
from indextts.speech.synthesis.load import find_backend, find_files
from indextts.speech.synthesis.s2mel import SolverSettings
from indextts.speech.synthesis.said import Said, make_sound, waiting, write_said
from indextts.speech.synthesis.sound import PublishedSound
from indextts.speech.synthesis.speak import Segment
from indextts.system.json_lines import read_json_lines
from indextts.system.log_lines import log_to_stdout
from indextts.system.signals import StopRequest
from indextts.training.batches import configure_worker_signals
from indextts.training.metrics import MetricsLog
from indextts.training.run import Inputs

logger = logging.getLogger(__name__)

LONGEST_RATIO = 3  # a model that cannot stop yet is cut off at so many times the longest recording
NICENESS = 10
SECONDS_BETWEEN_LOOKS = 0.2


class PublishedSamples:
    """Published codes, whose sound is made by a process of its own."""

    name = PublishedSound.name

    def __init__(self, inputs: Inputs, root: Path, pairs: Sequence[Pair]) -> None:
        """Look that all is there that makes the sound.

        Args:
            inputs: of the run.
            root: the folder of all samples.
            pairs: the sentences, and in whose voices.

        Raises:
            UserError: published files are missing, or no recording of a voice is known.
        """
        self.models, self.root = inputs.command.config.parent, root
        find_files(self.models)
        find_backend(self.models)
        self.num_codes = inputs.config.number_mel_codes - NUM_SPECIAL_CODES
        self.recordings = recordings_of(pairs, inputs.command.val_manifest)
        self.process: SpawnProcess | None = None
        self.has_failed = False
        self.asked = waiting(root)  # by a training that was stopped
        if self.asked:
            self._go_on()

    def settings(self, pairs: Sequence[Pair]) -> Sampling:
        longest = max(pair.target_num_codes for pair in pairs)
        return Sampling.of_backend(self.name, {"max_codes": LONGEST_RATIO * longest + CODES_PER_SECOND})

    def take(
        self,
        folder: Path,
        lines: Sequence[tuple[Pair, tuple[Segment, ...]]],
        made_by: Mapping[str, Any],
        metrics: MetricsLog,
    ) -> None:
        if self.has_failed:
            raise UserError("what makes the sound has failed; start the training again to try once more")
        said = [
            Said(pair.target_text, self.recordings[pair.prompt_key], segments)
            for pair, segments in lines
            if pair.prompt_key in self.recordings
        ]
        write_said(folder, said, made_by)
        self.asked.append(folder)
        self._go_on()

    def collect(self, metrics: MetricsLog) -> None:
        """Show in TensorBoard what became sound."""
        still = waiting(self.root)
        done = [folder for folder in self.asked if folder not in still]
        self.asked = [folder for folder in self.asked if folder in still]
        for folder in done:
            for _, record in read_json_lines(folder / "spoken.jsonl"):
                if record["file"] is None:
                    continue
                path = folder / str(record["file"])
                samples, rate_hz = soundfile.read(path, dtype="float32")
                metrics.audio(f"samples/{int(path.stem)}", int(str(record["step"])), samples, rate_hz)
            logger.info("The samples in %s can be heard", folder)
        if self.asked:
            self._go_on()

    def finish(self, stop: StopRequest) -> None:
        if self.asked and not stop.is_requested:
            logger.info("Waiting for the sound of the last samples; a stop does not wait for it")
        while not stop.is_requested and (self._is_at_work() or (waiting(self.root) and self._go_on())):
            assert self.process is not None
            self.process.join(SECONDS_BETWEEN_LOOKS)
        if self.process is not None:
            self.process.terminate()
            self.process.join()

    def _is_at_work(self) -> bool:
        return self.process is not None and self.process.is_alive()

    def _go_on(self) -> bool:
        """Start the process unless it is at work; return False if it could not do its work."""
        if self._is_at_work():
            return True
        if self.process is not None and self.process.exitcode:
            self._give_up(self.process.exitcode)
            return False
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=speak_waiting, args=(self.root, self.models), daemon=True)
        self.process.start()
        return True

    def _give_up(self, status: int) -> None:
        if not self.has_failed:
            logger.warning("The process that makes sound of samples ended with status %d, see above", status)
        self.has_failed, self.asked = True, []


def recordings_of(pairs: Sequence[Pair], manifests: Sequence[Path]) -> dict[str, Path]:
    """Return the recording of each prompt by its key, from the manifests beside the pairs.

    Raises:
        UserError: none is there.
    """
    wanted = {pair.prompt_key for pair in pairs}
    beside = dict.fromkeys(path.parent / name for path in manifests for name in (VAL_NAME, TRAIN_NAME))
    found = {
        utterance.features_key: utterance.audio
        for manifest in beside
        if manifest.is_file()
        for utterance in read_utterances(manifest)
        if utterance.features_key in wanted and utterance.audio.is_file()
    }
    if not found:
        raise UserError(
            f"the recordings of the prompts are not known: {VAL_NAME} beside {manifests[0]} has to name them"
        )
    return {str(key): audio for key, audio in found.items()}


def speak_waiting(root: Path, models: Path) -> None:
    """Make sound of all that waits in `root`, on the CPU; the process's whole work."""
    configure_worker_signals(0)
    os.nice(NICENESS)
    log_to_stdout()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
    try:
        sound = PublishedSound(AcousticModel.load(models, torch.device("cpu")), SolverSettings())
        while folders := waiting(root):
            make_sound(folders[0], sound)
    except UserError as error:
        logger.error("The samples: %s", error)
        sys.exit(USER_MISTAKE)
