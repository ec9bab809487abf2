import hashlib
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from indextts.commands.data import TextChoice
from indextts.data.feature_store import StoreInfo, store_path
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter
from indextts.data.manifest import Provenance, Utterance, read_pairs, write_utterances
from indextts.data.pair_summary import read_summary
from indextts.data.pairs import BUILTIN_LIMIT, CAMPPLUS_LIMIT, Voices, build_pairs, log_left_out, read_voices
from indextts.errors import UserError
from tools.build_gpt_prompt_pairs import main

FEATURES = Path("/data/features")


def clip(
    id: str, speaker: str = "s", text: str = "", num_codes: int = 50, recording: str | None = None
) -> Utterance:
    """Return an utterance of `num_codes` / 50 s, with a unique text by default."""
    audio, key = Path(f"/audio/{id}.wav"), hashlib.sha256(id.encode()).hexdigest()
    text = text or f"ሰላም {id}"
    return Utterance(
        id, audio, text, speaker, num_codes / 50, "am", recording, None, None, FEATURES, key, num_codes
    )


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


def test_pairs_depend_on_the_seed_and_not_on_the_order_of_lines():
    utterances = clips(50)
    shuffled = random.Random(0).sample(utterances, len(utterances))
    first = build_pairs(utterances, 2, seed=7).pairs
    assert build_pairs(shuffled, 2, seed=7).pairs == first
    assert build_pairs(utterances, 2, seed=8).pairs != first


def test_short_clips_are_prompts_but_not_targets():
    utterances = [clip("a", text="ሀ"), clip("b", num_codes=3), clip("c")]
    result = build_pairs(utterances, 2, seed=0, min_text_len=2, min_code_len=4)
    assert {pair.target_id for pair in result.pairs} == {"c"}
    assert {pair.prompt_id for pair in result.pairs} == {"a", "b"}
    assert result.counts["short"] == 2


def test_a_speaker_with_one_clip_is_left_out_and_counted():
    result = build_pairs(clips(2) + clips(1, "lone"), 2, seed=0)
    assert result.lone_speakers == ["lone"]
    assert {pair.speaker for pair in result.pairs} == {"s"}


def test_an_upper_limit_samples_from_all_speakers():
    result = build_pairs(clips(50, "a") + clips(50, "b"), 2, seed=0, max_pairs=40)
    assert len(result.pairs) == 40
    assert result.counts["cut"] == 160
    assert {pair.speaker for pair in result.pairs} == {"a", "b"}


def test_utterances_without_features_are_refused():
    with pytest.raises(UserError, match=r"'x' .*tools/preprocess_data\.py"):
        build_pairs([Utterance("x", Path("/x.wav"), "x", "s", 1.0)], 1, seed=0)


def test_a_clip_is_never_paired_with_its_own_sentence():
    texts = ["ሠላም፣ ነው።", "ሰላም ነው", "ሰላም ነው?", "እሺ", "ደህና"]
    utterances = [clip(f"c{number}", text=text) for number, text in enumerate(texts)]
    repeated = {"c0", "c1", "c2"}
    pairs = build_pairs(utterances, 4, seed=0).pairs
    assert {(pair.target_id in repeated and pair.prompt_id in repeated) for pair in pairs} == {False}
    assert {pair.target_id for pair in pairs} == {"c0", "c1", "c2", "c3", "c4"}


def test_a_speaker_who_says_nearly_always_the_same_still_has_pairs_with_other_sentences():
    utterances = [clip(f"c{number:04d}", text="እሺ") for number in range(500)] + [clip("x"), clip("y")]
    result = build_pairs(utterances, 1, seed=0)
    assert len(result.pairs) == 502
    assert {pair.prompt_id for pair in result.pairs if pair.target_text == "እሺ"} == {"x", "y"}


def test_prompts_last_3_to_15_seconds_if_the_speaker_has_enough():
    lengths = [0.5, 2.98, 3.0, 9.0, 15.0, 15.02, 30.0]
    of_a = [clip(f"a{n}", "a", num_codes=round(50 * length)) for n, length in enumerate(lengths)]
    result = build_pairs([*of_a, *clips(4, "b")], 2, seed=0)
    prompts_of_a = {pair.prompt_id for pair in result.pairs if pair.speaker == "a"}
    assert prompts_of_a == {"a2", "a3", "a4"}
    assert {pair.target_id for pair in result.pairs} >= {clip.id for clip in of_a}
    assert result.speakers_without_prompts == ["b"]


