import json
import pickle

import pytest
import sentencepiece

from indextts.commands.normalizer_options import NORMALIZER_VERSION, NormalizerOptions
from indextts.errors import UserError
from indextts.text.tokenizer import (
    Tokenizer,
    first_difference,
    measure,
    parse_model,
    read_record,
    with_record,
)
from tests.tokenizers import AMHARIC, ENGLISH, extend, trained_model, write_base

OPTIONS = NormalizerOptions(homophones="strict", thousand="ሺ")


def changed(path, change):
    """Return the tokenizer in `path` after `change(proto)`."""
    proto = parse_model(path.read_bytes())
    change(proto)
    return Tokenizer(proto.SerializeToString(), path.with_name("changed.model"))


def test_a_tokenizer_normalises_before_it_tokenizes(tmp_path):
    tokenizer = Tokenizer.load(write_base(tmp_path))
    assert tokenizer.encode("the “fox”") == tokenizer.encode("THE 'FOX'")
    assert tokenizer.encode_pieces("the dog.") == tokenizer.encode_pieces("THE DOG.")
    assert [tokenizer.pieces[token] for token in tokenizer.encode("the dog.")] == tokenizer.encode_pieces(
        "THE DOG."
    )


def test_a_tokenizer_keeps_its_normalisers_options_in_another_process(tmp_path):
    path = write_base(tmp_path)
    default = Tokenizer.load(path)
    merging = pickle.loads(pickle.dumps(Tokenizer.load(path, NormalizerOptions(homophones="strict"))))
    assert (default.normalize("5 ፀሐይ"), merging.normalize("5 ፀሐይ")) == ("አምስት ፀሐይ", "አምስት ጸሀይ")
    assert merging.words("ፀሐይ") == "ጸሀይ"


def test_an_empty_text_has_no_tokens(tmp_path):
    tokenizer = Tokenizer.load(write_base(tmp_path))
    assert tokenizer.encode("") == tokenizer.encode(" ፡ ") == []


@pytest.mark.failure(43)
def test_a_text_never_gives_start_or_stop(tmp_path):
    tokenizer = Tokenizer.load(write_base(tmp_path))
    assert not {0, 1} & set(tokenizer.encode("<s> the </s> \ud800 \x00 fox"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\x80\x02}q\x00garbage" * 50, "not a SentencePiece model"),
        ("<s>\t0\n</s>\t0\nሰላም\t-1\n".encode(), "not a SentencePiece model"),
        (b"\x3a\x00", "not a SentencePiece model"),  # a message of one field that is not ours
    ],
)
def test_a_file_that_is_not_a_tokenizer_is_named_and_refused(tmp_path, content, message):
    path = tmp_path / "bpe.model"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as refusal:
        Tokenizer.load(path)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["absent.model", "."])
def test_a_missing_file_or_a_folder_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="cannot be read"):
        Tokenizer.load(tmp_path / name)


def test_a_model_that_sentencepiece_cannot_load_is_refused(tmp_path):
    path = write_base(tmp_path)
    with pytest.raises(UserError, match="SentencePiece"):
        changed(path, lambda proto: proto.pieces.add(piece=proto.pieces[5].piece, type=1, score=-9))


@pytest.mark.parametrize(
    "settings",
    [
        {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3},
        {"unk_id": 0, "bos_id": 1, "eos_id": 2},
        {"unk_id": 0, "bos_id": -1, "eos_id": -1},
        {"bos_id": 1, "eos_id": 0},
        {"bos_piece": "<start>"},
    ],
)
def test_a_tokenizer_whose_ids_0_and_1_are_not_start_and_stop_is_refused(tmp_path, settings):
    with pytest.raises(UserError, match="ids 0 and 1"):
        Tokenizer.load(write_base(tmp_path, **settings))


def test_start_and_stop_must_be_control_pieces(tmp_path):
    with pytest.raises(UserError, match="control"):
        changed(write_base(tmp_path), lambda proto: setattr(proto.pieces[0], "type", 1))


def test_the_fingerprint_excludes_paths_and_training_records(tmp_path):
    path = write_base(tmp_path)

    def rename(proto):
        proto.trainer_spec.model_prefix = "/somewhere/else"
        proto.trainer_spec.input.append("/home/a/corpus.txt")
        proto.normalizer_spec.normalization_rule_tsv = "/home/a/rules.tsv"
        proto.trainer_spec.byte_fallback = False  # its default, written out

    assert changed(path, rename).vocabulary == Tokenizer.load(path).vocabulary


def swap(name):
    """Return a change that swaps a field of two pieces."""

    def change(proto):
        a, b = proto.pieces[3:5]
        values = getattr(a, name), getattr(b, name)
        for piece, value in zip((b, a), values, strict=True):
            setattr(piece, name, value)

    return change


def retype(proto):
    proto.pieces[5].type = 4


@pytest.mark.parametrize(
    "change",
    [
        swap("score"),
        swap("piece"),
        retype,
        lambda proto: setattr(proto.normalizer_spec, "add_dummy_prefix", False),
        lambda proto: setattr(proto.normalizer_spec, "precompiled_charsmap", b""),
        lambda proto: setattr(proto.trainer_spec, "treat_whitespace_as_suffix", True),
    ],
)
def test_the_fingerprint_changes_with_everything_that_decides_the_ids(tmp_path, change):
    path = write_base(tmp_path)
    assert changed(path, change).vocabulary.fingerprint != Tokenizer.load(path).vocabulary.fingerprint


