import json
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import soundfile
import torch
import yaml

from indextts.features import builtin
from indextts.models.checkpoint import read_weights
from indextts.models.gpt.config import load_config
from indextts.models.gpt.weights import check_fit

DEMO = Path(__file__).resolve().parent.parent / "demo"
ETHIOPIC_LETTERS = range(0x1200, 0x135B)
KEYS = ["id", "audio", "text", "speaker", "duration", "language"]


@cache
def manifest() -> list[dict]:
    return [json.loads(line) for line in (DEMO / "manifest.jsonl").read_text("utf-8").splitlines()]


@cache
def base_tokenizer() -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(DEMO / "checkpoints" / "bpe.model"))


def base_pieces() -> list[str]:
    return [base_tokenizer().id_to_piece(token) for token in range(base_tokenizer().get_piece_size())]


def test_every_manifest_line_has_the_fields_of_an_utterance():
    for number, utterance in enumerate(manifest(), start=1):
        assert list(utterance) == KEYS
        assert utterance["id"] == f"demo_{number:04d}"
        assert utterance["audio"] == f"audio/{utterance['id']}.opus"
        assert utterance["language"] == "am"


def test_the_manifest_holds_the_sentences_in_order_without_duplicates():
    sentences = (DEMO / "sentences.txt").read_text("utf-8").splitlines()
    assert [utterance["text"] for utterance in manifest()] == sentences
    assert len(set(sentences)) == len(sentences) >= 160


def test_the_audio_folder_holds_the_manifests_files_and_no_others():
    files = sorted(f"audio/{path.name}" for path in (DEMO / "audio").iterdir())
    assert files == [utterance["audio"] for utterance in manifest()]


def test_every_file_is_24_khz_mono_and_as_long_as_the_manifest_says():
    for utterance in manifest():
        samples, sample_rate_hz = soundfile.read(DEMO / utterance["audio"])
        assert sample_rate_hz == 24_000
        assert samples.ndim == 1
        assert round(len(samples) / sample_rate_hz, 3) == utterance["duration"]


def test_every_file_lasts_1_to_6_seconds():
    assert all(1 <= utterance["duration"] <= 6 for utterance in manifest())


def test_every_file_is_equally_loud_and_none_clips():
    for utterance in manifest():
        samples, _ = soundfile.read(DEMO / utterance["audio"])
        assert 20 * np.log10(np.sqrt(np.mean(samples**2))) == pytest.approx(-22, abs=0.5)
        assert np.abs(samples).max() < 0.99


def test_four_speakers_share_the_utterances_evenly():
    counts = Counter(utterance["speaker"] for utterance in manifest())
    assert len(counts) == 4
    assert max(counts.values()) - min(counts.values()) <= 1


def test_the_sentences_use_at_least_200_fidel_and_only_ethiopic_and_punctuation():
    characters = set("".join(utterance["text"] for utterance in manifest()))
    fidel = {character for character in characters if ord(character) in ETHIOPIC_LETTERS}
    assert len(fidel) >= 200
    assert characters - fidel <= set(" ።፣፧?!")


def test_every_sentence_has_3_to_9_words():
    assert all(3 <= len(utterance["text"].split(" ")) <= 9 for utterance in manifest())


def test_the_folder_is_smaller_than_10_megabytes():
    made_later = {".pyc"}  # what running a program leaves
    sizes = [path.stat().st_size for path in DEMO.rglob("*") if path.suffix not in made_later]
    assert sum(sizes) < 10_000_000


def test_the_base_tokenizer_begins_with_the_published_control_pieces():
    assert base_pieces()[:3] == ["<s>", "</s>", "<unk>"]
    assert base_tokenizer().bos_id() == 0
    assert base_tokenizer().eos_id() == 1
    assert base_tokenizer().unk_id() == 2
    assert base_tokenizer().pad_id() == -1


def test_the_base_tokenizer_has_no_ethiopic_piece():
    assert not [piece for piece in base_pieces() if any(ord(char) in ETHIOPIC_LETTERS for char in piece)]


def test_the_base_tokenizer_knows_upper_case_letters_and_ascii_punctuation():
    assert set("ABCDEFGHIJKLMNOPQRSTUVWXYZ.,?!'-") <= set(base_pieces())


def test_the_base_tokenizer_reads_its_english_without_an_unknown_piece():
    for sentence in (DEMO / "english.txt").read_text("utf-8").splitlines():
        assert base_tokenizer().unk_id() not in base_tokenizer().encode(sentence.upper())


def test_the_config_counts_the_pieces_and_names_the_file_of_the_base_tokenizer():
    config = yaml.safe_load((DEMO / "checkpoints" / "config.yaml").read_text("utf-8"))
    assert config["dataset"]["bpe_model"] == "bpe.model"
    assert config["gpt"]["number_text_tokens"] == base_tokenizer().get_piece_size()


def test_the_configs_code_table_ends_with_start_and_stop():
    gpt = yaml.safe_load((DEMO / "checkpoints" / "config.yaml").read_text("utf-8"))["gpt"]
    assert (gpt["start_mel_token"], gpt["stop_mel_token"]) == (512, 513)
    assert gpt["number_mel_codes"] == 514


def test_the_base_fits_its_config_and_its_codes():
    folder = DEMO / "checkpoints"
    config = load_config(folder / "config.yaml")
    weights = read_weights(folder / "gpt.pth")
    check_fit(config, weights, "gpt.pth")
    assert {weight.dtype for weight in weights.values()} == {torch.float16}
    assert builtin.load(folder / "builtin.npz").num_codes == config.number_mel_codes - 2
    assert (folder / "gpt.pth").stat().st_size < 4_000_000
