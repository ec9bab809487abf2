"""Which utterances are for validation: a share of each speaker, by a hash of the id."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from indextts.errors import UserError
from indextts.manifest import Utterance

MIN_UTTERANCES = 6  # a speaker with fewer has none to spare
MIN_PER_PART = 2  # a pair needs two utterances, on either side


@dataclass(frozen=True)
class Split:
    """Training and validation utterances, disjoint, in the order of the input.

    Args:
        small_speakers: speakers with too few utterances for validation.
    """

    train: list[Utterance]
    val: list[Utterance]
    small_speakers: list[str]


def split_utterances(utterances: Sequence[Utterance], val_ratio: float, seed: int) -> Split:
    """Keep about `val_ratio` of each speaker for validation, at least 2 utterances and at most all but 2.

    An utterance's place depends on its id, the seed and its speaker's other ids, not on the order of lines.

    Raises:
        UserError: a ratio above 0 gives no validation utterance.
    """
    if val_ratio == 0:
        return Split(list(utterances), [], [])
    ids_of: dict[str, list[str]] = defaultdict(list)
    for utterance in utterances:
        ids_of[utterance.speaker].append(utterance.id)
    small_speakers = sorted(speaker for speaker, ids in ids_of.items() if len(ids) < MIN_UTTERANCES)
    val_ids: set[str] = set()
    for speaker in ids_of.keys() - set(small_speakers):
        ids = sorted(ids_of[speaker], key=lambda id: hashlib.sha256(f"{seed} {id}".encode()).digest())
        wanted = max(MIN_PER_PART, round(val_ratio * len(ids)))
        val_ids.update(ids[: min(wanted, len(ids) - MIN_PER_PART)])
    if not val_ids:
        raise UserError(
            f"--val-ratio {val_ratio} keeps no utterance for validation: none of {len(ids_of)} speakers has "
            f"{MIN_UTTERANCES} utterances; record more, or give --val-ratio 0"
        )
    return Split(
        train=[utterance for utterance in utterances if utterance.id not in val_ids],
        val=[utterance for utterance in utterances if utterance.id in val_ids],
        small_speakers=small_speakers,
    )
