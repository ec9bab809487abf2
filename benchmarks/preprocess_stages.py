"""What `benchmarks.preprocess` measures.

Recordings of realistic lengths (workload.py) are made: noise that rises and falls like speech, FLAC at 48
kHz. The weights are random, of the stated size. Each stage runs alone over all clips; then everything
together, as tools/preprocess_data.py does it, one clip at a time and in batches, with one process that reads
and with as many as it chooses. All in one run, so that the ratios mean something on a busy machine.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.speech_models import SIZES, builtin_backend, conditioning_model, speech_backend
from benchmarks.workload import config_of, git_commit, machine, make_samples
from indextts.data.encoding import BatchLimit, ClipEncoder, batches_of, exact_arithmetic
from indextts.data.feature_store import StoreInfo
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter
from indextts.data.manifest import Utterance
from indextts.data.reading import Clip, ClipReader, Reading
from indextts.data.throughput import Throughput, choose_throughput
from indextts.features.audio import load_audio
from indextts.features.backend import FEATURE_DIM, SAMPLE_RATE_HZ

RECORDED_RATE_HZ = 48_000
COUNTED_S = 6.0  # a clip of the usual length
CPU_BATCH_S = 20.0  # what batches are compared with on a CPU, which takes clips one by one


@dataclass(frozen=True)
class Row:
    """One measurement: of what, over how many clips and seconds of audio, in how many seconds."""

    backend: str
    stage: str
    num_clips: int
    audio_s: float
    took_s: float

    def cells(self) -> tuple[str, ...]:
        per_second = self.num_clips / self.took_s
        hours = self.audio_s / self.took_s
        return self.backend, self.stage, f"{per_second:.1f}", f"{hours:,.0f}"


HEADER = ("backend", "stage", "clips per second", "hours of audio per hour")


def measure(folder: Path, size: str, device_name: str, num_clips: int) -> tuple[list[Row], list[str]]:
    """Return the measurements, and sentences about what they mean."""
    device = torch.device(device_name)
    utterances = write_recordings(folder / "audio", num_clips)
    rows: list[Row] = []
    notes: list[str] = []
    with exact_arithmetic():
        for name in ("indextts2", "builtin"):
            encoder = make_encoder(name, size, device)
            bench = _Bench(name, encoder, utterances, device)
            rows += bench.stages(folder / name)
            rows += bench.wholes(folder / name)
            if name == "indextts2":
                notes += [bench.share_of_other_codes(), "", say_operations(bench.operations())]
    return rows, notes


def write_recordings(folder: Path, count: int) -> list[Utterance]:
    """Write noise with the loudness of syllables, of realistic lengths."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    utterances = []
    for number, sample in enumerate(make_samples(config_of("tiny", dropout=0.0), count)):
        duration_s = len(sample.codes) / 50
        times = np.arange(round(duration_s * RECORDED_RATE_HZ)) / RECORDED_RATE_HZ
        loudness = 0.05 + 0.1 * np.sin(np.pi * 4 * times) ** 2
        path = folder / f"{number}.flac"
        soundfile.write(path, random.standard_normal(len(times)) * loudness, RECORDED_RATE_HZ)
        utterances.append(Utterance(f"u{number}", path, "", "s", duration_s))
    return utterances


def make_encoder(name: str, size: str, device: torch.device) -> ClipEncoder:
    """Return a backend and the encoders of the GPT, chosen as preprocessing chooses."""
    sizes = SIZES[size]
    if name == "builtin":
        config = replace(sizes.gpt, feature_dim=FEATURE_DIM)
        backend = builtin_backend(config.number_mel_codes - 2)
        model = conditioning_model(config, device)
        return ClipEncoder(backend, model, device, choose_throughput(config, device, 0, 0))
    published = speech_backend(sizes, device, torch.float32)
    model = conditioning_model(sizes.gpt, device)
    return ClipEncoder(published, model, device, choose_throughput(sizes.gpt, device, 0, 0))


