"""Small CTC models in the format of transformers, each of which recognises a single letter."""

import json
from pathlib import Path
from typing import Literal

import torch
from transformers import (
    SeamlessM4TFeatureExtractor,
    Wav2Vec2BertConfig,
    Wav2Vec2BertForCTC,
    Wav2Vec2Config,
    Wav2Vec2CTCTokenizer,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForCTC,
)
from transformers.utils import logging

LETTERS = ["<pad>", "<unk>", "|", *"ሰላምለዓ"]


def write_recognizer(
    folder: Path, letter: str, kind: Literal["wav2vec2", "wav2vec2-bert"] = "wav2vec2"
) -> Path:
    """Write a model with random weights that outputs only `letter`; return its folder."""
    logging.disable_progress_bar()
    folder.mkdir(parents=True)
    vocabulary = folder.parent / f"{folder.name}.json"
    vocabulary.write_text(json.dumps({char: number for number, char in enumerate(LETTERS)}))
    Wav2Vec2CTCTokenizer(
        str(vocabulary), bos_token=None, eos_token=None, unk_token="<unk>", pad_token="<pad>"
    ).save_pretrained(folder)
    sizes = {"vocab_size": len(LETTERS), "pad_token_id": 0, "hidden_size": 16, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    model: Wav2Vec2ForCTC | Wav2Vec2BertForCTC
    if kind == "wav2vec2":
        model = Wav2Vec2ForCTC(
            Wav2Vec2Config(
                **sizes,
                conv_dim=(8, 8),
                conv_stride=(160, 2),
                conv_kernel=(400, 2),
                num_feat_extract_layers=2,
                num_conv_pos_embeddings=4,
                num_conv_pos_embedding_groups=2,
            )
        )
        Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)
    else:
        model = Wav2Vec2BertForCTC(
            Wav2Vec2BertConfig(**sizes, feature_projection_input_dim=160, conv_depthwise_kernel_size=3)
        )
        SeamlessM4TFeatureExtractor().save_pretrained(folder)
    with torch.no_grad():
        model.lm_head.bias[LETTERS.index(letter)] = 100.0
    model.save_pretrained(folder)
    return folder
