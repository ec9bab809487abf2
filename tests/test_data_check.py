import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from check_amharic_data import main
from indextts.commands.data import CheckData
from indextts.commands.normalizer_options import NormalizerOptions
from indextts.data.check import check, check_pairs, check_split
from indextts.data.manifest import Pair, Utterance, read_utterances, write_pairs, write_utterances
from indextts.data.quality.clips import measure_clips
from indextts.data.report import Report
from indextts.errors import UserError
from indextts.projects.default_paths import with_default_paths
from indextts.projects.project import Project, ProjectSettings, write_project
from tests.conftest import REPOSITORY
from tests.test_data_feature_store import encoded, key, write_store

TEXT = "ሰላም ለዓለም።"
TEXTS = [
    "ሰላም ለዓለም ሁሉ",
    "ዛሬ ፀሐይ ወጣች",
    "ልጆች ይጫወታሉ",
    "ውሃ ጠጣሁ በጠዋት",
    "መጽሐፍ አነበበ ትናንት",
    "ቡና ተፈላ በቤቱ",
    "ገበያ ሄደች እናቴ",
]


def write_dataset(folder: Path, texts: list[str], num_speakers: int = 2) -> list[Utterance]:
    """Write 2 s of speech for each text and `manifest.jsonl`; return the utterances."""
    clips = [u for u in read_utterances(REPOSITORY / "demo/manifest.jsonl") if u.duration_s > 2.5]
    utterances = []
    for number, (text, clip) in enumerate(zip(texts, clips, strict=False)):
        audio = folder / f"{number}.wav"
        speech, rate_hz = soundfile.read(clip.audio, frames=48_000, dtype="float32")  # 2 s
        soundfile.write(audio, speech * np.minimum(1, np.arange(48_000, 0, -1) / 4800), rate_hz)
        utterances.append(Utterance(f"u{number}", audio, text, f"s{number % num_speakers}", 2.0))
    write_utterances(folder / "manifest.jsonl", utterances)
    return utterances


def checked(folder: Path, report: str = "", **settings: object) -> Report:
    """Check `manifest.jsonl` of the folder without DNSMOS; write the report into the folder `report`."""
    report_dir = folder / report if report else None
    manifest = folder / "manifest.jsonl"
    typed = {"train_manifest": manifest, "report_dir": report_dir, "quality": "fast", **settings}
    [found] = check(CheckData.model_validate(typed))
    return found


def make_project(folder: Path, **settings: object) -> None:
    (folder / "dataset").mkdir(parents=True)
    described = ProjectSettings.model_validate({"name": folder.name, "base": folder, **settings})
    write_project(Project(folder), described)


def features_of(folder: Path, ids: str, num_codes: int = 50) -> Path:
    return write_store(folder, [encoded(id, num_codes) for id in ids.split()], clips_per_shard=9).path


def pair(target: str, prompt: str, features: Path, speaker: str = "s", num_codes: int = 50) -> Pair:
    id, keys = f"{target}__{prompt}", (key(prompt), key(target))
    return Pair(id, speaker, prompt, target, TEXT, num_codes, 1.0, 1.0, features, *keys)


def test_a_good_manifest_has_facts_and_no_problems(tmp_path):
    write_dataset(tmp_path, TEXTS[:3])
    report = checked(tmp_path)
    assert report.problems == []
    assert report.facts[:3] == [
        "utterances: 3, 0.00 hours, of which 0.00 go on",
        "good: 3, with warnings: 0, rejected: 0",
        "duration in s: min 2, median 2, max 2",
    ]
    assert report.facts[-5:] == [
        "speakers: 2",
        "  s0: 0.00 hours, 2",
        "  s1: 0.00 hours, 1",
        "Dataset is primarily Amharic (100.0 % of the texts)",
        f"normaliser: default options ({NormalizerOptions().fingerprint})",
    ]
    assert str(report).startswith(f"{tmp_path}/manifest.jsonl: utterances\n  utterances: 3")
    assert str(report).endswith("\n  No problems")


