"""Which utterances are for validation, so that what is heard there was not trained on.

    unseen speakers   a few speakers, wholly: how well the model does voices that it never heard
    seen speakers     a share of each other speaker: how well it says new sentences in a voice that it knows

What was cut from one recording stays on one side, and so does a sentence that a speaker said more than once.
An utterance's place depends on the seed, on its id or recording and on what else its speaker said, not on the
order of lines; new utterances move few of the old ones.
"""

import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from indextts.data.manifest import Utterance
from indextts.errors import UserError
from indextts.text.ethiopic import text_key

logger = logging.getLogger(__name__)

MIN_UTTERANCES = 6  # a speaker with fewer has none to spare
MIN_PER_PART = 2  # a pair needs two utterances, on either side
MIN_VAL = 20  # utterances for validation: the mean of fewer jumps about
MAX_RATIO_FOR_MIN_VAL = 0.1  # but a small set keeps its utterances for training

# Unseen speakers, if it is left to the program.
MIN_SPEAKERS = 10  # with fewer, each voice is worth more in training
MAX_UNSEEN_SPEAKERS = 20
ONE_UNSEEN_OF = 20  # speakers
MAX_UNSEEN_SHARE = 0.05  # of all utterances

MAX_SPARED_SHARE = 0.2  # of a speaker: a longer recording is not given to validation

Group = tuple[str, ...]
Groups = Mapping[str, Counter[Group]]  # speaker -> how many of their utterances are in each group


@dataclass(frozen=True)
class Split:
    """Training and validation utterances, disjoint, in the order of the input.

    Args:
        unseen_speakers: have all their utterances in `val`.
        small_speakers: have none in `val`: too few utterances, or no recording that can be spared.
        num_repeated: utterances in neither part: cut from a recording that is for validation, with a
            sentence that their speaker says in training too.
        is_within_recordings: the data are of so few recordings that one had to be on both sides.
    """

    train: list[Utterance]
    val: list[Utterance]
    unseen_speakers: list[str]
    small_speakers: list[str]
    num_repeated: int = 0
    is_within_recordings: bool = False

    def __str__(self) -> str:
        unseen = set(self.unseen_speakers)
        num_unseen = sum(utterance.speaker in unseen for utterance in self.val)
        seen = {utterance.speaker for utterance in self.val} - unseen
        return (
            f"{len(self.val) - num_unseen} utterances of {len(seen)} speakers that are trained on, "
            f"{num_unseen} of {len(unseen)} speakers that are not"
        )


def split_utterances(
    utterances: Sequence[Utterance],
    val_ratio: float,
    seed: int,
    val_speakers: int | Literal["auto"] = "auto",
) -> Split:
    """Keep `val_speakers` for validation, and about `val_ratio` of each other speaker.

    A speaker who is split has at least 2 utterances on each side. If validation would have fewer than
    `MIN_VAL` utterances, the ratio is raised up to a tenth.

    Raises:
        UserError: a ratio above 0 gives no validation utterance, or there are not so many speakers.
    """
    if val_ratio == 0:
        return Split(list(utterances), [], [], [])
    ratio = max(val_ratio, min(MAX_RATIO_FOR_MIN_VAL, MIN_VAL / max(1, len(utterances))))
    split = _split_by(_group_of(utterances), utterances, ratio, seed, val_speakers)
    if not split.val and any(utterance.recording for utterance in utterances):
        apart = [replace(utterance, recording=None) for utterance in utterances]
        split = _split_by(_group_of(apart), utterances, ratio, seed, val_speakers)
        split = replace(split, is_within_recordings=True)
    if not split.val:
        num_speakers = len({utterance.speaker for utterance in utterances})
        raise UserError(
            f"--val-ratio {val_ratio} keeps no utterance for validation: none of {num_speakers} speakers has "
            f"{MIN_UTTERANCES} different utterances; record more, or give --val-ratio 0"
        )
    return split


def log_split(split: Split) -> None:
    """Log how the utterances were divided, and what could not be as it should."""
    if not split.val:
        return
    logger.info("For validation: %s", split)
    if split.small_speakers:
        logger.info(
            "%d speakers have none for validation: fewer than %d utterances, or no recording to spare",
            len(split.small_speakers),
            MIN_UTTERANCES,
        )
    if split.num_repeated:
        logger.info(
            "%d utterances are in neither part: their speaker says the same sentence in training",
            split.num_repeated,
        )
    if split.is_within_recordings:
        logger.warning(
            "All is cut from too few recordings to keep one for validation: training and validation share "
            "recordings, and validation looks better than it is"
        )


