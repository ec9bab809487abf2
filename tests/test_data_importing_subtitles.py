"""Tests of subtitles: corrupt files, spoken text, rolling captions, and language."""

import json
from pathlib import Path
from random import Random

import pytest

from indextts.data.importing.items import Passage
from indextts.data.importing.subtitles import (
    foreign_by_info,
    foreign_by_letters,
    foreign_by_name,
    read_cues,
    read_subtitles,
    unroll_cues,
)
from indextts.text.languages import find_language
from tests.conftest import REPOSITORY
from tests.import_sources import json_lines


def read(
    tmp_path: Path, text: str, name: str = "a.srt", encoding: str = "utf-8"
) -> list[tuple[float, float, str]]:
    (tmp_path / name).write_bytes(text.encode(encoding))
    return [(cue.start_s, cue.end_s, cue.text) for cue in read_subtitles(tmp_path / name).cues]


FIRST, SECOND = (1.0, 2.5, "ሰላም"), (3.0, 4.0, "ለዓለም\nዛሬ")


@pytest.mark.parametrize(
    "text",
    [
        "1\n00:00:01,000 --> 00:00:02,500\nሰላም\n\n2\n00:00:03,000 --> 00:00:04,000\nለዓለም\nዛሬ\n",
        "\ufeff1\r\n00:00:01,000 --> 00:00:02,500\r\nሰላም\r\n\r\n"
        "2\r\n00:00:03,000 --> 00:00:04,000\r\nለዓለም\r\nዛሬ\r\n",
        "00:00:01,000 --> 00:00:02,500\nሰላም\n\n00:00:03,000 --> 00:00:04,000\nለዓለም\nዛሬ",  # no index
        "1\n00:00:01.000 --> 00:00:02.500\nሰላም\n2\n00:00:03.000 --> 00:00:04.000\nለዓለም\nዛሬ",  # no blank line
        "1\n0:0:1,0 -> 0:0:2,5\nሰላም\n\n2\n00:03 --> 00:04 X1:10\n\nለዓለም\n\nዛሬ\n\n\n",  # blank lines inside
    ],
)
def test_srt_is_read_in_all_its_variants(tmp_path, text):  # D14
    cues = [(start, end, text.strip().replace("\n\n", "\n")) for start, end, text in read(tmp_path, text)]
    assert cues == [FIRST, SECOND]


def test_webvtt_is_read_with_its_header_notes_and_settings(tmp_path):
    text = (
        "WEBVTT - talk\nKind: captions\nLanguage: am-ET\n\nNOTE 00:00:09.000 is\nno cue\n\n"
        "STYLE\n::cue { color: red }\n\n"
        "one\n00:01.000 --> 00:02.500 align:start position:0%\nሰላም\n\n"
        "00:00:03.000 --> 00:00:04.000\nለዓለም\nዛሬ\n\n2017\n"
    )
    assert read(tmp_path, text, "a.vtt") == [FIRST, SECOND]
    assert read_subtitles(tmp_path / "a.vtt").headers["language"] == "am-ET"


def test_impossible_times_and_corrupt_lines_are_listed_with_their_line(tmp_path):
    text = (
        "1\n00:00:05,000 --> 00:00:04,000\nሰላም\n\n2\n00:00:06,000 --> 00:00:07,000\n".encode()
        + b"caf\xe9 x\n\n3\n00:00:01,000 --> 00:00:02,500\n"
        + "ሰላም\n".encode()
    )
    (tmp_path / "a.srt").write_bytes(text)
    result = read_subtitles(tmp_path / "a.srt")
    assert [(cue.start_s, cue.end_s, cue.text) for cue in result.cues] == [FIRST]
    assert [(row.where.line, row.code) for row in result.rejections] == [(2, "bad_time"), (7, "encoding")]


