"""Sizes of the acoustic model, from the published config.yaml and BigVGAN's config.json.

    s2mel:                       of config.yaml
      preprocess_params: {sr: 22050, spect_params: {n_fft: 1024, win_length: 1024, hop_length: 256, ...}}
      style_encoder: {dim: 192}
      length_regulator: {channels: 512, in_channels: 1024, sampling_ratios: [1, 1, 1, 1], ...}
      DiT: {hidden_dim: 512, num_heads: 8, depth: 13, in_channels: 80, content_dim: 512, ...}
      wavenet: {hidden_dim: 512, num_layers: 8, kernel_size: 5, dilation_rate: 1, ...}
    emo_num: [3, 17, 2, 8, 4, 5, 10, 24]

The names are the published ones. Keys without effect on the result are ignored, and those that select other
layers too, as no weights would fit. A value is refused that changes the result of the same weights.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from indextts.system.yaml_files import read_section

CONFIG_ADVICE = "use the config.yaml that was published with IndexTTS-2"
BIGVGAN_ADVICE = "use config.json of nvidia/bigvgan_v2_22khz_80band_256x"

Count = Annotated[int, Field(strict=True, ge=1)]


class Section(BaseModel):
    """A section with its published key names; unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class StyleEncoder(Section):
    dim: Count


class DiTSection(Section):
    """Sizes of the transformer."""

    hidden_dim: Count
    num_heads: Count
    depth: Count
    in_channels: Count
    content_dim: Count
    content_codebook_size: Count
    is_causal: Literal[False] = False
    long_skip_connection: Literal[True] = True
    zero_prompt_speech_token: Literal[False] = False
    time_as_token: Literal[False] = False

    @model_validator(mode="after")
    def heads_divide_the_width(self) -> "DiTSection":
        if self.hidden_dim % (2 * self.num_heads):
            raise ValueError(
                f"hidden_dim {self.hidden_dim} is not an even multiple of num_heads {self.num_heads}"
            )
        return self


class WaveNetSection(Section):
    """Sizes of the gated convolutions."""

    hidden_dim: Count
    num_layers: Count
    kernel_size: Count
    dilation_rate: Count


class LengthRegulatorSection(Section):
    """Sizes of the length regulator; only the number of `sampling_ratios` has an effect."""

    channels: Count
    in_channels: Count
    content_codebook_size: Count
    sampling_ratios: Annotated[tuple[Any, ...], Field(min_length=1)]
    is_discrete: Literal[False] = False


class FlowConfig(Section):
    """Sizes of the flow matching."""

    style_encoder: StyleEncoder
    DiT: DiTSection
    wavenet: WaveNetSection

    @model_validator(mode="after")
    def widths_agree(self) -> "FlowConfig":
        if self.wavenet.hidden_dim != self.DiT.hidden_dim:
            raise ValueError(
                f"wavenet.hidden_dim is {self.wavenet.hidden_dim}, DiT.hidden_dim {self.DiT.hidden_dim}; "
                "they must be equal"
            )
        return self


class SpectrumSection(Section):
    """The mel spectrogram parameters; only the published values are implemented."""

    n_fft: Literal[1024] = 1024
    win_length: Literal[1024] = 1024
    hop_length: Literal[256] = 256
    n_mels: Literal[80] = 80
    fmin: Literal[0] = 0
    fmax: Literal["None"] | None = None  # the published file contains the string "None"


class PreprocessSection(Section):
    sr: Literal[22050] = 22050
    spect_params: SpectrumSection = SpectrumSection()


class S2MelConfig(FlowConfig):
    """Sizes of the networks in s2mel.pth."""

    preprocess_params: PreprocessSection = PreprocessSection()
    length_regulator: LengthRegulatorSection

    @model_validator(mode="after")
    def condition_fits(self) -> "S2MelConfig":
        if self.length_regulator.channels != self.DiT.content_dim:
            raise ValueError(
                f"length_regulator.channels is {self.length_regulator.channels}, DiT.content_dim "
                f"{self.DiT.content_dim}; they must be equal"
            )
        if self.DiT.in_channels != self.preprocess_params.spect_params.n_mels:
            raise ValueError(f"DiT.in_channels is {self.DiT.in_channels}, spect_params.n_mels is 80")
        return self


class AcousticConfig(Section):
    """The sections of config.yaml for the acoustic model."""

    s2mel: S2MelConfig
    emo_num: Annotated[tuple[Count, ...], Field(min_length=1)]


class BigVGANConfig(Section):
    """Sizes of the vocoder."""

    num_mels: Count
    sampling_rate: Literal[22050] = 22050
    upsample_rates: tuple[Count, ...]
    upsample_kernel_sizes: tuple[Count, ...]
    upsample_initial_channel: Count
    resblock_kernel_sizes: tuple[Count, ...]
    resblock_dilation_sizes: tuple[tuple[Count, ...], ...]
    activation: Literal["snakebeta"] = "snakebeta"
    snake_logscale: Literal[True] = True
    use_tanh_at_final: Literal[False] = False


def load_acoustic_config(path: Path) -> AcousticConfig:
    """Return the sizes of the acoustic model in a config.yaml.

    Raises:
        UserError: the file cannot be read, or a value is missing or unsupported.
    """
    return read_section(AcousticConfig, path, CONFIG_ADVICE)


def load_bigvgan_config(path: Path) -> BigVGANConfig:
    """Return BigVGAN's sizes from its config.json; errors as for `load_acoustic_config`."""
    return read_section(BigVGANConfig, path, BIGVGAN_ADVICE)
