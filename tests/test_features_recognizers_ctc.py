"""Tests of ctc.py and forced_alignment.py in indextts/features/recognizers."""

from itertools import product

import numpy as np
import pytest
import torch

from indextts.features.recognizers.ctc import CtcRecognizer
from indextts.features.recognizers.forced_alignment import align_letters
from indextts.features.recognizers.loading import load_recognizer
from indextts.features.recognizers.recognizer import LoadedModel, Placement, batches
from tests.recognizers import LETTERS, Kind, write_recognizer

CPU = torch.device("cpu")
NOISE = np.random.default_rng(0).standard_normal(48_000).astype(np.float32) * 0.1
SECOND = NOISE[:16_000]
CLIPS = [NOISE[:length] for length in (16_000, 9_123, 24_000, 800, 9_123, 48_000)]
KINDS: list[tuple[Kind, bool]] = [
    ("wav2vec2", False),  # normalises over time
    ("wav2vec2-layer-norm", True),
    ("hubert", True),
    ("wav2vec2-bert", True),
]


def loaded(folder, kind: Kind = "wav2vec2", letter: str = "") -> CtcRecognizer:
    recognizer = load_recognizer(write_recognizer(folder / "model", letter, kind), CPU, "am")
    assert isinstance(recognizer, CtcRecognizer)
    return recognizer


def placed(recognizer: CtcRecognizer, placement: Placement) -> CtcRecognizer:
    """Return a recognizer with the same model and another placement."""
    model = LoadedModel("model", "", recognizer._model, recognizer._extractor, recognizer._tokenizer)
    return CtcRecognizer(model, placement)


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS])
def test_the_same_letter_at_all_positions_is_one_letter(tmp_path, kind: Kind):
    recognizer = loaded(tmp_path, kind, "ላ")
    assert (recognizer.name, recognizer.sample_rate_hz) == ("model", 16_000)
    assert recognizer.transcribe([SECOND, SECOND[:100], SECOND[:0]]) == ["ላ", "", ""]


def test_blanks_separate_letters_and_bars_separate_words(tmp_path):
    recognizer = loaded(tmp_path)
    path = [LETTERS.index(char) for char in ("ሰ", "ሰ", "<pad>", "ሰ", "|", "|", "ላ", "<pad>", "ም", "<unk>")]
    assert recognizer.text_of(torch.eye(len(LETTERS))[path]) == "ሰሰ ላም"


@pytest.mark.parametrize(("kind", "is_neutral"), KINDS)
def test_a_batch_changes_nothing(tmp_path, kind: Kind, is_neutral: bool):
    one_by_one = loaded(tmp_path, kind)
    together = placed(one_by_one, Placement(CPU, batch_s=60.0))
    assert together.padding_is_neutral == is_neutral
    expected, found = one_by_one.log_probabilities(CLIPS), together.log_probabilities(CLIPS)
    assert [len(scores) for scores in expected] == [len(scores) for scores in found]
    for alone, in_batch in zip(expected, found, strict=True):
        torch.testing.assert_close(in_batch, alone, rtol=0, atol=1e-4)
    assert together.transcribe(CLIPS) == one_by_one.transcribe(CLIPS)


def test_clips_of_different_sizes_share_a_batch_only_where_allowed():
    sizes = [5, 3, 5, 4, 9]
    assert batches(sizes, 16, only_equal=False) == [[1, 3, 0], [2], [4]]
    assert batches(sizes, 16, only_equal=True) == [[1], [3], [0, 2], [4]]
    assert batches(sizes, 0, only_equal=False) == [[1], [3], [0], [2], [4]]


def test_half_precision_hears_the_same(tmp_path):
    single = loaded(tmp_path, "wav2vec2-bert")
    expected = single.log_probabilities([SECOND])[0]
    half = placed(single, Placement(CPU, torch.float16)).log_probabilities([SECOND])[0]
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, expected, rtol=0, atol=0.05)
    assert not torch.equal(half, expected)


def path_of(letters: str) -> torch.Tensor:
    """Return log-probabilities of a clip in which each letter of a path has 90 %."""
    probabilities = torch.full((len(letters), len(LETTERS)), 0.1 / (len(LETTERS) - 1))
    for place, char in enumerate(letters):
        probabilities[place, LETTERS.index("<pad>" if char == "_" else char)] = 0.9
    return probabilities.log()


def test_the_transcript_fits_best_whatever_its_spelling_and_spaces(tmp_path):
    recognizer = loaded(tmp_path)
    heard = path_of("ሰሰ_ላ_ም_|_ለ_ዓ_ለ_ም_")
    own, respelled, one_letter, other = (
        recognizer.alignment_score(heard, text) for text in ("ሰላም ለዓለም", "ሠላምለአለም።", "ሰላም ለዓለለ", "ዓዓዓለላላ")
    )
    assert own == pytest.approx(respelled)
    assert own > -0.05
    assert -1.0 < one_letter < -0.2
    assert other < -2
    assert recognizer.alignment_score(path_of("ሰ_"), "ሰላም ለዓለም") == -20  # more letters than positions


OUTSIDE = -1


def cheapest(costs: np.ndarray, letters: list[int]) -> float:
    """Return the lowest cost of all paths that write the letters once, with free sound around them."""
    least = np.inf
    for path in product([OUTSIDE, *range(costs.shape[1])], repeat=len(costs)):
        inner = [place for place, column in enumerate(path) if column != OUTSIDE]
        if not inner or inner[-1] - inner[0] + 1 != len(inner):
            continue  # outside within the text
        columns = [path[place] for place in inner]
        if columns[0] == 0 or columns[-1] == 0:
            continue
        runs = [column for place, column in enumerate(columns) if place == 0 or column != columns[place - 1]]
        if [column for column in runs if column] == letters:
            least = min(least, sum(float(costs[place, path[place]]) for place in inner))
    return least


@pytest.mark.parametrize("letters", [[1], [1, 2], [1, 1], [2, 1, 2]])
def test_the_cost_is_that_of_the_cheapest_path(letters):
    rng = np.random.default_rng(len(letters))
    for _ in range(3):
        costs = rng.uniform(0, 3, (5, 3)).astype(np.float32)
        found = align_letters(costs, np.array(letters))
        assert -found.score * len(letters) == pytest.approx(cheapest(costs, letters), abs=1e-4)
        assert (np.diff(found.first) > 0).all()
        assert (found.last >= found.first).all()


def test_the_times_are_those_of_the_letters():
    costs = np.full((10, 3), 5, np.float32)
    costs[:, 0] = 0
    for position, letter in ((3, 1), (4, 1), (6, 2)):
        costs[position] = 5
        costs[position, letter] = 0
    found = align_letters(costs, np.array([1, 2]))
    assert (found.first.tolist(), found.last.tolist(), found.score) == ([3, 6], [4, 6], 0.0)


@pytest.mark.parametrize("letters", [[1, 2, 1], [1, 1]])
def test_sound_that_is_too_short_has_no_place(letters):
    assert align_letters(np.zeros((2, 3), np.float32), np.array(letters)) is None
