"""Tests of indextts/data/encoding.py: out of memory, clips that are too short, order, batches."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from demo.make_base_checkpoint import random_model
from indextts.data.batch_sizing import Throughput
from indextts.data.encoding import SORTED_CLIPS, BatchLimit, ClipEncoder, batches_of
from indextts.data.feature_store_writer import EncodedUtterance
from indextts.data.manifest import Utterance
from indextts.data.reading import Clip
from indextts.data.rejected import Rejected
from indextts.features.builtin import BuiltinBackend
from indextts.models.out_of_memory import is_out_of_memory
from tests.tiny_gpt import TINY

CPU = torch.device("cpu")
RATE_HZ = 24_000


@pytest.fixture
def backend() -> BuiltinBackend:
    return BuiltinBackend(8, features_per_code=1)


class SmallMemory:
    """Backend that runs out of memory with more than `fitting_s` of audio, including padding."""

    def __init__(self, backend: BuiltinBackend, fitting_s: float, error: Exception) -> None:
        self.backend = backend
        self.fitting_s = fitting_s
        self.error = error
        self.tried_s: list[float] = []

    def __getattr__(self, name: str):
        return getattr(self.backend, name)

    def features_of_batch(self, prepared):
        self.tried_s.append(round(len(prepared) * max(map(len, prepared)) / RATE_HZ, 3))
        if self.tried_s[-1] > self.fitting_s:
            raise self.error
        return self.backend.features_of_batch(prepared)


OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nof 80")


def encoder(backend, batch_s: float = 0.0, num_threads: int = 2) -> ClipEncoder:
    config = replace(TINY, feature_dim=1024)
    model = random_model(config, seed=0).eval()
    return ClipEncoder(backend, model, CPU, Throughput(batch_s, num_readers=1, num_threads=num_threads))


def clip(id: str, duration_s: float) -> Clip:
    samples = np.random.default_rng(len(id)).normal(0, 0.1, round(duration_s * RATE_HZ)).astype(np.float32)
    return Clip(id, Path(f"/{id}.wav"), "0" * 64, duration_s, samples)


def write_utterances(folder: Path, durations_s: list[float]) -> list[Utterance]:
    utterances = []
    for number, duration_s in enumerate(durations_s):
        noise = np.random.default_rng(number).normal(0, 0.1, round(duration_s * RATE_HZ))
        soundfile.write(folder / f"{number}.wav", noise, RATE_HZ)
        utterances.append(Utterance(str(number), folder / f"{number}.wav", "ሀ", "a", duration_s))
    return utterances


def test_a_batch_that_runs_out_of_memory_is_halved_and_encoded(backend, tmp_path, caplog):
    utterances = write_utterances(tmp_path, [0.5] * 40)
    small = SmallMemory(backend, fitting_s=2.5, error=OUT_OF_MEMORY)
    found = list(encoder(small, batch_s=10, num_threads=1).encode_all(utterances))
    assert [one.id for one in found] == [utterance.id for utterance in utterances]
    for one, alone in zip(found, encoder(backend).encode_all(utterances), strict=True):
        np.testing.assert_array_equal(one.codes, alone.codes)
        np.testing.assert_allclose(one.condition, alone.condition, rtol=0, atol=1e-4)
        np.testing.assert_allclose(one.emo_vec, alone.emo_vec, rtol=0, atol=1e-4)
    # 10 s, 5 s, then what fits; nothing larger is tried again, not even batches that were read ahead
    assert small.tried_s[:3] == [10.0, 5.0, 2.5]
    assert max(small.tried_s[2:]) == 2.5
    assert [record.args for record in caplog.records] == [
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", limit_s) for limit_s in (5.0, 2.5)
    ]


def test_a_clip_that_does_not_fit_alone_is_rejected_and_lowers_no_limit(backend):
    small = SmallMemory(backend, fitting_s=1.0, error=OUT_OF_MEMORY)
    encoding = encoder(small, batch_s=4)
    found = {one.id: one for one in encoding.encode([clip("a", 0.3), clip("bb", 0.4), clip("ccc", 1.2)])}
    assert isinstance(found["a"], EncodedUtterance)
    assert isinstance(found["bb"], EncodedUtterance)
    rejected = found["ccc"]
    assert rejected.code == "out_of_memory"
    assert rejected.reason.startswith("lasts 1.2 s ")
    assert "(CUDA out of memory" in rejected.reason
    assert encoding.limit.seconds == pytest.approx(1.8)  # half of the batch of three


@pytest.mark.parametrize(
    "error",
    [
        OUT_OF_MEMORY,
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported at another call"),
    ],
)
def test_running_out_of_host_memory_is_handled_like_that_of_a_gpu(backend, error):
    assert is_out_of_memory(error)
    (found,) = encoder(SmallMemory(backend, 0.1, error)).encode([clip("a", 0.3)])
    assert found.code == "out_of_memory"


def test_another_runtime_error_is_not_caught(backend):
    small = SmallMemory(backend, 0.1, RuntimeError("shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes"):
        encoder(small).encode([clip("a", 0.3)])


def test_a_recording_that_is_shorter_than_its_header_said_is_rejected_alone(backend):
    found = encoder(backend, batch_s=9).encode([clip("a", 0.3), clip("bb", 0.05)])
    assert {one.id: getattr(one, "code", None) for one in found} == {"a": None, "bb": "too_short"}


def test_a_file_that_is_broken_leaves_the_order_of_the_others(backend, tmp_path):
    utterances = write_utterances(tmp_path, [0.9, 0.3, 0.7, 0.2, 0.5, 0.4, 0.8])
    utterances[2].audio.write_bytes(b"no audio")
    found = list(encoder(backend, batch_s=2).encode_all(utterances))
    assert [one.id for one in found] == [utterance.id for utterance in utterances]
    assert [one.id for one in found if isinstance(one, Rejected)] == ["2"]
    assert [len(one.codes) for one in found if isinstance(one, EncodedUtterance)] == [45, 15, 10, 25, 20, 40]


def test_another_dtype_gives_another_identity(backend):
    exact, fast = encoder(backend), encoder(backend)
    fast.dtype = torch.bfloat16
    assert exact.backend_identity == backend.identity
    assert fast.backend_identity != backend.identity
    (one,), (other,) = exact.encode([clip("a", 0.5)]), fast.encode([clip("a", 0.5)])
    assert other.condition.dtype == np.float32
    assert 0 < np.abs(one.condition - other.condition).max() < 0.3


def random_utterances(count: int) -> list[Utterance]:
    durations_s = np.random.default_rng(0).lognormal(1.7, 0.55, count)
    return [Utterance(str(n), Path(f"/{n}"), "ሀ", "a", float(s)) for n, s in enumerate(durations_s)]


def padded_s(batch: list[Utterance]) -> float:
    return len(batch) * max(utterance.duration_s for utterance in batch)


def test_every_utterance_is_in_one_batch_and_not_far_from_its_place():
    everything = random_utterances(1000)
    order = [utterance.id for batch in batches_of(everything, BatchLimit(80)) for utterance in batch]
    assert sorted(order) == sorted(utterance.id for utterance in everything)
    assert {int(id) // SORTED_CLIPS for id in order[:SORTED_CLIPS]} == {0}


def test_a_lowered_limit_applies_to_later_batches(caplog):
    limit = BatchLimit(60)
    batches = batches_of(random_utterances(300), limit)
    next(batches)
    limit.lower(60, "CUDA out of memory")
    limit.lower(80, "CUDA out of memory")  # of a batch that started earlier
    assert limit.seconds == 30
    next(batches)  # its parts were already chosen
    assert all(padded_s(batch) <= 30 or len(batch) == 1 for batch in batches)
    assert caplog.text.count("30.0 s per batch") == 1
