"""Pairs: for each target utterance, prompts by the same speaker.

The model learns to say the target's text in the prompt's voice. So a pair is never one clip twice nor one
sentence twice; a prompt lasts 3 to 15 s, as those that users give, and is preferably of another recording, so
that the voice is learned and not the room. Each clip is a prompt about equally often.

Which of a speaker's clips are prompts for which targets.
"""

import hashlib
import itertools
import logging
import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from indextts.data.manifest import Pair, Utterance
from indextts.errors import UserError
from indextts.text.ethiopic import text_key

logger = logging.getLogger(__name__)

PROMPT_MIN_S = 3.0
PROMPT_MAX_S = 15.0
MAX_QUIET_SHARE = 0.5  # of all pairs; a speaker with more, among others, is told of


@dataclass(frozen=True)
class PairsResult:
    """Pairs, and what was left out.

    Args:
        lone_speakers: speakers with a single utterance, which nothing can be a prompt for.
        speakers_without_prompts: speakers with too few clips of 3 to 15 s: all their clips are prompts.
        num_short_targets: utterances that are too short for a target; they still serve as prompts.
        num_same_text: targets without a pair: all else that the speaker said is the same sentence.
        num_same_recording: pairs whose prompt is of the target's recording.
        num_over_limit: pairs that `max_pairs_per_speaker` took away.
        num_cut: pairs over `max_pairs`.
    """

    pairs: list[Pair]
    lone_speakers: list[str]
    speakers_without_prompts: list[str]
    num_short_targets: int
    num_same_text: int
    num_same_recording: int
    num_over_limit: int
    num_cut: int


def build_pairs(
    utterances: Iterable[Utterance],
    pairs_per_target: int,
    seed: int,
    *,
    max_pairs: int = 0,
    max_pairs_per_speaker: int = 0,
    min_text_len: int = 1,
    min_code_len: int = 1,
) -> PairsResult:
    """Return pairs, the same ones for the same utterances and seed, whatever their order.

    Args:
        utterances: preprocessed.
        pairs_per_target: prompts for each target; where a speaker has fewer other clips, all of them.
        seed: of the choice of prompts; a speaker's pairs do not depend on other speakers.
        max_pairs: if more were made, this many of them are drawn; 0 for all.
        max_pairs_per_speaker: targets get fewer prompts, and if that is not enough, some are left out;
            0 for no limit.
        min_text_len: in characters, of a target.
        min_code_len: in codes, of a target.

    Raises:
        UserError: not one pair can be made.
    """
    pairs: list[Pair] = []
    taken: set[str] = set()
    lone_speakers, without_prompts = [], []
    counts: Counter[str] = Counter()
    for (speaker, _), clips in sorted(_clips_by_voice(utterances).items()):
        if len(clips) == 1:
            lone_speakers.append(speaker)
            continue
        targets = [u for u in clips if len(u.text) >= min_text_len and (u.num_codes or 0) >= min_code_len]
        counts["short"] += len(clips) - len(targets)
        prompts = [u for u in clips if PROMPT_MIN_S <= u.duration_s <= PROMPT_MAX_S]
        if len(prompts) <= pairs_per_target:  # not so many besides the target
            without_prompts.append(speaker)
            prompts = clips
        most = min(pairs_per_target, len(clips) - 1)
        num_of = _num_prompts(_shuffled(targets, f"{seed} limit"), most, max_pairs_per_speaker)
        counts["over_limit"] += most * len(targets) - sum(num_of.values())
        dealt = _deal(_shuffled(clips, f"{seed} clips"), prompts, num_of, seed)
        for target in targets:
            counts["same_text"] += num_of[target.id] > 0 and not dealt[target.id]
            for prompt in dealt[target.id]:
                pairs.append(_pair(prompt, target, taken))
                counts["same_recording"] += None is not prompt.recording == target.recording
    if not pairs:
        raise UserError(
            f"no pair can be made: {len(lone_speakers)} speakers have a single utterance, {counts['short']} "
            f"targets are too short, {counts['same_text']} have no prompt with another sentence; a speaker "
            "needs at least 2 different utterances"
        )
    kept = _drawn(pairs, max_pairs, seed)
    return PairsResult(
        pairs=kept,
        lone_speakers=lone_speakers,
        speakers_without_prompts=without_prompts,
        num_short_targets=counts["short"],
        num_same_text=counts["same_text"],
        num_same_recording=counts["same_recording"],
        num_over_limit=counts["over_limit"],
        num_cut=len(pairs) - len(kept),
    )


