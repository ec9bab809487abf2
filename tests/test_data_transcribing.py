"""Tests of indextts/data/transcribing: from long recordings to a data set, with one or two recognizers."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.commands.normalizer_options import DEFAULT_OPTIONS
from indextts.data.importing.items import Passage
from indextts.data.manifest import Utterance, read_utterances
from indextts.data.review import read_reviewed
from indextts.data.silences import Limits
from indextts.data.transcribing.agreement import Comparison, choose_limit, compare, yield_curve
from indextts.data.transcribing.cutting import plan_clips
from indextts.errors import UserError
from indextts.features.audio import load_audio
from indextts.features.vad import Span
from tests.conftest import REPOSITORY
from tests.killed_program import kill_when
from tests.recognizers import write_recognizer, write_whisper
from tools.transcribe import main

RATE_HZ = 16_000
LIMITS = Limits(2, 15)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recordings of clips of the demo with pauses between them, and recognizers beside them.

    In the second recording, clips take turns on two channels.
    """
    folder = tmp_path_factory.mktemp("raw")
    (folder / "talks/almaz").mkdir(parents=True)
    for name, numbers in (("talks/almaz/one.flac", range(1, 6)), ("talks/two.ogg", range(6, 9))):
        clips = [load_audio(REPOSITORY / f"demo/audio/demo_{n:04d}.opus", RATE_HZ) for n in numbers]
        pause = np.zeros(RATE_HZ, np.float32)
        samples = np.concatenate([part for clip in clips for part in (pause, clip)])
        if name == "talks/two.ogg":
            turns = [np.full(len(pause) + len(clip), n % 2, np.float32) for n, clip in enumerate(clips)]
            left = np.concatenate(turns)
            samples = np.stack([samples * left, samples * (1 - left)], axis=1)  # (S, C=2)
        soundfile.write(folder / name, samples, RATE_HZ)
    write_recognizer(folder / "la", "ላ")
    write_recognizer(folder / "m", "ም")
    write_recognizer(folder / "la_too", "ላ")
    return folder


def run(folder: Path, output: Path, *asr: str, more: tuple[str, ...] = ()) -> list[Utterance]:
    assert main(arguments(folder, output, *asr) + list(more)) == 0
    return read_utterances(output / "manifest.jsonl")


def arguments(folder: Path, output: Path, *asr: str) -> list[str]:
    flags = [f"--asr={folder / name}" for name in asr]
    return [f"--source={folder / 'talks'}", f"--output-dir={output}", "--device=cpu", *flags]


def spans(*times: tuple[float, float]) -> list[Span]:
    return [Span(start, end) for start, end in times]


def edges_of(cuts: Sequence[Passage]) -> list[float]:
    return [edge for cut in cuts for edge in (cut.start_s, cut.end_s)]


def test_clips_are_cut_at_pauses_and_keep_half_of_a_short_silence():
    speech = spans((1, 4), (4.2, 6), (7, 9.5), (9.7, 12))
    cuts, lost = plan_clips(speech, 20, LIMITS)
    assert edges_of(cuts) == pytest.approx([0.85, 6.15, 6.85, 12.15])
    assert not lost


def test_a_long_part_is_divided_at_its_longest_pause_and_short_parts_are_joined():
    speech = spans((0, 6), (6.3, 12), (12.2, 19), (21, 22), (22.5, 23.2))
    cuts, _ = plan_clips(speech, 23.2, LIMITS)
    assert edges_of(cuts) == pytest.approx([0, 6.15, 6.15, 19.15, 20.85, 23.2])


def test_speech_that_fits_no_clip_is_counted_by_reason():
    _, lost = plan_clips(spans((0, 17), (20, 21), (30, 33)), 40, LIMITS)
    assert lost == [("no_pause", pytest.approx(17.15)), ("too_short", pytest.approx(1.3))]


def test_disagreement_ignores_spelling_and_the_limit_is_where_few_letters_differ():
    assert compare("ሀሎ ዓለም።", "ሐሎዐለም", 1, DEFAULT_OPTIONS).edits == 0
    assert compare("ሰላም", "ሰላምታ", 1, DEFAULT_OPTIONS).disagreement == 0.25
    assert compare("", "", 1, DEFAULT_OPTIONS).disagreement == 1
    compared = [*[Comparison(0, 60, 36.0)] * 9, Comparison(1, 50, 36.0), Comparison(20, 40, 36.0)]
    curve = yield_curve(compared)
    assert [point.num_clips for point in curve] == [9, 10, 11]
    assert [point.hours for point in curve] == pytest.approx([0.09, 0.1, 0.11])
    assert [point.differing for point in curve] == pytest.approx([0, 1 / 590, 21 / 630])
    assert choose_limit(curve) == 0.02
    assert choose_limit(curve[-1:]) == 0


