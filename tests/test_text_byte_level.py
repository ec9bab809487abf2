"""Tests of indextts/text/byte_level.py; those of the official ids are in test_conformance.py."""

import pickle
import sys
from base64 import b64encode
from functools import cache
from pathlib import Path
from subprocess import run

import pytest

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.errors import UserError
from indextts.text.bases import for_language, load_tokenizer, tokenizer_of
from indextts.text.byte_level import ByteLevelTokenizer, rank_lines, with_rank_record, without_rank_record
from indextts.text.extend import extend_file
from indextts.text.special_tokens import COMMON_ROW, SPECIAL_TOKENS, language_row
from tests.byte_ranks import write_ranks

NAME = "multilingual_zh_ja_yue_char_del.tiktoken"


@pytest.fixture
def tokenizers(shared: Path) -> dict[str, ByteLevelTokenizer]:
    return loaded(shared)


@cache
def loaded(shared: Path) -> dict[str, ByteLevelTokenizer]:
    folder = shared / "vectors/tokenizer25"
    paths = {name: folder / name / NAME for name in ("small", "extended")}
    paths["published"] = shared / "data/indextts25_tokenizer" / NAME
    found = {name: load_tokenizer(path) for name, path in paths.items()}
    assert all(isinstance(tokenizer, ByteLevelTokenizer) for tokenizer in found.values())
    return found


def test_every_rank_file_is_written_back_byte_by_byte(tokenizers):
    for tokenizer in tokenizers.values():
        assert rank_lines(tokenizer.ranked, len(tokenizer.ranked)) == tokenizer.path.read_bytes()
    assert tokenizers["published"].ranked[48_474] == b""  # the empty piece, which no text has


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_changed_line_ends_change_no_id_and_no_record(tmp_path: Path, end: bytes):
    tokenizer = load_tokenizer(write_ranks(tmp_path))
    changed = tokenizer.model_bytes.replace(b"\n", end).rstrip()
    for model in (changed, with_rank_record(changed, {**tokenizer.options.record, "thousand": "ሺ"})):
        other = tokenizer_of(model, tokenizer.path)
        assert other.vocabulary.fingerprint == tokenizer.vocabulary.fingerprint
        assert other.encode("ሰላም the") == tokenizer.encode("ሰላም the")
    assert other.options.thousand == "ሺ"
    assert model.count(b"\n#") == 1


def test_other_pieces_in_the_number_of_the_published_ones_are_refused(tokenizers, tmp_path: Path):
    lines = tokenizers["published"].model_bytes.split(b"\n")
    lines[-3] = b"%s 58834" % b64encode("ሰላም ለዓለም".encode())
    with pytest.raises(UserError, match=r"ranks: .*sha256"):
        tokenizer_of(b"\n".join(lines), tmp_path / "ranks")


def test_a_text_has_the_tag_of_its_language_and_ascii_marks(tmp_path: Path):
    tokenizer = load_tokenizer(write_ranks(tmp_path))
    ids = tokenizer.encode("ሰላም፣ ዓለም።")
    assert tokenizer.pieces[ids[0]] == "<|am|>"
    assert tokenizer.decode(ids).strip() == "ሰላም, ዓለም."
    korean = load_tokenizer(tokenizer.path, NormalizerOptions(language="ko"))
    assert korean.pieces[korean.encode("x")[0]] == "<|ko|>"


def test_latin_letters_keep_their_case_unless_the_record_is_older(tmp_path: Path):
    tokenizer = load_tokenizer(write_ranks(tmp_path))
    assert tokenizer.decode(tokenizer.encode("የGoogle ስልክ።")).strip() == "የGoogle ስልክ."
    extended = extend_file(tokenizer.path, ["ሰላም ሰላም"] * 3, tmp_path / "am.tiktoken", 1945).extended
    assert extended.options.record["letter_case"] == "keep"
    in_korean = for_language(extended, "ko")
    assert in_korean.decode(in_korean.encode("Hello")).strip() == "Hello"
    older = with_rank_record(tokenizer.model_bytes, NormalizerOptions(homophones="strict").record)
    assert tokenizer_of(older, tokenizer.path).normalize("የGoogle ስልክ።") == "የGOOGLE ስልክ."


