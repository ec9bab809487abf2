"""The speech encoder and codec that belong to the published weights, as one backend.

Axes: S samples at 24 kHz, T feature vectors (50 per second), F their width.

    24 kHz samples (S,) -> 16 kHz -> w2v-BERT 2.0, 17 layers, normalised (T, F) -> semantic codec: codes (T,)

Through 24 kHz, because the published training did so. T is the clip's true length: half a pair of log-mel
frames at the end is not used (log_mel.py).

Importing this module imports `transformers`, which takes seconds: import it where this backend was chosen.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from indextts.errors import UserError
from indextts.features import log_mel, speech_encoder
from indextts.features.backend import to_device
from indextts.features.semantic_codec import SemanticCodec, load_codec, load_codec_config
from indextts.features.speech_encoder import SpeechEncoder, cached_folder, load_speech_encoder

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1  # to be raised when the way from samples to codes changes


class IndexTTS2Backend:
    """Encoder and codec with their weights, on one device; nothing waits for a card.

    Args:
        encoder, codec: with their weights.
        device: where they compute.
        dtype: of the encoder's products; the codec always computes in float32.
    """

    def __init__(
        self,
        encoder: SpeechEncoder,
        codec: SemanticCodec,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.identity = _identity(encoder, codec)
        self.encoder = encoder.to(device)
        self.codec = codec.to(device)
        self.device = device
        self.dtype = dtype

    @property
    def num_codes(self) -> int:
        return self.codec.config.codebook_size

    @property
    def feature_dim(self) -> int:
        return self.encoder.feature_dim

    @property
    def prepare(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        return log_mel.prepare

    def features(self, audio: NDArray[np.float32]) -> Tensor:
        """Return the normalised features of one clip (S,), on the backend's device: (T, F)."""
        return self.features_of_batch([self.prepare(audio)])[0]

    def codes(self, features: Tensor) -> Tensor:
        """Return the codes of one clip's features (T, F): (T,)."""
        return self.codes_of_batch([features])[0]

    def features_of_batch(self, prepared: Sequence[NDArray[np.float32]]) -> list[Tensor]:
        """Return the features of prepared clips (T, W) of any lengths: (T, F) each."""
        found = [torch.zeros(0, self.feature_dim, device=self.device) for _ in prepared]
        heard = [number for number, clip in enumerate(prepared) if len(clip)]
        if heard:
            products = torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)
            with torch.inference_mode(), products:
                features = self.encoder([torch.from_numpy(prepared[number]) for number in heard])
            for number, rows in zip(heard, features, strict=True):
                found[number] = rows.float()
        return found

    def codes_of_batch(self, features: Sequence[Tensor]) -> list[Tensor]:
        """Return the codes of features (T, F) of any lengths: (T,) each."""
        lengths = [len(rows) for rows in features]
        padded = pad_sequence(list(features), batch_first=True).to(self.device)  # (B, T, F)
        if padded.shape[1] == 0:
            return [torch.zeros(0, dtype=torch.long, device=self.device) for _ in features]
        with torch.inference_mode():
            codes = self.codec.quantize(padded, to_device(torch.tensor(lengths), self.device)).codes
        return [row[:length] for row, length in zip(codes, lengths, strict=True)]


def load(
    config: Path,
    speech_encoder_folder: Path,
    codec: Path,
    stats: Path,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> IndexTTS2Backend:
    """Return the backend with the weights in these files.

    Args:
        config: the published config.yaml, with the codec's sizes.
        speech_encoder_folder: of w2v-BERT 2.0.
        codec: semantic_codec/model.safetensors.
        stats: wav2vec2bert_stats.pt.
        device: where it computes.
        dtype: of the speech encoder's products.

    Raises:
        UserError: a file is missing, cannot be read, or does not belong to the others.
    """
    codec_config = load_codec_config(config)
    encoder = load_speech_encoder(speech_encoder_folder, stats)
    if codec_config.hidden_size != encoder.feature_dim:
        raise UserError(
            f"{config}: semantic_codec.hidden_size is {codec_config.hidden_size}, the speech encoder in "
            f"{speech_encoder_folder} makes {encoder.feature_dim}; use the files that were published together"
        )
    return IndexTTS2Backend(encoder, load_codec(codec_config, codec), device, dtype)


def find_files(folder: Path, codec: Path, stats: Path, *, look_in_cache: bool) -> Path:
    """Return the folder of the speech encoder, after looking that every file is there.

    Args:
        folder: where the speech encoder should be.
        codec: the semantic codec's file.
        stats: the statistics' file.
        look_in_cache: whether the hub's cache will do if there is no `folder`.

    Raises:
        UserError: with all that is missing, what to download, and where to put it.
    """
    missing = []
    if not folder.exists() and look_in_cache:
        found = cached_folder()
        if found:
            logger.info("The speech encoder is that of the hub's cache, %s", found)
            folder = found
    absent = [name for name in speech_encoder.FILES if not (folder / name).is_file()]
    if absent:
        cache = ", or into the hub's cache" if look_in_cache else ""
        missing.append(
            f"--speech-encoder {folder} lacks {', '.join(absent)}: download them from "
            f"{speech_encoder.HUB_NAME} into this folder{cache}"
        )
    if not codec.is_file():
        missing.append(
            f"--semantic-codec {codec} is absent: download semantic_codec/model.safetensors of "
            "amphion/MaskGCT and put it there"
        )
    if not stats.is_file():
        missing.append(
            f"--stats {stats} is absent: download wav2vec2bert_stats.pt of IndexTeam/IndexTTS-2 "
            "and put it there"
        )
    if missing:
        raise UserError(f"{'; '.join(missing)}; or let tools/download_checkpoints.py fetch them")
    return folder


def _identity(encoder: SpeechEncoder, codec: SemanticCodec) -> str:
    """Return the sha256, in hex, over all that features and codes depend on; the decoder makes neither."""
    digest = hashlib.sha256(f"indextts2 {FORMAT_VERSION} {codec.config} {encoder.identity()}".encode())
    for name, tensor in sorted(codec.state_dict().items()):
        if not name.startswith("decoder."):
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(tensor.cpu().contiguous().numpy())
    return digest.hexdigest()
