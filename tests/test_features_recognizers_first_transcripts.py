"""Tests of indextts/features/recognizers/first_transcripts.py."""

import logging

import pytest

from indextts.errors import UserError
from indextts.features.recognizers.first_transcripts import counts, require_language
from indextts.text.transcripts import Errors

GOOD = "በእርግጥ ሌሎች ሃይማኖቶችንም መሠረት አድርጐ ተፈጽሟል።"
LOOP = "ያይ" * 20
RIGHT, WRONG = Errors(1, 20), Errors(333, 16)


@pytest.mark.parametrize(
    ("heard", "errors", "problem"),
    [
        ([GOOD] * 20, [], None),
        ([GOOD] * 16 + [LOOP] * 4, [], None),
        ([GOOD] * 14 + [LOOP] * 6, [], "6 of 20 .* loop"),
        ([f"{GOOD} BBC"] * 20, [], None),
        (["مرحبا بالعالم"] * 20, [], "100% .* other scripts"),
        (["ሰላም שלום"] * 20, [], "57% .* other scripts"),
        (["ሰ\ufffd\ufffd"] * 20, [], "67% .* other scripts"),
        ([""] * 11 + [GOOD] * 9, [], "11 of 20 .* empty"),
        ([GOOD] * 20, [RIGHT] * 10 + [WRONG] * 10, None),  # a loop counts as one wrong text
        ([GOOD] * 20, [WRONG] * 20, "100% .* differ"),
    ],
)
def test_a_recognizer_that_cannot_write_the_language_is_stopped(
    heard: list[str], errors: list[Errors], problem: str | None, caplog: pytest.LogCaptureFixture
):
    if problem is None:
        require_language("asr", "am", heard, errors)
    else:
        with pytest.raises(UserError, match=rf"--asr asr: .*Amharic.* {problem}"):
            require_language("asr", "am", heard, errors)
        caplog.set_level(logging.WARNING)
        require_language("asr", "am", heard[::2], errors[::2])  # too few to stop: a warning
        assert "--asr asr: " in caplog.text


def test_loops_and_empty_transcripts_are_counted_apart():
    assert counts([GOOD, LOOP, "", "...", "of " * 30]) == (2, 2)
    assert WRONG.bounded == Errors(16, 16)
