"""Stages of preprocessing that `benchmarks.preprocess` measures.

The recordings are noise with the amplitude envelope of speech, of realistic lengths (workload.py), FLAC at 48
kHz. The weights are random, of the given size. Each stage runs alone over all clips; then all run together,
as in tools/preprocess_data.py: one clip at a time and in batches, with one reading process and with the
number that preprocessing chooses. All run in one process, so that the ratios hold on a busy machine.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
import torch

from benchmarks.frame import Took, table, timed
from benchmarks.speech_models import SIZES, conditioning_model, speech_backend
from benchmarks.workload import CODES_PER_SECOND, config_of, make_samples
from indextts.data.batch_sizing import Throughput, choose_throughput
from indextts.data.encoding import BatchLimit, ClipEncoder, batches_of, reproducible_math
from indextts.data.feature_store import StoreInfo
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter
from indextts.data.manifest import Utterance
from indextts.data.reading import Clip, ClipReader, Reading
from indextts.features.audio import load_audio
from indextts.features.backend import FEATURE_DIM, SAMPLE_RATE_HZ, SpeechBackend
from indextts.features.builtin import BuiltinBackend
from indextts.features.builtin_networks import NUM_CODES
from indextts.system.amounts import counted

RECORDED_RATE_HZ = 48_000
CPU_BATCH_S = 20.0  # batch to compare with on a CPU, where preprocessing takes single clips


HEADER = ["backend", "stage", "clips per second", "hours of audio per hour", "processor time (s)"]


@dataclass(frozen=True)
class Row:
    """Measurement of a stage."""

    backend: str
    stage: str
    num_clips: int
    audio_s: float
    took: Took

    def cells(self) -> list[str]:
        per_second, hours = self.num_clips / self.took.wall_s, self.audio_s / self.took.wall_s
        return [self.backend, self.stage, f"{per_second:.1f}", f"{hours:,.0f}", f"{self.took.cpu_s:.2f}"]


def measure(folder: Path, size: str, device_name: str, num_clips: int) -> list[str]:
    """Return the measurements as Markdown."""
    device = torch.device(device_name)
    utterances = write_recordings(folder / "audio", num_clips)
    rows: list[Row] = []
    with reproducible_math():
        for name in ("indextts2", "builtin"):
            encoder = make_encoder(name, size, device)
            bench = _Bench(name, encoder, utterances, device)
            rows += bench.stages(folder / name)
            rows += bench.wholes(folder / name)
    return [
        f"{counted(num_clips, 'clip')} of {rows[0].audio_s / num_clips:.1f} s on average, FLAC at 48 kHz; "
        "float32.",
        "",
        *table(HEADER, [row.cells() for row in rows]),
    ]


def write_recordings(folder: Path, count: int) -> list[Utterance]:
    """Write noise with the amplitude envelope of syllables, of realistic lengths."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    utterances = []
    for number, sample in enumerate(make_samples(config_of("tiny", dropout=0.0), count)):
        duration_s = len(sample.codes) / CODES_PER_SECOND
        times = np.arange(round(duration_s * RECORDED_RATE_HZ)) / RECORDED_RATE_HZ
        loudness = 0.05 + 0.1 * np.sin(np.pi * 4 * times) ** 2
        path = folder / f"{number}.flac"
        soundfile.write(path, random.standard_normal(len(times)) * loudness, RECORDED_RATE_HZ)
        utterances.append(Utterance(f"u{number}", path, "", "s", duration_s))
    return utterances


def make_encoder(name: str, size: str, device: torch.device) -> ClipEncoder:
    """Return a backend and the encoders of the GPT with the throughput that preprocessing chooses."""
    sizes, config = SIZES[size], SIZES[size].gpt
    backend: SpeechBackend
    if name == "builtin":
        config = replace(config, feature_dim=FEATURE_DIM)
        backend = BuiltinBackend(NUM_CODES, config.of_base.features_per_code)
    else:
        backend = speech_backend(sizes, device, torch.float32)
    model = conditioning_model(config, device)
    return ClipEncoder(backend, model, device, choose_throughput(config, device, 0, 0))


