"""Tests of indextts/text/byte_extend.py: every piece is reached, and other texts keep their ids."""

import logging
import random
import re
from functools import cache
from pathlib import Path

import pytest

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.errors import UserError
from indextts.text.bases import load_tokenizer, tokenizer_of
from indextts.text.byte_level import ByteLevelTokenizer, rank_lines
from indextts.text.extend import describe, extend_file, reserve_file, store_options
from indextts.text.languages import SAMPLES_OF_AMHARIC
from indextts.text.official_front_end import prepare
from indextts.text.size_summary import summarize
from indextts.text.special_tokens import SPECIAL_TOKENS, token_writer
from indextts.text.tokenizer import first_difference, measure
from indextts.text.verify import verify
from indextts.text.vocabulary import move_rows
from tests.byte_ranks import write_ranks
from tests.tokenizers import AMHARIC

PUBLISHED = "data/indextts25_tokenizer/multilingual_zh_ja_yue_char_del.tiktoken"
# Latin, Spanish, Greek, Hangul Jamo and Cherokee, the neighbours of Ethiopic, Arabic, kana, ideographs, emoji
SCRIPTS = ["abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "áéíñóúü¿¡ÁÑ", "αβγδεζ"]
SCRIPTS += ["".join(map(chr, codes)) for codes in (range(0x1100, 0x1200), range(0x1380, 0x1400))]
SCRIPTS += ["".join(map(chr, codes)) for codes in (range(0x620, 0x650), range(0x3041, 0x30FF))]
SCRIPTS += ["".join(map(chr, codes)) for codes in (range(0x4E00, 0x9FFF), range(0x1F600, 0x1F640))]
BETWEEN = [*"   。、-'\"\n", ", ", ". ", "! ", "? ", "، ", " 12 ", "3,000", "  "]
MORE = ("ልጆች በጠዋት ተነስተው ወደ ትምህርት ቤት ይሄዳሉ።", "መጽሐፍ ማንበብ ጥሩ ልማድ ነው።")
TEXTS = [*AMHARIC, *SAMPLES_OF_AMHARIC, *MORE] * 2


def extended(folder: Path, num_pieces: int, texts: list[str] = TEXTS) -> ByteLevelTokenizer:
    base = write_ranks(folder)
    size = load_tokenizer(base).size + num_pieces
    tokenizer = extend_file(base, texts, folder / "am.tiktoken", size).extended
    return tokenizer


def texts_of_corpus(shared: Path) -> tuple[list[str], list[str]]:
    """2,000 texts to learn from and 223 others; benchmarks/results/fertility.md has the whole corpus."""
    lines = (shared / "data/amharic/corpus.tsv").read_text(encoding="utf-8").splitlines()[1:]
    texts = [line.split("\t")[2] for line in lines][::6][:2223]
    return [text for number, text in enumerate(texts) if number % 10], texts[::10]


@cache
def of_corpus(shared: Path, folder: Path) -> ByteLevelTokenizer:
    """The published tokenizer with 4,000 pieces of the corpus."""
    size = load_tokenizer(shared / PUBLISHED).size + 4_000
    learned, _ = texts_of_corpus(shared)
    tokenizer = extend_file(shared / PUBLISHED, learned, folder / "am.tiktoken", size).extended
    return tokenizer


@pytest.fixture
def corpus(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> ByteLevelTokenizer:
    return of_corpus(shared, tmp_path_factory.getbasetemp())


def lines_of_other_scripts(count: int) -> list[str]:
    draw = random.Random(5)
    return [
        "".join(
            "".join(draw.choices(draw.choice(SCRIPTS), k=draw.randint(1, 8))) + draw.choice(BETWEEN)
            for _ in range(draw.randint(3, 12))
        )
        for _ in range(count)
    ]


@pytest.mark.long
@pytest.mark.slow
def test_4000_pieces_give_held_out_amharic_at_most_2_2_tokens_per_word(shared: Path, corpus):
    assert corpus.size == 60_509 + 4_000
    found = measure(corpus, texts_of_corpus(shared)[1])
    assert found.tokens_per_word <= 2.2
    assert found.changed == ()


@pytest.mark.long
@pytest.mark.slow
def test_20000_lines_without_ethiopic_letters_keep_their_ids(shared: Path, corpus):
    base = load_tokenizer(shared / PUBLISHED)
    for line in lines_of_other_scripts(20_000):
        assert corpus.encoding.encode_ordinary(line) == base.encoding.encode_ordinary(line), line


@pytest.mark.long
@pytest.mark.slow
def test_1549_reserved_pieces_give_held_out_amharic_at_most_2_8_tokens_per_word(shared: Path, tmp_path: Path):
    learned, held_out = texts_of_corpus(shared)
    tokenizer = reserve_file(shared / PUBLISHED, learned, tmp_path / "r.tiktoken").extended
    assert (tokenizer.size, len(tokenizer.reserved)) == (60_509, 1549)
    assert tokenizer.appended_ids(60_509) == range(58_960, 60_509)
    found = measure(tokenizer, held_out)
    assert found.tokens_per_word <= 2.8
    assert found.changed == ()
    # the published tokenizer reads the same ids in the text with tokens
    published = load_tokenizer(shared / PUBLISHED)
    write = token_writer(tokenizer.reserved)
    for text in held_out:
        spelled = published.tag + prepare(write(tokenizer.normalize(text)), "am")
        assert published.encoding.encode(spelled, allowed_special="all") == tokenizer.encode(text), text


def test_reserved_pieces_are_the_letters_and_frequent_parts_and_reach_every_file(tmp_path: Path):
    base = write_ranks(tmp_path)
    tokenizer = reserve_file(base, TEXTS, tmp_path / "r.tiktoken", {"homophones": "strict"}).extended
    letters = [piece for piece in tokenizer.reserved if len(piece) == 1]
    assert list(tokenizer.reserved[: len(letters)]) == sorted(letters)
    assert all(re.fullmatch(" ?[\u1200-\u137f]+", piece) for piece in tokenizer.reserved)
    assert tokenizer.size == load_tokenizer(base).size
    assert measure(tokenizer, TEXTS).changed == ()
    kept = tokenizer.recording(NormalizerOptions())
    again = tokenizer_of(kept, tmp_path / "again.tiktoken")
    assert (again.reserved, again.vocabulary) == (tokenizer.reserved, tokenizer.vocabulary)
    assert load_tokenizer(base).vocabulary != tokenizer.vocabulary
    with pytest.raises(UserError, match="extended"):
        reserve_file(extended(tmp_path, 20).path, TEXTS, tmp_path / "x.tiktoken")


def test_a_new_piece_is_ethiopic_text_or_the_step_to_it(tmp_path: Path):
    tokenizer = extended(tmp_path, 150)
    learned = tokenizer.ranked[tokenizer.num_published :]
    assert len(learned) == 150
    steps = [piece for piece in learned if re.fullmatch(rb"\x20?\xe1[\x88-\x8d]", piece)]
    assert 0 < len(steps) <= 12
    for piece in set(learned) - set(steps):
        assert re.fullmatch(" ?[\u1200-\u137f]+", piece.decode()), piece


def test_every_piece_is_reached_when_it_is_the_last_one(tmp_path: Path):
    """At that time it is the most frequent pair of the texts."""
    tokenizer = extended(tmp_path, 120)
    first = tokenizer.size - 120
    for size in range(first + 1, tokenizer.size + 1):
        cut = tokenizer.shortened(size)
        newest = cut.size - 1
        assert any(newest in cut.encode(text) for text in TEXTS), cut.pieces[newest]


def test_a_syllable_is_one_token_inside_a_word_and_behind_a_blank(tmp_path: Path):
    tokenizer = extended(tmp_path, 400, ["ሰላም ሰመረ ለሰለሰ ወሰነ ሰሰ"] * 3)
    for text, num_tokens in (("ሰ", 1), (" ሰ", 1), (" ሰላም", 1), ("xሰ", 2), (" ሰሰ", 1), (" ሰxሰ", 3)):
        assert len(tokenizer.encoding.encode_ordinary(text)) == num_tokens, text


def test_no_id_of_the_base_moves(tmp_path: Path):
    tokenizer = extended(tmp_path, 50)
    base = load_tokenizer(write_ranks(tmp_path))
    assert first_difference(base, tokenizer) is None
    assert tokenizer.pieces[: base.size] == base.pieces
    assert tokenizer.appended_ids(base.size) == range(base.size, base.size + 50)
    assert move_rows(base.vocabulary, tokenizer.vocabulary) == (*range(base.size), *[-1] * 50, base.size)


def test_the_official_program_reads_the_same_pieces_with_the_special_tokens_behind(tmp_path: Path):
    tokenizer = extended(tmp_path, 50)
    official = tokenizer_of(tokenizer.official_ranks, tmp_path / "official.tiktoken", tokenizer.options)
    assert official.pieces[-len(SPECIAL_TOKENS) :] == SPECIAL_TOKENS
    order = tokenizer.official_order
    assert sorted(order) == list(range(tokenizer.size))
    assert [tokenizer.pieces[token] for token in order] == list(official.pieces)
    for text in TEXTS:
        assert [order[token] for token in official.encode(text)] == tokenizer.encode(text)


def test_an_extended_tokenizer_can_be_extended_again(tmp_path: Path):
    first = extended(tmp_path, 40)
    again = extend_file(first.path, TEXTS, tmp_path / "again.tiktoken", first.size + 30).extended
    assert again.size == first.size + 30
    assert first_difference(first, again) is None
    assert again.vocabulary == extended(tmp_path, 70).vocabulary


def test_the_options_are_recorded_and_reported(tmp_path: Path):
    base = write_ranks(tmp_path)
    size = load_tokenizer(base).size + 60
    options = {"homophones": "strict"}
    extension = extend_file(base, TEXTS, tmp_path / "am.tiktoken", size, None, options)
    stored = load_tokenizer(tmp_path / "am.tiktoken")
    assert stored.options == NormalizerOptions(homophones="strict", letter_case="keep")
    again = store_options(stored.path, {"homophones": "loose"}).extended
    assert load_tokenizer(stored.path).options == again.options != stored.options
    assert again.vocabulary == stored.vocabulary
    assert re.search(r"appended: +60, of which the texts use [1-9]", describe(extension, TEXTS))
    summary = summarize(extension.extended, extension.base.size, TEXTS)
    assert [point.size for point in summary.sizes][-1] == size
    assert summary.sizes[-1].tokens_per_word < summary.sizes[0].tokens_per_word


def test_a_verified_extension_has_no_problem_and_one_of_another_base_has(tmp_path: Path):
    tokenizer = extended(tmp_path, 100)
    base = load_tokenizer(write_ranks(tmp_path))
    assert verify(tokenizer, base, base.size + 1, base.size, TEXTS, 0.1).problems == ()
    *first, second_last, last = base.ranked
    other = ByteLevelTokenizer(rank_lines((*first, last, second_last), len(base.ranked)), base.path)
    problems = verify(tokenizer, other, base.size + 1, base.size, TEXTS, 0.1).problems
    assert [problem.subject for problem in problems] == ["base pieces"]


def test_texts_that_provide_fewer_pieces_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        tokenizer = extended(tmp_path, 5000, ["ሰላም ሰላም"])
    assert tokenizer.size < load_tokenizer(write_ranks(tmp_path)).size + 20
    assert "5267" not in caplog.text
    assert str(tokenizer.size) in caplog.text


@pytest.mark.parametrize(
    ("texts", "language", "word"), [(["hello"], "am", "Amharic"), (["안녕"], "ko", "Korean")]
)
def test_texts_without_ethiopic_letters_and_languages_of_another_script_are_refused(
    tmp_path: Path, texts: list[str], language: str, word: str
):
    base = write_ranks(tmp_path)
    with pytest.raises(UserError, match=word):
        extend_file(base, texts, tmp_path / "x.tiktoken", 5000, None, {"language": language})
    assert not (tmp_path / "x.tiktoken").exists()
