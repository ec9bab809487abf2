"""Tests of indextts/text/official_marks.py: raw Amharic in SentencePiece without unknown marks."""

import random
import struct
from pathlib import Path

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from indextts.errors import UserError
from indextts.text.official_marks import MARKS, charsmap_rules, with_ethiopic_marks
from tests.conftest import REPOSITORY

BASE = REPOSITORY / "tests/base_2.0/bpe.model"


@pytest.fixture(scope="module")
def base() -> bytes:
    return BASE.read_bytes()


@pytest.fixture(scope="module")
def changed(base: bytes) -> bytes:
    return with_ethiopic_marks(base)


def processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def any_texts(number: int) -> list[str]:
    """Texts of random characters of many scripts, without the marks."""
    rng = random.Random(0)
    ranges = ((32, 0x250), (0x250, 0x3000), (0x3000, 0xD7FF), (0xF900, 0xFFFD))
    texts = ["".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(20)) for _ in range(number)]
    return ["".join(char for char in text if char not in MARKS) for text in texts]


def test_ethiopic_marks_become_the_marks_of_the_published_model(base: bytes, changed: bytes):
    text = "ሰላም። እንዴት፡ነህ፣ ደህና፤ ነኝ፧"
    normalised = "ሰላም. እንዴት ነህ, ደህና, ነኝ?"
    assert processor(changed).encode(text) == processor(base).encode(normalised)
    assert processor(base).encode(text) != processor(base).encode(normalised)


def test_other_texts_keep_their_pieces(base: bytes, changed: bytes):
    texts = any_texts(2000)
    assert processor(changed).encode(texts) == processor(base).encode(texts)


def test_all_but_the_map_of_characters_stays(base: bytes, changed: bytes):
    protos = [sentencepiece_model_pb2.ModelProto.FromString(model) for model in (base, changed)]
    rules = [dict(charsmap_rules(proto.normalizer_spec.precompiled_charsmap)) for proto in protos]
    assert rules[1] == rules[0] | MARKS
    assert len(rules[0]) > 200_000  # NFKC
    for proto in protos:
        proto.normalizer_spec.ClearField("precompiled_charsmap")
    assert protos[0] == protos[1]


def test_a_model_with_the_marks_is_not_changed_again(changed: bytes):
    assert with_ethiopic_marks(changed) == changed


def test_a_model_without_a_map_gets_one_with_the_marks_only(base: bytes):
    proto = sentencepiece_model_pb2.ModelProto.FromString(base)
    proto.normalizer_spec.ClearField("precompiled_charsmap")
    proto.normalizer_spec.name = "identity"
    changed = with_ethiopic_marks(proto.SerializeToString())
    found = sentencepiece_model_pb2.ModelProto.FromString(changed).normalizer_spec
    assert dict(charsmap_rules(found.precompiled_charsmap)) == MARKS


def endless_trie() -> bytes:
    """A trie in which every node has the children of the root."""
    units = [byte | byte << 10 for byte in range(256)]
    return struct.pack("<I256I", 1024, *units) + b"\0"


@pytest.mark.parametrize("charsmap", [b"\x08\0\0\0", b"\xff" * 40, endless_trie()])
def test_a_corrupt_map_is_refused(base: bytes, charsmap: bytes, tmp_path: Path):
    proto = sentencepiece_model_pb2.ModelProto.FromString(base)
    proto.normalizer_spec.precompiled_charsmap = charsmap
    with pytest.raises(UserError, match=r"bpe\.model"):
        with_ethiopic_marks(proto.SerializeToString())
