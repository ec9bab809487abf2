import json
from pathlib import Path

import pytest

from indextts.text import size_summary
from indextts.text.extend import extend_file
from indextts.text.size_summary import read_summary, summarize, summary_path, write_summary
from indextts.text.tokenizer import Tokenizer, measure
from indextts.text.vocabulary import advise_size
from tests.conftest import REPOSITORY

BASE = REPOSITORY / "tests/base_2.0/bpe.model"
TEXTS = [
    "ሰላም ለዓለም ሁሉ ሰላም ይሁን",
    "አዲስ አበባ የኢትዮጵያ ዋና ከተማ ናት",
    "ዛሬ ወደ ገበያ ሄደን ቡና ገዛን",
    "ልጆቹ በትምህርት ቤት ይማራሉ ይጫወታሉ",
]


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    base = Tokenizer.load(BASE)
    output = tmp_path_factory.mktemp("size") / "tokenizer.model"
    return extend_file(BASE, TEXTS, output, base.size + 400, advise_size(1.0), {}).extended


def test_the_last_point_is_the_tokenizer_itself_and_rates_fall_with_the_size(extended: Tokenizer):
    summary = summarize(extended, Tokenizer.load(BASE).size, TEXTS)
    sizes = [point.size for point in summary.sizes]
    rates = [point.tokens_per_word for point in summary.sizes]
    assert sizes == sorted(sizes)
    assert sizes[-1] == extended.size
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[-1]
    assert rates[-1] == pytest.approx(measure(extended, TEXTS).tokens_per_word, abs=1e-3)


def test_a_smaller_tokenizer_has_the_rate_of_the_curve(extended: Tokenizer, tmp_path: Path):
    base = Tokenizer.load(BASE)
    point = summarize(extended, base.size, TEXTS).sizes[2]
    output = tmp_path / "smaller.model"
    smaller = extend_file(BASE, TEXTS, output, point.size, advise_size(1.0), {}).extended
    assert smaller.size == point.size
    assert measure(smaller, TEXTS).tokens_per_word == pytest.approx(point.tokens_per_word, abs=1e-3)


@pytest.mark.parametrize(("num_texts", "num_encoded"), [(10, 10), (11, 6), (19, 10), (20, 10), (21, 7)])
def test_many_texts_are_sampled_evenly_and_rare_pieces_are_projected_to_all(
    extended: Tokenizer, monkeypatch: pytest.MonkeyPatch, num_texts: int, num_encoded: int
):
    monkeypatch.setattr(size_summary, "MAX_TEXTS", 10)
    monkeypatch.setattr(size_summary, "RARE", num_texts)
    base_size = Tokenizer.load(BASE).size
    same = summarize(extended, base_size, TEXTS[:1] * num_texts)
    assert same.num_texts == num_encoded
    # every piece of the text occurs in each of the texts, so only those of other texts are rare
    used = {token for token in extended.encode(TEXTS[0]) if token >= base_size}
    assert same.sizes[-1].num_rare == extended.size - base_size - len(used)
    # the sample reaches the texts at the end
    mixed = summarize(extended, base_size, TEXTS[:1] * (num_texts - 3) + TEXTS[1:2] * 3)
    assert mixed.sizes[0].tokens_per_word != same.sizes[0].tokens_per_word


def test_a_summary_is_read_as_it_was_written_and_a_corrupt_one_counts_as_absent(
    extended: Tokenizer, tmp_path: Path
):
    model = tmp_path / "tokenizer.model"
    assert read_summary(model) is None
    summary = summarize(extended, Tokenizer.load(BASE).size, TEXTS)
    write_summary(model, summary)
    assert read_summary(model) == summary
    whole = json.loads(summary_path(model).read_text())
    endless = {**whole["sizes"][0], "size": float("inf")}
    for content in (
        "{",
        "[]",
        "[" * 100_000,
        json.dumps({"version": 1, "sizes": [{}]}),
        json.dumps(whole | {"version": 0}),
        json.dumps(whole | {"sizes": []}),
        json.dumps(whole | {"sizes": [endless]}),
    ):
        summary_path(model).write_text(content)
        assert read_summary(model) is None
