from pathlib import Path

import pytest

from indextts.text.tokenizer import Tokenizer
from indextts.text.verify import verify
from indextts.text.vocabulary import advise_size
from tests.tokenizers import AMHARIC, ENGLISH, extend, trained_model, write_base


@pytest.fixture
def base(tmp_path):
    return Tokenizer.load(write_base(tmp_path))


@pytest.fixture
def extended(base):
    return Tokenizer(extend(base.path, AMHARIC, base.size + 320), base.path.with_name("am.model"))


def report_of(tokenizer, base, rows=None, config=None, texts=AMHARIC, limit=0.1):
    rows = base.size + 1 if rows is None else rows
    return verify(tokenizer, base, rows, config or rows - 1, texts, limit)


def whats(report):
    return [problem.subject for problem in report.problems]


def not_used(base):
    return f"Does not use extended vocabulary (ID >= {base.size})"


def test_a_good_extension_has_no_problems_and_the_lines_that_users_grep_for(base, extended):
    report = report_of(extended, base)
    assert [finding.verdict for finding in report.findings] == ["ok"] * len(report.findings)
    text = str(report)
    assert f"Vocabulary size: {extended.size}\n" in text
    assert f"Uses extended vocabulary (ID >= {base.size})" in text
    assert text.splitlines()[-1] == "All checks passed"
    for part in (extended.vocabulary.fingerprint, extended.options.fingerprint, "tokens per word"):
        assert part in text
    assert not report_of(extended, base, config=extended.size).problems


def test_each_mismatch_is_a_problem_of_its_subject(base, extended):
    cases = [
        ({"texts": ENGLISH}, not_used(base)),
        ({"rows": base.size, "config": base.size}, "base checkpoint"),
        ({"config": base.size + 1}, "config number_text_tokens"),
        ({"config": extended.size + 1}, "config number_text_tokens"),
        ({"texts": [*AMHARIC * 1000, "ሰላም ᎀ"], "limit": 100}, "unknown pieces"),  # whatever the limit
    ]
    for changes, problem in cases:
        assert whats(report_of(extended, base, **changes)) == [problem]


def test_another_base_is_a_problem_that_names_the_first_difference(base, extended, tmp_path):
    other = Tokenizer(trained_model(tuple(reversed(ENGLISH[:2])), vocab_size=50), tmp_path / "other.model")
    report = report_of(extended, other)
    assert whats(report) == ["base pieces"]
    assert "id " in report.problems[0].value


def test_other_scores_or_sentencepiece_settings_than_those_of_the_base_are_a_problem(base, extended):
    scores, settings = extended.proto, extended.proto
    scores.pieces[base.size - 1].score -= 1
    settings.normalizer_spec.add_dummy_prefix = False
    for proto, expected in ((scores, "1 of the 90 base pieces"), (settings, str(base.path))):
        report = report_of(Tokenizer(proto.SerializeToString(), extended.path), base)
        assert whats(report) == ["base pieces"]
        assert expected in report.problems[0].value


def test_missing_letters_are_a_problem_with_the_letters(base, extended):
    proto = extended.proto
    kept = [piece for piece in proto.pieces if piece.piece not in ("ኈ", "ሰ")]
    del proto.pieces[:]
    proto.pieces.extend(kept)
    report = report_of(Tokenizer(proto.SerializeToString(), extended.path), base, texts=["ኈ ሰላም"])
    assert whats(report) == ["Amharic letters", "unknown pieces"]
    assert "2 of 291" in report.problems[0].value
    assert "'ኈ' (1)" in report.problems[1].value


def test_unknown_pieces_are_a_problem_above_the_limit_only(base, extended):
    texts = [*AMHARIC, "日本 日"]
    report = report_of(extended, base, texts=texts, limit=0.1)
    assert whats(report) == ["unknown pieces"]
    assert "'日' (2), '本' (1)" in report.problems[0].value
    assert not report_of(extended, base, texts=texts, limit=100).problems


def test_without_the_base_tokenizer_sizes_are_compared_and_a_warning_says_so(base, extended):
    report = verify(extended, None, base.size + 1, base.size, AMHARIC, 0.1)
    assert not report.problems
    assert "warning  base pieces: only sizes could be compared" in str(report)
    assert "base pieces" in whats(verify(base, None, extended.size + 1, extended.size, [], 0.1))


def test_without_texts_and_checkpoint_there_are_warnings(base, extended):
    report = verify(extended, base, None, base.size, [], 0.1)
    assert not report.problems
    assert [finding.subject for finding in report.findings if finding.verdict == "warning"] == [
        "base checkpoint",
        "texts",
    ]


def test_all_problems_are_in_one_report(base, tmp_path):
    other = Tokenizer(trained_model(("ABC DEF",), vocab_size=40), tmp_path / "other.model")
    report = verify(other, base, base.size + 9, 12_345, AMHARIC, 0.1)
    assert whats(report) == [
        "base pieces",
        "base checkpoint",
        "config number_text_tokens",
        "Amharic letters",
        "unknown pieces",
        not_used(base),
    ]
    assert str(report).endswith("6 problems found.")


def test_rare_appended_pieces_are_counted(base, extended):
    common = report_of(extended, base, texts=AMHARIC * 20)
    rare = report_of(extended, base, texts=AMHARIC)
    counts = [
        int(finding.value.split()[0])
        for report in (common, rare)
        for finding in report.findings
        if finding.subject == "rare pieces"
    ]
    seen = {token for text in AMHARIC for token in extended.encode(text) if token >= base.size}
    assert counts == [320 - len(seen), 320]


def test_without_texts_sample_sentences_show_that_the_appended_pieces_are_used(base, extended):
    assert f"Uses extended vocabulary (ID >= {base.size})" in str(report_of(extended, base, texts=[]))
    assert whats(report_of(base, base, texts=[])) == ["Amharic letters", not_used(base)]


def test_a_model_that_loses_text_is_found_by_decoding(base, extended):
    proto = extended.proto
    proto.denormalizer_spec.precompiled_charsmap = upper_case_charsmap()
    changed_model = Tokenizer(proto.SerializeToString(), extended.path)
    report = report_of(changed_model, base, texts=["ሰላም THE FOX"])
    assert whats(report) == ["round trip"]
    assert "1 of 1 texts" in report.problems[0].value


def upper_case_charsmap():
    """Return compiled rules that make small letters of large ones, as a denormaliser that changes a text."""
    lower = Tokenizer(trained_model(ENGLISH, normalization_rule_name="nmt_nfkc_cf"), Path("lower.model"))
    return lower.proto.normalizer_spec.precompiled_charsmap


def test_a_tokenizer_without_a_record_of_its_normaliser_is_a_warning(base, extended):
    proto = extended.proto
    proto.DiscardUnknownFields()
    report = report_of(Tokenizer(proto.SerializeToString(), extended.path), base)
    assert not report.problems
    assert [finding.subject for finding in report.findings if finding.verdict == "warning"] == ["normaliser"]


def test_a_size_far_from_the_advice_is_a_warning(base, extended):
    report = verify(extended, base, base.size + 1, base.size, AMHARIC, 0.1, advise_size(250))
    assert "warning  size: 320 appended pieces are few (advised: 12,000" in str(report)
    assert not report.problems
