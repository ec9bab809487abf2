"""Samples of published codes: the trainer writes the codes, a separate process synthesizes the sound.

    training    codes and latents of the sentences --write--> samples/part{P}_step{N}/pending.pth
    process     pending.pth --w2v-BERT, CAM++, flow matching, BigVGAN, on the CPU--> 001.wav ... spoken.jsonl
    training    at the next validation, or at the end: writes the sounds to TensorBoard under their step

The process handles all pending folders one after another and ends. It runs at low priority and ends with the
training. After a stop, the resumed run synthesizes the rest.
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
from indextts.data.preprocess import TRAIN_NAME, VAL_NAME
from indextts.errors import USER_MISTAKE, UserError
from indextts.features.backend import CODES_PER_SECOND
from indextts.speech.synthesis.acoustic import AcousticModel, find_backend, find_files
from indextts.speech.synthesis.pending import (
    PENDING_NAME,
    PendingText,
    pending_folders,
    render_pending,
    write_pending,
)
from indextts.speech.synthesis.renderer import Segment
from indextts.system.json_lines import read_json_lines
from indextts.system.log_lines import log_to_stdout
from indextts.system.signals import StopRequest
from indextts.training.loading import configure_worker_signals
from indextts.training.metrics import MetricsLog

logger = logging.getLogger(__name__)

MAX_LENGTH_RATIO = 3  # to the longest recording: a limit for a model that has not learned to stop
NICENESS = 10
POLL_INTERVAL_S = 0.2


class PublishedSamples:
    """Published codes; a separate process synthesizes their sound."""

    name = AcousticModel.name

    def __init__(self, models: Path, root: Path, num_codes: int, recordings: Mapping[str, Path]) -> None:
        """Check that all files for the synthesis exist, and continue what an earlier process left.

        Args:
            models: the folder of the published files.
            root: the folder of all samples.
            num_codes: number of semantic codes.
            recordings: of the voices, by the keys of their prompts.

        Raises:
            UserError: published files are missing.
        """
        self.models, self.root, self.num_codes, self.recordings = models, root, num_codes, recordings
        find_files(models)
        find_backend(models)
        self.process: SpawnProcess | None = None
        self.has_failed = False
        self.pending = pending_folders(root)  # from a stopped training run
        if self.pending:
            self._ensure_running()

    def sampling(self, pairs: Sequence[Pair]) -> Sampling:
        longest = max(pair.target_num_codes for pair in pairs)
        return Sampling.of_backend(self.name, {"max_codes": MAX_LENGTH_RATIO * longest + CODES_PER_SECOND})

    def write(
        self,
        folder: Path,
        lines: Sequence[tuple[Pair, tuple[Segment, ...]]],
        made_by: Mapping[str, Any],
    ) -> None:
        if self.has_failed:
            raise UserError("the synthesis process failed, see above; restart the training run to retry")
        pending = [
            PendingText(pair.target_text, self.recordings[pair.prompt_key], segments)
            for pair, segments in lines
            if pair.prompt_key in self.recordings
        ]
        write_pending(folder, pending, made_by)
        self.pending.append(folder)
        self._ensure_running()

    def collect(self, metrics: MetricsLog) -> None:
        """Write the finished sounds to TensorBoard."""
        unfinished = pending_folders(self.root)
        done = [folder for folder in self.pending if folder not in unfinished]
        self.pending = [folder for folder in self.pending if folder in unfinished]
        for folder in done:
            try:
                self._log_audio(folder, metrics)
            except (UserError, OSError, soundfile.SoundFileError) as error:  # the user may delete them
                logger.warning("The samples in %s are not in TensorBoard: %s", folder, error)
            else:
                logger.info("The samples in %s are ready", folder)
        if self.pending:
            self._ensure_running()

    def _log_audio(self, folder: Path, metrics: MetricsLog) -> None:
        for _, record in read_json_lines(folder / "spoken.jsonl"):
            if record["file"] is None:
                continue
            path = folder / str(record["file"])
            samples, rate_hz = soundfile.read(path, dtype="float32")
            metrics.audio(f"samples/{int(path.stem)}", int(str(record["step"])), samples, rate_hz)

    def finish(self, stop: StopRequest) -> None:
        if self.pending and not stop.is_requested:
            logger.info("Waiting for the last samples; a stop signal ends the wait")
        while not stop.is_requested and (
            self._is_running() or (pending_folders(self.root) and self._ensure_running())
        ):
            assert self.process is not None
            self.process.join(POLL_INTERVAL_S)
        if self.process is not None:
            self.process.terminate()
            self.process.join()

    def _is_running(self) -> bool:
        return self.process is not None and self.process.is_alive()

    def _ensure_running(self) -> bool:
        """Start the process unless it is running; return False if the last one failed."""
        if self._is_running():
            return True
        if self.process is not None and self.process.exitcode:
            self._note_failure(self.process.exitcode)
            return False
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=render_all_pending, args=(self.root, self.models), daemon=True)
        self.process.start()
        return True

    def _note_failure(self, status: int) -> None:
        if not self.has_failed:
            logger.warning("The synthesis process of the samples failed with status %d, see above", status)
        self.has_failed, self.pending = True, []


def recordings_of(pairs: Sequence[Pair], manifests: Sequence[Path]) -> dict[str, Path]:
    """Return the recording of each prompt by its key, from the manifests beside the pairs.

    Raises:
        UserError: no recording is known.
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
            f"no recordings of the prompts are known: {VAL_NAME} beside {manifests[0]} must name them"
        )
    return {str(key): audio for key, audio in found.items()}


def render_all_pending(root: Path, models: Path) -> None:
    """Synthesize all pending folders in `root` on the CPU; the main function of the process."""
    configure_worker_signals()
    os.nice(NICENESS)
    log_to_stdout()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
    try:
        sound = AcousticModel.load(models, torch.device("cpu"))
        while folders := pending_folders(root):
            try:
                render_pending(folders[0], sound)
            except UserError:
                if (folders[0] / PENDING_NAME).exists():
                    raise
                logger.warning("The samples in %s were deleted", folders[0])
    except UserError as error:
        logger.error("Samples: %s", error)
        sys.exit(USER_MISTAKE)