@pytest.mark.long
@pytest.mark.slow
def test_several_processes_measure_as_one_does(tmp_path):
    utterances = write_dataset(tmp_path, [*TEXTS[:5], "BBC"])
    options = NormalizerOptions(acronyms="letters")
    one, two = (measure_clips(utterances, None, num_workers, options) for num_workers in (1, 2))
    assert [(clip.sound.measures, clip.text) for clip in one] == [
        (clip.sound.measures, clip.text) for clip in two
    ]


def test_the_next_check_measures_only_new_recordings(tmp_path, monkeypatch):
    write_dataset(tmp_path, TEXTS[:3])
    first = checked(tmp_path, "check")
    monkeypatch.setattr("indextts.data.quality.clips.measure_audio", None)
    assert checked(tmp_path, "check") == first


def test_texts_are_checked_as_the_options_read_them_and_the_options_are_stored(tmp_path):
    write_dataset(tmp_path, [TEXTS[0], f"{TEXTS[5]} BBC"], num_speakers=1)
    options = NormalizerOptions(acronyms="letters")
    checked(tmp_path, "kept")
    checked(tmp_path, "read", acronyms="letters")
    assert "latin_left" in (tmp_path / "kept/clips.jsonl").read_text()
    assert "latin_left" not in (tmp_path / "read/clips.jsonl").read_text()
    assert json.loads((tmp_path / "read/normalizer.json").read_text()) == options.record


@pytest.mark.failure(32)
def test_all_problems_of_recordings_and_lines_are_collected(tmp_path):
    utterances = write_dataset(tmp_path, TEXTS)
    (tmp_path / "0.wav").unlink()
    (tmp_path / "1.wav").write_bytes(b"")
    wrong = [
        *utterances[:2],
        replace(utterances[2], duration_s=2.5),
        replace(utterances[3], text="ሀለ" * 40),
        replace(utterances[4], audio=utterances[5].audio),
        *utterances[5:],
    ]
    write_utterances(tmp_path / "manifest.jsonl", wrong)
    report = checked(tmp_path, "check", max_rejected_percent=10)
    flags = {
        record["id"]: {flag["reason"]: flag["said"] for flag in record["flags"]}
        for record in map(json.loads, (tmp_path / "check/clips.jsonl").read_text().splitlines())
    }
    assert flags["u0"]["unreadable"].startswith(f"{tmp_path}/0.wav: ")
    assert [set(flags[f"u{number}"]) for number in range(6)] == [
        {"unreadable"}, {"unreadable"}, {"duration_off"}, {"too_fast"}, set(), {"same_audio"},
    ]  # fmt: skip
    assert flags["u2"]["duration_off"].endswith(" 0.50 s")
    assert flags["u3"]["too_fast"].endswith(" 40.0 syllables/s")
    assert flags["u5"]["same_audio"].endswith(": u4")
    [problem] = report.problems
    assert " 7 utterances " in problem
    assert problem.endswith(" (4): u0; u1; u3; u5")


def test_limits_are_flags(tmp_path, capsys):
    write_dataset(tmp_path, TEXTS[:3])
    flags = [f"--train-manifest={tmp_path}/manifest.jsonl", f"--report-dir={tmp_path}/check"]
    assert main([*flags, "--quality=fast", "--min-duration-s=3", "--warn-min-snr-db=99"]) == 1
    rejected = [json.loads(line) for line in (tmp_path / "check/rejected.jsonl").read_text().splitlines()]
    assert [line["id"] for line in rejected] == ["u0", "u1", "u2"]
    assert rejected[0]["reasons"] == ["too_short", "some_noise"]
    assert (tmp_path / "check/report.txt").read_text(encoding="utf-8") in capsys.readouterr().out + "\n"


