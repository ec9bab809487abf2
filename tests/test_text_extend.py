import logging
import re

import pytest
import sentencepiece

from indextts.errors import UserError
from indextts.text.ethiopic import amharic_letters, is_ethiopic
from indextts.text.extend import describe, extend_file
from indextts.text.normalize import normalize
from indextts.text.tokenizer import WORD_START, Tokenizer, first_difference, measure
from indextts.text.vocabulary import advise_size
from tests.conftest import REPOSITORY
from tests.tokenizers import AMHARIC, ENGLISH, extend, trained_model, write_base

NUM_LETTERS = 291
NUM_IN_BLOCK = 326  # with the letters of other languages in Ethiopic's main block
CHINESE = ("今天天气很好。", "我喜欢喝茶，你呢？", "他们昨天去了北京的一个大市场。", "这本书有二百页。")
CHINESE += ("请问火车站在哪里？", "孩子们在公园里玩。", "她说英语和中文。", "明天早上八点开会。")


def extended(base, texts=AMHARIC, target_size=100_000):
    return Tokenizer(extend(base, texts, target_size), base.with_name("extended.model"))


def test_the_extension_has_exactly_the_target_size_which_has_a_minimum(tmp_path):
    base = write_base(tmp_path)
    least = Tokenizer.load(base).size + NUM_LETTERS
    for target_size in (least, least + 20):
        assert extended(base, target_size=target_size).size == target_size
    with pytest.raises(UserError, match=f"--target-size {least - 1} .* {least}$"):
        extend(base, AMHARIC, least - 1)


def test_every_letter_is_a_piece_even_without_space_for_merges(tmp_path):
    base = write_base(tmp_path)
    rare = "ⶉꬁ"  # letters of other languages, as texts hold them
    tokenizer = extended(base, [*AMHARIC, rare], Tokenizer.load(base).size + NUM_LETTERS + len(rare))
    assert set(amharic_letters()) | set(rare) <= tokenizer.text_pieces
    unseen = [" ".join(amharic_letters()), "".join(reversed(amharic_letters()))]
    assert measure(tokenizer, [*AMHARIC, rare, *unseen]).num_unknown == 0


def test_only_pieces_of_ethiopic_and_the_word_sign_are_appended(tmp_path):
    base = write_base(tmp_path)
    tokenizer = extended(base, [*AMHARIC, "የGoogle ስልክ5 አ.አ. XYZ XYZ", "日本 日本"])
    appended = tokenizer.pieces[Tokenizer.load(base).size :]
    for piece in appended:
        assert is_ethiopic(piece[-1]), piece
        assert all(is_ethiopic(char) for char in piece.lstrip(WORD_START)), piece
    assert len(set(tokenizer.pieces)) == tokenizer.size


def test_amharic_is_tokenized_as_by_a_model_of_its_own(tmp_path):
    words = re.sub(r"[^\u1200-\u135a ]", "", " ".join(map(normalize, AMHARIC)))
    num_characters = len({*words, WORD_START} - {" "})
    num_merges = 25
    own = sentencepiece.SentencePieceProcessor(
        model_proto=trained_model((words,), vocab_size=3 + num_characters + num_merges)
    )
    base = write_base(tmp_path)
    tokenizer = extended(base, AMHARIC, Tokenizer.load(base).size + NUM_LETTERS + num_merges)
    assert tokenizer.encode_pieces(words) == own.encode(words, out_type=str)


def test_ethiopic_pieces_of_the_base_are_kept_and_not_doubled(tmp_path):
    first = tmp_path / "first.model"
    first.write_bytes(extend(write_base(tmp_path), AMHARIC[:1], 100_000))
    again = extended(first, AMHARIC)
    assert first_difference(Tokenizer.load(first), again) is None
    assert len(set(again.pieces)) == again.size > Tokenizer.load(first).size
    # One more than there is must be reachable in spite of the merges that are known already.
    one_more = extended(first, AMHARIC, Tokenizer.load(first).size + 1)
    assert one_more.size == Tokenizer.load(first).size + 1


