"""Removal of noise and music from speech, and what that cost the speech.

    hum     notches at the multiples of 50 or 60 Hz that stand out
    noise   RNNoise (pyrnnoise): a small recurrent network whose weights come with the package
    music   Demucs: separates the voice from instruments and other sounds; weights from the Hugging Face hub

The packages of noise and music are the extra clean.

Axes: S samples, C channels, T frames, K bands.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import soxr
from numpy.typing import NDArray

from indextts.errors import UserError

if TYPE_CHECKING:
    import torch

VOICE = "vocals"
_NOISE_RATE_HZ = 48_000
_NOISE_PEAK = 0.5  # before the network, whose output has 16 bits and may be louder
_NOISE_DELAY = 960  # samples: RNNoise hears two frames ahead
_HUM_DB = 12.0  # a line of hum above the spectrum around it, at most times of the clip
_MAX_HUM_HZ = 1000
_MIN_LINES = 3  # fewer may be held tones
_NOTCH_HZ = 4.0  # width
_BANDS_HZ = (
    80,
    160,
    250,
    350,
    450,
    570,
    700,
    840,
    1000,
    1170,
    1370,
    1600,
    1850,
    2150,
    2500,
    2900,
    3400,
    4000,
)
_ABOVE_NOISE_DB = 15.0
_BELOW_PEAK_DB = 40.0
_LOST_DB = 6.0


def kept_speech(before: NDArray[np.float32], after: NDArray[np.float32], rate_hz: int) -> tuple[float, float]:
    """Return the share of the speech that cleaning has removed, and the correlation of its spectra.

    DNSMOS sees neither: it rewards the absence of noise. Speech is what is clearly above the noise of its
    band and near the loudest sound; it is removed where cleaning takes more than 6 dB. The correlation is
    that of the levels of all bands in the frames with speech: a low one means that noise covered parts of
    the speech, and that cleaning has decided what they were.

    Args:
        before, after: (S,), of the same length.
    """
    found, kept = _band_levels(before, rate_hz), _band_levels(after, rate_hz)  # (T, K), in dB
    noise = np.quantile(found, 0.2, axis=0)  # (K,)
    is_speech = (found > noise + _ABOVE_NOISE_DB) & (found > found.max(initial=-200) - _BELOW_PEAK_DB)
    if not is_speech.any():
        return 1.0, 0.0
    frames = is_speech.any(axis=1)
    levels, changed = found[frames].ravel(), kept[frames].clip(found[frames].min()).ravel()
    lost = float(((found - kept)[is_speech] > _LOST_DB).mean())
    return lost, float(np.corrcoef(levels, changed)[0, 1]) if np.ptp(changed) else 0.0


def _band_levels(samples: NDArray[np.float32], rate_hz: int) -> NDArray[np.float64]:
    """Return the level of each band in frames of 32 ms, every 16 ms, in dB: (T, K)."""
    size = int(0.032 * rate_hz)
    padded = np.pad(samples, (0, max(0, size - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[:: size // 2] * np.hanning(size)
    power = np.abs(np.fft.rfft(frames)) ** 2
    edges = [round(hz * 0.032) for hz in _BANDS_HZ if hz <= rate_hz / 2]
    levels: NDArray[np.float64] = 10 * np.log10(np.add.reduceat(power, edges, axis=1)[:, :-1] + 1e-9)
    return levels


def without_hum(samples: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32] | None:
    """Return a recording (S,) without the hum of the mains; None if it has none."""
    from scipy import signal  # imported here because it takes seconds

    hz, power = signal.welch(samples, rate_hz, nperseg=min(rate_hz, len(samples)), average="median")
    level = 10 * np.log10(power + 1e-20)
    lines: list[int] = []
    for mains_hz in (50, 60):
        multiples = [line for line in range(mains_hz, _MAX_HUM_HZ + 1, mains_hz) if line < rate_hz / 2.1]
        found = [line for line in multiples if _stands_out(level, hz, line)]
        if len(found) >= _MIN_LINES and found[0] <= 2 * mains_hz:  # not the multiples of a note
            lines = max(lines, found, key=len)
    if not lines:
        return None
    cleaned = samples.astype(np.float64)
    for line in lines:
        cleaned = signal.filtfilt(*signal.iirnotch(line, line / _NOTCH_HZ, rate_hz), cleaned)
    return cleaned.astype(np.float32)


def _stands_out(level: NDArray[np.float64], hz: NDArray[np.float64], line: int) -> bool:
    distance = np.abs(hz - line)
    around = level[(distance >= 4) & (distance <= 20)]
    return bool(level[distance < 2].max() > np.median(around) + _HUM_DB)


def without_noise(samples: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    """Return a recording (S,) without steady and other noise, of the same length."""
    from pyrnnoise.rnnoise import FRAME_SIZE, create, destroy, process_mono_frame

    peak = float(np.abs(samples).max(initial=0.0))
    if not peak:
        return samples
    gain = _NOISE_PEAK / peak
    resampled = soxr.resample(samples * np.float32(gain), rate_hz, _NOISE_RATE_HZ)
    num_frames = -(-(len(resampled) + _NOISE_DELAY) // FRAME_SIZE)
    padded = np.pad(resampled, (0, num_frames * FRAME_SIZE - len(resampled)))
    frames = np.round(padded * 32767).clip(-32768, 32767).astype(np.int16).reshape(num_frames, FRAME_SIZE)
    state = create()
    try:
        cleaned = np.concatenate([process_mono_frame(state, frame)[0] for frame in frames])
    finally:
        destroy(state)
    heard = cleaned[_NOISE_DELAY : _NOISE_DELAY + len(resampled)].astype(np.float32) / 32767 / gain
    return _fitted(soxr.resample(heard, _NOISE_RATE_HZ, rate_hz), len(samples))


class VoiceSeparator:
    """A model of Demucs that separates the voice.

    Args:
        model: name on the hub, such as htdemucs or USER/NAME, or a .safetensors file.

    Raises:
        UserError: the model cannot be loaded, or has no output for voices.
    """

    def __init__(self, model: str, device: "torch.device") -> None:
        self._model = _load(model)
        self._device = device
        if VOICE not in self._model.sources:
            found = ", ".join(self._model.sources)
            raise UserError(f"--model {model}: separates {found}, not {VOICE}; pass another model")

    def separate(self, samples: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
        """Return the voice of a recording (S,), of the same length."""
        import torch
        from demucs.apply import apply_model

        resampled = soxr.resample(samples, rate_hz, self._model.samplerate)
        deviation = float(resampled.std())
        if not deviation:
            return samples
        mix = torch.from_numpy((resampled - resampled.mean()) / deviation)  # (S,)
        channels = mix.expand(1, self._model.audio_channels, -1).contiguous()  # (1, C, S)
        with torch.inference_mode():
            sources = apply_model(self._model, channels, shifts=0, device=self._device)  # (1, sources, C, S)
        voice = sources[0, self._model.sources.index(VOICE)].mean(0).cpu().numpy() * deviation
        return _fitted(soxr.resample(voice, self._model.samplerate, rate_hz), len(samples))


def _load(model: str) -> Any:
    from demucs.hf import get_hf_model, load_safetensors_model

    try:
        loaded = load_safetensors_model(model) if Path(model).is_file() else get_hf_model(model)
    except Exception as error:  # noqa: BLE001 - whatever a wrong file or the hub leads to
        reason = " ".join(str(error).split())
        raise UserError(
            f"--model {model}: cannot be loaded ({reason[:200]}); pass a model of Demucs, such as htdemucs"
        ) from None
    return loaded.eval()


def _fitted(samples: NDArray[np.floating], num_samples: int) -> NDArray[np.float32]:
    padded = np.pad(samples, (0, max(0, num_samples - len(samples))))
    fitted: NDArray[np.float32] = padded[:num_samples].astype(np.float32)
    return fitted