def test_a_target_whose_good_prompts_have_its_sentence_gets_another_prompt():
    good = [clip(f"g{number}", text="እሺ", num_codes=200) for number in range(3)]
    pairs = build_pairs([*good, clip("short")], 2, seed=0).pairs
    assert {(pair.target_id, pair.prompt_id) for pair in pairs} >= {(f"g{n}", "short") for n in range(3)}


def test_prompts_are_of_another_recording_than_the_target():
    utterances = [clip(f"c{n:03d}", num_codes=200, recording=f"video{n // 50}") for n in range(200)]
    recording_of = {utterance.id: utterance.recording for utterance in utterances}
    result = build_pairs(utterances, 2, seed=0)
    assert all(recording_of[pair.prompt_id] != recording_of[pair.target_id] for pair in result.pairs)
    assert result.counts["same_recording"] == 0


def test_prompts_from_the_same_recording_are_used_if_needed_and_counted():
    result = build_pairs([clip(str(n), recording="video") for n in range(10)], 2, seed=0)
    assert (len(result.pairs), result.counts["same_recording"]) == (20, 20)


@pytest.mark.parametrize("num_recordings", [1, 2, 7, 100])
def test_each_clip_is_a_prompt_about_equally_often(num_recordings):
    recording = random.Random(0).choices(range(num_recordings), k=300)
    utterances = [
        clip(f"c{n:03d}", num_codes=200, recording=f"v{recording[n]}", text=f"{n % 250}") for n in range(300)
    ]
    uses = Counter(pair.prompt_id for pair in build_pairs(utterances, 3, seed=0).pairs)
    assert len(uses) == 300
    assert (min(uses.values()), max(uses.values())) in {(3, 3), (2, 4), (2, 3), (3, 4)}


def test_a_limit_for_each_speaker_takes_prompts_first_and_then_targets():
    utterances = clips(100, "a") + clips(10, "b")

    def made(limit: int) -> tuple[int, int, int, int]:
        result = build_pairs(utterances, 2, seed=0, max_pairs_per_speaker=limit)
        of_a = [pair.target_id for pair in result.pairs if pair.speaker == "a"]
        return len(of_a), len(set(of_a)), len(result.pairs) - len(of_a), result.counts["over_limit"]

    assert made(0) == (200, 100, 20, 0)
    assert made(150) == (150, 100, 20, 50)
    assert made(40) == (40, 40, 20, 160)


def test_a_speaker_with_most_of_the_pairs_causes_a_warning(caplog):
    log_left_out(build_pairs(clips(100, "loud") + clips(20, "quiet"), 2, seed=0))
    assert "83 %" in caplog.text
    assert " loud" in caplog.text
    assert "--max-pairs-per-speaker 40" in caplog.text
    caplog.clear()
    log_left_out(build_pairs(clips(100, "alone"), 2, seed=0))
    assert "--max-pairs-per-speaker" not in caplog.text


def test_the_pairs_file_can_be_in_any_folder(tmp_path, capsys):  # D74
    manifest = tmp_path / "processed/train_manifest.jsonl"
    features = tmp_path / "processed/features/f.json"
    utterances = [replace(clip(id), features=features) for id in "ab"]
    write_utterances(manifest, utterances)
    output = tmp_path / "elsewhere/deep/pairs.jsonl"
    assert main([f"--manifest={manifest}", f"--output={output}"]) == 0
    assert {pair.features for pair in read_pairs(output)} == {features}
    assert "2 pairs for 2 targets, speakers: 1" in capsys.readouterr().out
    assert read_summary(output).num_pairs == 2


def test_the_manifest_is_not_overwritten_by_its_pairs(tmp_path):
    manifest = tmp_path / "m.jsonl"
    write_utterances(manifest, clips(2))
    with pytest.raises(UserError, match=rf"^--output {manifest} "):
        main([f"--manifest={manifest}", f"--output={manifest}"])


