import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from check_amharic_data import main
from indextts.data.check import check_manifest, check_pairs, check_split, is_mostly_ethiopic
from indextts.data.feature_store import FeatureStore, StoreInfo
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter
from indextts.errors import UserError
from indextts.manifest import Pair, Utterance, write_pairs, write_utterances

TEXT = "ሰላም ለዓለም።"


def write_dataset(folder: Path, texts: list[str], duration_s: float = 1.0) -> list[Utterance]:
    """Write recordings of noise and `manifest.jsonl`; return the utterances."""
    noise = np.random.default_rng(0).normal(0, 0.05, round(duration_s * 24_000))
    utterances = []
    for number, text in enumerate(texts):
        audio = folder / f"{number}.wav"
        soundfile.write(audio, noise, 24_000)
        utterances.append(Utterance(f"u{number}", audio, text, f"s{number % 2}", duration_s))
    write_utterances(folder / "manifest.jsonl", utterances)
    return utterances


def key(id: str) -> str:
    return hashlib.sha256(id.encode()).hexdigest()


def write_store(folder: Path, ids: list[str], num_codes: int = 50) -> Path:
    writer = FeatureStoreWriter(folder, StoreInfo("builtin", "b", "e", model_dim=4, num_latents=2))
    for id in ids:
        codes = np.arange(num_codes)
        condition = np.ones((2, 4), np.float32)
        writer.add(EncodedUtterance(id, key(id), codes, condition, np.ones(4, np.float32)))
    writer.flush()
    return writer.path


def pair(target: str, prompt: str, features: Path, speaker: str = "s", num_codes: int = 50) -> Pair:
    return Pair(
        f"{target}__{prompt}",
        speaker,
        prompt,
        target,
        TEXT,
        num_codes,
        1.0,
        1.0,
        features,
        key(prompt),
        key(target),
    )


def test_a_good_manifest_has_facts_and_no_problems(tmp_path):
    write_dataset(tmp_path, [f"{TEXT} {letter}" for letter in "ሀለሐ"])
    report = check_manifest(tmp_path / "manifest.jsonl")
    assert str(report) == "\n".join(
        [
            f"{tmp_path}/manifest.jsonl: utterances",
            "  utterances: 3, 0.00 hours",
            "  duration in s: min 1, median 1, max 1",
            "  characters per second: min 11, median 11, max 11",
            "  speakers: 2",
            "    s0: 2",
            "    s1: 1",
            "  mostly Ethiopic texts: 3 of 3 (100.0%)",
            "  No problems",
        ]
    )


def test_what_the_user_must_judge_is_a_notice(tmp_path):
    write_dataset(tmp_path, ["በ1930 ዓ.ም ተወለደ", "ሰላም PDF ፋይል ነው", TEXT, TEXT, f" {TEXT}", "፲፪ ሰዎች መጡ"])
    report = check_manifest(tmp_path / "manifest.jsonl")
    assert report.problems == []
    assert report.notices == [
        "1 of 6 texts have Latin letters",
        "2 of 6 texts have digits: spoken as words?",
        "2 of 6 texts repeat an earlier one",
    ]


@pytest.mark.parametrize(
    ("text", "is_ethiopic"),
    [
        ("ሰላም", True),
        ("ሰላም hi", True),
        ("ሰ hello", False),  # D80: one Ethiopic letter does not make Amharic
        ("hello", False),
        ("ab ሀለ", True),
        ("1930።", False),
        ("፲፪", False),
        ("ⶀⶁ ꬁ", True),
    ],
)
def test_a_text_is_mostly_ethiopic_if_half_of_its_letters_are(text, is_ethiopic):
    assert is_mostly_ethiopic(text) is is_ethiopic


def test_texts_of_another_language_are_a_problem(tmp_path):
    write_dataset(tmp_path, [TEXT] * 8 + ["good morning"] * 2)
    [problem] = check_manifest(tmp_path / "manifest.jsonl").problems
    assert problem == "2 texts are not mostly Ethiopic: good morning; good morning"


