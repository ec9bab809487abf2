import json

import pytest
import torch
import yaml
from safetensors.torch import save_file

from indextts.errors import UserError
from indextts.features.semantic_codec import (
    HalvingCodec,
    SemanticCodec,
    SemanticCodecConfig,
    load_codec,
    load_codec_config,
)
from tests.published_files import CODEC, randomise

PUBLISHED = SemanticCodecConfig(8192, 1024, 8, 384, 2048, 12)


def built(kind: type[SemanticCodec]) -> SemanticCodec:
    codec = randomise(kind(SemanticCodecConfig(**CODEC)), seed=0)
    return codec.requires_grad_(False).eval()


def features(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, CODEC["hidden_size"], generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize(
    ("kind", "place", "num_parameters"),
    [
        (SemanticCodec, "published_keys/semantic_codec", 44_289_808),
        (HalvingCodec, "published_keys25/codec", 50_583_312),
    ],
)
def test_names_and_shapes_are_the_published_ones(shared, kind, place, num_parameters):
    published = json.loads((shared / f"vectors/{place}.json").read_text())
    with torch.device("meta"):
        codec = kind(PUBLISHED)
    assert {name: [list(t.shape), str(t.dtype)[6:]] for name, t in codec.state_dict().items()} == published
    assert sum(parameter.numel() for parameter in codec.parameters()) == num_parameters


@pytest.mark.parametrize("kind", [SemanticCodec, HalvingCodec])
def test_padding_does_not_change_codes_embeddings_and_decoding(kind):
    codec = built(kind)
    lengths = torch.tensor([1, 2, 9, 40, 33])
    clips = [features(length) for length in lengths.tolist()]
    padded = torch.full((5, 40, CODEC["hidden_size"]), 1e3)  # any value in the padding
    for row, clip in zip(padded, clips, strict=True):
        row[: len(clip)] = clip
    together, num_codes = codec.quantize(padded, lengths), codec.num_codes(lengths)
    embeddings = codec.embed(together)
    decoded = codec.decode(embeddings, num_codes)
    for row, (clip, number) in enumerate(zip(clips, num_codes.tolist(), strict=True)):
        alone = codec.quantize(clip[None])
        assert torch.equal(together[row, :number], alone[0])
        expected = codec.decode(codec.embed(alone))[0]
        torch.testing.assert_close(decoded[row, : len(expected)], expected)


@pytest.mark.parametrize("kind", [SemanticCodec, HalvingCodec])
@pytest.mark.parametrize("name", ["codec.pth", "model.safetensors"])
def test_the_weights_tell_the_codec_and_may_be_float16_or_beside_an_optimizer(tmp_path, name, kind):
    saved = built(kind)
    half = {key: tensor.half() for key, tensor in saved.state_dict().items()}
    saved.load_state_dict({key: tensor.float() for key, tensor in half.items()})
    if name == "codec.pth":
        torch.save({"model": half, "optimizer": {"state": {0: torch.ones(3)}}}, tmp_path / name)
    else:
        save_file(half, tmp_path / name)
    loaded = load_codec(saved.config, tmp_path / name)
    assert type(loaded) is kind
    assert not any(p.requires_grad or p.dtype != torch.float32 for p in loaded.parameters())
    torch.testing.assert_close(loaded.encode(features(1, 9)), saved.encode(features(1, 9)), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("section", "what"),
    [
        (None, "semantic_codec"),
        (["x"], "semantic_codec"),
        (CODEC | {"vocos_dim": 0}, "semantic_codec.vocos_dim is 0"),
        (CODEC | {"vocos_dim": True}, "semantic_codec.vocos_dim is true"),
        ({k: v for k, v in CODEC.items() if k != "hidden_size"}, "semantic_codec.hidden_size: "),
    ],
)
def test_a_config_without_the_sizes_of_this_codec_is_refused(tmp_path, section, what):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"gpt": {}} | ({"semantic_codec": section} if section else {})))
    with pytest.raises(UserError, match=rf"config\.yaml: .*{what}"):
        load_codec_config(path)