@dataclass(frozen=True)
class _Bench:
    """Measures one backend."""

    name: str
    encoder: ClipEncoder
    utterances: Sequence[Utterance]
    device: torch.device

    def row(self, stage: str, work: Callable[[], object]) -> Row:
        _, took = timed(work, str(self.device))
        audio_s = sum(utterance.duration_s for utterance in self.utterances)
        row = Row(self.name, stage, len(self.utterances), audio_s, took)
        print(": ".join(row.cells()), flush=True)
        return row

    def stages(self, folder: Path) -> Iterator[Row]:
        """Yield each stage alone, in this process, with the batches of preprocessing."""
        backend = self.encoder.backend
        samples: list[np.ndarray] = []
        prepared: list[np.ndarray] = []
        yield self.row(
            "decode and resample, 1 process",
            lambda: samples.extend(load_audio(u.audio, SAMPLE_RATE_HZ) for u in self.utterances),
        )
        if self.name == "indextts2":
            yield self.row("log-mel, 1 process", lambda: prepared.extend(map(backend.prepare, samples)))
        else:
            prepared = samples
        for num_readers in sorted({1, self.encoder.throughput.num_readers}):
            yield self.row(f"reading: all of it, {num_readers} in parallel", partial(self._read, num_readers))
        place = {utterance.id: number for number, utterance in enumerate(self.utterances)}
        batches = [
            [place[utterance.id] for utterance in batch]
            for batch in batches_of(self.utterances, BatchLimit(self.encoder.throughput.batch_s))
        ]
        with torch.inference_mode():
            backend.features_of_batch([prepared[0]])  # warm-up
            features: list[list[torch.Tensor]] = []
            yield self.row(
                "w2v-BERT" if self.name == "indextts2" else "log-mel bands",
                lambda: features.extend(backend.features_of_batch([prepared[n] for n in b]) for b in batches),
            )
            backend.codes_of_batch(features[0])
            yield self.row("codec", lambda: [backend.codes_of_batch(batch) for batch in features])
            yield self.row(
                "conditioning and emotion", lambda: deque(map(self._condition, features), maxlen=0)
            )
        found = self.encoder.encode_all(self.utterances)
        encoded = [clip for clip in found if isinstance(clip, EncodedUtterance)]
        yield self.row("writing", lambda: self._write(folder / "alone", encoded))

    def wholes(self, folder: Path) -> Iterator[Row]:
        """Yield recordings to store with the settings that preprocessing chooses, and with others."""
        chosen = self.encoder.throughput
        batch_s = chosen.batch_s or CPU_BATCH_S
        forms = {
            "one clip at a time, 1 thread, 1 reader": Throughput(0, 1, 1),
            f"one clip at a time, {_shown(chosen)}": replace(chosen, batch_s=0),
            f"batches of {batch_s:.0f} s, 1 thread, 1 reader": Throughput(batch_s, 1, 1),
            f"batches of {batch_s:.0f} s, {_shown(chosen)}": replace(chosen, batch_s=batch_s),
        }
        for number, (stage, throughput) in enumerate(forms.items()):
            encoder = ClipEncoder(self.encoder.backend, self.encoder.model, self.device, throughput)
            mark = " (chosen)" if throughput == chosen else ""
            target = folder / str(number)
            yield self.row(
                f"whole: {stage}{mark}", partial(self._write, target, encoder.encode_all(self.utterances))
            )

    def _read(self, num_readers: int) -> None:
        reading = Reading(SAMPLE_RATE_HZ, 60.0, self.encoder.backend.prepare)
        with ClipReader(reading, num_readers, ahead_s=300.0) as reader:
            for batch in reader.read([[utterance] for utterance in self.utterances]):
                assert isinstance(batch[0], Clip), batch

    def _condition(self, features: Sequence[torch.Tensor]) -> None:
        model = self.encoder.model
        padded = torch.nn.utils.rnn.pad_sequence(list(features), batch_first=True).to(self.device)
        lengths = torch.tensor([len(rows) for rows in features], device=self.device)
        model.conditioning(padded, lengths, isolate_padding=True)
        model.emotion(padded, lengths, isolate_padding=True)

    def _write(self, folder: Path, encoded: Iterator[object] | Sequence[object]) -> None:
        config = self.encoder.model.config
        info = StoreInfo(self.name, "benchmark", "benchmark", config.model_dim, config.num_latents, "float16")
        writer = FeatureStoreWriter(folder, info)
        for clip in encoded:
            assert isinstance(clip, EncodedUtterance), clip
            writer.add(clip)
        writer.flush()


def _shown(throughput: Throughput) -> str:
    return f"{counted(throughput.num_threads, 'thread')}, {counted(throughput.num_readers, 'reader')}"
