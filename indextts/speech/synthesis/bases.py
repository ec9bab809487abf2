"""From codes to the content of the mel spectrogram, as the published models differ.

Axes: T speech features (50 per second), M codes, H width of a feature, D width of the GPT.

    base    prompt from a recording           content from codes                        mel frames
    2.0     embeddings of its codes (T, H)    embeddings + gpt_layer(states) (M, H)     1.72 M
    2.5     its features (T, H)               decoded codes (2M, H)                     1.72 * 2M * factor
"""

from dataclasses import dataclass

from torch import Tensor

from indextts.commands.bases import BASE_2_0, BASE_2_5, Base
from indextts.features.semantic_codec import HalvingCodec, SemanticCodec
from indextts.speech.synthesis.s2mel import S2Mel, target_frames

FRAMES_PER_FEATURE = 1.72  # as published, although 22050 / 256 / 50 is 1.7227


@dataclass(frozen=True)
class AcousticPath:
    """The way from codes to content with the codec of either base.

    IndexTTS-2.0 reads embeddings of the codes with the GPT's states, and has no duration factor. IndexTTS-2.5
    reads features decoded from the codes.
    """

    codec: SemanticCodec
    s2mel: S2Mel

    @property
    def base(self) -> Base:
        return BASE_2_5 if isinstance(self.codec, HalvingCodec) else BASE_2_0

    def prompt_content(self, features: Tensor) -> Tensor:
        """Return the content of a recording from its features (T, H): (1, T, H)."""
        if self.base.reads_states:
            return self.codec.embed(self.codec.quantize(features[None]))
        return features[None]

    def content(self, codes: Tensor, states: Tensor) -> Tensor:
        """Return the content of codes (M,) with the GPT's states (M, D): (1, M or 2M, H)."""
        embeddings = self.codec.embed(codes)[None]
        if self.base.reads_states:
            return self.s2mel.content(embeddings, states[None])
        return self.codec.decode(embeddings)

    def num_frames(self, num_codes: int, duration_factor: float) -> int:
        """Return the number of mel frames of codes."""
        if not self.base.has_duration_factor:
            return target_frames(num_codes)
        # in this order, so that every length is that of the published code
        return int(2 * num_codes * FRAMES_PER_FEATURE * duration_factor)
