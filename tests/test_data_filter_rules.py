import json
from pathlib import Path

import pytest

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.commands.quality_limits import QualityLimits
from indextts.data.filter_rules import export_reviewed, rules_file
from indextts.data.manifest import read_utterances
from indextts.data.review import DecisionLog, check_folder, decide
from tests.test_data_check import TEXTS, checked, write_dataset


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Seven clips of two seconds."""
    (tmp_path / "data").mkdir()
    write_dataset(tmp_path / "data", TEXTS)
    return tmp_path / "data/manifest.jsonl"


def test_an_exported_manifest_has_the_kept_clips_with_the_rules_beside_it(manifest, tmp_path):
    checked(manifest.parent, "check", min_script_percent=20)
    verdicts = (check_folder(manifest) / "rejected.jsonl").read_text(encoding="utf-8")
    rejected = [json.loads(line) for line in verdicts.splitlines()]
    before = read_utterances(manifest)
    free = [u.id for u in before if u.id not in {record["id"] for record in rejected}]
    log = DecisionLog(manifest)
    decide(log, free[0], {"verdict": "reject"})
    decide(log, free[1], {"text": "ሌላ ጽሑፍ"})
    output = tmp_path / "elsewhere/reviewed.jsonl"

    export_reviewed(manifest, output)
    after = read_utterances(output)
    assert [u.id for u in after] == free[1:]
    assert after[0].text == "ሌላ ጽሑፍ"
    assert after[0].audio.is_file()
    rules = json.loads(rules_file(output).read_bytes())
    assert rules["check"]["limits"]["min_script_percent"] == 20
    assert set(rules["check"]["limits"]) == set(QualityLimits.model_fields)
    assert rules["check"]["normalizer"] == NormalizerOptions().record
    assert sum(rules["check"]["rejected"].values()) == sum(len(record["reasons"]) for record in rejected)
    review = rules["review"]
    assert (review["kept"], review["rejected"], review["corrected_texts"]) == (0, 1, 1)
    assert (rules["before"]["utterances"], rules["after"]["utterances"]) == (len(before), len(free) - 1)
    assert rules["after"]["hours"] < rules["before"]["hours"]


def test_a_manifest_without_check_and_review_says_so(manifest, tmp_path):
    rules = export_reviewed(manifest, tmp_path / "reviewed.jsonl")
    assert rules["check"] is None
    assert rules["review"] is None
    assert rules["before"] == rules["after"]