@pytest.mark.failure(45)
def test_a_manifest_that_differs_from_its_store_is_a_problem(tmp_path):  # D3
    utterances = write_dataset(tmp_path, TEXTS[:3])
    features = features_of(tmp_path / "features", "u0 u1", num_codes=100)
    stale = [
        replace(u, features=features, features_key=key(u.id), num_codes=99 if u.id == "u1" else 100)
        for u in utterances
    ]
    write_utterances(tmp_path / "manifest.jsonl", stale)
    numbers, missing = checked(tmp_path).problems
    assert numbers.endswith(" (1): u1: 99, the store has 100")
    assert missing.endswith(" (1): u2")


def test_a_corrupt_file_of_the_store_is_a_problem(tmp_path):
    features = features_of(tmp_path / "features", "a b")
    [condition] = features.parent.glob("conditioning/*/shard_00000/condition.npy")
    condition.write_bytes(condition.read_bytes()[:-1] + b"\x01")
    write_pairs(tmp_path / "pairs.jsonl", [pair("a", "b", features)])
    [problem] = check_pairs(tmp_path / "pairs.jsonl").problems
    assert problem.endswith(f" (1): {condition}")


def test_all_problems_of_pairs_are_listed(tmp_path):
    features = features_of(tmp_path / "features", "a b c")
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
    ends = [
        " (1): a__a",
        " (2): b is by s, pair b__c is by other; c is by s, pair b__c is by other",
        " (1): x of x__a",
        " (1): b: 40, the store has 50",
        " (1): x",
    ]
    assert len(problems) == len(ends)
    assert all(problem.endswith(end) for problem, end in zip(problems, ends, strict=True))


def test_the_predecessors_files_are_the_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"workspace/ has 0 projects"):
        with_default_paths(CheckData())
    make_project(tmp_path / "workspace/voice")
    (tmp_path / "workspace/voice/dataset/manifest.jsonl").write_text("{}")
    of_project = with_default_paths(CheckData())
    assert of_project.train_manifest == Path("workspace/voice/dataset/manifest.jsonl")
    assert of_project.train_pairs is None
    assert of_project.report_dir == Path("workspace/voice/dataset/check")  # whose verdicts later stages apply
    (tmp_path / "preprocessed_amharic").mkdir()
    (tmp_path / "preprocessed_amharic/train_manifest.jsonl").write_text("{}")
    (tmp_path / "preprocessed_amharic/val_pairs.jsonl").write_text("{}")
    of_predecessor = with_default_paths(CheckData())
    assert of_predecessor.train_manifest == Path("preprocessed_amharic/train_manifest.jsonl")
    assert of_predecessor.train_pairs is None
    assert of_predecessor.val_pairs == Path("preprocessed_amharic/val_pairs.jsonl")
    given = CheckData(val_pairs=Path("x.jsonl"))
    assert with_default_paths(given) == given


def test_the_only_project_is_checked_with_its_settings_and_flags_override_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"normalizer": {"thousand": "ሺ", "fifty": "አምሳ"}, "check": {"min_snr_db": 12}}
    make_project(tmp_path / "workspace/voice", **settings)
    (tmp_path / "workspace/voice/dataset/manifest.jsonl").write_text("{}")
    command = with_default_paths(CheckData(fifty="ሀምሳ", warn_min_snr_db=30))
    assert (command.thousand, command.fifty) == ("ሺ", "ሀምሳ")
    assert (command.min_snr_db, command.warn_min_snr_db) == (12, 30)


@pytest.mark.failure(46)
def test_a_validation_target_that_is_trained_on_is_a_problem(tmp_path):
    for name, pairs in (
        ("train", [pair("a", "b", tmp_path)]),
        ("leak", [pair("b", "c", tmp_path)]),
        ("val", [pair("d", "c", tmp_path)]),
    ):
        write_pairs(tmp_path / f"{name}.jsonl", pairs)
    assert check_split(tmp_path / "train.jsonl", tmp_path / "val.jsonl").problems == []
    [problem] = check_split(tmp_path / "train.jsonl", tmp_path / "leak.jsonl").problems
    assert problem.endswith(" (1): b")