def test_only_targets_need_a_text_that_people_or_two_recognizers_vouch_for():
    one, two = (Provenance(kind="heard", by=by) for by in (("a",), ("a", "b")))
    reviewed = Provenance(kind="given", is_reviewed=True)
    found = {"given": None, "heard": one, "agreed": two, "reviewed": reviewed}
    utterances = [replace(clip(name), provenance=each) for name, each in found.items()]

    def targets(only: TextChoice) -> set[str]:
        result = build_pairs(utterances, 3, seed=0, only=only)
        assert {pair.prompt_id for pair in result.pairs} == set(found)  # a prompt's text is never used
        assert all(pair.target_text_origin == pair.target_id for pair in result.pairs)
        return {pair.target_id for pair in result.pairs}

    assert targets("all") == set(found)
    assert targets("agreed") == {"given", "agreed", "reviewed"}
    assert targets("reviewed") == {"given", "reviewed"}


def voices_of(clips: list[Utterance], people: dict[str, list[float]], limit: float) -> dict[Path, Voices]:
    """Return a vector of length 1 for each clip, that of the person whose name its id begins with."""
    rows = {clip.features_key: np.array(people[clip.id[0]], np.float32) for clip in clips}
    return {FEATURES: Voices({key: row / np.linalg.norm(row) for key, row in rows.items()}, limit)}


@pytest.mark.parametrize("sizes", [{"a": 30, "b": 30}, {"a": 200, "b": 3}, {"a": 40, "b": 30, "c": 2}])
def test_pairs_of_a_label_that_hides_several_people_are_of_one(sizes):
    people = {"a": [1.0, 0.0, 0.1], "b": [0.0, 1.0, 0.1], "c": [0.1, 0.1, 1.0]}
    clips = [clip(f"{name}{n:03d}") for name, size in sizes.items() for n in range(size)]
    result = build_pairs(clips, 2, seed=0, voices=voices_of(clips, people, 0.5))
    assert all(pair.prompt_id[0] == pair.target_id[0] for pair in result.pairs)
    assert len({pair.target_id for pair in result.pairs}) == len(clips)
    assert max(Counter(pair.prompt_id for pair in result.pairs).values()) <= 3
    assert result.counts["other_voices"] == 0
    shuffled = random.Random(0).sample(clips, len(clips))
    assert build_pairs(shuffled, 2, seed=0, voices=voices_of(clips, people, 0.5)).pairs == result.pairs


def test_a_target_without_a_near_prompt_is_counted_and_without_a_limit_has_one(caplog):
    clips = [clip("a0"), clip("a1"), clip("b0")]
    voices = voices_of(clips, {"a": [1.0, 0.0], "b": [0.0, 1.0]}, 0.5)
    with caplog.at_level("INFO"):
        log_left_out(result := build_pairs(clips, 2, seed=0, voices=voices))
    assert (result.counts["other_voices"], dict(result.without_similar)) == (1, {"s": 1})
    assert "1 utterance skipped" in caplog.text
    assert len({pair.target_id for pair in build_pairs(clips, 2, seed=0).pairs}) == 3


@pytest.mark.parametrize(
    ("base", "backend", "typed", "limit"),
    [
        ("2.5", "builtin", None, BUILTIN_LIMIT),
        ("2.5", "indextts2", None, CAMPPLUS_LIMIT),
        ("2.5", "builtin", 0.7, 0.7),
        ("2.5", "builtin", 0.0, None),
        ("2.0", "builtin", None, None),
    ],
)
def test_the_voices_are_the_style_vectors_of_the_features(tmp_path, base, backend, typed, limit):
    styles = np.array([[3.0, 0.0, 4.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]], np.float32)
    info = StoreInfo(backend, "b", "e", model_dim=3, num_latents=1, base=base, condition_dim=3)
    writer = FeatureStoreWriter(tmp_path, info)
    utterances = [replace(clip(f"c{n}"), features=store_path(tmp_path, info)) for n in range(3)]
    for utterance, style in zip(utterances, styles, strict=True):
        key, zeros = utterance.features_key, np.zeros(3, np.float32)
        writer.add(EncodedUtterance(utterance.id, key, np.zeros(2, np.int64), style[None], zeros))
        writer.flush()  # a shard each
    voices = read_voices(utterances, typed)
    assert [each.limit for each in voices.values()] == ([] if limit is None else [limit])
    for found in voices.values():
        unit = styles / np.linalg.norm(styles, axis=1, keepdims=True)
        np.testing.assert_array_equal(found.rows(utterances), unit)
        np.testing.assert_array_equal(found.rows([clip("absent")]), np.zeros((1, 3)))
