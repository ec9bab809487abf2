import io
import json
import random
import sys
import unicodedata

import pytest

from indextts.commands.normalizer_options import NORMALIZER_VERSION, NormalizerOptions, Reading
from indextts.text.ethiopic import amharic_letters, is_ethiopic
from indextts.text.normalize import explain, main, normalize
from tests.conftest import REPOSITORY

# Written forms, spoken forms and, where they are not the defaults, options. The rules are those of the
# project's reference page and of Amharic usage; where a form is a choice and not a rule, a note says so.
# Most cases were written down before the code ran on them.
CASES = {
    group["name"]: group["cases"]
    for group in json.loads((REPOSITORY / "tests/normalizer_cases.json").read_text(encoding="utf-8"))
}

OTHER_OPTIONS = NormalizerOptions(
    homophones="loose",
    labialised="merge",
    letter_case="keep",
    acronyms="letters",
    years="hundreds",
    phone_numbers="pairs",
    money_decimals="decimal",
    thousand="ሺ",
    million="ሚሊየን",
    fifty="አምሳ",
    sixty="ስድሳ",
    eighty="ሰማኒያ",
    percent="ፐርሰንት",
)


@pytest.mark.parametrize("name", CASES)
def test_a_text_is_written_as_it_is_spoken_and_only_once(name):
    for text, spoken, *options in CASES[name]:
        chosen = NormalizerOptions(**dict(*options))
        assert normalize(text, chosen) == spoken
        assert chosen.readings or normalize(spoken, chosen) == spoken
        other = normalize(text, OTHER_OPTIONS)
        assert normalize(other, OTHER_OPTIONS) == other


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith(" 0")])
def test_a_quoted_text_is_read_as_the_text_alone(name):
    for text, spoken in CASES[name]:
        if spoken[0].isalpha() and spoken[-1].isalpha():  # a mark would meet the quote
            assert normalize(f"እንዲህ አለ፦ «{text}» ብሎ") == f"እንዲህ አለ, '{spoken}' ብሎ"


@pytest.mark.parametrize(
    "line", ["{}", "{}/3", "3/{}", "{}.5", "{}ኛ", "ከ{}-3", "{},000", "-{}%", "0911234567/{}"]
)
def test_a_number_of_thousands_of_digits_is_read(line):
    once = normalize("ሀ " + line.format("5" * 5_000))
    assert not any(map(str.isdigit, once))
    assert normalize(once) == once


def test_the_amharic_letters_are_the_291_that_every_amharic_tokenizer_must_hold(shared):
    required = (shared / "data" / "amharic" / "required_chars.txt").read_text("utf-8").strip()
    assert len(amharic_letters()) == 291
    assert set(amharic_letters()) == set(required)


def test_the_fingerprint_names_the_version_and_every_option():
    default = NormalizerOptions()
    assert default.fingerprint == NormalizerOptions().fingerprint
    assert default.fingerprint.startswith(f"v{NORMALIZER_VERSION}-")
    newer = {
        "language": "ko",
        "language_row": "common",
        "rules_off": ("dates",),
        "readings": (Reading("BBC", "ቢቢሲ", "word"),),
    }
    others = OTHER_OPTIONS.model_copy(update=newer)
    changed = [default.model_copy(update={n: getattr(others, n)}) for n in NormalizerOptions.model_fields]
    assert len({options.fingerprint for options in [default, *changed]}) == 1 + len(changed)
    assert NormalizerOptions.model_validate_json(OTHER_OPTIONS.model_dump_json()) == OTHER_OPTIONS


def test_the_listed_changes_turn_the_text_into_its_spoken_form():
    text = "በ2017 ት/ቤት፣ 50%"
    changes = explain(text)
    assert [change.rule for change in changes] == [
        "Ethiopic marks",
        "abbreviations",
        "percent",
        "numbers",
        "numbers",
    ]
    assert ("ት/ቤት,", "ትምህርት ቤት,") in {(change.before, change.after) for change in changes}
    assert explain(normalize(text)) == []


def test_adjacent_words_that_a_rule_changes_are_listed_together():
    [change] = explain("በ1930ዎቹ 3ቱ")
    assert (change.before, change.after) == ("በ1930ዎቹ 3ቱ", "በአንድ ሺህ ዘጠኝ መቶ ሠላሳዎቹ ሦስቱ")
    assert ("3ቱ", "ሦስቱ") in {(change.before, change.after) for change in explain("በ2017 ዓ.ም 3ቱ ሰው")}


def is_allowed(char: str) -> bool:
    """Return whether normalised Amharic may contain `char`: letters, combining marks, published marks."""
    return unicodedata.category(char)[0] in "LM" or char in " .,?!…-'"


