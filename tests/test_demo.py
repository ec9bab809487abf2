"""Tests of the demo's files: recordings, sentences, base tokenizer and base checkpoint."""

import json
from collections import Counter
from functools import cache

import numpy as np
import pytest
import soundfile
import torch
import yaml

from demo.make_demo import read_lines, syllable_ranks
from indextts.commands.bases import BASE_2_5
from indextts.models.checkpoint import read_weights
from indextts.models.gpt.config import load_config_of
from indextts.models.gpt.weights import check_fit
from indextts.text.bases import load_tokenizer
from tests.conftest import REPOSITORY

DEMO = REPOSITORY / "demo"
BASE = DEMO / "checkpoints"
ETHIOPIC_LETTERS = range(0x1200, 0x135B)


@cache
def manifest() -> list[dict]:
    return [json.loads(line) for line in (DEMO / "manifest.jsonl").read_text("utf-8").splitlines()]


def test_the_manifest_has_the_sentences_in_order_and_the_files_of_the_audio_folder():
    for number, utterance in enumerate(manifest(), start=1):
        assert list(utterance) == ["id", "audio", "text", "speaker", "duration", "language"]
        assert utterance["id"] == f"demo_{number:04d}"
        assert utterance["audio"] == f"audio/{utterance['id']}.opus"
        assert utterance["language"] == "am"
    sentences = read_lines(DEMO / "sentences.txt")
    assert [utterance["text"] for utterance in manifest()] == sentences
    assert len(set(sentences)) == len(sentences) >= 160
    files = sorted(f"audio/{path.name}" for path in (DEMO / "audio").iterdir())
    assert files == [utterance["audio"] for utterance in manifest()]
    counts = Counter(utterance["speaker"] for utterance in manifest())
    assert len(counts) == 4
    assert max(counts.values()) - min(counts.values()) <= 1


def test_every_file_is_24_khz_mono_equally_loud_and_as_long_as_the_manifest_says():
    for utterance in manifest():
        samples, sample_rate_hz = soundfile.read(DEMO / utterance["audio"])
        assert (sample_rate_hz, samples.ndim) == (24_000, 1)
        assert round(len(samples) / sample_rate_hz, 3) == utterance["duration"]
        assert 1 <= utterance["duration"] <= 6
        assert 20 * np.log10(np.sqrt(np.mean(samples**2))) == pytest.approx(-22, abs=0.5)
        assert np.abs(samples).max() < 0.99


def test_the_sentences_use_at_least_200_fidel_and_only_ethiopic_and_punctuation():
    characters = set("".join(utterance["text"] for utterance in manifest()))
    fidel = {character for character in characters if ord(character) in ETHIOPIC_LETTERS}
    assert len(fidel) >= 200
    assert characters - fidel <= set(" ።፣፧?!")
    assert all(3 <= len(utterance["text"].split(" ")) <= 9 for utterance in manifest())


def test_the_folder_is_smaller_than_25_megabytes():
    made_later = {".pyc"}  # what running a program leaves
    sizes = [path.stat().st_size for path in DEMO.rglob("*") if path.suffix not in made_later]
    assert sum(sizes) < 25_000_000


def test_the_base_fits_its_config():
    config = load_config_of(BASE / "config.yaml", load_tokenizer(BASE / BASE_2_5.tokenizer_file))
    weights = read_weights(BASE / "gpt.pth")
    check_fit(config, weights, "gpt.pth")
    assert {weight.dtype for weight in weights.values()} == {torch.float16}


def test_the_base_tokenizer_fits_its_config_and_is_that_of_the_program():
    path = BASE / BASE_2_5.tokenizer_file
    tokenizer = load_tokenizer(path)
    config = yaml.safe_load((BASE / "config.yaml").read_text("utf-8"))
    assert config["gpt"]["number_text_tokens"] == tokenizer.size == tokenizer.encoding.n_vocab
    assert not [char for char in "".join(tokenizer.pieces) if ord(char) in ETHIOPIC_LETTERS]
    ids = tokenizer.encoding.encode_ordinary("selam nyumba kwacha.")
    read = [tokenizer.pieces[token] for token in ids]
    assert read == ["se", "la", "m", " nyu", "m", "ba", " kwa", "cha", "."]
    assert path.read_bytes() == syllable_ranks()