class _Bench:
    """Measures one backend."""

    def __init__(
        self, name: str, encoder: ClipEncoder, utterances: Sequence[Utterance], device: torch.device
    ) -> None:
        self.name = name
        self.encoder = encoder
        self.utterances = utterances
        self.device = device
        self.audio_s = sum(utterance.duration_s for utterance in utterances)

    def row(self, stage: str, work: Callable[[], object]) -> Row:
        self._wait()
        started = time.perf_counter()
        work()
        self._wait()
        took_s = time.perf_counter() - started
        row = Row(self.name, stage, len(self.utterances), self.audio_s, took_s)
        print(": ".join(row.cells()), flush=True)
        return row

    def stages(self, folder: Path) -> Iterator[Row]:
        """Each stage alone, in this process, batches as preprocessing makes them."""
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
            backend.features_of_batch([prepared[0]])  # the first call is slower
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
        encoded = self._encoded()
        yield self.row("writing", lambda: self._write(folder / "alone", encoded))

    def wholes(self, folder: Path) -> Iterator[Row]:
        """Recordings to store, as preprocessing does it, and in the ways that it does not choose."""
        chosen = self.encoder.throughput
        batch_s = chosen.batch_s or CPU_BATCH_S
        forms = {
            "one clip at a time, 1 thread, 1 reader": Throughput(0, 1, 1),
            f"one clip at a time, {_counted(chosen)}": replace(chosen, batch_s=0),
            f"batches of {batch_s:.0f} s, 1 thread, 1 reader": Throughput(batch_s, 1, 1),
            f"batches of {batch_s:.0f} s, {_counted(chosen)}": replace(chosen, batch_s=batch_s),
        }
        for number, (stage, throughput) in enumerate(forms.items()):
            encoder = ClipEncoder(self.encoder.backend, self.encoder.model, self.device, throughput)
            mark = " (chosen)" if throughput == chosen else ""
            target = folder / str(number)
            yield self.row(
                f"whole: {stage}{mark}",
                partial(self._write, target, encoder.encode_all(self.utterances)),
            )

    def share_of_other_codes(self) -> str:
        """Return what bfloat16 changes, with these weights."""
        fast = ClipEncoder(self.encoder.backend, self.encoder.model, self.device, self.encoder.throughput)
        num_codes = num_other = 0
        different: set[int] = set()
        with _in_bfloat16(fast):
            others = {one.key: one for one in self._encoded(fast)}
        for one in self._encoded():
            assert one.codes is not None
            found = others[one.key].codes
            assert found is not None
            num_other += int(np.count_nonzero(found != one.codes))
            num_codes += len(one.codes)
            different.update(one.codes.tolist())
        return (
            f"In bfloat16 {100 * num_other / num_codes:.1f} % of {num_codes:,} codes ({len(different):,} "
            "different ones) are others than in float32, with these random weights and noise."
        )

    def operations(self) -> dict[str, float]:
        """Return what a second of audio takes in each part, counted in a clip of `COUNTED_S`."""
        noise = np.random.default_rng(0).normal(0, 0.1, round(COUNTED_S * SAMPLE_RATE_HZ)).astype(np.float32)
        prepared = [self.encoder.backend.prepare(noise)]
        features: list[torch.Tensor] = []
        parts: dict[str, Callable[[], object]] = {
            "w2v-BERT": lambda: features.extend(self.encoder.backend.features_of_batch(prepared)),
            "codec": lambda: self.encoder.backend.codes_of_batch(features),
            "conditioning and emotion": lambda: self._condition(features),
        }
        counted = {}
        for name, work in parts.items():
            with torch.inference_mode(), FlopCounterMode(display=False) as counter:
                work()
            counted[name] = counter.get_total_flops() / COUNTED_S
        return counted

    def _read(self, num_readers: int) -> None:
        reading = Reading(SAMPLE_RATE_HZ, 60.0, self.encoder.backend.prepare)
        with ClipReader(reading, num_readers, ahead_s=300.0) as reader:
            for batch in reader.read([[utterance] for utterance in self.utterances]):
                assert isinstance(batch[0], Clip), batch

    def _condition(self, features: Sequence[torch.Tensor]) -> None:
        model = self.encoder.model
        padded = torch.nn.utils.rnn.pad_sequence(list(features), batch_first=True).to(self.device)
        lengths = torch.tensor([len(rows) for rows in features], device=self.device)
        model.conditioning(padded, lengths, seal_padding=True)
        model.emotion(padded, lengths, seal_padding=True)

    def _encoded(self, encoder: ClipEncoder | None = None) -> list[EncodedUtterance]:
        found = list((encoder or self.encoder).encode_all(self.utterances))
        return [one for one in found if isinstance(one, EncodedUtterance)]

    def _write(self, folder: Path, encoded: Iterator[object] | Sequence[object]) -> None:
        config = self.encoder.model.config
        writer = FeatureStoreWriter(
            folder,
            StoreInfo(
                backend=self.name,
                backend_identity="benchmark",
                encoders_identity="benchmark",
                model_dim=config.model_dim,
                num_latents=config.num_latents,
                latents="float16",
            ),
        )
        for one in encoded:
            assert isinstance(one, EncodedUtterance), one
            writer.add(one)
        writer.flush()

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def say_operations(of_parts: dict[str, float]) -> str:
    listed = ", ".join(f"{name} {each / 1e9:.1f}" for name, each in of_parts.items())
    return (
        f"A second of audio takes {sum(of_parts.values()) / 1e9:.1f}e9 operations ({listed}), counted by "
        f"PyTorch in a clip of {COUNTED_S:.0f} s."
    )


def _counted(throughput: Throughput) -> str:
    return f"{throughput.num_threads} threads, {throughput.num_readers} readers"


@contextmanager
def _in_bfloat16(encoder: ClipEncoder) -> Iterator[None]:
    backend = encoder.backend
    assert hasattr(backend, "dtype")
    backend.dtype = encoder.dtype = torch.bfloat16
    try:
        yield
    finally:
        backend.dtype = encoder.dtype = torch.float32


def as_markdown(
    size: str, device_name: str, num_clips: int, rows: Sequence[Row], notes: Sequence[str]
) -> str:
    lines = [
        f"# Preprocessing, {size} size",
        "",
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, commit {git_commit()}; "
        f"{machine(torch.device(device_name))}, load {os.getloadavg()[1]:.1f}; float32; {num_clips} clips of "
        f"{rows[0].audio_s / num_clips:.1f} s on average, FLAC at 48 kHz.",
        "",
        "| " + " | ".join(HEADER) + " |",
        "|---" * len(HEADER) + "|",
        *("| " + " | ".join(row.cells()) + " |" for row in rows),
        "",
        *notes,
        "",
    ]
    return "\n".join(lines)
