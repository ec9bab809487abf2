"""Sizes of the IndexTTS2 GPT, read from the `gpt` section of a published-form `config.yaml`.

    gpt:
      model_dim: 1280              heads, layers, max_mel_tokens, max_text_tokens, number_text_tokens,
      number_mel_codes: 8194       start_mel_token, stop_mel_token, start_text_token, stop_text_token
      condition_type: conformer_perceiver
      condition_module:     {output_size: 512, linear_units: 2048, attention_heads: 8, num_blocks: 6,
                             input_layer: conv2d2, perceiver_mult: 2}
      emo_condition_module: {the same keys}

Other keys and sections of the published file are ignored. Widths that the published code hard-codes are
fields with a default; the file of a smaller model may set them under the field's name.

The file does not say which base it belongs to (`indextts.commands.bases`): `config_for` asks the weights.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, Strict

from indextts.commands.bases import BASE_2_0, BASES, Base, base_of
from indextts.errors import UserError
from indextts.system.yaml_files import checked, read_section
from indextts.text.tokenizer import Tokenizer

ADVICE = "use the config.yaml that was published with the checkpoint"

PUBLISHED_SHAPE = (24, 1280)  # layers, width

Count = Annotated[int, Strict(), Field(ge=1)]
Token = Annotated[int, Strict()]
Number = Annotated[int, Strict()] | Annotated[float, Strict()]  # a whole one stays one in a checkpoint

# Keys of the published file that select variants of the model; only these values are implemented.
ONLY_VALUES: dict[str, object] = {
    "condition_type": "conformer_perceiver",
    "use_mel_codes_as_input": True,
    "train_solo_embeddings": False,
}


@dataclass(frozen=True)
class ConditionModuleConfig:
    """Sizes of one conformer and its perceiver."""

    output_size: Count
    linear_units: Count
    attention_heads: Count
    num_blocks: Count
    input_layer: Literal["conv2d2"]
    perceiver_mult: Number

    def __post_init__(self) -> None:
        if self.output_size % self.attention_heads:
            raise ValueError(
                f"output_size {self.output_size} is not a multiple of attention_heads {self.attention_heads}"
            )
        if self.output_size % 2:
            raise ValueError(f"output_size is {self.output_size}, it must be even")


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of the model; the published code hard-codes the fields with a default."""

    model_dim: Count
    layers: Count
    heads: Count
    max_mel_tokens: Count
    max_text_tokens: Count
    number_text_tokens: Count
    number_mel_codes: Count
    start_mel_token: Token
    stop_mel_token: Token
    start_text_token: Token
    stop_text_token: Token
    condition_module: ConditionModuleConfig
    emo_condition_module: ConditionModuleConfig
    feature_dim: Annotated[int, Strict(), Field(ge=3)] = 1024
    emo_perceiver_dim: Count = 1024
    num_latents: Count = 32
    perceiver_head_dim: Count = 64
    perceiver_depth: Count = 2
    conv_kernel_size: Count = 15
    pe_length: Count = 5000
    dropout: Annotated[Number, Field(ge=0, lt=1)] = 0.1
    base: str = BASE_2_0.name
    style_dim: Count = 192
    num_language_rows: Count = 107

    def __post_init__(self) -> None:
        problems = "; ".join(_problems(self))
        if problems:
            raise ValueError(problems)

    @property
    def of_base(self) -> Base:
        """The published model that this model has the parts of."""
        return BASES[self.base]

    @property
    def condition_shape(self) -> tuple[int, int]:
        """Shape of a speaker condition."""
        return (1, self.style_dim) if self.of_base.reads_style else (self.num_latents, self.model_dim)

    @property
    def num_text_rows(self) -> int:
        """Rows of the text embedding and the text head: one more than tokens."""
        return self.number_text_tokens + 1

    @property
    def num_text_positions(self) -> int:
        """Rows of the text position table: the longest text and its start and stop token."""
        return self.max_text_tokens + 2

    @property
    def num_mel_positions(self) -> int:
        """Rows of the code position table: the longest code sequence, start, stop, and one spare."""
        return self.max_mel_tokens + 3

    @property
    def prefix_length(self) -> int:
        """Sequence positions before the text: those of the speaker condition, and two rows."""
        return self.condition_shape[0] + 2


def load_config(path: Path) -> GPTConfig:
    """Read the `gpt` section of a config.yaml.

    Raises:
        UserError: the file cannot be read, a key is missing or has the wrong type, or values are
            inconsistent.
    """
    return parse_config(read_section(dict, path, ADVICE, "gpt"), path)


def parse_config(section: object, path: Path) -> GPTConfig:
    """Return the sizes in a `gpt` section or in `asdict` of a `GPTConfig`; errors as for `load_config`."""
    config = checked(GPTConfig, section, path, ADVICE, "gpt")
    assert isinstance(section, dict)
    for key, value in ONLY_VALUES.items():
        if section.get(key, value) != value:
            raise UserError(
                f"{path}: gpt.{key} is {section[key]!r}, but only {value!r} is supported; {ADVICE}"
            )
    return config


def speech_backend(asked: str, path: Path) -> str:
    """Return the asked speech backend, or for "auto" the one that fits the size in a config.yaml.

    Errors as for `load_config`.
    """
    if asked != "auto":
        return asked
    config = load_config(path)
    return "indextts2" if (config.layers, config.model_dim) == PUBLISHED_SHAPE else "builtin"


def config_with_text_tokens(config: GPTConfig, num_text_tokens: int) -> GPTConfig:
    """Return the config of the same model for a tokenizer of `num_text_tokens` pieces."""
    return replace(config, number_text_tokens=num_text_tokens)


def load_config_of(path: Path, tokenizer: Tokenizer) -> GPTConfig:
    """Return the sizes in a config.yaml for the base of a tokenizer; errors as for `load_config`.

    Weights of another base do not fit, and are refused when they are read.
    """
    return replace(load_config(path), base=tokenizer.base.name)


def config_for(config: GPTConfig, weight_names: Iterable[str]) -> GPTConfig:
    """Return the config of the same sizes for the base that has the weights."""
    return replace(config, base=base_of(weight_names).name)


def _problems(config: GPTConfig) -> Iterator[str]:
    """Yield the inconsistencies between the values, one clause each."""
    if config.model_dim % config.heads:
        yield f"model_dim {config.model_dim} is not a multiple of heads {config.heads}"
    if config.conv_kernel_size % 2 == 0:
        yield f"conv_kernel_size is {config.conv_kernel_size}, it must be odd"
    if config.base not in BASES:
        yield f"base is {config.base!r}, it must be one of {', '.join(BASES)}"
    yield from _token_problems("text", config.start_text_token, config.stop_text_token, config.num_text_rows)
    yield from _token_problems("mel", config.start_mel_token, config.stop_mel_token, config.number_mel_codes)
    for name, module, width in (
        ("condition_module", config.condition_module, config.model_dim),
        ("emo_condition_module", config.emo_condition_module, config.emo_perceiver_dim),
    ):
        if not 1 <= width * module.perceiver_mult * 2 / 3 < math.inf:
            yield f"{name}.perceiver_mult is {module.perceiver_mult}, invalid for width {width}"


def _token_problems(kind: str, start: int, stop: int, num_rows: int) -> Iterator[str]:
    for name, token in (("start", start), ("stop", stop)):
        if not 0 <= token < num_rows:
            yield f"{name}_{kind}_token is {token}, it must be from 0 to {num_rows - 1}"
    if start == stop:
        yield f"start_{kind}_token and stop_{kind}_token are both {start}"
