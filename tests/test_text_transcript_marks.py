r"""Tests of indextts/text/transcript_marks.py: what is removed from transcripts, and what stays."""

import time
import tomllib

import pytest

from indextts.text.transcript_marks import BRACKETS, KINDS, clean_transcript, clean_transcripts
from tests.conftest import REPOSITORY

REMOVED = tomllib.loads((REPOSITORY / "tests/transcript_marks.toml").read_text("utf-8"))
SPEECH = REMOVED.pop("speech")


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind, texts in REMOVED.items() for text in texts]
)
def test_a_mark_is_removed_as_its_kind_and_stays_on_request(kind: str, text: str):
    cleaned = clean_transcript(text)
    assert cleaned.text == "ሰላም"
    assert {mark.kind for mark in cleaned.marks} == {kind}
    assert kind in KINDS
    assert clean_transcript(text, [kind]).text == text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("[00:12] Speaker 1: ሰላም (ሳቅ)፣ ለዓለም።", "ሰላም፣ ለዓለም።"),
        ("Speaker 1 (00:12): ሰላም", "ሰላም"),
        ("&gt;&gt; ሰላም &ldquo;ነው&rdquo; &amp; ጤና", "ሰላም “ነው” & ጤና"),
        ("&lt;noise&gt; 5 &lt; 6", "5 < 6"),
        (r"1\n00:00:01,000 --> 00:00:02,000\n- ሰላም\n- ለዓለም", "ሰላም ለዓለም"),
        ("<00:00:01.200><c.yellow> ሰላም</c><00:00:02.000><c> ለዓለም</c>", "ሰላም ለዓለም"),
        (r"\"ሰላም\" አለ \ud83d\ude00", '"ሰላም" አለ \U0001f600'),
        (r"ሰላም\u0000\ud83d", "ሰላም"),
        ("[noise] ♪ .", ""),
        ("(music) so we go (noise), and (laughs) stay", "so we go, and stay"),
        (r"ሰላም\nname", "ሰላም name"),
    ],
)
def test_marks_of_several_kinds_are_removed_together(text: str, cleaned: str):
    assert clean_transcript(text).text == cleaned


@pytest.mark.parametrize("text", SPEECH)
def test_speech_stays_as_it_is(text: str):
    assert clean_transcripts([text])[0].text == text


def test_a_noise_to_keep_is_no_name():
    texts = ["[noise] ሰላም ነው", "[noise] እሺ ነው"]
    assert [text for text, _ in clean_transcripts(texts, ["noise"])] == texts


def test_words_in_brackets_that_may_be_spoken_are_listed():
    cleaned = clean_transcripts(["[ተሰጥቶታል] ነው (ሳቅ)", "(በ2010 ዓ.ም.)"])
    assert [text for text, _ in cleaned] == ["[ተሰጥቶታል] ነው", "(በ2010 ዓ.ም.)"]
    found = [mark for each in cleaned for mark in each.marks]
    assert found == [("noise", "(ሳቅ)"), (BRACKETS, "[ተሰጥቶታል]"), (BRACKETS, "(በ2010 ዓ.ም.)")]


@pytest.mark.parametrize(
    ("texts", "cleaned"),
    [
        (["አበበ፡ ሰላም ነው", "አልማዝ፡ ደህና ነኝ", "አበበ፡ እሺ"], ["ሰላም ነው", "ደህና ነኝ", "እሺ"]),
        (["አበበ: በ3:30 ና", "ወ/ሮ አልማዝ:ደህና ነኝ", "እሺ"], ["በ3:30 ና", "ደህና ነኝ", "እሺ"]),
        (["[00:01] [አበበ] ሰላም", "[00:02] [አልማዝ] እሺ"], ["ሰላም", "እሺ"]),
        (["00:12 ሰላም ነው", "(12:30) ደህና ነኝ", "ና"], ["ሰላም ነው", "ደህና ነኝ", "ና"]),
        (["HE SAID: GO", "Chapter 1: The end", "Luke 10: and he", "NOTE: read", "others"], None),
        ([*["አበበ፡ ሰላም"] * 3, *["እሺ ነው"] * 20], [*["ሰላም"] * 3, *["እሺ ነው"] * 20]),
        ([*["ለምሳሌ፡ ሰላም"] * 3, *["እሺ ነው"] * 40], None),  # a usual word, not a usual start
        (["ሰላም፡ለዓለም", "ደህና፡ነህ", "እሺ፡ነው"], None),
        (["ሰላም፡ ለዓለም፡ ዛሬ", "ደህና፡ ነህ፡ ወይ"], None),
        ([f"ቃል{letter}፡ ትርጉሙ ይህ ነው" for letter in "ሀለሐመሠረሰሸቀበተቸ"], None),  # a dictionary
        (["3:30 ላይ ና", "ሰላም ነው", "እሺ ነው"], None),
    ],
)
def test_a_name_or_time_is_a_label_where_texts_usually_begin_so(texts: list[str], cleaned: list[str] | None):
    assert [text for text, _ in clean_transcripts(texts)] == (cleaned or texts)
    assert [text for text, _ in clean_transcripts(texts, ["labels", "times"])] == texts


@pytest.mark.parametrize(
    "part",
    [
        "'''a ",
        "<ref>",
        "<!--",
        "[",
        "(x",
        "[[a|",
        "<a ",
        ">> ",
        "Speaker 1:\n",
    ],
)
def test_a_long_text_of_marks_without_an_end_takes_no_long_time(part: str):
    text = ("==(" + part * 20_000)[:20_000]
    start_s = time.process_time()
    clean_transcript(text)
    assert time.process_time() - start_s < 0.5


@pytest.mark.shared
def test_sentences_of_books_and_news_stay_except_for_their_markup(shared):
    lines = (shared / "data/amharic/corpus.tsv").read_text(encoding="utf-8").splitlines()[1:]
    texts = [line.split("\t")[-1] for line in lines]
    changed = [each for text, each in zip(texts, clean_transcripts(texts), strict=True) if each.text != text]
    assert len(changed) <= 3
    assert {mark.kind for each in changed for mark in each.marks} <= {"markup", BRACKETS}
