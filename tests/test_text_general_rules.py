"""The normaliser for languages other than Amharic."""

import pytest

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.errors import UserError
from indextts.text.normalize import normalize
from tests.spoken_languages import sentences

LANGUAGES = ("ko", "ar", "th", "sw")


@pytest.mark.parametrize("language", LANGUAGES)
def test_normalising_again_changes_nothing(language):
    options = NormalizerOptions(language=language)
    for text in sentences(language, 400):
        once = normalize(text, options)
        assert normalize(once, options) == once


def test_a_number_of_any_length_is_read():
    options = NormalizerOptions(language="ko")
    for num_digits in (1, 15, 16, 60):
        assert not any(map(str.isdigit, normalize(f"번호 {'9' * num_digits}", options)))


def test_amharic_keeps_its_record_and_other_languages_are_recorded():
    assert "language" not in DEFAULT_OPTIONS.record
    korean = NormalizerOptions(language="ko")
    assert korean.record["language"] == "ko"
    assert korean.fingerprint != DEFAULT_OPTIONS.fingerprint
    assert DEFAULT_OPTIONS.fingerprint == "v7-7ea06ebd985b04b0"  # the digest of earlier versions


def test_an_unknown_language_is_refused():
    with pytest.raises(UserError, match="'xx'"):
        normalize("x", NormalizerOptions(language="xx"))


def test_a_number_that_a_language_has_no_word_for_is_read_digit_by_digit():
    spoken = normalize("ಕ 99999999999", NormalizerOptions(language="kn"))
    assert not any(map(str.isdigit, spoken))
    assert len(spoken.split()) == 12
