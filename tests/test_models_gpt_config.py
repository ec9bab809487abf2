from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from indextts.errors import UserError
from indextts.models.gpt.config import (
    ConditionModuleConfig,
    GPTConfig,
    config_with_text_tokens,
    load_config,
    speech_backend,
)
from tests.tiny_gpt import TINY

MODULE = {
    "output_size": 8,
    "linear_units": 16,
    "attention_heads": 2,
    "num_blocks": 1,
    "input_layer": "conv2d2",
    "perceiver_mult": 2,
}
GPT = {
    "model_dim": 16,
    "max_mel_tokens": 30,
    "max_text_tokens": 20,
    "heads": 2,
    "use_mel_codes_as_input": True,
    "mel_length_compression": 1024,
    "layers": 2,
    "number_text_tokens": 12,
    "number_mel_codes": 10,
    "start_mel_token": 8,
    "stop_mel_token": 9,
    "start_text_token": 0,
    "stop_text_token": 1,
    "train_solo_embeddings": False,
    "condition_type": "conformer_perceiver",
    "condition_module": MODULE,
    "emo_condition_module": {**MODULE, "perceiver_mult": 0.5},
}


def write_config(folder: Path, **changes: object) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"version": 2.0, "gpt": {**GPT, **changes}}))
    return path


def test_a_published_form_file_is_read_and_its_other_keys_are_ignored(tmp_path):
    module = ConditionModuleConfig(**MODULE)
    defaults = {name: getattr(GPTConfig, name) for name in ("feature_dim", "emo_perceiver_dim", "pe_length")}
    expected = replace(TINY, condition_module=module, num_latents=GPTConfig.num_latents, **defaults)
    emotion = replace(module, perceiver_mult=0.5)
    assert load_config(write_config(tmp_path)) == replace(expected, emo_condition_module=emotion)


def test_another_tokenizer_changes_the_text_rows_only(tmp_path):
    config = load_config(write_config(tmp_path))
    extended = config_with_text_tokens(config, 24)
    assert extended.num_text_rows == 25
    assert replace(extended, number_text_tokens=12) == config


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"model_dim": "wide"}, 'gpt.model_dim is "wide"'),
        ({"layers": True}, "gpt.layers is true"),
        ({"layers": 0}, "gpt.layers is 0"),
        ({"model_dim": 17}, "model_dim 17"),
        ({"heads": 0}, "gpt.heads is 0"),
        ({"stop_mel_token": 10}, "stop_mel_token is 10"),
        ({"stop_text_token": 0}, "start_text_token and stop_text_token"),
        ({"condition_type": "perceiver"}, "gpt.condition_type is 'perceiver'"),
        ({"train_solo_embeddings": True}, "gpt.train_solo_embeddings is True"),
        ({"condition_module": 3}, "gpt.condition_module is 3"),
        ({"condition_module": {**MODULE, "input_layer": "linear"}}, 'input_layer is "linear"'),
        ({"condition_module": {**MODULE, "attention_heads": 3}}, "gpt.condition_module: output_size 8"),
        ({"emo_condition_module": {**MODULE, "perceiver_mult": float("nan")}}, "perceiver_mult is nan"),
        ({"emo_condition_module": {**MODULE, "output_size": 7, "attention_heads": 1}}, "output_size is 7"),
        ({"dropout": 1}, "gpt.dropout is 1"),
        ({"conv_kernel_size": 4}, "conv_kernel_size is 4"),
        ({"feature_dim": 2}, "gpt.feature_dim is 2"),
    ],
)
def test_an_impossible_value_is_named_in_one_line(tmp_path, changes, what):
    path = write_config(tmp_path, **changes)
    with pytest.raises(UserError) as caught:
        load_config(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert what in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("asked", "sizes", "expected"),
    [
        ("auto", (24, 1280), "indextts2"),
        ("auto", (2, 8), "builtin"),
        ("builtin", (24, 1280), "builtin"),
        ("indextts2", (2, 8), "indextts2"),
    ],
)
def test_the_speech_backend_follows_from_the_size_of_the_base(
    tmp_path: Path, asked: str, sizes: tuple[int, int], expected: str
):
    path = write_config(tmp_path, layers=sizes[0], model_dim=sizes[1])
    assert speech_backend(asked, path) == expected


def test_all_missing_keys_are_named(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"gpt": {key: GPT[key] for key in GPT if key not in ("heads", "layers")}}))
    with pytest.raises(UserError, match=r"gpt\.layers: .*; gpt\.heads: "):
        load_config(path)