def _split_by(
    group_of: Mapping[str, Group],
    utterances: Sequence[Utterance],
    ratio: float,
    seed: int,
    val_speakers: int | Literal["auto"],
) -> Split:
    """Return the split in which each group is on one side.

    Args:
        group_of: of each utterance's id.
    """
    groups: dict[str, Counter[Group]] = defaultdict(Counter)
    for utterance in utterances:
        groups[utterance.speaker][group_of[utterance.id]] += 1

    def rank(name: Iterable[str]) -> bytes:
        return hashlib.sha256(" ".join([str(seed), *name]).encode()).digest()

    unseen = _unseen_speakers(groups, rank, val_speakers)
    val_groups = {group for speaker in unseen for group in groups[speaker]}
    small_speakers = []
    for speaker in sorted(groups.keys() - set(unseen)):
        spared = _spared(groups[speaker], val_groups, rank, ratio)
        if not spared:
            small_speakers.append(speaker)
        val_groups |= spared
    is_val = [group_of[utterance.id] in val_groups for utterance in utterances]
    train = [utterance for utterance, kept in zip(utterances, is_val, strict=True) if not kept]
    taught = {(utterance.speaker, text_key(utterance.text)) for utterance in train}
    held = [utterance for utterance, kept in zip(utterances, is_val, strict=True) if kept]
    val = [utterance for utterance in held if (utterance.speaker, text_key(utterance.text)) not in taught]
    return Split(train, val, unseen, small_speakers, num_repeated=len(held) - len(val))


def _group_of(utterances: Sequence[Utterance]) -> dict[str, Group]:
    """Return for each id what must stay together: its recording, else the same sentence of its speaker."""
    first_of: dict[tuple[str, str], str] = {}
    for utterance in utterances:
        if utterance.recording is None:
            said = (utterance.speaker, text_key(utterance.text))
            first_of[said] = min(utterance.id, first_of.get(said, utterance.id))
    return {
        utterance.id: (first_of[utterance.speaker, text_key(utterance.text)],)
        if utterance.recording is None
        else ("recording", utterance.recording)
        for utterance in utterances
    }


def _unseen_speakers(
    groups: Groups, rank: Callable[[Iterable[str]], bytes], wanted: int | Literal["auto"]
) -> list[str]:
    """Return the speakers to keep wholly, sorted: those who share no recording, in the order of `rank`."""
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
                f"--val-speakers {wanted}: of {len(groups)} speakers {len(ranked)} have {MIN_UTTERANCES} "
                "utterances and share no recording with others, and one must be left; give fewer, or auto"
            )
        return sorted(ranked[:wanted])
    if len(groups) < MIN_SPEAKERS:
        return []
    most = min(MAX_UNSEEN_SPEAKERS, -(-len(groups) // ONE_UNSEEN_OF))
    left = MAX_UNSEEN_SHARE * sum(counts.total() for counts in groups.values())
    unseen: list[str] = []
    for speaker in ranked:
        size = groups[speaker].total()
        if len(unseen) < most and size <= left:
            unseen.append(speaker)
            left -= size
    return sorted(unseen)


def _spared(
    counts: Counter[Group], already: set[Group], rank: Callable[[Iterable[str]], bytes], ratio: float
) -> set[Group]:
    """Return the groups of one speaker for validation, none if none can be spared.

    Args:
        already: groups that other speakers gave, perhaps with utterances of this one.
    """
    num = counts.total()
    if num < MIN_UTTERANCES:
        return set()
    wanted = min(max(MIN_PER_PART, round(ratio * num)), num - MIN_PER_PART)
    spared = already & counts.keys()
    taken = sum(counts[group] for group in spared)
    free = sorted(counts.keys() - spared, key=rank)
    for group in free:
        if taken < wanted and taken + counts[group] <= min(2 * wanted, num - MIN_PER_PART):
            spared.add(group)
            taken += counts[group]
    if taken < MIN_PER_PART and free:
        # each recording is long: the shortest, if the speaker has enough without it
        shortest = min(free, key=lambda group: (counts[group], rank(group)))
        if counts[shortest] <= MAX_SPARED_SHARE * num:
            spared.add(shortest)
            taken += counts[shortest]
    return spared if taken >= MIN_PER_PART else set()
