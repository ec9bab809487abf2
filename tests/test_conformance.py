from typing import Any

import numpy as np
import pytest
import torch

from tests.conformance import compared, difference


@pytest.mark.parametrize(
    ("name", "num_arrays"),
    [
        ("gpt_a", 71),
        ("gpt25_a", 77),
        ("codec_a", 8),
        ("codec25_a", 86),
        ("tokenizer25", 40),
        ("length_regulator_a", 21),
        ("dit_a", 39),
        ("cfm_a", 20),
        ("s2mel_a", 8),
        ("s2mel25_a", 19),
        ("campplus_a", 22),
        ("mel_a", 9),
        ("fbank_a", 12),
        ("bigvgan_a", 18),
    ],
)
def test_the_reference_vectors_are_reproduced(shared, name, num_arrays):
    found = compared(shared / "vectors" / name)
    assert {array: problem for array, problem in found.items() if problem} == {}
    assert len(found) == num_arrays


@pytest.mark.parametrize(
    ("result", "wanted", "problem"),
    [
        (None, np.zeros(3), "unknown"),
        (torch.tensor(1.0), np.float32(99), "error"),
        (torch.tensor(1.0), np.float32("nan"), "error"),
        (torch.zeros(2, 10), np.zeros((1, 2)), "shape (2, 10), expected (1, 2)"),
        (["a", "b"], np.array(["a", "c"]), "1 differ"),
        (torch.tensor(1.0), np.float32(1.000001), ""),
    ],
)
def test_a_result_that_differs_or_is_unknown_is_described(result: Any, wanted: Any, problem: str):
    found = difference("text_loss", result, np.asarray(wanted))
    assert found.startswith(problem)
    assert bool(found) == bool(problem)