def log_left_out(result: PairsResult) -> None:
    """Log with counts what is not in the pairs, and what is but not as it should be."""
    if result.lone_speakers:
        logger.warning(
            "%d speakers have a single utterance and are left out: %s",
            len(result.lone_speakers),
            _first(result.lone_speakers),
        )
    if result.speakers_without_prompts:
        logger.info(
            "%d speakers have too few clips of %g to %g s; their prompts are of any length: %s",
            len(result.speakers_without_prompts),
            PROMPT_MIN_S,
            PROMPT_MAX_S,
            _first(result.speakers_without_prompts),
        )
    for number, what in (
        (result.num_short_targets, "utterances are too short for targets"),
        (result.num_same_text, "utterances are left out: all else of their speaker is the same sentence"),
        (result.num_same_recording, "prompts are of the same recording as their target"),
        (result.num_over_limit, "pairs over --max-pairs-per-speaker are not made"),
        (result.num_cut, "pairs over the upper limit are left out, drawn by the seed"),
    ):
        if number:
            logger.info("%d %s", number, what)
    _warn_of_a_loud_speaker(result.pairs)


def _warn_of_a_loud_speaker(pairs: Sequence[Pair]) -> None:
    num_of = Counter(pair.speaker for pair in pairs)
    [(speaker, num)] = num_of.most_common(1)
    if len(num_of) > 1 and num > MAX_QUIET_SHARE * len(pairs):
        logger.warning(
            "%.0f %% of the pairs are by %s: the %d other speakers are heard little. If the model is for "
            "their voices too, give --max-pairs-per-speaker %d",
            100 * num / len(pairs),
            speaker,
            len(num_of) - 1,
            len(pairs) - num,
        )


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


def _shuffled(clips: Sequence[Utterance], salt: str) -> list[Utterance]:
    """Return the clips in an order that depends on their ids alone."""
    return sorted(clips, key=lambda clip: hashlib.sha256(f"{salt} {clip.id}".encode()).digest())


def _num_prompts(targets: Sequence[Utterance], most: int, limit: int) -> dict[str, int]:
    """Return the prompts of each target, by id: `most`, or fewer to keep a speaker's pairs to `limit`."""
    if not 0 < limit < most * len(targets):
        return {target.id: most for target in targets}
    each, more = divmod(limit, len(targets))
    return {target.id: each + (position < more) for position, target in enumerate(targets)}


def _deal(
    clips: Sequence[Utterance], prompts: Sequence[Utterance], num_of: dict[str, int], seed: int
) -> dict[str, list[Utterance]]:
    """Return the prompts of each target, by id.

    Args:
        clips: all of one speaker, in the order in which they are targets.
        prompts: clips that are prompts if they can.
        num_of: prompts that each target is to get.
    """
    dealer = PromptDealer(_shuffled(prompts, f"{seed} prompts"))
    any_dealer = PromptDealer(_shuffled(clips, f"{seed} prompts")) if len(prompts) < len(clips) else dealer
    dealt = {}
    for target in clips:
        if target.id in num_of:
            num = num_of[target.id]
            dealt[target.id] = dealer.deal(target, num) or any_dealer.deal(target, num)
    return dealt


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


REACH = 16  # clips that are looked at for a better prompt: the work grows with the clips, not their square


class PromptDealer:
    """Deals a speaker's clips like cards: who was a prompt goes to the end, so all are about equally often.

    Never the target's sound, under whatever id, nor its sentence; a clip of another recording before one of
    the same.
    """

    def __init__(self, clips: Sequence[Utterance]) -> None:
        """Begin with `clips` in this order; their ids differ."""
        self._clips = clips
        self._texts = {clip.id: text_key(clip.text) for clip in clips}
        self._waiting = deque(clips)
        self._others: dict[str, Iterator[Utterance]] = {}  # of sentences that nearly all clips have

    def deal(self, target: Utterance, num: int) -> list[Utterance]:
        """Return up to `num` different prompts for `target`; fewer only where there are no more."""
        if num == 0:
            return []
        text = text_key(target.text)
        elsewhere: list[Utterance] = []
        same_recording: list[Utterance] = []
        passed: list[Utterance] = []
        while self._waiting and len(elsewhere) < num and len(passed) < REACH:
            clip = self._waiting.popleft()
            passed.append(clip)
            if clip.features_key == target.features_key or self._texts[clip.id] == text:
                continue
            is_same = clip.recording is not None and clip.recording == target.recording
            (same_recording if is_same else elsewhere).append(clip)
        dealt = [*elsewhere, *same_recording][:num]
        ids = {clip.id for clip in dealt}
        self._waiting.extendleft(reversed([clip for clip in passed if clip.id not in ids]))
        self._waiting.extend(dealt)
        return dealt or self._with_other_text(target, text, num)

    def _with_other_text(self, target: Utterance, text: str, num: int) -> list[Utterance]:
        """Return prompts where the next clips all say `text`: in turn those that do not."""
        if text not in self._others:
            others = [clip for clip in self._clips if self._texts[clip.id] != text]
            self._others[text] = itertools.cycle(others)
        found = {clip.id: clip for clip in itertools.islice(self._others[text], num)}
        return [clip for clip in found.values() if clip.features_key != target.features_key]