@pytest.mark.parametrize(
    "settings",
    [
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"treat_whitespace_as_suffix": True},
        {"normalization_rule_name": "identity"},
        {"normalization_rule_name": "nmt_nfkc_cf"},  # small letters inside
        {"byte_fallback": True, "vocab_size": 400},
        {"split_by_unicode_script": False},
    ],
)
def test_words_are_learned_with_the_settings_of_the_base(tmp_path, settings):
    base = write_base(tmp_path, **settings)
    tokenizer = extended(base)
    for text in ENGLISH:
        assert tokenizer.encode(text) == Tokenizer.load(base).encode(text)
    # Every word of the texts was merged whole, so none is cut; the sign of a space may stand alone.
    words = [piece.strip(WORD_START) for piece in tokenizer.encode_pieces("ሰላም ነው")]
    assert [word for word in words if word] == ["ሰላም", "ነው"]


def test_a_small_corpus_gives_fewer_pieces_and_a_warning_with_their_number(tmp_path, caplog):
    base = write_base(tmp_path)
    with caplog.at_level(logging.WARNING):
        tokenizer = extended(base, ["ሰላም ለዓለም።"], 24_000)
    assert f" {tokenizer.size} of 24000 pieces" in caplog.text
    assert tokenizer.encode_pieces("ሰላም ለዓለም") == ["▁ሰላም", "▁ለዓለም"]
    # ▁ሰ ላም ▁ሰላም ለዓ ለም ▁ለዓ ▁ለዓለም: no merge beyond these, since no text would ever use its row.
    assert tokenizer.size == Tokenizer.load(base).size + NUM_IN_BLOCK + 7


@pytest.mark.parametrize("texts", [["", "ሀ", " "], ["ሰላም\x00▅\ud800\r"]])
def test_a_tiny_corpus_works(tmp_path, texts):
    assert measure(extended(write_base(tmp_path), texts, 24_000), ["ሀ ሰላም ነው"]).num_unknown == 0


@pytest.mark.parametrize("texts", [[], ["", " "], ["ONLY LATIN", "A 123", "።"]])
def test_texts_without_ethiopic_letters_are_refused(tmp_path, texts):
    with pytest.raises(UserError, match="no letter of Amharic"):
        extend(write_base(tmp_path), texts, 24_000)


def test_a_huge_line_and_a_huge_word_are_learned_from(tmp_path):
    texts = ["ሰላም ነው " * 20_000, "በሶ" * 40_000]
    tokenizer = extended(write_base(tmp_path), texts, 24_000)
    assert tokenizer.encode_pieces("ሰላም ነው") == ["▁ሰላም", "▁ነው"]
    assert "በሶበሶ" in tokenizer.pieces


def test_a_unigram_base_is_refused(tmp_path):
    with pytest.raises(UserError, match="BPE"):
        extend(write_base(tmp_path, model_type="unigram", vocab_size=60), AMHARIC, 24_000)


