"""Tests of the choice among candidates in indextts/speech/evaluation/judge.py."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from indextts.commands.normalizer_options import DEFAULT_OPTIONS
from indextts.speech.evaluation.judge import Judge, Judgement, choose_best
from indextts.speech.synthesis.renderer import Segment
from indextts.speech.synthesis.text_to_speech import Speech
from indextts.text.transcripts import Errors


class Known(Judge):
    """A judge whose judgements are known before."""

    def __init__(self, judgements: list[Judgement]) -> None:
        super().__init__([], None)
        self.known = judgements

    def judge(self, clips: object) -> list[Judgement]:
        return self.known


def judged(
    duration_s: float = 2.0, edits: int | None = None, likeness: float | None = None, is_silent: bool = False
) -> Judgement:
    errors = {} if edits is None else {"asr": Errors(edits, 10)}
    return Judgement(duration_s, {}, errors, likeness, is_silent)


def speech(seed: int, has_stopped: bool = True, is_loop: bool = False) -> Speech:
    codes = torch.zeros(100, dtype=torch.long) if is_loop else torch.arange(100)
    return Speech(np.zeros(10, np.float32), 24_000, (Segment("", codes, codes, has_stopped, seed),))


@pytest.mark.parametrize(
    ("judgements", "speeches", "best"),
    [
        ([judged(edits=3), judged(9.0, edits=1), judged(edits=2)], [{}, {}, {}], 1),
        ([judged(6.0), judged(2.2), judged(2.0), judged(0.5)], [{}, {}, {}, {}], 1),
        ([judged(2.1), judged(2.0), judged(1.9)], [{}, {"has_stopped": False}, {"is_loop": True}], 0),
        ([judged(is_silent=True), judged(9.0)], [{}, {}], 1),
        ([judged(edits=1, likeness=0.1), judged(edits=2, likeness=0.8)], [{}, {}], 1),
        ([judged(is_silent=True), judged(is_silent=True)], [{}, {}], 0),
    ],
    ids=["errors", "length", "loops and stops", "silence", "voice", "all bad"],
)
def test_the_candidate_with_the_smallest_fault_is_chosen(judgements, speeches, best):
    candidates = [speech(seed, **given) for seed, given in enumerate(speeches)]
    options, base = SimpleNamespace(options=DEFAULT_OPTIONS), SimpleNamespace(codes_per_second=50)
    trained: Any = SimpleNamespace(
        tokenizer=options, gpt=SimpleNamespace(config=SimpleNamespace(of_base=base))
    )
    chosen, records = choose_best(Known(judgements), trained, candidates, "", None)
    assert chosen == best
    assert [one["seed"] for one in records if one["is_chosen"]] == [best]
    assert all(records[best]["fault"] <= one["fault"] <= 1 for one in records)
