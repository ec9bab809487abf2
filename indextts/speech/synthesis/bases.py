"""From codes to the content of the mel spectrogram, as the published models differ.

Axes: T speech features (50 per second), M codes, H width of a feature, D width of the GPT.

    base    prompt from a recording           content from codes                        mel frames
    2.0     embeddings of its codes (T, H)    embeddings + gpt_layer(states) (M, H)     1.72 M
    2.5     its features (T, H)               decoded codes (2M, H)                     1.72 * 2M * factor
"""

from dataclasses import dataclass

from torch import Tensor

from indextts.commands.bases import BASE_2_0, BASE_2_5, Base
from indextts.features.bases import HalvingCodec
from indextts.features.semantic_codec import SemanticCodec
from indextts.speech.synthesis.s2mel import S2Mel, target_frames

FRAMES_PER_FEATURE = 1.72  # as published, although 22050 / 256 / 50 is 1.7227


@dataclass(frozen=True)
class EmbeddingPath:
    """IndexTTS-2.0: embeddings of the codes with the GPT's states; a duration factor is not used."""

    codec: SemanticCodec
    s2mel: S2Mel
    base: Base = BASE_2_0

    def prompt_content(self, features: Tensor) -> Tensor:
        """Return the content of a recording from its features (T, H): (1, T, H)."""
        return self.codec.embed(self.codec.quantize(features[None]))

    def content(self, codes: Tensor, states: Tensor) -> Tensor:
        """Return the content of codes (M,) with the GPT's states (M, D): (1, M, H)."""
        return self.s2mel.content(self.codec.embed(codes)[None], states[None])

    def num_frames(self, num_codes: int, duration_factor: float) -> int:
        """Return the number of mel frames of codes."""
        return target_frames(num_codes)


@dataclass(frozen=True)
class DecodingPath:
    """IndexTTS-2.5: features decoded from the codes; the GPT's states are not used."""

    codec: SemanticCodec
    base: Base = BASE_2_5

    def prompt_content(self, features: Tensor) -> Tensor:
        return features[None]

    def content(self, codes: Tensor, states: Tensor) -> Tensor:
        return self.codec.decode(self.codec.embed(codes)[None])

    def num_frames(self, num_codes: int, duration_factor: float) -> int:
        # in this order, so that every length is that of the published code
        return int(2 * num_codes * FRAMES_PER_FEATURE * duration_factor)


AcousticPath = EmbeddingPath | DecodingPath


def acoustic_path(codec: SemanticCodec, s2mel: S2Mel) -> AcousticPath:
    """Return the path of the base that the codec belongs to."""
    return DecodingPath(codec) if isinstance(codec, HalvingCodec) else EmbeddingPath(codec, s2mel)
