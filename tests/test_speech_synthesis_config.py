import copy

import pytest
import yaml

from indextts.errors import UserError
from indextts.features.semantic_codec import load_codec_config
from indextts.models.gpt.config import load_config
from indextts.speech.synthesis.config import load_acoustic_config, load_bigvgan_config
from tests.acoustic_files import EMO_NUM, S2MEL


def changed(path: str, value: object) -> dict:
    document = copy.deepcopy({"s2mel": S2MEL, "emo_num": EMO_NUM})
    *folders, name = path.split(".")
    section = document
    for folder in folders:
        section = section.setdefault(folder, {})
    section[name] = value
    return document


def write(path, document):
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_published_file_is_read(tmp_path):
    text = """
version: 2.0
s2mel:
  preprocess_params:
    sr: 22050
    spect_params: {n_fft: 1024, win_length: 1024, hop_length: 256, n_mels: 80, fmin: 0, fmax: "None"}
  dit_type: DiT
  reg_loss_type: l1
  style_encoder: {dim: 192}
  length_regulator: {channels: 512, is_discrete: false, in_channels: 1024, content_codebook_size: 2048,
    sampling_ratios: [1, 1, 1, 1], vector_quantize: false, n_codebooks: 1, quantizer_dropout: 0.0,
    f0_condition: false, n_f0_bins: 512}
  DiT: {hidden_dim: 512, num_heads: 8, depth: 13, class_dropout_prob: 0.1, block_size: 8192, in_channels: 80,
    style_condition: true, final_layer_type: 'wavenet', target: 'mel', content_dim: 512,
    content_codebook_size: 1024, content_type: 'discrete', f0_condition: false, n_f0_bins: 512,
    content_codebooks: 1, is_causal: false, long_skip_connection: true, zero_prompt_speech_token: false,
    time_as_token: false, style_as_token: false, uvit_skip_connection: true,
    add_resblock_in_transformer: false}
  wavenet: {hidden_dim: 512, num_layers: 8, kernel_size: 5, dilation_rate: 1, p_dropout: 0.2,
    style_condition: true}
emo_num: [3, 17, 2, 8, 4, 5, 10, 24]
"""
    (tmp_path / "config.yaml").write_text(text)
    config = load_acoustic_config(tmp_path / "config.yaml")
    assert config.s2mel.DiT.depth == 13
    assert config.s2mel.wavenet.kernel_size == 5
    assert len(config.s2mel.length_regulator.sampling_ratios) == 4
    assert sum(config.emo_num) == 73


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        ("s2mel.DiT.depth", 0, r"s2mel\.DiT\.depth is 0, "),
        ("s2mel.DiT.is_causal", True, r"s2mel\.DiT\.is_causal is true, "),
        ("s2mel.DiT.num_heads", 5, r"hidden_dim 32 .*num_heads 5"),
        ("s2mel.wavenet.hidden_dim", 64, r"wavenet\.hidden_dim is 64, DiT\.hidden_dim 32"),
        ("s2mel.length_regulator.channels", 8, r"length_regulator\.channels is 8, DiT\.content_dim 16"),
        ("s2mel.length_regulator.is_discrete", True, r"s2mel\.length_regulator\.is_discrete is true, "),
        ("s2mel.preprocess_params.sr", 24000, r"s2mel\.preprocess_params\.sr is 24000, .*22050"),
        ("s2mel.preprocess_params.spect_params.fmax", 8000, r"spect_params\.fmax"),
        ("emo_num", [3, 0], r"emo_num\.1 is 0, "),
    ],
)
def test_a_value_of_another_model_is_named(tmp_path, path, value, what):
    with pytest.raises(UserError, match=what) as caught:
        load_acoustic_config(write(tmp_path / "config.yaml", changed(path, value)))
    assert str(caught.value).startswith(f"{tmp_path}/config.yaml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [None, b"", b"[1, 2]", b"a: [\x00", b"{", b"a: 2024-99-99", b"a: " + b"[" * 5000]
)
def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path, content):
    readers = (load_acoustic_config, load_config, load_codec_config)
    for name, read in (*(("config.yaml", read) for read in readers), ("config.json", load_bigvgan_config)):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=rf"{name}: ") as caught:
            read(tmp_path / name)
        assert "\n" not in str(caught.value)