def test_an_empty_text_has_no_tokens_and_a_tag_in_a_text_is_no_special_token(tmp_path: Path):
    tokenizer = load_tokenizer(write_ranks(tmp_path))
    assert tokenizer.encode("") == tokenizer.encode(" ") == []
    ids = tokenizer.encode_normalized("<|am|> <|endoftext|>")
    assert [token for token in ids if tokenizer.pieces[token] in SPECIAL_TOKENS] == ids[:1]


def test_a_tokenizer_can_be_pickled_and_keeps_its_options(tmp_path: Path):
    merging = load_tokenizer(write_ranks(tmp_path), NormalizerOptions(homophones="strict"))
    copy = pickle.loads(pickle.dumps(merging))
    assert copy.vocabulary == merging.vocabulary
    assert copy.encode("ፀሐይ") == merging.encode("ፀሐይ") != load_tokenizer(merging.path).encode("ፀሐይ")


def test_the_record_of_the_normaliser_is_read_and_the_official_program_gets_none(tmp_path: Path):
    path = write_ranks(tmp_path)
    options = NormalizerOptions(homophones="strict", language="ti")
    recorded = with_rank_record(with_rank_record(path.read_bytes(), {"version": 1}), options.record)
    tokenizer = tokenizer_of(recorded, path)
    assert tokenizer.options == options
    assert not tokenizer.normalizer_warning
    assert without_rank_record(recorded) == path.read_bytes()
    plain = load_tokenizer(path)
    assert plain.vocabulary == tokenizer.vocabulary
    assert plain.normalizer_warning


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda lines: lines[:5] + lines[6:], ":6: the rank is b'6'"),
        (lambda lines: [*lines[:3], b"*** 3", *lines[4:]], ":4: b'***' is not base64"),
        (lambda lines: [*lines[:3], b"JA=", *lines[4:]], ":4: "),
        (lambda lines: [*lines, b"IQ== %d" % len(lines)], "different pieces"),
        (lambda lines: lines[:200], "every byte"),
        (lambda lines: [*lines, b"# {"], "record"),
    ],
)
def test_a_corrupt_rank_file_is_named_with_its_line(tmp_path: Path, change, where: str):
    path = write_ranks(tmp_path)
    path.write_bytes(b"\n".join(change(path.read_bytes().splitlines())) + b"\n")
    with pytest.raises(UserError) as refusal:
        load_tokenizer(path)
    assert str(path) in str(refusal.value)
    assert where in str(refusal.value)


def test_a_language_without_a_row_is_refused_unless_the_common_row_is_chosen(tmp_path: Path):
    with pytest.raises(UserError, match="--language-row common"):
        language_row("ti")
    path = write_ranks(tmp_path)
    options = {"language": "ti", "language_row": "common"}
    extend_file(path, ["ሰላም ሰላም ሰላም"] * 3, tmp_path / "ti.tiktoken", 1945, None, options)
    tokenizer = load_tokenizer(tmp_path / "ti.tiktoken")
    assert tokenizer.language_row == COMMON_ROW == 105
    assert tokenizer.decode(tokenizer.encode("ሰላም")).startswith("<|ti|> ")  # the tag is ordinary text
    with pytest.raises(UserError, match="--language ti"):
        extend_file(path, ["ሰላም"] * 3, tmp_path / "x.tiktoken", 1945, None, {"language": "ti"})
    assert NormalizerOptions().record == NormalizerOptions(language_row="own").record
    assert "language_row" not in NormalizerOptions().record  # as in files without the option


def test_importing_the_tokenizer_opens_no_connection_and_loads_no_http_client():
    code = "import sys, indextts.text.bases; sys.exit(bool({'requests', 'urllib3'} & set(sys.modules)))"
    assert run([sys.executable, "-c", code], check=False).returncode == 0
