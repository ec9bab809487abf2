"""Tests of indextts/features/bases.py: the codec of 25 codes per second, and the choice by weights."""

import json
from pathlib import Path

import pytest
import torch

from indextts.errors import UserError
from indextts.features.bases import HalvingCodec, load_codec
from indextts.features.semantic_codec import SemanticCodec, SemanticCodecConfig
from tests.published_files import CODEC, randomise

PUBLISHED = SemanticCodecConfig(8192, 1024, 8, 384, 2048, 12)


@pytest.fixture
def codec() -> HalvingCodec:
    codec = HalvingCodec(SemanticCodecConfig(**CODEC))
    randomise(codec, seed=0)
    return codec.requires_grad_(False).eval()


def clip(num_features: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(num_features)
    return torch.randn(num_features, CODEC["hidden_size"], generator=generator)


def test_names_and_shapes_are_the_published_ones(shared: Path):
    published = json.loads((shared / "vectors/published_keys25/codec.json").read_text())
    with torch.device("meta"):
        codec = HalvingCodec(PUBLISHED)
    built = {name: [list(t.shape), str(t.dtype)[6:]] for name, t in codec.state_dict().items()}
    assert built == published
    assert len(built) == 243
    assert sum(parameter.numel() for parameter in codec.parameters()) == 50_583_312


@pytest.mark.parametrize(("num_features", "num_codes"), [(1, 1), (2, 1), (7, 4), (8, 4)])
def test_an_odd_last_feature_gives_a_code_and_decoding_returns_two_features_a_code(
    codec: HalvingCodec, num_features: int, num_codes: int
):
    quantized = codec.quantize(clip(num_features)[None])
    assert quantized.codes.shape == (1, num_codes)
    assert codec.num_codes(torch.tensor([num_features])).tolist() == [num_codes]
    assert codec.decode(quantized.embeddings).shape == (1, 2 * num_codes, CODEC["hidden_size"])


def test_padding_does_not_change_codes_and_decoding(codec: HalvingCodec):
    lengths = torch.tensor([1, 2, 9, 40, 33])
    padded = torch.full((5, 40, CODEC["hidden_size"]), 1e3)  # any value in the padding
    for row, length in zip(padded, lengths.tolist(), strict=True):
        row[:length] = clip(length)
    together, num_codes = codec.quantize(padded, lengths), codec.num_codes(lengths)
    decoded = codec.decode(together.embeddings, num_codes)
    for row, (length, number) in enumerate(zip(lengths.tolist(), num_codes.tolist(), strict=True)):
        alone = codec.quantize(clip(length)[None])
        assert torch.equal(together.codes[row, :number], alone.codes[0])
        torch.testing.assert_close(decoded[row, : 2 * number], codec.decode(alone.embeddings)[0])


@pytest.mark.parametrize("kind", [SemanticCodec, HalvingCodec])
def test_the_weights_tell_the_codec_and_the_state_of_an_optimizer_is_left_out(
    tmp_path: Path, kind: type[SemanticCodec]
):
    saved = randomise(kind(SemanticCodecConfig(**CODEC)), seed=0)
    torch.save(
        {"model": saved.state_dict(), "optimizer": {"state": {0: torch.ones(3)}}}, tmp_path / "codec.pth"
    )
    loaded = load_codec(saved.config, tmp_path / "codec.pth")
    assert type(loaded) is kind
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    features = clip(9)[None]
    assert torch.equal(loaded.quantize(features).codes, saved.quantize(features).codes)


def test_a_codec_with_half_of_its_rate_convolutions_is_refused(codec: HalvingCodec, tmp_path: Path):
    weights = {name: tensor for name, tensor in codec.state_dict().items() if not name.startswith("up.")}
    torch.save({"model": weights}, tmp_path / "codec.pth")
    with pytest.raises(UserError, match=r"codec\.pth: 2 missing weights of \d+: up\.weight, up\.bias"):
        load_codec(codec.config, tmp_path / "codec.pth")
