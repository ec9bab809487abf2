"""Split utterances into training and validation without overlap.

    unseen speakers   all utterances of a few speakers: measures voices that the model never heard
    seen speakers     a share of every other speaker: measures new sentences in known voices

Utterances cut from the same recording stay on the same side, and so do repetitions of a sentence by a
speaker. The side of an utterance depends on the seed, on its id or recording and on the other utterances of
its speaker, not on the order of lines. New utterances move few of the existing ones.

A split of the data (`Utterance.split`) counts instead, if it has utterances for validation or for a test;
with too few for a pair, some of its training part join them.
"""

import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from indextts.data.manifest import Utterance
from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.text.ethiopic import text_key

logger = logging.getLogger(__name__)

MIN_UTTERANCES = 6  # a speaker with fewer is not split
MIN_PER_PART = 2  # a pair needs two utterances
MIN_VAL = 20  # validation utterances: the mean of fewer is noisy
MAX_RATIO_FOR_MIN_VAL = 0.1  # keeps most utterances of a small set for training

# Unseen speakers with --val-speakers auto.
MIN_SPEAKERS = 10  # with fewer, each voice is worth more in training
MAX_UNSEEN_SPEAKERS = 20
SPEAKERS_PER_UNSEEN = 20
MAX_UNSEEN_SHARE = 0.05  # of all utterances

MAX_RECORDING_SHARE = 0.2  # of a speaker's utterances: a longer recording stays in training

Group = tuple[str, ...]
Groups = Mapping[str, Counter[Group]]  # speaker -> number of utterances in each group


@dataclass(frozen=True)
class Split:
    """Training and validation utterances, disjoint, in the order of the input."""

    train: list[Utterance]
    val: list[Utterance]
    unseen_speakers: list[str]  # speakers with all their utterances in `val`
    small_speakers: list[str]  # none of theirs in `val`: too few utterances, or too long recordings
    num_repeated: int = 0  # in neither part: held-out recordings of sentences that are in training
    is_within_recordings: bool = False  # whether there are so few recordings that both parts share some

    def __str__(self) -> str:
        unseen = set(self.unseen_speakers)
        num_unseen = sum(utterance.speaker in unseen for utterance in self.val)
        seen = {utterance.speaker for utterance in self.val} - unseen
        return (
            f"{counted(len(self.val) - num_unseen, 'utterance')} of {counted(len(seen), 'seen speaker')}, "
            f"{counted(num_unseen, 'utterance')} of {counted(len(unseen), 'unseen speaker')}"
        )


def split_utterances(
    utterances: Sequence[Utterance], val_ratio: float, seed: int, val_speakers: int | Literal["auto"] = "auto"
) -> Split:
    """Put `val_speakers` speakers and about `val_ratio` of every other speaker into validation.

    A split speaker has at least 2 utterances on each side. If validation would have fewer than `MIN_VAL`
    utterances, the ratio is raised up to a tenth.

    Raises:
        UserError: a ratio above 0 gives no validation utterance, or there are too few speakers.
    """
    if given := _given_split(utterances, val_ratio):
        if val_ratio == 0 or max(Counter(each.speaker for each in given.val).values()) >= MIN_PER_PART:
            return given
        logger.info("Too few for a pair: utterances of the training part join the validation")
        more = split_utterances(given.train, val_ratio, seed, val_speakers)
        held_out = {each.id for each in (*given.val, *more.val)}
        unseen = sorted({*given.unseen_speakers, *more.unseen_speakers})
        return replace(more, val=[each for each in utterances if each.id in held_out], unseen_speakers=unseen)
    if val_ratio == 0:
        return Split(list(utterances), [], [], [])
    ratio = max(val_ratio, min(MAX_RATIO_FOR_MIN_VAL, MIN_VAL / max(1, len(utterances))))
    split = _split_by(_group_of(utterances), utterances, ratio, seed, val_speakers)
    if not split.val and any(utterance.recording for utterance in utterances):
        ungrouped = [replace(utterance, recording=None) for utterance in utterances]
        split = _split_by(_group_of(ungrouped), utterances, ratio, seed, val_speakers)
        split = replace(split, is_within_recordings=True)
    if not split.val:
        num_speakers = len({utterance.speaker for utterance in utterances})
        raise UserError(
            f"--val-ratio {val_ratio} gives no validation utterance: none of "
            f"{counted(num_speakers, 'speaker')} has {MIN_UTTERANCES} different utterances; record more, or "
            "use --val-ratio 0"
        )
    return split


def _given_split(utterances: Sequence[Utterance], val_ratio: float) -> Split | None:
    """Return the split that the data give, a test part for validation if there is no other; None if none."""
    sides = {utterance.split for utterance in utterances}
    held_out = {"val", "test"} & sides
    if not held_out:
        return None
    train = [utterance for utterance in utterances if utterance.split not in held_out]
    side = "val" if "val" in sides else "test"
    val = [utterance for utterance in utterances if utterance.split == side and val_ratio]
    known = {utterance.speaker for utterance in train}
    logger.info("The data give the split: %d for training, %d for validation", len(train), len(val))
    if left := len(utterances) - len(train) - len(val):
        logger.info("%s of the test part not used", counted(left, "utterance"))
    return Split(train, val, sorted({utterance.speaker for utterance in val} - known), [])


