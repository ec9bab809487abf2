"""Removal of noise and music from speech, with the packages of the extra clean.

    noise   RNNoise (pyrnnoise): a small recurrent network whose weights come with the package
    music   Demucs: separates the voice from instruments and other sounds; weights from the Hugging Face hub

Axes: S samples, C channels.
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
