"""Small files of the acoustic model: published names and layout, seeded random weights.

FOLDER/                        the files that `published_files` draws, and
  config.yaml                  with s2mel and emo_num
  s2mel.pth feat1.pt feat2.pt
  campplus/campplus_cn_common.bin
  bigvgan/config.json bigvgan_generator.pt
"""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import torch
import yaml
from torch import nn

from demo.make_base_checkpoint import random_model
from indextts.commands.bases import BASE_2_5
from indextts.features.campplus import CAMPPlus, CAMPPlusConfig
from indextts.features.semantic_codec import HalvingCodec, SemanticCodecConfig
from indextts.models.gpt.config import load_config
from indextts.speech.synthesis.bigvgan import BigVGAN
from indextts.speech.synthesis.config import BigVGANConfig, S2MelConfig
from indextts.speech.synthesis.s2mel import S2Mel
from indextts.text.bases import load_tokenizer
from tests.byte_ranks import write_ranks
from tests.published_files import CODEC, FEATURE_DIM, GPT, randomise, write_published_files

STYLE_DIM = 12
EMO_NUM = [3, 1, 2, 2, 1, 1, 4, 2]
S2MEL = {
    "style_encoder": {"dim": STYLE_DIM},
    "length_regulator": {
        "channels": 16,
        "in_channels": FEATURE_DIM,
        "content_codebook_size": 4,
        "sampling_ratios": [1, 1],
    },
    "DiT": {
        "hidden_dim": 32,
        "num_heads": 2,
        "depth": 3,
        "in_channels": 80,
        "content_dim": 16,
        "content_codebook_size": 4,
    },
    "wavenet": {"hidden_dim": 32, "num_layers": 2, "kernel_size": 5, "dilation_rate": 1},
}
BIGVGAN = {
    "num_mels": 80,
    "upsample_rates": [8, 8, 4],
    "upsample_kernel_sizes": [16, 16, 8],
    "upsample_initial_channel": 16,
    "resblock_kernel_sizes": [3],
    "resblock_dilation_sizes": [[1, 3]],
    "sampling_rate": 22050,
}


def write_acoustic_files(folder: Path, seed: int = 0) -> Path:
    """Write all files and return `folder`."""
    write_published_files(folder, seed)
    config = yaml.safe_load((folder / "config.yaml").read_bytes())
    (folder / "config.yaml").write_text(yaml.safe_dump(config | {"s2mel": S2MEL, "emo_num": EMO_NUM}))
    write_s2mel(folder / "s2mel.pth", seed)
    for name in ("campplus", "bigvgan"):
        (folder / name).mkdir(exist_ok=True)
    campplus = randomise(CAMPPlus(CAMPPlusConfig(embedding_size=STYLE_DIM)), seed)
    torch.save(campplus.state_dict(), folder / "campplus/campplus_cn_common.bin")
    (folder / "bigvgan/config.json").write_text(json.dumps(BIGVGAN, indent="\t"))
    vocoder = randomise(BigVGAN(BigVGANConfig.model_validate(BIGVGAN)), seed)
    torch.save({"generator": with_weight_norm(vocoder)}, folder / "bigvgan/bigvgan_generator.pt")
    generator = torch.Generator().manual_seed(seed)
    torch.save(torch.randn(sum(EMO_NUM), STYLE_DIM, generator=generator), folder / "feat1.pt")
    torch.save(torch.randn(sum(EMO_NUM), GPT["model_dim"], generator=generator), folder / "feat2.pt")
    return folder


def write_files_of_2_5(folder: Path, seed: int = 0) -> Path:
    """Write the files of IndexTTS-2.5, as its official program lays them out, and return `folder`."""
    write_acoustic_files(folder, seed)
    config = yaml.safe_load((folder / "config.yaml").read_bytes())
    tokenizer = load_tokenizer(write_ranks(folder).rename(folder / BASE_2_5.tokenizer_file))
    config["gpt"] |= {"number_text_tokens": tokenizer.size, "style_dim": STYLE_DIM}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    gpt = random_model(replace(load_config(folder / "config.yaml"), base=BASE_2_5.name), seed)
    torch.save(randomise(gpt, seed).state_dict(), folder / "gpt.pth")
    shutil.rmtree(folder / "semantic_codec")
    codec = randomise(HalvingCodec(SemanticCodecConfig(**CODEC)), seed)
    torch.save({"model": codec.state_dict(), "optimizer": {"step": 1}}, folder / BASE_2_5.codec_file)
    cache = folder / "hf_cache"
    cache.mkdir()
    for name in ("w2v-bert-2.0", "bigvgan"):
        (folder / name).rename(cache / name)
    (folder / "campplus/campplus_cn_common.bin").rename(cache / "campplus_cn_common.bin")
    return folder


def write_s2mel(path: Path, seed: int = 0) -> None:
    """Write the three parts as the published training saved them: some of them wrapped for many GPUs."""
    model = randomise(S2Mel(S2MelConfig.model_validate(S2MEL), GPT["model_dim"]), seed)
    net = {part: getattr(model, part).state_dict() for part in ("length_regulator", "gpt_layer")}
    net["cfm"] = with_weight_norm(model.cfm)
    net["cfm"] = {f"module.{name}": tensor for name, tensor in net["cfm"].items()}
    torch.save({"net": net, "optimizer": {"state": {}}, "iters": 12}, path)


def with_weight_norm(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights with those of the normalised layers as the published files have them."""
    weights = model.state_dict()
    normed = re.compile(r"(\.conv\.conv|convs\d|^ups|^conv_p|x_embedder|final_layer\.linear).*\.weight$")
    for name in filter(normed.search, list(weights)):
        v = weights.pop(name)
        g = 0.7 * v.flatten(1).norm(dim=1).view(-1, *[1] * (v.dim() - 1))
        weights |= {f"{name}_g": g, f"{name}_v": v}
    return weights