def test_all_problems_of_recordings_and_lines_are_collected(tmp_path):
    utterances = write_dataset(tmp_path, [f"{TEXT} {number}" for number in range(8)])
    (tmp_path / "0.wav").unlink()
    (tmp_path / "1.wav").write_bytes(b"")
    wrong = [
        *utterances[:2],
        replace(utterances[2], duration_s=1.5),
        replace(utterances[3], text="ሀ" * 40),
        replace(utterances[4], duration_s=0.2, text="ሀ"),
        replace(utterances[5], duration_s=40.0),
        replace(utterances[6], audio=utterances[7].audio),
        utterances[7],
    ]
    path = tmp_path / "manifest.jsonl"
    write_utterances(path, wrong)
    problems = "\n".join(check_manifest(path).problems)
    assert f"2 recordings cannot be used: {path}:1: {tmp_path}/0.wav: there is no such file" in problems
    assert f"3 durations are not those of the recordings: {path}:3: 1.50 s, the file has 1.00 s" in problems
    assert f"1 utterances have more text than can be said in the time: {path}:4 (40 characters" in problems
    assert f"1 utterances have too little text for the time: {path}:6" in problems
    assert f"1 utterances are shorter than 0.3 s: {path}:5" in problems
    assert f"1 utterances are longer than 36.0 s: {path}:6" in problems
    assert f"1 utterances have the recording of an earlier one: {path}:8 that of line 7" in problems


def test_of_many_examples_the_first_are_shown(tmp_path):
    write_dataset(tmp_path, ["hello"] * 12)
    [problem] = check_manifest(tmp_path / "manifest.jsonl").problems
    assert problem.startswith("12 texts")
    assert problem.endswith("; and 7 more")


def test_codes_of_padded_length_are_a_problem(tmp_path):  # D1
    utterances = write_dataset(tmp_path, [TEXT, TEXT])
    features = write_store(tmp_path / "features", ["u0", "u1"], num_codes=120)
    padded = [replace(u, features=features, features_key=key(u.id), num_codes=120) for u in utterances]
    write_utterances(tmp_path / "manifest.jsonl", padded)
    [problem] = check_manifest(tmp_path / "manifest.jsonl").problems
    assert problem.startswith("2 utterances do not have 50 codes per second")


def test_a_manifest_that_differs_from_its_store_is_a_problem(tmp_path):  # D3
    utterances = write_dataset(tmp_path, [TEXT, TEXT, TEXT])
    features = write_store(tmp_path / "features", ["u0", "u1"])
    stale = [
        replace(u, features=features, features_key=key(u.id), num_codes=49 if u.id == "u1" else 50)
        for u in utterances
    ]
    write_utterances(tmp_path / "manifest.jsonl", stale)
    assert check_manifest(tmp_path / "manifest.jsonl").problems == [
        "1 numbers of codes are not those of the feature store: u1: 49, the store has 50",
        "1 utterances are not in their feature store: u2",
    ]


def test_a_damaged_file_of_the_store_is_a_problem(tmp_path):
    features = write_store(tmp_path / "features", ["a", "b"])
    [condition] = features.parent.glob("conditioning/*/shard_00000/condition.npy")
    condition.write_bytes(condition.read_bytes()[:-1] + b"\x01")
    write_pairs(tmp_path / "pairs.jsonl", [pair("a", "b", features)])
    assert check_pairs(tmp_path / "pairs.jsonl").problems == [
        f"1 files of the feature store are damaged: {condition}"
    ]


def test_good_pairs_have_no_problems(tmp_path):
    features = write_store(tmp_path / "features", ["a", "b", "c"])
    write_pairs(tmp_path / "pairs.jsonl", [pair("a", "b", features), pair("a", "c", features)])
    report = check_pairs(tmp_path / "pairs.jsonl")
    assert report.problems == []
    assert "pairs: 2 of 1 targets, 0.00 hours of targets" in report.facts
    assert "pairs per target: min 2, median 2, max 2" in report.facts
    assert FeatureStore.open(features).keys == [key("a"), key("b"), key("c")]


