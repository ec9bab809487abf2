"""Tests of indextts/features/recognizers/loading.py: which folders are recognizers of a language."""

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from indextts.errors import UserError
from indextts.features.recognizers.loading import load_recognizer, load_recognizers
from tests.recognizers import ENGLISH, LETTERS, write_mms, write_recognizer, write_whisper

CPU = torch.device("cpu")
SECOND = np.random.default_rng(0).standard_normal(16_000).astype(np.float32) * 0.1
AZERBAIJANI = {
    "azj-script_cyrillic": ["<pad>", "<unk>", "|", *"бв"],
    "azj-script_latin": ["<pad>", "<unk>", *"bd"],
}


def test_a_folder_without_a_model_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"--asr .*absent: .*config\.json"):
        load_recognizer(tmp_path / "absent", CPU, "am")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(UserError, match=rf"--asr {re.escape(str(tmp_path))}: "):
        load_recognizer(tmp_path, CPU, "am")


def test_a_model_with_missing_weights_is_refused(tmp_path: Path):
    folder = write_recognizer(tmp_path / "model", "ላ")
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"lm_head\.weight"):
        load_recognizer(folder, CPU, "am")


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path):
    folder = write_recognizer(tmp_path / "model", "ላ")
    vocabulary = json.loads((folder / "vocab.json").read_text())
    (folder / "vocab.json").write_text(json.dumps({char: n for char, n in vocabulary.items() if n < 5}))
    with pytest.raises(UserError, match=rf" {len(LETTERS)} .* 5;"):
        load_recognizer(folder, CPU, "am")


def test_code_in_the_folder_is_never_run(tmp_path: Path):
    folder = write_recognizer(tmp_path / "model", "ላ")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "c.C", "AutoModelForCTC": "m.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("c.py", "m.py"):
        (folder / name).write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n")
    with pytest.raises(UserError, match=rf"--asr {re.escape(str(folder))}: "):
        load_recognizer(folder, CPU, "am")
    assert not (tmp_path / "ran").exists()


def config_with(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def pickled(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)


BAD_FOLDERS: dict[str, Callable[[Path], object]] = {
    "a pickle that would run code": lambda folder: pickled(folder, pickle.dumps({"a": print})),
    "a broken pickle": lambda folder: pickled(folder, b"\x80\x02broken"),
    "weights for another library": lambda folder: config_with(
        folder, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}
    ),
    "a list for a tokenizer": lambda folder: (folder / "tokenizer_config.json").write_text("[1]"),
    "a list for an extractor": lambda folder: (folder / "preprocessor_config.json").write_text("[]"),
    "a rate that is a text": lambda folder: (folder / "preprocessor_config.json").write_text(
        '{"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": "x"}'
    ),
}


@pytest.mark.filterwarnings("ignore")  # of transformers, about what it makes of such a folder
@pytest.mark.parametrize("name", BAD_FOLDERS)
def test_a_folder_with_wrong_files_is_refused_in_one_line(tmp_path: Path, name: str):
    folder = write_recognizer(tmp_path / "model", "ላ")
    BAD_FOLDERS[name](folder)
    with pytest.raises(UserError, match=rf"--asr {re.escape(str(folder))}: ") as caught:
        load_recognizer(folder, CPU, "am")
    assert "\n" not in str(caught.value)


def test_two_models_with_the_same_name_are_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"--asr: .*asr, asr"):
        load_recognizers([str(tmp_path / "a/asr"), str(tmp_path / "b/asr")], CPU, "am", tmp_path)


def test_the_adapter_of_the_language_is_used(tmp_path: Path):
    folder = write_mms(tmp_path / "mms", {"eng": ENGLISH, "amh": LETTERS, **AZERBAIJANI})
    for language, letter in (("am", LETTERS[-1]), ("en", ENGLISH[-1]), ("az", "d"), ("az-Cyrl", "в")):
        assert load_recognizer(folder, CPU, language).transcribe([SECOND]) == [letter]
    with pytest.raises(UserError, match="Swahili"):
        load_recognizer(folder, CPU, "sw")
    (folder / "adapter.amh.safetensors").unlink()
    with pytest.raises(UserError, match="Amharic"):
        load_recognizer(folder, CPU, "am")


def test_a_model_that_cannot_write_the_language_is_refused(tmp_path: Path):
    english = write_recognizer(tmp_path / "english", "A", letters=ENGLISH)
    assert load_recognizer(english, CPU, "en").transcribe([SECOND]) == ["A"]
    with pytest.raises(UserError, match="no letter of Amharic"):
        load_recognizer(english, CPU, "am")
    only = write_mms(tmp_path / "mms", {"eng": ENGLISH})
    with pytest.raises(UserError, match="Amharic"):
        load_recognizer(only, CPU, "am")
    with pytest.raises(UserError, match=r"English-only .* Amharic"):
        load_recognizer(write_whisper(tmp_path / "whisper", is_multilingual=False), CPU, "am")


def test_the_identity_follows_the_weights_and_not_the_place(tmp_path: Path):
    one = write_recognizer(tmp_path / "one", "ላ")
    same = write_recognizer(tmp_path / "same", "ላ")
    other = write_recognizer(tmp_path / "other", "ሰ")
    identities = [load_recognizer(folder, CPU, "am").identity for folder in (one, same, other)]
    assert identities[0] == identities[1] != identities[2]
