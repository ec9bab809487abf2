import hashlib
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from indextts.data.pairs import build_pairs
from indextts.errors import UserError
from indextts.manifest import Utterance, read_pairs, write_utterances
from tools.build_gpt_prompt_pairs import main

FEATURES = Path("/data/features")


def clip(id: str, speaker: str = "s", text: str = "ሰላም", num_codes: int = 50) -> Utterance:
    audio, key = Path(f"/audio/{id}.wav"), hashlib.sha256(id.encode()).hexdigest()
    return Utterance(id, audio, text, speaker, num_codes / 50, "am", FEATURES, num_codes, key)


def clips(num: int, speaker: str = "s") -> list[Utterance]:
    return [clip(f"{speaker}{number:05d}", speaker) for number in range(num)]


def test_a_pair_holds_two_different_clips_of_one_speaker():
    utterances = clips(20, "a") + clips(30, "b")
    speaker_of = {utterance.id: utterance.speaker for utterance in utterances}
    pairs = build_pairs(utterances, pairs_per_target=3, seed=0).pairs
    assert len(pairs) == 150
    for pair in pairs:
        assert pair.prompt_id != pair.target_id
        assert speaker_of[pair.prompt_id] == speaker_of[pair.target_id] == pair.speaker
        assert pair.id == f"{pair.target_id}__{pair.prompt_id}"


def test_every_clip_is_a_target_and_its_prompts_are_distinct():
    pairs = build_pairs(clips(40), pairs_per_target=5, seed=1).pairs
    prompts: dict[str, set[str]] = {}
    for pair in pairs:
        prompts.setdefault(pair.target_id, set()).add(pair.prompt_id)
    assert {len(ids) for ids in prompts.values()} == {5}
    assert len(prompts) == 40


def test_every_other_clip_may_become_a_prompt():
    chosen = {
        (pair.target_id, pair.prompt_id)
        for seed in range(200)
        for pair in build_pairs(clips(4), pairs_per_target=1, seed=seed).pairs
    }
    assert len(chosen) == 4 * 3


def test_pairs_depend_on_the_seed_and_not_on_the_order_of_lines():
    utterances = clips(50)
    shuffled = random.Random(0).sample(utterances, len(utterances))
    first = build_pairs(utterances, 2, seed=7).pairs
    assert build_pairs(shuffled, 2, seed=7).pairs == first
    assert build_pairs(utterances, 2, seed=8).pairs != first


def test_where_a_speaker_has_fewer_other_clips_all_of_them_are_prompts():
    pairs = build_pairs(clips(3), pairs_per_target=10, seed=0).pairs
    assert len(pairs) == 3 * 2


def test_a_pair_has_the_facts_of_its_clips():
    utterances = [clip("a", text="ሀ", num_codes=100), clip("b", text="ለ", num_codes=150)]
    pair = build_pairs(utterances, 1, seed=0).pairs[0]
    assert (pair.target_text, pair.target_num_codes, pair.features) == ("ሀ", 100, FEATURES)
    assert (pair.target_duration_s, pair.prompt_duration_s) == (2.0, 3.0)


def test_short_clips_are_no_targets_but_still_prompts():
    utterances = [clip("a", text="ሀ"), clip("b", num_codes=3), clip("c", text="ሰላም ለዓለም")]
    result = build_pairs(utterances, 2, seed=0, min_text_len=2, min_code_len=4)
    assert {pair.target_id for pair in result.pairs} == {"c"}
    assert {pair.prompt_id for pair in result.pairs} == {"a", "b"}
    assert result.num_short_targets == 2


def test_a_speaker_with_one_clip_is_left_out_and_counted():
    result = build_pairs(clips(2) + clips(1, "lone"), 2, seed=0)
    assert result.lone_speakers == ["lone"]
    assert {pair.speaker for pair in result.pairs} == {"s"}


def test_no_pair_at_all_is_an_error():  # D16
    with pytest.raises(UserError, match="2 speakers have a single utterance"):
        build_pairs(clips(1, "a") + clips(1, "b"), 2, seed=0)


def test_an_upper_limit_draws_from_all_speakers():
    result = build_pairs(clips(50, "a") + clips(50, "b"), 2, seed=0, max_pairs=40)
    assert len(result.pairs) == 40
    assert result.num_cut == 160
    assert {pair.speaker for pair in result.pairs} == {"a", "b"}


def test_ids_with_underscores_still_give_each_pair_its_own_id():
    pairs = build_pairs([clip("a"), clip("a__b"), clip("b__c"), clip("c")], 3, seed=0).pairs
    assert len({pair.id for pair in pairs}) == len(pairs) == 12


def test_utterances_without_features_are_refused():
    with pytest.raises(UserError, match=r"'x' has no features, preprocess its manifest"):
        build_pairs([Utterance("x", Path("/x.wav"), "x", "s", 1.0)], 1, seed=0)


def test_fifty_thousand_clips_of_one_speaker_take_seconds():  # D66
    utterances = clips(50_000)
    started = time.process_time()
    assert len(build_pairs(utterances, 2, seed=0).pairs) == 100_000
    assert time.process_time() - started < 15


def test_the_result_counts_pairs_per_speaker():
    utterances = [utterance for number in range(25) for utterance in clips(2, f"s{number:02d}_")]
    shown = str(build_pairs(utterances, 1, seed=0))
    assert shown.startswith("50 pairs of 50 targets, 25 speakers\n  s00_: 2 pairs\n")
    assert shown.endswith("  s19_: 2 pairs\n  and 5 more speakers")


def test_the_pairs_file_may_lie_in_any_folder(tmp_path, capsys):  # D74
    manifest = tmp_path / "processed/train_manifest.jsonl"
    features = tmp_path / "processed/features/f.json"
    utterances = [replace(clip(id), features=features) for id in "ab"]
    write_utterances(manifest, utterances)
    output = tmp_path / "elsewhere/deep/pairs.jsonl"
    assert main([f"--manifest={manifest}", f"--output={output}"]) == 0
    assert {pair.features for pair in read_pairs(output)} == {features}
    assert "2 pairs of 2 targets, 1 speakers" in capsys.readouterr().out


def test_the_manifest_is_not_overwritten_by_its_pairs(tmp_path):
    manifest = tmp_path / "m.jsonl"
    write_utterances(manifest, clips(2))
    with pytest.raises(UserError, match="is the manifest itself"):
        main([f"--manifest={manifest}", f"--output={manifest}"])


def test_a_pairs_file_given_as_manifest_is_one_sentence_and_status_2(tmp_path):  # D75
    manifest, pairs = tmp_path / "m.jsonl", tmp_path / "p.jsonl"
    write_utterances(manifest, clips(2))
    program = [sys.executable, "-m", "tools.build_gpt_prompt_pairs"]
    subprocess.run([*program, f"--manifest={manifest}", f"--output={pairs}"], check=True, capture_output=True)
    again = [*program, f"--manifest={pairs}", f"--output={tmp_path / 'q.jsonl'}"]
    done = subprocess.run(again, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "this is a pairs file" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "q.jsonl").exists()