def test_sung_text_and_two_voices_are_boundaries_only(tmp_path):
    blocks = ["♪ ሰላም ለዓለም ♪", "- ሰላም\n- ለዓለም", "<v A>ሰላም</v> <v B>ለዓለም</v>", "[ሙዚቃ]", " ", "ሰላም ለዓለም"]
    text = "WEBVTT\n\n" + "".join(
        f"00:0{number}.000 --> 00:0{number}.900\n{block}\n\n" for number, block in enumerate(blocks)
    )
    (tmp_path / "a.vtt").write_text(text, encoding="utf-8")
    cues, _, rejections = read_cues(tmp_path / "a.vtt", tmp_path / "a.wav", "am")
    assert [cue.text for cue in cues] == ["", "", "", "", "ሰላም ለዓለም"]
    assert [row.code for row in rejections] == ["music", "dialogue", "dialogue"]


def cues(*items: tuple[float, float, str]) -> list[Passage]:
    return [Passage(start, end, text, line) for line, (start, end, text) in enumerate(items)]


def plain(result: list[Passage]) -> list[tuple[float, float, str]]:
    return [(cue.start_s, cue.end_s, cue.text) for cue in result]


def test_captions_that_roll_by_two_lines_have_each_word_once_at_its_time():  # D6
    shown = cues(
        (0.0, 2.0, "ሰላም ለዓለም"),
        (2.0, 2.01, "ሰላም ለዓለም"),
        (2.01, 4.5, "ሰላም ለዓለም ዛሬ ደግሞ"),
        (4.5, 4.51, "ዛሬ ደግሞ"),
        (4.51, 6.0, "ዛሬ ደግሞ እንገናኛለን"),
        (9.0, 9.5, "እንገናኛለን"),
    )
    result, is_rolling = unroll_cues(shown)
    assert is_rolling
    assert plain(result) == [
        (0.0, 2.01, "ሰላም ለዓለም"),
        (2.01, 4.51, "ዛሬ ደግሞ"),
        (4.51, 6.0, "እንገናኛለን"),
        (9.0, 9.5, "እንገናኛለን"),  # repeated two seconds later
    ]


def test_captions_that_overlap_in_time_end_where_the_next_words_begin():
    shown = cues((0.0, 4.0, "አንድ ሁለት ሦስት"), (2.0, 6.0, "ሁለት ሦስት አራት አምስት"), (4.0, 8.0, "አራት አምስት ስድስት"))
    assert plain(unroll_cues(shown)[0]) == [
        (0.0, 2.0, "አንድ ሁለት ሦስት"),
        (2.0, 4.0, "አራት አምስት"),
        (4.0, 8.0, "ስድስት"),
    ]


def test_captions_that_grow_word_by_word_become_their_longest_form():
    shown = cues((0.0, 1.0, "አንድ"), (0.0, 2.0, "አንድ ሁለት"), (0.0, 3.0, "አንድ ሁለት ሦስት"))
    assert plain(unroll_cues(shown)[0]) == [(0.0, 3.0, "አንድ ሁለት ሦስት")]


def test_words_that_are_spoken_twice_remain():
    shown = cues(
        (0.0, 1.0, "አዎ ነው"), (1.0, 2.0, "ነው እንጂ"), (2.0, 3.0, "ደህና"), (4.0, 5.0, "ደህና"), (6.0, 7.0, "ሰላም ነው")
    )
    result, is_rolling = unroll_cues(shown)
    assert not is_rolling
    assert plain(result) == plain(shown)


@pytest.mark.parametrize(
    ("name", "is_foreign"),
    [
        ("talk.srt", False),
        ("talk.am.srt", False),
        ("talk.am-ET.vtt", False),
        ("talk.en.srt", True),
        ("talk.am-en.vtt", True),
        ("talk.ti.srt", True),
        ("part.2.srt", False),
    ],
)
def test_the_name_of_a_subtitle_file_gives_its_language(name, is_foreign):  # D5
    assert (foreign_by_name(Path(name), AM) is not None) == is_foreign


AM = find_language("am")
AMHARIC = "ዛሬ ጠዋት ወደ ገበያ ሄድኩ እና ብዙ ሰዎችን አገኘሁ"


