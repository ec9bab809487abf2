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
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from indextts.commands.bases import BASE_2_0, BASES, Base, base_of
from indextts.errors import UserError
from indextts.system.yaml_files import parse_yaml
from indextts.text.tokenizer import Tokenizer

ADVICE = "use the config.yaml that was published with the checkpoint"

# Keys of the published file that select variants of the model; only these values are implemented.
ONLY_VALUES: dict[str, object] = {
    "condition_type": "conformer_perceiver",
    "use_mel_codes_as_input": True,
    "train_solo_embeddings": False,
}


@dataclass(frozen=True)
class ConditionModuleConfig:
    """Sizes of one conformer and its perceiver."""

    output_size: int
    linear_units: int
    attention_heads: int
    num_blocks: int
    input_layer: str
    perceiver_mult: float


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of the model; the published code hard-codes the fields with a default."""

    model_dim: int
    layers: int
    heads: int
    max_mel_tokens: int
    max_text_tokens: int
    number_text_tokens: int
    number_mel_codes: int
    start_mel_token: int
    stop_mel_token: int
    start_text_token: int
    stop_text_token: int
    condition_module: ConditionModuleConfig
    emo_condition_module: ConditionModuleConfig
    feature_dim: int = 1024
    emo_perceiver_dim: int = 1024
    num_latents: int = 32
    perceiver_head_dim: int = 64
    perceiver_depth: int = 2
    conv_kernel_size: int = 15
    pe_length: int = 5000
    dropout: float = 0.1
    base: str = BASE_2_0.name
    style_dim: int = 192
    num_language_rows: int = 107

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
    return parse_config(_read_mapping(path).get("gpt"), path)


def parse_config(section: object, path: Path) -> GPTConfig:
    """Return the sizes in a `gpt` section or in `asdict` of a `GPTConfig`; errors as for `load_config`."""
    if not isinstance(section, dict):
        raise UserError(f"{path}: no section gpt; {ADVICE}")
    for key, value in ONLY_VALUES.items():
        if section.get(key, value) != value:
            raise UserError(f"{path}: gpt.{key} is {section[key]!r}, but only {value!r} is supported")
    config = _read_section(GPTConfig, section, path, "gpt")
    problems = list(_problems(config))
    if problems:
        raise UserError(f"{path}: {'; '.join(problems)}; {ADVICE}")
    return config


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


def _read_mapping(path: Path) -> dict[str, Any]:
    try:
        document = parse_yaml(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); use the path of a config.yaml") from None
    except ValueError as error:
        raise UserError(f"{path}: is not YAML ({error}); {ADVICE}") from None
    if not isinstance(document, dict):
        raise UserError(f"{path}: has no sections; {ADVICE}")
    return document


Section = TypeVar("Section", GPTConfig, ConditionModuleConfig)


def _read_section(kind: type[Section], section: object, path: Path, name: str) -> Section:
    """Return the section as a dataclass; unknown keys are ignored."""
    if not isinstance(section, dict):
        raise UserError(f"{path}: {name} is {section!r}, it must be a mapping; {ADVICE}")
    missing = [
        f"{name}.{field.name}"
        for field in fields(kind)
        if field.default is MISSING and field.name not in section
    ]
    if missing:
        raise UserError(f"{path}: no {', '.join(missing)}; {ADVICE}")
    given = [field for field in fields(kind) if field.name in section]
    return kind(**{f.name: _read_value(f.type, section[f.name], path, f"{name}.{f.name}") for f in given})


def _read_value(kind: Any, value: object, path: Path, name: str) -> Any:
    if kind is ConditionModuleConfig:
        return _read_section(ConditionModuleConfig, value, path, name)
    expected = {int: "an integer", float: "a number", str: "a string"}
    accepted = (int, float) if kind is float else kind
    if isinstance(value, bool) or not isinstance(value, accepted):
        raise UserError(f"{path}: {name} is {value!r}, it must be {expected[kind]}; {ADVICE}")
    return value


def _problems(config: GPTConfig) -> Iterator[str]:
    """Yield the inconsistencies of the values, one clause each."""
    for field in fields(config):
        value = getattr(config, field.name)
        if field.type is int and not field.name.startswith(("start_", "stop_")) and value < 1:
            yield f"gpt.{field.name} is {value}, it must be at least 1"
    if config.heads > 0 and config.model_dim % config.heads:
        yield f"gpt.model_dim {config.model_dim} is not a multiple of gpt.heads {config.heads}"
    if config.feature_dim < 3:
        yield f"gpt.feature_dim is {config.feature_dim}, it must be at least 3"
    if config.conv_kernel_size % 2 == 0:
        yield f"gpt.conv_kernel_size is {config.conv_kernel_size}, it must be odd"
    if config.base not in BASES:
        yield f"gpt.base is {config.base!r}, it must be one of {', '.join(BASES)}"
    if not 0 <= config.dropout < 1:
        yield f"gpt.dropout is {config.dropout}, it must be at least 0 and below 1"
    yield from _token_problems("text", config.start_text_token, config.stop_text_token, config.num_text_rows)
    yield from _token_problems("mel", config.start_mel_token, config.stop_mel_token, config.number_mel_codes)
    yield from _module_problems("condition_module", config.condition_module, config.model_dim)
    yield from _module_problems("emo_condition_module", config.emo_condition_module, config.emo_perceiver_dim)


def _token_problems(kind: str, start: int, stop: int, num_rows: int) -> Iterator[str]:
    for name, token in (("start", start), ("stop", stop)):
        if not 0 <= token < num_rows:
            yield f"gpt.{name}_{kind}_token is {token}, it must be from 0 to {num_rows - 1}"
    if start == stop:
        yield f"gpt.start_{kind}_token and gpt.stop_{kind}_token are both {start}"


def _module_problems(name: str, module: ConditionModuleConfig, perceiver_dim: int) -> Iterator[str]:
    for key in ("output_size", "linear_units", "attention_heads", "num_blocks"):
        if getattr(module, key) < 1:
            yield f"gpt.{name}.{key} is {getattr(module, key)}, it must be at least 1"
    if module.attention_heads > 0 and module.output_size % module.attention_heads:
        heads = module.attention_heads
        yield f"gpt.{name}.output_size {module.output_size} is not a multiple of its attention_heads {heads}"
    if module.output_size % 2:
        yield f"gpt.{name}.output_size is {module.output_size}, it must be even"
    if module.input_layer != "conv2d2":
        yield f"gpt.{name}.input_layer is {module.input_layer!r}, only 'conv2d2' is supported"
    if not 1 <= perceiver_dim * module.perceiver_mult * 2 / 3 < math.inf:
        yield f"gpt.{name}.perceiver_mult is {module.perceiver_mult}, invalid for width {perceiver_dim}"
