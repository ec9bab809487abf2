"""Speech backend of the published weights: w2v-BERT 2.0 and the semantic codec.

Axes: S samples at 24 kHz, T feature vectors (50 per second), F their width.

    24 kHz samples (S,) -> 16 kHz -> w2v-BERT 2.0, 17 layers, normalised (T, F) -> semantic codec: codes (T,)

The input rate is 24 kHz because the published training resampled through it. T is the clip's true length: an
unpaired log-mel frame at the end is dropped (log_mel.py).

Importing this module imports `transformers`, which takes seconds: import it only where this backend is used.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from indextts.commands.bases import OFFICIAL_CACHE, base_of_codec_file
from indextts.errors import UserError
from indextts.features import log_mel, speech_encoder
from indextts.features.backend import to_device
from indextts.features.published_files import files_of, find_published
from indextts.features.semantic_codec import SemanticCodec, load_codec, load_codec_config
from indextts.features.speech_encoder import SpeechEncoder, load_speech_encoder
from indextts.features.split_products import split_linear_layers

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1  # raise it when the computation from samples to codes changes


class IndexTTS2Backend:
    """Encoder and codec on one device; no method waits for the GPU.

    Args:
        dtype: of the encoder's matrix products; the codec always computes in float32.
        precision: of the encoder's products in float32.
    """

    def __init__(
        self,
        encoder: SpeechEncoder,
        codec: SemanticCodec,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        precision: str = "float32",
    ) -> None:
        self.identity = _identity(encoder, codec) + ("" if precision == "float32" else f" in {precision}")
        self.uses_tf32 = precision == "tf32"
        if precision == "split":
            split_linear_layers(encoder)
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
        results = [torch.zeros(0, self.feature_dim, device=self.device) for _ in prepared]
        not_empty = [index for index, clip in enumerate(prepared) if len(clip)]
        if not_empty:
            autocast = torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)
            with torch.inference_mode(), autocast, _tf32(self.uses_tf32):
                features = self.encoder([torch.from_numpy(prepared[index]) for index in not_empty])
            for index, rows in zip(not_empty, features, strict=True):
                results[index] = rows.float()
        return results

    def codes_of_batch(self, features: Sequence[Tensor]) -> list[Tensor]:
        """Return the codes of features (T, F) of any lengths: (T,) each."""
        lengths = [len(rows) for rows in features]
        padded = pad_sequence(list(features), batch_first=True).to(self.device)  # (B, T, F)
        if padded.shape[1] == 0:
            return [torch.zeros(0, dtype=torch.long, device=self.device) for _ in features]
        with torch.inference_mode():
            codes = self.codec.quantize(padded, to_device(torch.tensor(lengths), self.device))
        num_codes = self.codec.num_codes(torch.tensor(lengths)).tolist()
        return [row[:number] for row, number in zip(codes, num_codes, strict=True)]


@contextmanager
def _tf32(is_on: bool) -> Iterator[None]:
    """Allow TensorFloat-32 for float32 products and convolutions; outside, `reproducible_math` forbids it."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    if is_on:
        products.allow_tf32 = convolutions.allow_tf32 = True
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


def load(
    config: Path,
    speech_encoder_folder: Path,
    codec: Path,
    stats: Path,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    precision: str = "float32",
) -> IndexTTS2Backend:
    """Return the backend with the weights in these files.

    Args:
        config: the published config.yaml, with the codec's sizes.
        speech_encoder_folder: the folder of w2v-BERT 2.0.
        dtype, precision: as in `IndexTTS2Backend`.

    Raises:
        UserError: a file is missing, cannot be read, or does not match the other files.
    """
    codec_config = load_codec_config(config)
    encoder = load_speech_encoder(speech_encoder_folder, stats)
    if codec_config.hidden_size != encoder.feature_dim:
        raise UserError(
            f"{config}: semantic_codec.hidden_size is {codec_config.hidden_size}, the speech encoder in "
            f"{speech_encoder_folder} has {encoder.feature_dim}; use the files that were published together"
        )
    return IndexTTS2Backend(encoder, load_codec(codec_config, codec), device, dtype, precision)


def find_files(folder: Path, codec: Path, stats: Path, *, look_in_cache: bool) -> Path:
    """Return the folder of the speech encoder, after checking that every file exists.

    Args:
        folder: the expected folder of the speech encoder; hf_cache/ beside it is searched too.
        look_in_cache: whether to fall back to the Hugging Face cache if `folder` does not exist.

    Raises:
        UserError: files are missing; the message lists them all, with their sources and destinations.
    """
    missing = []
    if not folder.exists():
        repository = speech_encoder.HUB_NAME if look_in_cache else ""
        folder = find_published(folder / speech_encoder.FILES[-1], repository).parent
        if folder.exists() and OFFICIAL_CACHE not in folder.parts:
            logger.info("Using the speech encoder in the Hugging Face cache: %s", folder)
    absent = [name for name in speech_encoder.FILES if not (folder / name).is_file()]
    if absent:
        cache = ", or into the Hugging Face cache" if look_in_cache else ""
        missing.append(
            f"--speech-encoder {folder}: {', '.join(absent)} missing, download from "
            f"{speech_encoder.HUB_NAME} into this folder{cache}"
        )
    base = base_of_codec_file(codec)
    published = {file.place: file for file in files_of(base)}
    for flag, path, place in (
        ("--semantic-codec", codec, base.codec_file),
        ("--stats", stats, "wav2vec2bert_stats.pt"),
    ):
        if not path.is_file():
            missing.append(
                f"{flag} {path}: the file does not exist, download {published[place].name} of "
                f"{published[place].repository} to this path"
            )
    if missing:
        raise UserError(f"{'; '.join(missing)}; or run tools/download_checkpoints.py to download all files")
    return folder


def _identity(encoder: SpeechEncoder, codec: SemanticCodec) -> str:
    """Return the hex sha256 of everything that features and codes depend on, which excludes decoding."""
    digest = hashlib.sha256(f"indextts2 {FORMAT_VERSION} {codec.config} {encoder.identity()}".encode())
    for name, tensor in sorted(codec.state_dict().items()):
        if not name.startswith(("decoder.", "up.")):
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(tensor.cpu().contiguous().numpy())
    return digest.hexdigest()