def test_english_and_tigrinya_are_recognised_by_their_letters():
    assert foreign_by_letters(AMHARIC + " UNICEF", AM) is None
    assert "13%" in str(foreign_by_letters("Good morning, everybody. ሰላም", AM))
    assert "Tigrinya" in str(foreign_by_letters("ሎሚ ንግሆ ናብ ዕዳጋ ከይደ ብዙሓት ሰባት ድማ ረኺበ ኣለኹ", AM))


def test_the_metadata_of_a_video_reveals_a_translation(tmp_path):
    audio, subtitles = tmp_path / "x.wav", tmp_path / "x.am.vtt"

    def foreign(info: object) -> str | None:
        (tmp_path / "x.info.json").write_text(json.dumps(info))
        return foreign_by_info(subtitles, audio, AM)

    assert foreign({"language": "am", "requested_subtitles": {"am": {"url": "https://x/?lang=am"}}}) is None
    translated = {"requested_subtitles": {"am": {"url": "https://x/?lang=en&tlang=am"}}}
    assert "translated" in str(foreign(translated))
    assert "the video is in en-US" in str(foreign({"language": "en-US"}))
    (tmp_path / "x.info.json").write_text("[")
    assert foreign_by_info(subtitles, audio, AM) is None


def test_single_english_subtitles_are_removed_from_amharic_ones(tmp_path):
    text = "".join(
        f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\n{line}\n\n"
        for n, line in enumerate([AMHARIC, "subscribe to my channel", AMHARIC])
    )
    (tmp_path / "a.srt").write_text(text, encoding="utf-8")
    found, _, rejections = read_cues(tmp_path / "a.srt", tmp_path / "a.wav", "am")
    assert [cue.text for cue in found] == [AMHARIC, "", AMHARIC]
    assert [(row.where.line, row.code) for row in rejections] == [(6, "language")]
    text = f"WEBVTT\nLanguage: en\n\n00:01.000 --> 00:02.000\n{AMHARIC}"
    (tmp_path / "b.vtt").write_text(text, encoding="utf-8")
    found, _, rejections = read_cues(tmp_path / "b.vtt", tmp_path / "b.wav", "am")
    assert (found, [row.code for row in rejections]) == ([], ["language"])


WORDS = {
    "en": "the house which stands near this river was built with their own hands and those who came",
    "de": "ich habe nicht gewusst dass die große Schule schon geschlossen ist weil wir zu spät zurück",
}


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> Path:
    blocks = [
        f"{n}\n00:{n // 6:02}:{n % 6}0,000 --> 00:{n // 6:02}:{n % 6}9,000\n{first}\n{second}\n"
        for n, (first, second) in enumerate(pairs)
    ]
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


@pytest.mark.parametrize("line", [0, 1, 2])
def test_one_of_two_languages_in_a_cue_is_chosen_or_the_file_is_refused(tmp_path, line):
    random = Random(0)
    pairs = [tuple(" ".join(random.sample(WORDS[code].split(), 7)) for code in WORDS) for _ in range(30)]
    path = write_pairs(tmp_path / "a.srt", pairs)
    cues, _, rejections = read_cues(path, tmp_path / "a.wav", "en", line=line)
    assert [cue.text for cue in cues] == [pair[line - 1] for pair in pairs if line]
    assert [row.code for row in rejections] == ([] if line else ["language"])


@pytest.mark.parametrize("code", ["am", "en"])
def test_wrapped_cues_of_one_language_are_kept(tmp_path, code):
    random = Random(0)
    texts = [line["text"] for line in json_lines(REPOSITORY / "demo/manifest.jsonl")]
    if code == "en":
        texts = [" ".join(random.choices(WORDS["en"].split(), k=12)) for _ in range(200)]
    words = [text.split() for text in texts if len(text.split()) > 3]
    pairs = [(" ".join(each[: len(each) // 2]), " ".join(each[len(each) // 2 :])) for each in words]
    cues, _, rejections = read_cues(write_pairs(tmp_path / "a.srt", pairs), tmp_path / "a.wav", code)
    assert (len(cues), rejections) == (len(pairs), [])
