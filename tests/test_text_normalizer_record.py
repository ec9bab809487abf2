import json

import pytest
import sentencepiece

from indextts.commands.normalizer_options import NORMALIZER_VERSION, NormalizerOptions
from indextts.errors import UserError
from indextts.text.normalizer_record import read_record, with_record
from indextts.text.tokenizer import Tokenizer, parse_model
from tests.tokenizers import AMHARIC, ENGLISH, extend, trained_model, write_base

OPTIONS = NormalizerOptions(homophones="strict", thousand="ሺ")


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