def test_bad_pairs_are_all_named(tmp_path):
    features = write_store(tmp_path / "features", ["a", "b", "c"])
    pairs = [
        pair("a", "a", features),
        pair("b", "c", features, speaker="other"),
        pair("c", "a", features),
        pair("x", "a", features, num_codes=40),
        pair("b", "a", features, num_codes=40),
    ]
    write_pairs(tmp_path / "pairs.jsonl", pairs)
    utterances = [Utterance(id, tmp_path / id, TEXT, "s", 1.0) for id in "abc"]
    write_utterances(tmp_path / "manifest.jsonl", utterances)
    problems = check_pairs(tmp_path / "pairs.jsonl", tmp_path / "manifest.jsonl").problems
    assert problems == [
        "1 pairs have one utterance as prompt and target: a__a",
        "2 pairs have an utterance of another speaker: b is by s, pair b__c is by other; "
        "c is by s, pair b__c is by other",
        "1 utterances of pairs are not in the manifest: x of x__a",
        "1 numbers of codes are not those of the feature store: b: 40, the store has 50",
        "1 utterances are not in their feature store: x",
    ]


def test_two_speakers_of_one_utterance_are_found_without_the_manifest(tmp_path):  # D11
    features = write_store(tmp_path / "features", ["a", "b", "c"])
    pairs = [pair("a", "b", features, speaker="one"), pair("c", "b", features, speaker="two")]
    write_pairs(tmp_path / "pairs.jsonl", pairs)
    [problem] = check_pairs(tmp_path / "pairs.jsonl").problems
    assert problem.endswith("b is by one, pair c__b is by two")


def test_a_missing_store_is_a_problem_and_no_crash(tmp_path):
    write_pairs(tmp_path / "pairs.jsonl", [pair("a", "b", tmp_path / "gone")])
    [problem] = check_pairs(tmp_path / "pairs.jsonl").problems
    assert "gone: there is no such feature store" in problem


def test_empty_pairs_are_a_sentence(tmp_path):  # D80
    (tmp_path / "pairs.jsonl").write_bytes(b"")
    with pytest.raises(UserError, match=r"pairs\.jsonl: the file is empty"):
        check_pairs(tmp_path / "pairs.jsonl")


def test_the_program_says_by_its_status_whether_there_are_problems(tmp_path, capsys):
    write_dataset(tmp_path, [TEXT])
    manifest = tmp_path / "manifest.jsonl"
    assert main([f"--train-manifest={manifest}"]) == 0
    (tmp_path / "0.wav").unlink()
    assert main([f"--train-manifest={manifest}"]) == 1
    assert "Problem: 1 recordings cannot be used" in capsys.readouterr().out
    with pytest.raises(
        UserError, match="nothing to check, give --train-manifest, --train-pairs or --val-pairs"
    ):
        main([])


def test_a_duration_of_null_is_a_sentence(tmp_path):  # D80
    line = {"id": "a", "audio": "a.wav", "text": TEXT, "speaker": "s", "duration": None}
    (tmp_path / "manifest.jsonl").write_text(json.dumps(line))
    with pytest.raises(UserError, match=r"manifest\.jsonl:1: duration is null"):
        check_manifest(tmp_path / "manifest.jsonl")


def test_a_validation_target_that_is_trained_on_is_a_problem(tmp_path):
    for name, pairs in (
        ("train", [pair("a", "b", tmp_path)]),
        ("leak", [pair("b", "c", tmp_path)]),
        ("val", [pair("d", "c", tmp_path)]),
    ):
        write_pairs(tmp_path / f"{name}.jsonl", pairs)
    assert check_split(tmp_path / "train.jsonl", tmp_path / "val.jsonl").problems == []
    [problem] = check_split(tmp_path / "train.jsonl", tmp_path / "leak.jsonl").problems
    assert problem.startswith("1 validation targets are trained on too: b")
