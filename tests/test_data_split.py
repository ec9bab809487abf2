import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from indextts.data.manifest import Utterance
from indextts.data.split import log_split, split_utterances
from indextts.errors import UserError
from indextts.text.ethiopic import text_key


def recorded(id: str, speaker: str, text: str = "", recording: str | None = None) -> Utterance:
    return Utterance(id, Path(f"/{id}.wav"), text or f"ሰላም {id}", speaker, 1.0, recording=recording)


def utterances(speakers: str) -> list[Utterance]:
    return [recorded(f"{speaker}{n}", speaker) for n, speaker in enumerate(speakers)]


def cut(speaker: str, *sizes: int) -> list[Utterance]:
    """Return utterances of a speaker, with `sizes` utterances per recording."""
    return [
        recorded(f"{speaker}{number}_{n}", speaker, recording=f"{speaker} video {number}")
        for number, size in enumerate(sizes)
        for n in range(size)
    ]


def ids(part: list[Utterance]) -> set[str]:
    return {utterance.id for utterance in part}


def test_the_split_is_disjoint_and_takes_a_share_of_each_speaker():
    everything = utterances("a" * 100 + "b" * 6 + "c" * 5 + "d" * 40)
    split = split_utterances(everything, 0.1, seed=0)
    assert Counter(u.speaker for u in split.val) == {"a": 10, "b": 2, "d": 4}
    assert split.small_speakers == ["c"]
    assert split.unseen_speakers == []
    assert ids(split.train) | ids(split.val) == ids(everything)
    assert len(split.train) + len(split.val) == len(everything)


def test_the_split_depends_on_ids_and_seed_and_not_on_the_order():
    everything = utterances("a" * 50 + "b" * 50) + cut("c", *[5] * 10)
    shuffled = random.Random(0).sample(everything, len(everything))
    val = ids(split_utterances(everything, 0.1, seed=0).val)
    assert ids(split_utterances(shuffled, 0.1, seed=0).val) == val
    assert ids(split_utterances(everything, 0.1, seed=1).val) != val


def test_clips_of_one_recording_are_on_one_side():  # D16
    everything = cut("a", *range(1, 40)) + cut("b", *[20] * 30)
    split = split_utterances(everything, 0.05, seed=0)
    assert {u.recording for u in split.train} & {u.recording for u in split.val} == set()
    wanted = {speaker: 0.05 * num for speaker, num in Counter(u.speaker for u in everything).items()}
    for speaker, num in Counter(u.speaker for u in split.val).items():
        assert wanted[speaker] <= num <= 2 * wanted[speaker]
    assert not split.is_within_recordings


def test_a_recording_of_two_speakers_is_on_one_side_for_both():
    everything = [
        recorded(f"{speaker}{video:02d}_{n}", speaker, recording=f"talk {video}")
        for video in range(40)
        for speaker in ("host", f"guest {video % 3}")
        for n in range(4)
    ]
    split = split_utterances(everything, 0.1, seed=0)
    assert {u.speaker for u in split.val} >= {"host", "guest 0", "guest 1", "guest 2"}
    assert {u.recording for u in split.train} & {u.recording for u in split.val} == set()
    assert split.unseen_speakers == []


def test_a_sentence_that_a_speaker_says_twice_is_on_one_side():
    everything = [recorded(f"{spk}{n:03d}", spk, text=f"ሰላም {n % 60}።") for spk in "ab" for n in range(120)]
    split = split_utterances(everything, 0.1, seed=0)
    taught = {(u.speaker, text_key(u.text)) for u in split.train}
    assert taught & {(u.speaker, text_key(u.text)) for u in split.val} == set()
    assert len(split.val) == 24
    assert len(split.train) == 216


def test_a_repeated_sentence_of_a_recording_for_validation_is_in_neither_part(caplog):
    caplog.set_level("INFO")
    everything = [
        recorded(f"{video:02d}_{n}", "a", "እሺ" if n == 0 else "", recording=f"video {video}")
        for video in range(20)
        for n in range(10)
    ]
    split = split_utterances(everything, 0.1, seed=0)
    assert (len({u.recording for u in split.val}), split.num_repeated) == (2, 2)
    assert "እሺ" not in {u.text for u in split.val}
    assert len(split.train) + len(split.val) == 198
    log_split(split)
    assert "2 validation utterances " in caplog.text


