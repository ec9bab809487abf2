"""Tests of indextts/speech/evaluation/groups.py."""

import pytest

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.speech.evaluation.groups import groups_of


@pytest.mark.parametrize(
    ("text", "language", "groups"),
    [
        ("ሰላም ነው።", "am", ["short"]),
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