def test_what_two_recognizers_hear_alike_is_an_ordinary_data_set(folder: Path, tmp_path: Path):
    found = run(folder, tmp_path, "la", "la_too")
    assert len(found) == len(read_reviewed(tmp_path / "manifest.jsonl")) >= 6
    assert {utterance.speaker for utterance in found} == {"almaz_one", "two"}
    assert {utterance.text_origin for utterance in found} == {"agreed"}
    for utterance in found:
        assert 2 <= utterance.duration_s <= 15
        assert soundfile.info(utterance.audio).duration == pytest.approx(utterance.duration_s)
    names = [path.name for path in (tmp_path / "audio").iterdir()]
    assert sorted(names) == sorted(utterance.audio.name for utterance in found)


def test_a_shared_family_is_named_and_agreement_is_no_error_rate(folder: Path, tmp_path, caplog, capsys):
    run(folder, tmp_path, "la", "la_too")
    assert "la and la_too are of one family, Wav2Vec2" in caplog.text
    printed = capsys.readouterr().out
    assert "both are Wav2Vec2" in printed
    assert "agree on at least 100.0 %" in printed


def test_what_they_hear_differently_is_doubtful_with_both_readings(folder: Path, tmp_path: Path):
    found = run(folder, tmp_path, "la", "m", more=("--speaker=almaz",))
    assert {utterance.speaker for utterance in found} == {"almaz"}
    for utterance in found:
        assert utterance.is_doubtful
        assert utterance.provenance.by == ("la", "m")
        assert set(utterance.text) == {"ላ"}
        assert set(utterance.provenance.other) == {"ም"}
    with pytest.raises(UserError, match="every utterance"):
        read_reviewed(tmp_path / "manifest.jsonl")
    again = run(folder, tmp_path, "la", "m", more=("--max-disagreement=1", "--speaker-from=folder"))
    assert {utterance.speaker for utterance in again} == {"almaz", "talks"}
    assert not any(utterance.is_doubtful for utterance in again)


@pytest.mark.parametrize(
    "more",
    [
        ("--asr=x", "--asr=y"),
        ("--max-disagreement=0.1",),
        ("--min-clip-s=9", "--max-clip-s=8"),
        ("--source=no",),
    ],
)
def test_wrong_flags_are_refused_before_anything_is_written(folder: Path, tmp_path: Path, more):
    with pytest.raises(UserError):
        main([*arguments(folder, tmp_path / "out", "la"), *more])
    assert not (tmp_path / "out").exists()


@pytest.mark.long
@pytest.mark.slow
def test_a_killed_transcription_loses_and_repeats_nothing(folder: Path, tmp_path: Path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run(folder, whole, "la", "m")
    for condition in (
        f"len(list(Path({str(killed / 'audio')!r}).glob('*'))) > 1",
        f"Path({str(killed / 'measured/heard-m.jsonl')!r}).is_file()",
    ):
        kill_when(condition, "tools.transcribe", arguments(folder, killed, "la", "m"))
        assert not (killed / "manifest.jsonl").exists()
    run(folder, killed, "la", "m")
    for name in ("manifest.jsonl", "measured/heard-la.jsonl", "measured/heard-m.jsonl"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    _, *lines = (killed / "measured/cuts.jsonl").read_text().splitlines()
    assert len({json.loads(line)["audio"] for line in lines}) == len(lines) == 2
    names = [sorted(path.name for path in (place / "audio").iterdir()) for place in (whole, killed)]
    assert names[0] == names[1]


CUTS_FOR_EVER = """
import runpy, sys, time
from indextts.data.transcribing import cutting
def cut(*_):
    print("cutting", flush=True)
    time.sleep(10_000)
cutting._cut = cut
runpy.run_module("tools.transcribe", run_name="__main__", alter_sys=True)
"""


def test_ctrl_c_does_not_wait_for_the_recordings_that_are_cut(folder: Path, tmp_path: Path):
    program = [sys.executable, "-c", CUTS_FOR_EVER, *arguments(folder, tmp_path, "la")]
    with subprocess.Popen(program, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            assert any("cutting" in line for line in running.stdout)
            running.send_signal(signal.SIGINT)
            assert running.wait(60) == -signal.SIGINT
        finally:
            running.kill()


def test_a_recognizer_that_cannot_write_the_language_is_stopped_after_the_first_clips(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for module in ("data.transcribing.transcribe", "features.recognizers.first_transcripts"):
        monkeypatch.setattr(f"indextts.{module}.NUM_FIRST", 3)
    whisper = write_whisper(tmp_path / "whisper")  # it writes ASCII
    for _ in range(2):  # what was heard is kept, and judged again
        with pytest.raises(UserError, match=r"--asr whisper: .*Amharic"):
            main(arguments(folder, tmp_path, str(whisper)))
        assert len((tmp_path / "measured/heard-whisper.jsonl").read_text("utf-8").splitlines()) == 1 + 3
