import numpy as np
import pytest
from transformers.audio_utils import mel_filter_bank

from indextts.features.log_mel import corners_hz, triangles


@pytest.mark.parametrize(("rate_hz", "window", "num_bands"), [(24_000, 1024, 128), (22_050, 1024, 80)])
def test_filters_are_those_of_another_implementation(rate_hz, window, num_bands):
    theirs = mel_filter_bank(window // 2 + 1, num_bands, 0.0, rate_hz / 2, rate_hz, mel_scale="slaney")
    np.testing.assert_allclose(triangles(rate_hz, window, num_bands), theirs.T, atol=1e-6)


def test_corners_are_straight_below_1_khz_and_end_at_half_the_rate():
    corners = corners_hz(22_050, 80)
    assert corners.shape == (82,)
    assert corners[0] == 0
    assert corners[-1] == pytest.approx(11_025)
    low = corners[corners < 950]
    np.testing.assert_allclose(np.diff(low), low[1], rtol=1e-9)
    assert (np.diff(corners) > 0).all()
