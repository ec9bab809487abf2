import json
import re

import pytest
import torch

from benchmarks import speech_models as published
from indextts.errors import UserError
from indextts.features import speech_encoder
from indextts.features.campplus import CAMPPlus, CAMPPlusConfig, load_campplus
from indextts.speech.synthesis import acoustic_weights
from indextts.speech.synthesis.bigvgan import BigVGAN
from indextts.speech.synthesis.config import S2MelConfig
from indextts.speech.synthesis.s2mel import S2Mel
from tests.acoustic_files import BIGVGAN, S2MEL, STYLE_DIM, write_acoustic_files, write_s2mel
from tests.published_files import GPT

CPU = torch.device("cpu")
WIDTH = GPT["model_dim"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_acoustic_files(tmp_path_factory.mktemp("checkpoints"))


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("s2mel_net", lambda: S2Mel(published.S2MEL, published.PUBLISHED.model_dim)),
        ("campplus", lambda: CAMPPlus(CAMPPlusConfig())),
        ("bigvgan_generator", lambda: BigVGAN(published.BIGVGAN)),
    ],
)
def test_names_shapes_and_types_are_the_published_ones(shared, name, build):
    listed = json.loads((shared / f"vectors/published_keys/{name}.json").read_text())
    with torch.device("meta"):
        tensors = build().state_dict()
    found = {key: [list(tensor.shape), str(tensor.dtype)] for key, tensor in tensors.items()}
    assert found == {key: [shape, f"torch.{dtype}"] for key, (shape, dtype) in listed.items()}


def test_weights_load_as_saved(folder):
    model = acoustic_weights.load_s2mel(folder / "s2mel.pth", S2MelConfig.model_validate(S2MEL), WIDTH, CPU)
    saved = torch.load(folder / "s2mel.pth", weights_only=True)["net"]
    for name, tensor in model.state_dict().items():
        part, rest = name.split(".", 1)
        wanted = saved[part].get(rest, saved[part].get(f"module.{rest}"))
        torch.testing.assert_close(tensor, wanted, rtol=0, atol=0)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_half_precision_weights_are_computed_in_single_precision(folder, tmp_path):
    content = torch.load(folder / "campplus/campplus_cn_common.bin", weights_only=True)
    halves = {name: t.half() if t.is_floating_point() else t for name, t in content.items()}
    torch.save(halves, tmp_path / "c.bin")
    state = load_campplus(tmp_path / "c.bin", STYLE_DIM, CPU).state_dict()
    assert {tensor.dtype for tensor in state.values()} == {torch.float32, torch.int64}


def test_every_missing_unexpected_and_misshapen_tensor_is_named(tmp_path):
    write_s2mel(tmp_path / "s2mel.pth")
    content = torch.load(tmp_path / "s2mel.pth", weights_only=True)
    del content["net"]["gpt_layer"]["1.bias"], content["net"]["length_regulator"]["model.0.weight"]
    content["net"]["cfm"]["extra"] = torch.zeros(1)
    content["net"]["gpt_layer"]["0.bias"] = torch.zeros(7)
    torch.save(content, tmp_path / "s2mel.pth")
    with pytest.raises(UserError) as caught:
        acoustic_weights.load_s2mel(tmp_path / "s2mel.pth", S2MelConfig.model_validate(S2MEL), WIDTH, CPU)
    message = str(caught.value)
    assert "length_regulator.model.0.weight, gpt_layer.1.bias" in message
    assert "cfm.extra" in message
    assert re.search(r"gpt_layer\.0\.bias .*\(7,\).*\(256,\)", message)
    assert message.startswith(f"{tmp_path}/s2mel.pth: ")
    assert "\n" not in message


@pytest.mark.parametrize(
    "content", [{}, {"net": {}}, {"net": {"cfm": {}, "length_regulator": {}}}, {"net": 3}]
)
def test_a_file_without_the_three_parts_is_refused_as_s2mel(tmp_path, content):
    torch.save(content, tmp_path / "s2mel.pth")
    with pytest.raises(UserError, match=r"s2mel\.pth: .*cfm, length_regulator, gpt_layer"):
        acoustic_weights.load_s2mel(tmp_path / "s2mel.pth", S2MelConfig.model_validate(S2MEL), WIDTH, CPU)


class Trap:
    def __reduce__(self):
        return print, ("this must never run",)


def test_a_file_with_code_is_refused(folder, tmp_path, capsys):
    torch.save({"generator": {"a": Trap()}}, tmp_path / "g.pt")
    with pytest.raises(UserError, match=r"g\.pt: "):
        acoustic_weights.load_bigvgan(folder / "bigvgan/config.json", tmp_path / "g.pt", CPU)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"upsample_rates": [8, 8, 2]}, "128 samples .*80 mel"),
        ({"num_mels": 100}, "256 samples .*100 mel"),
        ({"sampling_rate": 24000}, "sampling_rate: .*22050"),
        ({"activation": "snake"}, "activation: .*'snakebeta'"),
    ],
)
def test_a_vocoder_of_another_kind_is_refused(folder, tmp_path, change, what):
    (tmp_path / "config.json").write_text(json.dumps(BIGVGAN | change))
    with pytest.raises(UserError, match=rf"config\.json: .*{what}.*nvidia/bigvgan"):
        acoustic_weights.load_bigvgan(tmp_path / "config.json", folder / "bigvgan/bigvgan_generator.pt", CPU)


def test_all_missing_files_are_named_with_their_source(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError) as caught:
        acoustic_weights.find_files(tmp_path)
    for name, source in {
        "config.yaml": "IndexTeam/IndexTTS-2",
        "s2mel.pth": "IndexTeam/IndexTTS-2",
        "campplus/campplus_cn_common.bin": "funasr/campplus",
        "bigvgan/config.json": "nvidia/bigvgan_v2_22khz_80band_256x",
        "bigvgan/bigvgan_generator.pt": "nvidia/bigvgan_v2_22khz_80band_256x",
    }.items():
        assert re.search(rf"{tmp_path}/{name} [^;]*{source}(;|$)", str(caught.value))


def test_a_folder_of_2_5_asks_for_files_of_2_5_and_takes_its_own_codec(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "multilingual_zh_ja_yue_char_del.tiktoken").touch()
    with pytest.raises(UserError, match=r"s2mel\.pth [^;]*IndexTeam/IndexTTS-2\.5;"):
        acoustic_weights.find_files(tmp_path)
    files = ("wav2vec2bert_stats.pt", "codec.pth", "semantic_codec/model.safetensors")
    for name in (*files, *(f"w2v-bert-2.0/{name}" for name in speech_encoder.FILES)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert acoustic_weights.find_backend(tmp_path)[1] == tmp_path / "codec.pth"


def test_files_in_the_folder_are_found(folder):
    assert all(path.is_relative_to(folder) for path in vars(acoustic_weights.find_files(folder)).values())