def test_of_many_speakers_some_are_only_in_validation():
    everything = [recorded(f"s{spk:02d}_{n}", f"s{spk:02d}") for spk in range(60) for n in range(20)]
    split = split_utterances(everything, 0.1, seed=0)
    assert len(split.unseen_speakers) == 3
    unseen = set(split.unseen_speakers)
    assert unseen & {u.speaker for u in split.train} == set()
    assert Counter(u.speaker in unseen for u in split.val) == {True: 60, False: 57 * 2}
    assert re.findall(r"\d+", str(split)) == ["114", "57", "60", "3"]


def test_the_number_of_unseen_speakers_can_be_given():
    everything = utterances("abcd" * 10)
    split = split_utterances(everything, 0.1, seed=0, val_speakers=2)
    assert len(split.unseen_speakers) == 2
    assert {u.speaker for u in split.train} == set("abcd") - set(split.unseen_speakers)
    assert split_utterances(everything * 1, 0.1, seed=0, val_speakers=0).unseen_speakers == []
    with pytest.raises(UserError, match=r"^--val-speakers 4: 4 of 4 speakers .*6 utterances"):
        split_utterances(everything, 0.1, seed=0, val_speakers=4)


def test_a_single_recording_is_split_with_a_warning(caplog):
    split = split_utterances(cut("a", 100), 0.1, seed=0)
    assert (len(split.train), len(split.val), split.is_within_recordings) == (90, 10, True)
    log_split(split)
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


def test_a_small_ratio_still_gives_enough_to_validate_on():
    assert len(split_utterances(utterances("a" * 1000), 0.001, seed=0).val) == 20
    assert len(split_utterances(utterances("a" * 60), 0.001, seed=0).val) == 6


def test_new_utterances_move_few_old_ones():
    old = [recorded(f"s{spk:02d}_{n:03d}", f"s{spk:02d}") for spk in range(40) for n in range(100)]
    new = [recorded(f"s{spk:02d}_{n:03d}", f"s{spk:02d}") for spk in range(40) for n in range(100, 110)]
    new += [recorded(f"t{spk:02d}_{n:03d}", f"t{spk:02d}") for spk in range(4) for n in range(100)]
    before, after = split_utterances(old, 0.05, seed=0), split_utterances(old + new, 0.05, seed=0)
    kept_speakers = set(before.unseen_speakers) ^ set(after.unseen_speakers)
    moved = (ids(before.val) ^ ids(after.val)) & ids(old)
    moved = {id for id in moved if id.split("_")[0] not in kept_speakers}
    assert len(kept_speakers) <= 2
    assert len(moved) < 40  # of 4,000, after adding a tenth


def test_a_ratio_of_zero_keeps_everything_for_training():
    split = split_utterances(utterances("ab" * 20), 0, seed=0, val_speakers=1)
    assert (len(split.train), split.val) == (40, [])


def test_speakers_with_too_few_utterances_are_an_error():  # D16
    with pytest.raises(UserError, match=r"^--val-ratio .* 3 speakers .* 6 "):
        split_utterances(utterances("abc" * 3), 0.1, seed=0)


@pytest.mark.parametrize(
    ("sides", "train", "val"),
    [
        (["train", "val", None, "val", "test", "train"], "025", "13"),
        (["train", "test", "train", "test", None], "024", "13"),
        (["val", "val", "train", "train", "train"], "234", "01"),
    ],
)
def test_the_split_of_the_data_is_kept(sides: list[str | None], train: str, val: str):
    given = [replace(recorded(str(n), "s"), split=side) for n, side in enumerate(sides)]
    split = split_utterances(given, 0.5, seed=0)
    assert "".join(utterance.id for utterance in split.train) == train
    assert "".join(utterance.id for utterance in split.val) == val
    assert not split_utterances(given, 0, seed=0).val


def test_too_few_validation_clips_of_the_data_get_company():
    given = [replace(each, split="train") for each in utterances("a" * 30)]
    given[7] = replace(given[7], split="val", speaker="new")  # alone: no pair is possible
    split = split_utterances(given, 0.05, seed=0)
    assert split.unseen_speakers == ["new"]
    assert split.val == [each for each in given if each in split.val]
    assert given[7] in split.val
    assert len(split.val) > 2
    assert not ids(split.val) & ids(split.train)
