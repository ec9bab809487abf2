"""Tests of indextts/speech/evaluation/report.py: rows, intervals, groups, drawings."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.speech.evaluation.judge import Judge, Judgement, SpokenText
from indextts.speech.evaluation.report import (
    Clip,
    draw_scores,
    groups_of,
    markdown_report,
    pace_range,
    summarize,
)
from indextts.text.transcripts import Errors, WordFaults

PNG = b"\x89PNG"


def clip(
    edits: int,
    duration_s: float,
    *,
    likeness: float | None = 0.5,
    has_stopped: bool | None = True,
    is_loop: bool | None = False,
    is_silent: bool = False,
) -> Clip:
    judgement = Judgement(duration_s, {"asr": "ሰላም"}, {"asr": Errors(edits, 10)}, likeness, is_silent)
    return Clip("u", "ሰላም", 12, 2.0, "p", judgement, has_stopped, is_loop)


RECORDED = [clip(1, 2.0, has_stopped=None, is_loop=None), clip(1, 2.0, has_stopped=None, is_loop=None)]
SAID = [
    clip(3, 2.0, likeness=0.2),
    clip(3, 3.0, likeness=0.4),
    clip(2, 4.0, likeness=None, is_loop=True, has_stopped=False),
    clip(10, 0.0, likeness=None, is_silent=True),
]


SAID = [replace(one, id=str(number)) for number, one in enumerate(SAID)]


def test_a_row_summarizes_its_clips():
    row = summarize("best", 236, SAID)
    assert (row.num_clips, row.cer["asr"]) == (4, pytest.approx(18 / 40))
    assert row.cer_interval["asr"][0] < 18 / 40 < row.cer_interval["asr"][1]
    assert row.likeness == pytest.approx(0.3)
    assert row.syllables_per_s == 4.0  # 6, 4 and 3; the fourth clip is empty
    assert row.length_ratio == pytest.approx(1.25)
    assert (row.no_stop, row.loops, row.silent) == (0.25, 0.25, 0.25)


def test_words_lost_at_the_edges_and_paces_are_shares_of_clips_and_segments():
    lost = replace(SAID[0].judgement, words=WordFaults(True, False, 2))
    fine = replace(SAID[0].judgement, words=WordFaults(False, False, 0))
    clips = [replace(SAID[0], judgement=one, paces=paces) for one, paces in ((lost, [5, 9]), (fine, [6, 7]))]
    row = summarize("best", 1, clips, usual_pace=pace_range([replace(SAID[0], paces=[4, 5, 7, 8])]))
    assert (row.first_lost, row.last_lost, row.leaks, row.pace_outside) == (0.5, 0, 0.5, 0.25)


def test_the_clips_of_a_sentence_do_not_count_as_independent():
    assert summarize("best", 1, SAID * 5).cer_interval == summarize("best", 1, SAID).cer_interval


def test_values_that_were_not_measured_are_left_out_and_not_zero():
    row = summarize("recordings", None, RECORDED)
    assert (row.no_stop, row.loops, row.step) == (None, None, None)
    table = markdown_report([row, summarize("best", 236, SAID)], ["2026-01-01"]).splitlines()
    assert table[4:6] == [
        "|  | group | step | clips | CER, asr (95 %) | times the recordings', asr | likeness | syllables/s "
        "| length | no stop | loops | silent | first word lost | last word lost | prompt's words "
        "| pace outside |",
        "|---" * 16 + "|",
    ]
    numbers = "10.0 % (10.0 to 10.0) | 1.00 | 0.500 | 6.0 | 1.00 | - | - | 0% | - | - | - | - |"
    assert table[6] == f"| recordings | all | - | 2 | {numbers}"
    assert table[-1].startswith("| best | all | 236 | 4 | 45.0 % (")
    assert table[-1].endswith(" | 4.50 | 0.300 | 4.0 | 1.25 | 25% | 25% | 25% | - | - | - | - |")


def test_one_loop_does_not_outweigh_the_other_transcripts_and_is_counted():
    looping = replace(clip(3330, 2.0).judgement, heard={"asr": "ላም" * 20})
    row = summarize("best", 1, [*RECORDED, replace(RECORDED[0], judgement=looping)])
    assert (row.cer["asr"], row.cer_unbounded["asr"]) == pytest.approx((12 / 30, 3332 / 30))
    assert (row.asr_loops["asr"], row.asr_empty["asr"]) == (1, 0)
    assert "; unbounded 11106.7 %; 1 looping | " in markdown_report([row], [])


def test_rows_without_transcripts_and_similarity_are_drawn_too(tmp_path: Path):
    nothing = Clip("u", "ሰላም", 3, 2.0, "p", Judgement(1.0, {}, {}, None, False), True, False)
    for rows in ([RECORDED, SAID, SAID], [[nothing], [nothing]]):
        draw_scores(
            [summarize(str(number), number, clips) for number, clips in enumerate(rows)], tmp_path / "a.png"
        )
        assert (tmp_path / "a.png").read_bytes().startswith(PNG)


def test_an_empty_clip_is_silent_and_misses_its_complete_text():
    recognizer = type("Deaf", (), {"name": "asr", "sample_rate_hz": 16_000, "transcribe": lambda *_: [""]})()
    [judged] = Judge([recognizer], None).judge(
        [SpokenText(np.zeros(0, np.float32), 24_000, "ሰላም ለዓለም", None)]
    )
    assert judged.is_silent
    assert judged.errors == {"asr": Errors(7, 7)}
    assert (judged.duration_s, judged.likeness) == (0.0, None)


@pytest.mark.parametrize(
    ("text", "language", "groups"),
    [
        ("ወደ አዲስ አበባ ለመሄድ የሚፈልጉ ብዙ ሰዎች መንገድ ላይ ቆመው ነበር።", "am", []),
        ("ስንት ሰዓት ነው፧", "am", ["short", "questions"]),
        ("5 ሰዎች መጡ።", "am", ["short", "numbers"]),
        ("በ፲፱፻፹፭ ተወለደ።", "am", ["numbers"]),  # long as spoken
        ("ሠላሳ ሺ ብር አለ?", "am", ["short", "numbers", "questions"]),  # another spelling of both words
        ("አንድ ሰው መጣ።", "am", ["short"]),  # the article as often as the number
        ("كيف حالك 7؟", "ar", ["short", "numbers", "questions"]),
        ("Is this a question?", "en", ["short", "questions"]),
    ],
)
def test_the_groups_of_a_text_follow_from_its_letters(text: str, language: str, groups: list[str]):
    assert groups_of(text, NormalizerOptions(language=language)) == groups
