"""Tests of indextts/data/reading.py, with real processes that are killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.data.manifest import Utterance
from indextts.data.reading import MAX_DEATHS_IN_A_ROW, Clip, ClipReader, Reading
from indextts.data.rejected import Rejected
from indextts.errors import UserError
from indextts.features.audio import unprepared
from indextts.system.digest import file_sha256
from tests.waiting import wait_until

RATE_HZ = 24_000
DEADLY = 0.25  # the first sample of a recording that kills its reader


def die_of_some(samples: np.ndarray) -> np.ndarray:
    if samples[0] == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)  # like the out-of-memory killer
    return samples


def die_of_all(samples: np.ndarray) -> np.ndarray:
    os.kill(os.getpid(), signal.SIGKILL)
    return samples


def raise_memory_error(samples: np.ndarray) -> np.ndarray:
    raise MemoryError


def write_utterances(folder: Path, first_samples: list[float]) -> list[Utterance]:
    utterances = []
    for number, first in enumerate(first_samples):
        path = folder / f"{number}.wav"
        samples = np.resize([first, -first], 2400 + number)  # without an offset, which reading removes
        soundfile.write(path, samples, RATE_HZ, subtype="FLOAT")
        utterances.append(Utterance(str(number), path, "ሀ", "a", duration_s=0.1))
    return utterances


def in_batches(utterances: list[Utterance], size: int) -> list[list[Utterance]]:
    return [utterances[start : start + size] for start in range(0, len(utterances), size)]


def read(utterances: list[Utterance], prepare, max_duration_s: float = 30.0) -> list[Clip | Rejected]:
    with ClipReader(Reading(RATE_HZ, max_duration_s, prepare), num_workers=2, ahead_s=0.5) as reader:
        return [clip for batch in reader.read(in_batches(utterances, 3)) for clip in batch]


def test_clips_come_in_order_with_the_digests_of_their_files(tmp_path):
    utterances = write_utterances(tmp_path, [0.1] * 11)
    with ClipReader(Reading(RATE_HZ, 30.0, unprepared), num_workers=2, ahead_s=0.5) as reader:
        batches = list(reader.read(in_batches(utterances, 3)))
    assert [[clip.id for clip in batch] for batch in batches] == [
        ["0", "1", "2"],
        ["3", "4", "5"],
        ["6", "7", "8"],
        ["9", "10"],
    ]
    for number, clip in enumerate(clip for batch in batches for clip in batch):
        assert clip.audio_sha256 == file_sha256(utterances[number].audio)
        assert len(clip.prepared) == 2400 + number == round(clip.duration_s * RATE_HZ)


def test_reading_does_not_run_far_ahead(tmp_path):
    utterances = write_utterances(tmp_path, [0.1] * 30)
    asked = []

    def batches():
        for batch in in_batches(utterances, 3):
            asked.append(batch)
            yield batch

    with ClipReader(Reading(RATE_HZ, 30.0, unprepared), num_workers=1, ahead_s=0.65) as reader:
        clips = reader.read(batches())
        next(clips)
        assert len(asked) == 3  # 0.9 s: the current batch and 0.6 s ahead


def test_only_a_recording_that_kills_its_reader_is_rejected(tmp_path, caplog):
    first_samples = [0.1] * 14
    first_samples[4] = first_samples[5] = first_samples[12] = DEADLY
    found = read(write_utterances(tmp_path, first_samples), die_of_some)
    assert [one.id for one in found] == [str(number) for number in range(14)]
    rejected = [one for one in found if isinstance(one, Rejected)]
    assert [(one.id, one.code) for one in rejected] == [
        ("4", "reader_died"),
        ("5", "reader_died"),
        ("12", "reader_died"),
    ]
    assert caplog.records


@pytest.mark.long
def test_several_dead_readers_in_a_row_are_an_error(tmp_path):
    with pytest.raises(UserError, match=rf"\.wav: {MAX_DEATHS_IN_A_ROW} "):
        read(write_utterances(tmp_path, [0.1] * 12), die_of_all)


def test_an_unreadable_recording_is_rejected_and_kills_no_reader(tmp_path):
    utterances = write_utterances(tmp_path, [0.1, 0.1, float("nan")])
    utterances[0].audio.unlink()
    assert [one.code for one in read(utterances, unprepared, max_duration_s=0.05)] == [
        "missing",
        "too_long",
        "too_long",
    ]
    assert [getattr(one, "code", None) for one in read(utterances, unprepared)] == [
        "missing",
        None,
        "not_finite",
    ]
    assert read(utterances[1:2], raise_memory_error)[0].code == "out_of_memory"


PARENT = """
import sys, time
from pathlib import Path
from indextts.data.reading import ClipReader, Reading
from indextts.features.audio import unprepared
from indextts.data.manifest import Utterance

if __name__ == "__main__":
    utterance = Utterance("x", Path(sys.argv[1]), "x", "a", 0.1)
    with ClipReader(Reading(24_000, 30.0, unprepared), 2, 1.0) as reader:
        clips = reader.read([[utterance]] * 4 + [[utterance]] * 100)
        next(clips)
        print(*reader._pool._processes, flush=True)
        time.sleep(3600)
"""


@pytest.mark.long
def test_readers_exit_when_their_parent_is_killed(tmp_path):
    (utterance,) = write_utterances(tmp_path, [0.1])
    (tmp_path / "parent.py").write_text(PARENT)
    program = [sys.executable, str(tmp_path / "parent.py"), str(utterance.audio)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as parent:
        readers = [int(pid) for pid in parent.stdout.readline().split()]
        assert readers
        parent.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in readers))