def test_the_first_difference_names_the_id_and_both_pieces(tmp_path):
    path = write_base(tmp_path)
    base = Tokenizer.load(path)
    assert first_difference(base, base) is None
    extended = changed(path, lambda proto: proto.pieces.add(piece="ሰ", type=1, score=-999))
    assert first_difference(base, extended) is None
    difference = first_difference(base, changed(path, swap("piece")))
    assert all(part in difference for part in ("id 3", repr(base.pieces[3]), repr(base.pieces[4])))
    assert "type 4" in str(first_difference(base, changed(path, retype)))
    assert "fewer" in str(first_difference(base, Tokenizer(trained_model(ENGLISH, vocab_size=80), path)))


def test_measuring_counts_words_tokens_and_the_characters_that_are_unknown(tmp_path):
    tokenizer = Tokenizer.load(write_base(tmp_path))
    found = measure(tokenizer, ["the fox ሰላም", "ሰላ።", ""])
    assert found.num_words == 4
    # One unknown token each for the two words, which hides how many characters are lost.
    assert found.num_unknown == 2
    assert found.unknown_characters == (("ላ", 2), ("ሰ", 2), ("ም", 1))
    assert found.num_tokens == len(tokenizer.encode("the fox ሰላም")) + len(tokenizer.encode("ሰላ።"))
    assert found.unknown_percent == 100 * 2 / found.num_tokens
    assert found.percent_of(range(tokenizer.size)) == 100
    assert found.percent_of(range(tokenizer.size, 2 * tokenizer.size)) == 0


def test_measuring_no_texts_is_all_zero(tmp_path):
    found = measure(Tokenizer.load(write_base(tmp_path)), [])
    assert (found.num_tokens, found.unknown_percent, found.tokens_per_word) == (0, 0, 0)


@pytest.fixture
def model():
    return trained_model(ENGLISH)


def recorded(model, tmp_path):
    return read_record(parse_model(model), tmp_path / "bpe.model")


def test_the_last_of_two_records_counts_and_an_equal_one_is_not_added(model, tmp_path):
    once = with_record(model, OPTIONS.record)
    assert with_record(once, OPTIONS.record) == once
    assert recorded(with_record(once, NormalizerOptions().record), tmp_path)[1] == NormalizerOptions()


def test_sentencepiece_reads_and_copies_the_model_as_before(model, tmp_path):
    processor = sentencepiece.SentencePieceProcessor(model_proto=with_record(model, OPTIONS.record))
    plain = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert [processor.encode(text) for text in ENGLISH] == [plain.encode(text) for text in ENGLISH]
    assert recorded(processor.serialized_model_proto(), tmp_path) == (NORMALIZER_VERSION, OPTIONS)
    assert recorded(plain.serialized_model_proto(), tmp_path) is None


def test_a_tokenizer_normalises_with_the_options_of_its_record(model, tmp_path):
    tokenizer = Tokenizer(with_record(model, OPTIONS.record), tmp_path / "bpe.model")
    assert tokenizer.normalize("ፀሐይ 1000") == "ጸሀይ አንድ ሺ"
    assert tokenizer.normalizer_warning == ""
    assert Tokenizer(model, tmp_path / "bpe.model").normalize("ፀሐይ") == "ፀሐይ"


def test_the_identity_of_the_pieces_does_not_depend_on_the_record(model, tmp_path):
    path = tmp_path / "bpe.model"
    plain, carrying = Tokenizer(model, path), Tokenizer(with_record(model, OPTIONS.record), path)
    assert plain.vocabulary == carrying.vocabulary


def test_a_file_without_a_record_or_with_an_old_one_has_a_warning(model, tmp_path):
    path = tmp_path / "bpe.model"
    assert str(path) in Tokenizer(model, path).normalizer_warning
    old = Tokenizer(with_record(model, {**OPTIONS.record, "version": 1}), path)
    assert "version 1 " in old.normalizer_warning
    assert f"version {NORMALIZER_VERSION}" in old.normalizer_warning


def test_a_record_of_a_newer_version_is_refused(model, tmp_path):
    newer = {**OPTIONS.record, "version": NORMALIZER_VERSION + 1, "dialect": "gojjam"}
    with pytest.raises(UserError, match=f"version {NORMALIZER_VERSION + 1} ") as refusal:
        Tokenizer(with_record(model, newer), tmp_path / "bpe.model")
    assert str(tmp_path / "bpe.model") in str(refusal.value)


@pytest.mark.parametrize("record", [[], {}, {"version": "x"}, {"version": 1, "homophones": "some"}])
def test_a_corrupt_record_is_refused(model, tmp_path, record):
    with pytest.raises(UserError, match=r"bpe\.model: ") as refusal:
        Tokenizer(with_record(model, record), tmp_path / "bpe.model")
    assert "\n" not in str(refusal.value)


def test_an_extension_records_its_options_and_learns_from_texts_normalised_with_them(tmp_path):
    base = write_base(tmp_path)
    merged = Tokenizer(extend(base, [*AMHARIC, "ፀሐይ"], 24_000, homophones="strict"), base)
    assert merged.options == NormalizerOptions(homophones="strict")
    assert merged.encode_pieces("ፀሐይ") == ["▁ጸሀይ"]
    plain = Tokenizer(extend(base, [*AMHARIC, "ፀሐይ"], 24_000), base)
    assert plain.encode_pieces("ፀሐይ") == ["▁ፀሐይ"]
    assert json.loads(json.dumps(plain.options.record)) == NormalizerOptions().record


def test_an_extension_of_an_extension_keeps_the_options_that_are_not_given(tmp_path):
    first = tmp_path / "first.model"
    first.write_bytes(extend(write_base(tmp_path), AMHARIC, 24_000, homophones="strict"))
    assert Tokenizer(extend(first, AMHARIC, 24_000, thousand="ሺ"), first).options == OPTIONS


def test_yaml_may_say_off_without_quotes():
    assert NormalizerOptions.model_validate({"homophones": False}) == NormalizerOptions()
