"""Tests of indextts/features/recognizers: folders, names on the hub, languages, first transcripts."""

import json
import logging
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from indextts.errors import UserError
from indextts.features.recognizers.first_transcripts import counts, require_language
from indextts.features.recognizers.loading import load_recognizer, load_recognizers
from indextts.features.recognizers.recognizer import Recognizer
from indextts.text.transcripts import Errors
from tests.hub_server import Hub, repository, use_hub
from tests.recognizers import ENGLISH, LETTERS, write_mms, write_recognizer, write_whisper

CPU = torch.device("cpu")
SECOND = np.random.default_rng(0).standard_normal(16_000).astype(np.float32) * 0.1
AZERBAIJANI = {
    "azj-script_cyrillic": ["<pad>", "<unk>", "|", *"бв"],
    "azj-script_latin": ["<pad>", "<unk>", *"bd"],
}


def test_a_folder_without_a_model_is_refused(tmp_path: Path):
    for name, kind in (
        (None, "does not exist"),
        ("a.nemo", "NeMo"),
        ("ggml-base.bin", "whisper"),
        ("x", "x"),
    ):
        if name:
            (tmp_path / "other").mkdir(exist_ok=True)
            (tmp_path / "other" / name).touch()
        with pytest.raises(UserError, match=rf"--asr .*other: .*{kind}.*model\.bin"):
            load_recognizer(tmp_path / "other", CPU, "am")
        shutil.rmtree(tmp_path / "other", ignore_errors=True)
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


NAME = "someone/mms"


def load(name: str, folder: Path) -> Recognizer:
    [recognizer] = load_recognizers([name], CPU, "am", folder)
    return recognizer


def test_a_model_of_the_hub_is_downloaded_once_and_used_without_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = write_mms(tmp_path / "published", {"eng": ENGLISH, "amh": LETTERS})
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    unused = ["adapter.eng.safetensors", "optimizer.pt", "pytorch_model.bin", "onnx/model.safetensors"]
    hub.repositories[NAME] = repository(dict.fromkeys(unused, b"x") | contents)
    recognizer = load(NAME, tmp_path)
    assert recognizer.name == "someone--mms"
    assert recognizer.transcribe([np.ones(16_000, np.float32)]) == ["ዓ"]
    names = hub.names()
    assert {"config.json", "model.safetensors", "adapter.amh.safetensors"} < set(names)
    assert set(names).isdisjoint(unused)
    load(NAME, tmp_path)
    assert hub.names() == names
    with pytest.raises(UserError, match="someone/absent"):
        load("someone/absent", tmp_path)
    hub.repositories["someone/empty"] = repository({"config.json": b"{}"})
    with pytest.raises(UserError, match=r"model\.safetensors"):
        load("someone/empty", tmp_path)
    use_hub(monkeypatch, "", tmp_path)
    load(NAME, tmp_path)
    (tmp_path / "someone--mms/model.safetensors").unlink()
    with pytest.raises(UserError, match=NAME):
        load(NAME, tmp_path)


GOOD = "በእርግጥ ሌሎች ሃይማኖቶችንም መሠረት አድርጐ ተፈጽሟል።"
LOOP = "ያይ" * 20
RIGHT, WRONG = Errors(1, 20), Errors(333, 16)


@pytest.mark.parametrize(
    ("heard", "errors", "problem"),
    [
        ([GOOD] * 20, [], None),
        ([GOOD] * 16 + [LOOP] * 4, [], None),
        ([GOOD] * 14 + [LOOP] * 6, [], "6 of 20 .* loop"),
        ([f"{GOOD} BBC"] * 20, [], None),
        (["مرحبا بالعالم"] * 20, [], "100% .* other scripts"),
        (["ሰ\ufffd\ufffd"] * 20, [], "67% .* other scripts"),
        ([""] * 11 + [GOOD] * 9, [], "11 of 20 .* empty"),
        ([GOOD] * 20, [RIGHT] * 10 + [WRONG] * 10, None),  # a loop counts as one wrong text
        ([GOOD] * 20, [WRONG] * 20, "100% .* differ"),
    ],
)
def test_a_recognizer_that_cannot_write_the_language_is_stopped(
    heard: list[str], errors: list[Errors], problem: str | None, caplog: pytest.LogCaptureFixture
):
    if problem is None:
        require_language("asr", "am", heard, errors)
    else:
        with pytest.raises(UserError, match=rf"--asr asr: .*Amharic.* {problem}"):
            require_language("asr", "am", heard, errors)
        caplog.set_level(logging.WARNING)
        require_language("asr", "am", heard[::2], errors[::2])  # too few to stop: a warning
        assert "--asr asr: " in caplog.text


def test_loops_and_empty_transcripts_are_counted_apart():
    assert counts([GOOD, LOOP, "", "...", "of " * 30]) == (2, 2)
    assert WRONG.bounded == Errors(16, 16)