def test_the_file_is_written_with_its_folder_and_nothing_else(tmp_path):
    base = write_base(tmp_path)
    output = tmp_path / "made" / "here" / "am.model"
    extension = extend_file(base, AMHARIC, output, 450)
    assert output.read_bytes() == extend(base, AMHARIC, 450)
    assert Tokenizer.load(output).vocabulary == extension.extended.vocabulary
    assert [path.name for path in output.parent.iterdir()] == ["am.model"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bpe.model", "made"]


def test_a_path_that_is_a_folder_is_refused_and_nothing_is_left_behind(tmp_path):
    base = write_base(tmp_path)
    output = tmp_path / "am.model"
    output.mkdir()
    with pytest.raises(UserError, match="cannot be written"):
        extend_file(base, AMHARIC, output, 450)
    with pytest.raises(UserError, match="cannot be written"):
        extend_file(base, AMHARIC, base / "am.model", 450)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["am.model", "bpe.model"]


def test_the_base_is_never_overwritten(tmp_path):
    base = write_base(tmp_path)
    content = base.read_bytes()
    link, twin = tmp_path / "link.model", tmp_path / "twin.model"
    link.symlink_to(base)
    twin.hardlink_to(base)
    for output in (base, tmp_path / "." / "bpe.model", link, twin):
        with pytest.raises(UserError, match="base tokenizer"):
            extend_file(base, AMHARIC, output, 450)
    assert base.read_bytes() == content


def test_the_description_gives_sizes_shares_and_a_sample(tmp_path):
    base = write_base(tmp_path)
    size = Tokenizer.load(base).size
    texts = ["", *AMHARIC]
    lines = describe(extend_file(base, texts, tmp_path / "am.model", size + 320), texts)
    assert f"base pieces:     {size}\n" in lines
    assert f"pieces now:      {size + 320}\n" in lines
    assert re.search(r"unknown before:  [1-9]\d\.\d+ %", lines)
    assert "unknown now:     0.000 %" in lines
    assert re.search(r"fingerprint:     [0-9a-f]{64}\n", lines)
    assert re.search(r"sample: +▁\S*ሰ", lines)


def test_a_real_corpus_is_covered_and_english_stays_as_it_was(tmp_path, shared):
    rows = (shared / "data" / "amharic" / "corpus.tsv").read_text("utf-8").splitlines()[1:]
    texts = [row.split("\t")[2] for row in rows]
    learned, held_out = texts[::4], texts[1::40]
    base = write_base(tmp_path)
    before, after = Tokenizer.load(base), extended(base, learned, 4000)
    assert after.size == 4000
    assert measure(before, held_out).unknown_percent > 25
    found = measure(after, held_out)
    # What is left unknown is of other scripts: this base does not even have every Latin letter and sign.
    assert not any(is_ethiopic(char) for char, _ in found.unknown_characters)
    assert found.unknown_percent < 0.5
    assert found.tokens_per_word < 2.5
    assert all(after.encode(text) == before.encode(text) for text in ENGLISH)


def test_unseen_letters_of_the_main_block_are_added_if_there_is_space(tmp_path):
    base = write_base(tmp_path)
    unseen = ["ተገልፇል መቐለ ሞንታጝ ተንብዯል"]
    small = extended(base, AMHARIC, Tokenizer.load(base).size + NUM_LETTERS + 20)
    assert measure(small, unseen).num_unknown > 0
    assert measure(extended(base, AMHARIC, 2000), unseen).num_unknown == 0


def english_sentences() -> list[str]:
    """Return the sentences of the project's own pages, as real English."""
    pages = [*sorted((REPOSITORY / "docs").glob("*.md")), REPOSITORY / "README.md"]
    text = " ".join(page.read_text("utf-8") for page in pages)
    sentences = (" ".join(sentence.split()) for sentence in re.split(r"(?<=[.!?])\s", text))
    english = (sentence for sentence in sentences if re.search("[A-Za-z]{2}", sentence))
    # numbers among names, units and signs alone are read as Amharic
    return [sentence for sentence in english if not any(map(is_ethiopic, normalize(sentence)))]


def test_a_base_of_thousands_of_pieces_tokenizes_english_and_chinese_exactly_as_before(tmp_path):
    english = english_sentences()
    assert len(english) > 200
    base = tmp_path / "bpe.model"
    texts = tuple(map(normalize, (*english, *CHINESE)))
    base.write_bytes(trained_model(texts, vocab_size=3000, character_coverage=1.0))
    before = Tokenizer.load(base)
    after = extended(base, AMHARIC, 4000)
    assert before.size > 1000
    assert first_difference(before, after) is None
    old, new = before.proto.pieces, after.proto.pieces
    assert [p.SerializeToString() for p in old] == [p.SerializeToString() for p in new[: len(old)]]
    assert after.proto.normalizer_spec == before.proto.normalizer_spec
    assert after.proto.trainer_spec.vocab_size == len(new)
    for text in (*english, *CHINESE, "UNSEEN zebra 123 龙 ñ", "今天 AND 明天"):
        assert after.encode(text) == before.encode(text), text
    for text in CHINESE:
        assert before.unknown_id not in before.encode(text)


def test_a_word_that_nobody_wrote_and_texts_of_another_language_have_one_warning_each(tmp_path, caplog):
    base = write_base(tmp_path)
    texts = [*AMHARIC, "ሀ" * 50_000, *["a sentence in English"] * 10 * len(AMHARIC)]
    with caplog.at_level(logging.WARNING):
        extend_file(base, texts, tmp_path / "am.model", 400)
    assert ["50000 letters" in caplog.text, caplog.text.count("--language")] == [True, 1]


def test_size_0_is_the_size_advised_for_the_hours_and_a_size_far_from_it_has_a_warning(tmp_path, caplog):
    base = write_base(tmp_path)
    with caplog.at_level(logging.INFO):
        extend_file(base, AMHARIC, tmp_path / "am.model", 0, advise_size(30))
        tokenizer = extend_file(base, AMHARIC, tmp_path / "am.model", 400, advise_size(150)).extended
    assert "90 base pieces and 4,000 appended pieces, for 30.0 hours" in caplog.text
    assert " of 4090 pieces" in caplog.text  # these few texts give no more
    assert tokenizer.size == 400
    assert "--target-size 400: 310 appended pieces are few" in caplog.text