def log_split(split: Split) -> None:
    """Log the sizes of the split and its limitations."""
    if not split.val:
        return
    logger.info("For validation: %s", split)
    if split.small_speakers:
        logger.info(
            "%s without validation utterances: fewer than %d utterances, or no short recording",
            counted(len(split.small_speakers), "speaker"),
            MIN_UTTERANCES,
        )
    if split.num_repeated:
        logger.info(
            "%s skipped: the speaker has the same sentence in training",
            counted(split.num_repeated, "validation utterance"),
        )
    if split.is_within_recordings:
        logger.warning(
            "There are too few recordings to keep one for validation: training and validation share "
            "recordings, so the validation loss is too optimistic"
        )


def _split_by(
    group_of: Mapping[str, Group],
    utterances: Sequence[Utterance],
    ratio: float,
    seed: int,
    val_speakers: int | Literal["auto"],
) -> Split:
    """Return the split in which each group is on one side; `group_of` is by the ids of utterances."""
    groups: dict[str, Counter[Group]] = defaultdict(Counter)
    for utterance in utterances:
        groups[utterance.speaker][group_of[utterance.id]] += 1

    def rank(name: Iterable[str]) -> bytes:
        return hashlib.sha256(" ".join([str(seed), *name]).encode()).digest()

    unseen = _unseen_speakers(groups, rank, val_speakers)
    val_groups = {group for speaker in unseen for group in groups[speaker]}
    small_speakers = []
    for speaker in sorted(groups.keys() - set(unseen)):
        chosen = _validation_groups(groups[speaker], val_groups, rank, ratio)
        if not chosen:
            small_speakers.append(speaker)
        val_groups |= chosen
    train = [utterance for utterance in utterances if group_of[utterance.id] not in val_groups]
    held_out = [utterance for utterance in utterances if group_of[utterance.id] in val_groups]
    in_training = {(utterance.speaker, text_key(utterance.text)) for utterance in train}
    val = [u for u in held_out if (u.speaker, text_key(u.text)) not in in_training]
    return Split(train, val, unseen, small_speakers, num_repeated=len(held_out) - len(val))


def _group_of(utterances: Sequence[Utterance]) -> dict[str, Group]:
    """Return the group of each id: its recording if known, else the sentence of its speaker."""
    first_of: dict[tuple[str, str], str] = {}
    for utterance in utterances:
        if utterance.recording is None:
            sentence = (utterance.speaker, text_key(utterance.text))
            first_of[sentence] = min(utterance.id, first_of.get(sentence, utterance.id))
    return {
        utterance.id: (first_of[utterance.speaker, text_key(utterance.text)],)
        if utterance.recording is None
        else ("recording", utterance.recording)
        for utterance in utterances
    }


def _unseen_speakers(
    groups: Groups, rank: Callable[[Iterable[str]], bytes], wanted: int | Literal["auto"]
) -> list[str]:
    """Return the sorted unseen speakers: the first by `rank` of those who share no recording."""
    num_speakers_of = Counter(group for counts in groups.values() for group in counts)
    alone = [
        speaker
        for speaker, counts in groups.items()
        if counts.total() >= MIN_UTTERANCES and all(num_speakers_of[group] == 1 for group in counts)
    ]
    ranked = sorted(alone, key=lambda speaker: rank(["speaker", speaker]))
    if wanted != "auto":
        if wanted > len(ranked) or (wanted and wanted >= len(groups)):
            raise UserError(
                f"--val-speakers {wanted}: {len(ranked)} of {counted(len(groups), 'speaker')} are eligible "
                f"({MIN_UTTERANCES} utterances, no shared recording), and training needs 1; use a smaller "
                "number, or auto"
            )
        return sorted(ranked[:wanted])
    if len(groups) < MIN_SPEAKERS:
        return []
    max_unseen = min(MAX_UNSEEN_SPEAKERS, -(-len(groups) // SPEAKERS_PER_UNSEEN))
    left = MAX_UNSEEN_SHARE * sum(counts.total() for counts in groups.values())
    unseen: list[str] = []
    for speaker in ranked:
        size = groups[speaker].total()
        if len(unseen) < max_unseen and size <= left:
            unseen.append(speaker)
            left -= size
    return sorted(unseen)


def _validation_groups(
    counts: Counter[Group], already: set[Group], rank: Callable[[Iterable[str]], bytes], ratio: float
) -> set[Group]:
    """Return the validation groups of a speaker, none for too few or too long ones; some may be `already`."""
    num = counts.total()
    if num < MIN_UTTERANCES:
        return set()
    wanted = min(max(MIN_PER_PART, round(ratio * num)), num - MIN_PER_PART)
    chosen = already & counts.keys()
    taken = sum(counts[group] for group in chosen)
    free = sorted(counts.keys() - chosen, key=rank)
    for group in free:
        if taken < wanted and taken + counts[group] <= min(2 * wanted, num - MIN_PER_PART):
            chosen.add(group)
            taken += counts[group]
    if taken < MIN_PER_PART and free:
        # All recordings are long: take the shortest if enough utterances remain without it.
        shortest = min(free, key=lambda group: (counts[group], rank(group)))
        if counts[shortest] <= MAX_RECORDING_SHARE * num:
            chosen.add(shortest)
            taken += counts[shortest]
    return chosen if taken >= MIN_PER_PART else set()
