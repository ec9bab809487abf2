"""Defects of a recording that its waveform shows: offset, gaps, clicks, flat tops, cut ends.

    offset       mean of the samples, as a percentage of the RMS without it
    dropout      at least 4 ms of near-silence inside the speech, where the waveform stops and starts again at
                 once: the 3 ms before and after are at most 8 dB below the level of the clip. The closure
                 of a plosive is silent too, but the speech before it fades
    click        a change of slope 7 times as large as any within 12 ms before and after, that is over in
                 0.2 ms. Of the bursts of a man's ejective consonants, 95 % last longer
                 (docs/lab/verdicts.md), and so do other sounds of the mouth
    flat tops    samples in runs of 3 or more within 0.2 % of the highest or lowest sample of the clip, at any
                 level: clipping that was turned down afterwards
    peak ratio   the level that 0.02 % of the samples exceed over that which 0.5 % exceed. Speech has at least
                 1.3, clipped speech 1.0 to 1.2, also after resampling or lossy coding has rounded its tops
    ends         level of the first and the last 20 ms without the steady noise, relative to that of the clip:
                 a recording that was cut inside a word has a high one; None without speech

On 400 synthetic clips without defects, the smallest peak ratio is 1.33.

Axes: S samples, C channels, W windows.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

MIN_GAP_S = 0.004
GAP_LEVEL = 0.01  # of the RMS of the clip
GAP_EDGE_S = 0.003
GAP_EDGE_LEVEL = 10 ** (-8 / 20)
CLICK_S = 0.002
CLICK_NEIGHBOURS = 6  # windows of 2 ms on each side; the nearest one may contain a part of the click
CLICK_RATIO = 7.0
CLICK_AROUND_S = 0.004  # where the samples with a third of its change of slope count
MAX_CLICK_S = 0.0002
QUIET_CLICK = 0.02  # of the RMS of the clip; smaller changes of slope are inaudible
MIN_FLAT_RUN = 3
FLAT_TOLERANCE = 0.002
SAMPLE_STEP = 1 / 32768
PEAK_QUANTILES = (0.995, 0.9998)
END_S = 0.02
LOWEST_RATIO_DB = -100.0


def measure_defects(
    channels: NDArray[np.float32], rate_hz: int, snr_db: float | None
) -> dict[str, float | None]:
    """Return the measures of the defects; None for those that silence does not have.

    Args:
        channels: (S, C), as they are in the file.
        snr_db: None for a clip without speech.
    """
    mono = channels.mean(axis=1, dtype=np.float32)  # (S,)
    offset = float(mono.mean())
    level = _rms(mono - offset)
    if level == 0:
        names = ("offset_percent", "num_dropouts", "num_clicks", "flat_percent", "peak_ratio")
        return dict.fromkeys((*names, "start_db", "end_db"))
    centred = mono - np.float32(offset)
    size = round(END_S * rate_hz)
    return {
        "offset_percent": 100 * abs(offset) / float(np.hypot(offset, level)),
        "num_dropouts": float(num_dropouts(mono, rate_hz, level)),
        "num_clicks": float(num_clicks(centred, rate_hz, level)),
        "flat_percent": max(flat_percent(channel) for channel in channels.T),
        "peak_ratio": _peak_ratio(centred),
        "start_db": _without_noise_db(centred[:size], level, snr_db),
        "end_db": _without_noise_db(centred[-size:], level, snr_db),
    }


def num_dropouts(mono: NDArray[np.float32], rate_hz: int, level: float) -> int:
    """Return the number of gaps inside the speech with abrupt edges."""
    starts, ends = runs(np.abs(mono) <= GAP_LEVEL * level)
    edge = round(GAP_EDGE_S * rate_hz)
    is_inside = (ends - starts >= MIN_GAP_S * rate_hz) & (starts >= edge) & (ends + edge <= len(mono))
    return sum(
        _rms(mono[start - edge : start]) > GAP_EDGE_LEVEL * level
        and _rms(mono[end : end + edge]) > GAP_EDGE_LEVEL * level
        for start, end in zip(starts[is_inside], ends[is_inside], strict=True)
    )


def num_clicks(mono: NDArray[np.float32], rate_hz: int, level: float) -> int:
    """Return the number of short changes of slope far above those of their surroundings."""
    size = max(1, round(CLICK_S * rate_hz))
    bends = np.pad(np.abs(np.diff(mono, 2)), 1)[: len(mono) // size * size]
    sharpest = bends.reshape(-1, size).max(axis=1)  # (W,)
    if not len(sharpest):
        return 0
    around = sliding_window_view(np.pad(sharpest, CLICK_NEIGHBOURS), 2 * CLICK_NEIGHBOURS + 1)
    apart = np.abs(np.arange(around.shape[1]) - CLICK_NEIGHBOURS) > 1
    usual = around[:, apart].max(axis=1)  # (W,)
    starts, ends = runs(sharpest > CLICK_RATIO * (usual + QUIET_CLICK * level))
    reach, longest = round(CLICK_AROUND_S * rate_hz), max(3, round(MAX_CLICK_S * rate_hz))
    num_found = 0
    for start, end in zip(starts * size, ends * size, strict=True):
        peak = start + int(bends[start:end].argmax())
        near = bends[max(0, peak - reach) : peak + reach]
        num_found += int((near > bends[peak] / 3).sum()) <= longest
    return num_found


def flat_percent(channel: NDArray[np.float32]) -> float:
    """Return the percentage of samples in flat tops."""
    num_flat = 0
    for side in (channel, -channel):
        highest = float(side.max())
        if highest > 0:
            starts, ends = runs(side >= highest * (1 - FLAT_TOLERANCE) - SAMPLE_STEP)
            lengths = ends - starts
            num_flat += int(lengths[lengths >= MIN_FLAT_RUN].sum())
    return 100 * num_flat / len(channel)


def _peak_ratio(mono: NDArray[np.float32]) -> float | None:
    """Return the smaller peak ratio of the two sides; None for a side that is mostly zero."""
    levels = [np.quantile(side, PEAK_QUANTILES) for side in (mono, -mono)]
    return min(high / low for low, high in levels) if all(low > 0 for low, _ in levels) else None


def runs(is_true: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the starts and the ends of the runs of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_true, [False]]).astype(np.int8)))
    return edges[::2], edges[1::2]


def _rms(samples: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64)))) if len(samples) else 0.0


def _without_noise_db(samples: NDArray[np.float32], level: float, snr_db: float | None) -> float | None:
    if snr_db is None:
        return None
    share = (_rms(samples) / level) ** 2 - 2 * 10 ** (-snr_db / 10)  # 20 ms of noise vary
    return max(LOWEST_RATIO_DB, 10 * float(np.log10(max(share, 1e-12))))