@pytest.mark.long
def test_normalising_twice_changes_no_character_further():
    # every assigned character; of the ideographs, Hangul and private ones, which are many, every 101st
    for code_point in range(sys.maxunicode + 1):
        char = chr(code_point)
        is_one_of_many = code_point >= 0x3400 and unicodedata.category(char) in ("Lo", "Co", "Cs")
        if unicodedata.category(char) != "Cn" and not (is_one_of_many and code_point % 101):
            once = normalize(f"ሀ{char}ለ3{char}3 a{char}.")
            assert normalize(once) == once, hex(code_point)


WRITTEN = (
    "ሀ ለ በ የ ከ ሜ ዓ.ም ም ዓ ት/ቤት ዶ/ር ኪ.ሜ ኛ ቱ ዎቹ ሰዓት ብር በመቶ እ.ኤ.አ ኤፍ ኤ ነው አምስት ሚር ወዘተ ሺህ ሚሊዮን "
    "ሀ/ስብከት ኪሜ ተኛ ከሰኔ ሙቀቱ ዓክልበ ዲግሪ -5 1ኛ 100,200,300 0911234567 mb kg "
    "5 3 0 12 2019 1985 50,000 30 ፲ ፩፻ ½ ² ¹ . . , ፡ ፡፡ : ። ፣ ፦ ? ! … - – — − / // ∕ ' \" "
    "“ ” ( ) [ ] < > << » % $ € US$ + = & @ # * | _ ° °C × ÷ ~ ≥ \\ ^ ; &amp; &#8203; "
    "ማቴ 1ኛ ቆሮ 5፥3 ምዕራፍ II XXኛ ብር 1.000 1.000.000 √ ^ x ⁶ ⅓ ≠ [noise] <b> Speaker \\n & "
    "A b km COVID U.S. www.a.com ß é µ β Å 武 ª ´ ŉ ﬁ ٣ ① Ⅳ １ Ａ"
)
PARTS = (*WRITTEN.split(" "), " ", " ", " ", "\u200b", "\u0301", "\u135d", "\u1360", "\u0345", "😀")


@pytest.mark.parametrize("options", [NormalizerOptions(), OTHER_OPTIONS], ids=["default", "other"])
def test_random_texts_are_normalised_completely_and_only_once(options):
    chosen = random.Random(0)
    for _ in range(4000):
        text = "".join(chosen.choices(PARTS, k=chosen.randint(1, 9)))
        once = normalize(text, options)
        assert normalize(once, options) == once, ascii(text)
        if any(map(is_ethiopic, once)):
            assert all(map(is_allowed, once)), ascii(text)


@pytest.mark.long
def test_the_real_text_is_normalised_completely_and_only_once(shared):
    folder = shared / "data" / "amharic"
    lines = (folder / "corpus_raw.txt").read_text("utf-8").splitlines()
    rows = (folder / "corpus.tsv").read_text("utf-8").splitlines()[1:]
    texts = {*lines, *(row.split("\t")[2] for row in rows)}
    assert len(texts) > 11_389
    for text in texts:
        once = normalize(text)
        assert all(map(is_allowed, once)), text
        assert not any(map(str.isnumeric, once)), text  # ASCII, Ethiopic and all other numerals
        assert normalize(once) == once, text


@pytest.mark.parametrize("part", ["5", "ሀ", "ሀ ", "5,", "1,000", "5 ", "ኤ.", "a.", "(", "፡", "፩", "ሀ 5 ("])
def test_a_very_long_line_is_normalised_in_bounded_time(part):
    once = normalize("ሀ5" + part * (20_000 // len(part)))
    assert once.startswith("ሀ ")
    assert normalize(once) == once


def test_the_program_normalises_lines_lists_changes_and_skips_what_is_not_utf_8(monkeypatch, capsys):
    content = b"50%\r\n\xe9\n" + "5 ሰው\n".encode("utf-16-le") + "\nሰላም።".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert main(["--explain", "--percent=ፐርሰንት"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[:4] == [
        "ሃምሳ ፐርሰንት",
        "    percent: '50%' -> '50 ፐርሰንት'",
        "    numbers: '50' -> 'ሃምሳ'",
        "",
    ]
    assert out.splitlines()[-2:] == ["ሰላም.", "    Ethiopic marks: 'ሰላም።' -> 'ሰላም.'"]
    assert err.startswith("[Error] <stdin>:2: byte 1 is not UTF-8")


@pytest.mark.parametrize("flag", ["", "--file="])
def test_the_program_reads_a_file(tmp_path, capsys, flag):
    (tmp_path / "lines.txt").write_text("50%\n", encoding="utf-8")
    assert main(["--explain", f"{flag}{tmp_path}/lines.txt"]) == 0
    assert capsys.readouterr().out.startswith("ሃምሳ ")
