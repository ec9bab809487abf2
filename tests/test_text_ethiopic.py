import pytest

from indextts.text.ethiopic import text_key


@pytest.mark.parametrize("other", ["ሰላም ነው", "ሠላም፣ነው።", "  ሰላም  ነው! ", "ሰላም\u135f ነው"])
def test_spellings_of_one_sentence_have_one_key(other):
    assert text_key(other) == text_key("ሰላም ነው።")


@pytest.mark.parametrize("other", ["ሰላም ነች", "ሰላም", "ሸላም ነው", "2 ሰላም ነው"])
def test_other_sentences_have_other_keys(other):
    assert text_key(other) != text_key("ሰላም ነው።")
