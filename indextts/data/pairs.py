"""Pairs: for each target utterance, prompts by the same speaker.

The model learns to say the target's text in the prompt's voice, so a pair is never one clip twice.
"""

import logging
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from indextts.errors import UserError
from indextts.manifest import Pair, Utterance

logger = logging.getLogger(__name__)

MAX_SPEAKERS_SHOWN = 20


@dataclass(frozen=True)
class PairsResult:
    """Pairs, and what was left out.

    Args:
        lone_speakers: speakers with a single utterance, which nothing can be a prompt for.
        num_short_targets: utterances that are too short for a target; they still serve as prompts.
        num_cut: pairs over `max_pairs`.
    """

    pairs: list[Pair]
    lone_speakers: list[str]
    num_short_targets: int
    num_cut: int

    def __str__(self) -> str:
        num_by_speaker: dict[str, int] = defaultdict(int)
        for pair in self.pairs:
            num_by_speaker[pair.speaker] += 1
        shown = sorted(num_by_speaker)[:MAX_SPEAKERS_SHOWN]
        num_targets = len({pair.target_id for pair in self.pairs})
        lines = [f"{len(self.pairs)} pairs of {num_targets} targets, {len(num_by_speaker)} speakers"]
        lines += [f"  {speaker}: {num_by_speaker[speaker]} pairs" for speaker in shown]
        if len(num_by_speaker) > len(shown):
            lines.append(f"  and {len(num_by_speaker) - len(shown)} more speakers")
        return "\n".join(lines)


def build_pairs(
    utterances: Iterable[Utterance],
    pairs_per_target: int,
    seed: int,
    *,
    max_pairs: int = 0,
    min_text_len: int = 1,
    min_code_len: int = 1,
) -> PairsResult:
    """Return pairs, the same ones for the same utterances and seed, whatever their order.

    Args:
        utterances: preprocessed.
        pairs_per_target: prompts for each target; where a speaker has fewer other clips, all of them.
        seed: of the choice of prompts; a target's prompts do not depend on other speakers.
        max_pairs: if more were made, this many of them are drawn; 0 for all.
        min_text_len: in characters, of a target.
        min_code_len: in codes, of a target.

    Raises:
        UserError: not one pair can be made.
    """
    pairs: list[Pair] = []
    taken: set[str] = set()
    lone_speakers = []
    num_short = 0
    for (speaker, _), clips in sorted(_clips_by_voice(utterances).items()):
        if len(clips) == 1:
            lone_speakers.append(speaker)
            continue
        for position, target in enumerate(clips):
            if len(target.text) < min_text_len or (target.num_codes or 0) < min_code_len:
                num_short += 1
                continue
            for prompt in _prompts(clips, position, pairs_per_target, seed):
                pairs.append(_pair(prompt, target, taken))
    if not pairs:
        raise UserError(
            f"no pair can be made: {len(lone_speakers)} speakers have a single utterance and {num_short} "
            "targets are too short; a speaker needs at least 2 utterances"
        )
    kept = _drawn(pairs, max_pairs, seed)
    return PairsResult(kept, lone_speakers, num_short, len(pairs) - len(kept))


def log_left_out(result: PairsResult) -> None:
    """Log what is not in the pairs, with counts."""
    if result.lone_speakers:
        logger.warning(
            "%d speakers have a single utterance and are left out: %s",
            len(result.lone_speakers),
            _first(result.lone_speakers),
        )
    if result.num_short_targets:
        logger.info("%d utterances are too short for targets", result.num_short_targets)
    if result.num_cut:
        logger.info("%d pairs over the upper limit are left out, drawn by the seed", result.num_cut)


def _clips_by_voice(utterances: Iterable[Utterance]) -> dict[tuple[str, Path], list[Utterance]]:
    """Return each speaker's clips sorted by id; a pair's two clips are in one feature store."""
    clips_of: dict[tuple[str, Path], list[Utterance]] = defaultdict(list)
    for utterance in utterances:
        if utterance.features is None:
            raise UserError(
                f"utterance {utterance.id!r} has no features, preprocess its manifest with "
                "tools/preprocess_data.py first"
            )
        clips_of[utterance.speaker, utterance.features].append(utterance)
    for clips in clips_of.values():
        clips.sort(key=lambda utterance: utterance.id)
    return clips_of


def _prompts(clips: Sequence[Utterance], position: int, num_prompts: int, seed: int) -> list[Utterance]:
    """Return distinct other clips, drawn without touching all of them: the work grows with the clips."""
    rng = random.Random(f"{seed} {clips[position].id}")
    others = range(len(clips) - 1)
    drawn = rng.sample(others, min(num_prompts, len(others)))
    return [clips[index + (index >= position)] for index in drawn]


def _pair(prompt: Utterance, target: Utterance, taken: set[str]) -> Pair:
    assert target.features is not None
    assert target.num_codes is not None
    assert target.features_key is not None
    assert prompt.features_key is not None
    id = f"{target.id}__{prompt.id}"
    while id in taken:  # ids with "__" in them: a__b + c and a + b__c
        id += "_"
    taken.add(id)
    return Pair(
        id=id,
        speaker=target.speaker,
        prompt_id=prompt.id,
        target_id=target.id,
        target_text=target.text,
        target_num_codes=target.num_codes,
        target_duration_s=target.duration_s,
        prompt_duration_s=prompt.duration_s,
        features=target.features,
        prompt_key=prompt.features_key,
        target_key=target.features_key,
    )


def _drawn(pairs: list[Pair], max_pairs: int, seed: int) -> list[Pair]:
    if not 0 < max_pairs < len(pairs):
        return pairs
    drawn = random.Random(seed).sample(range(len(pairs)), max_pairs)
    return [pairs[index] for index in sorted(drawn)]


def _first(names: Sequence[str], limit: int = 5) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
