"""Tests of the normaliser on the cases of tests/normalizer_cases.py."""

import pytest

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.text.normalize import normalize
from tests.normalizer_cases import CLASSES, OPTION_CLASSES

CASES = [
    pytest.param(options, text, spoken, id=f"{name}-{number}")
    for name, cases in [
        *((name, [({}, *case) for case in cases]) for name, cases in CLASSES.items()),
        *OPTION_CLASSES.items(),
    ]
    for number, (options, text, spoken) in enumerate(cases)
]


@pytest.mark.parametrize(("options", "text", "spoken"), CASES)
def test_every_class_of_texts_has_the_expected_spoken_form(options, text, spoken):
    chosen = NormalizerOptions(**options)
    assert normalize(text, chosen) == spoken
    assert normalize(spoken, chosen) == spoken


def test_the_table_has_200_cases():
    texts = [(tuple(case.values[0].items()), case.values[1]) for case in CASES]
    assert len(set(texts)) == len(texts) >= 200
