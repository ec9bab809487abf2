"""Build pairs: prompts by the same speaker for each target utterance.

The model learns to speak the target's text in the prompt's voice. Prompt and target are therefore different
clips with different sentences and similar voices. A prompt lasts 3 to 15 s, like those of
users, and preferably comes from another recording, so that the model learns the voice rather than the room.
All clips of a speaker are prompts about equally often.

Labels of channels and books hide several people. Features for IndexTTS-2.5 contain a style vector for each
clip, of CAM++ or of the built-in backend; those for IndexTTS-2.0 contain none. No torch here.

Axes: N clips, V width of a vector.
"""

import hashlib
import logging
import random
from collections import Counter, defaultdict, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indextts.commands.bases import BASES
from indextts.commands.data import TextChoice
from indextts.data.feature_store import FeatureStore
from indextts.data.manifest import TEXT_ORIGINS, Pair, TextOrigin, Utterance
from indextts.data.speaker_vectors import Vector, VectorOfClip, Vectors
from indextts.errors import UserError
from indextts.system.amounts import counted, listed
from indextts.text.ethiopic import text_key

logger = logging.getLogger(__name__)

PROMPT_MIN_S = 3.0
PROMPT_MAX_S = 15.0
MAX_SPEAKER_SHARE = 0.5  # of all pairs; with more, a warning suggests --max-pairs-per-speaker
ORIGINS: Mapping[TextChoice, Container[TextOrigin]] = {
    "all": TEXT_ORIGINS,
    "agreed": ("given", "reviewed", "agreed", "aligned"),
    "reviewed": ("given", "reviewed"),
}
MAX_INSPECTED = 16  # clips inspected for a better prompt, so that the work stays linear in their number
COUNTED = {  # what is left out or second best: noun and reason
    "other_texts": ("utterance", "not a target because of --only"),
    "short": ("utterance", "too short for a target"),
    "same_text": ("utterance", "skipped: all other clips of the speaker have the same sentence"),
    "other_voices": ("utterance", "skipped: no other clip of the speaker has a similar voice"),
    "same_recording": ("prompt", "from the same recording as the target"),
    "over_limit": ("pair", "beyond --max-pairs-per-speaker skipped"),
    "cut": ("pair", "beyond --max-pairs skipped, chosen at random"),
}

# CAM++: of a published fine-tuning, where a third of the pairs of a label fell out; not measured here.
# Built-in: the mean spectrum, which knows the room too; measured in benchmarks/results/voices_of_pairs.md.
CAMPPLUS_LIMIT, BUILTIN_LIMIT = 0.5, 0.94


@dataclass(frozen=True)
class Voices:
    """Vectors of length 1 by features key, and the cosine below which two clips are not paired.

    Without vectors, all clips are near each other.
    """

    vectors: VectorOfClip
    limit: float

    def rows(self, clips: Sequence[Utterance]) -> Vectors:
        """Return the vectors of one or more clips, 0 for a clip that is not in its store: (N, V)."""
        none = np.zeros_like(next(iter(self.vectors.values()), np.zeros(1, np.float32)))
        return np.stack([self.vectors.get(clip.features_key or "", none) for clip in clips])


ANY_VOICE = Voices({}, -1.0)


def read_voices(utterances: Iterable[Utterance], limit: float | None = None) -> dict[Path, Voices]:
    """Return the voices by feature store; a store without vectors is absent, which is logged.

    Args:
        limit: None for that of the vectors; 0 for no limit, and no voices.

    Raises:
        UserError: a store is corrupt.
    """
    found = {}
    for path in sorted({u.features for u in utterances if u.features is not None and limit != 0}):
        store = FeatureStore.open(path) if path.is_file() else None  # the training reports a missing one
        if store is None or not BASES[store.info.base].reads_style:
            logger.info("%s contains no voice vectors, so the voices of pairs are not compared", path)
            continue
        own_limit = BUILTIN_LIMIT if store.info.backend == "builtin" else CAMPPLUS_LIMIT
        found[path] = Voices(store.styles(), own_limit if limit is None else limit)
    return found


@dataclass(frozen=True)
class PairsResult:
    """Pairs, and counts of what is missing from them."""

    pairs: list[Pair]
    lone_speakers: list[str]  # speakers with a single utterance, hence without a prompt for it
    speakers_without_prompts: list[str]  # with too few clips of 3 to 15 s; all their clips are prompts
    counts: Counter[str]  # by the names of COUNTED
    min_similarity: float | None = None  # the limit; None if no voices were compared
    similarities: Mapping[str, list[float]] = field(default_factory=dict)  # of two random clips
    without_similar: Counter[str] = field(default_factory=Counter)  # utterances, by speaker


def build_pairs(
    utterances: Iterable[Utterance],
    pairs_per_target: int,
    seed: int,
    *,
    voices: Mapping[Path, Voices] | None = None,
    only: TextChoice = "all",
    max_pairs: int = 0,
    max_pairs_per_speaker: int = 0,
    min_text_len: int = 1,
    min_code_len: int = 1,
) -> PairsResult:
    """Return pairs, which depend on the set of utterances and the seed but not on the order.

    Args:
        pairs_per_target: prompts for each target; fewer if the speaker has fewer other clips.
        seed: of the choice of prompts; a speaker's pairs do not depend on other speakers.
        voices: by feature store; without them any voice of the speaker will do.
        only: the texts of targets; prompts need none.
        max_pairs: the size of a random sample of all pairs; 0 for all.
        max_pairs_per_speaker: reduces the prompts per target, then the targets; 0 for no limit.
        min_text_len: of a target, in characters.
        min_code_len: of a target, in codes.

    Raises:
        UserError: there is no pair.
    """
    pairs: list[Pair] = []
    taken: set[str] = set()
    lone_speakers, without_prompts = [], []
    counts: Counter[str] = Counter()
    without_similar: Counter[str] = Counter()
    similarities: dict[str, list[float]] = defaultdict(list)
    for (speaker, store), clips in sorted(_clips_by_store(utterances).items()):
        if len(clips) == 1:
            lone_speakers.append(speaker)
            continue
        trusted = [u for u in clips if u.text_origin in ORIGINS[only]]
        targets = [u for u in trusted if len(u.text) >= min_text_len and (u.num_codes or 0) >= min_code_len]
        counts["other_texts"] += len(clips) - len(trusted)
        counts["short"] += len(trusted) - len(targets)
        prompts = [u for u in clips if PROMPT_MIN_S <= u.duration_s <= PROMPT_MAX_S]
        if len(prompts) <= pairs_per_target:  # too few besides the target
            without_prompts.append(speaker)
            prompts = clips
        max_prompts = min(pairs_per_target, len(clips) - 1)
        num_of = _num_prompts(_shuffled(targets, f"{seed} limit"), max_prompts, max_pairs_per_speaker)
        counts["over_limit"] += max_prompts * len(targets) - sum(num_of.values())
        shuffled, known = _shuffled(clips, f"{seed} clips"), (voices or {}).get(store, ANY_VOICE)
        if known.vectors:
            rows = known.rows(shuffled)
            similarities[speaker] += (rows[:-1] * rows[1:]).sum(axis=1).tolist()
        prompts_of = _choose_prompts(shuffled, prompts, num_of, seed, known)
        for target in targets:
            if num_of[target.id] > 0 and not prompts_of[target.id]:
                counts["other_voices" if known.vectors else "same_text"] += 1
                without_similar[speaker] += bool(known.vectors)
            for prompt in prompts_of[target.id]:
                pairs.append(_pair(prompt, target, taken))
                counts["same_recording"] += None is not prompt.recording == target.recording
    if not pairs:
        raise UserError(
            f"no pair is possible: {counted(len(lone_speakers), 'speaker')} with a single utterance, "
            f"{counted(counts['other_texts'], 'target')} left out by --only {only}, "
            f"{counted(counts['short'], 'target')} too short, {counts['same_text']} without a prompt with "
            f"another sentence, {counts['other_voices']} without one in a similar voice; a "
            "speaker needs at least 2 different utterances: add recordings, check the names of the speakers, "
            "or loosen --only or --min-similarity"
        )
    kept = pairs
    if 0 < max_pairs < len(pairs):
        drawn = random.Random(seed).sample(range(len(pairs)), max_pairs)
        kept = [pairs[index] for index in sorted(drawn)]
    counts["cut"] = len(pairs) - len(kept)
    return PairsResult(
        kept,
        lone_speakers,
        without_prompts,
        counts,
        min_similarity=max((each.limit for each in (voices or {}).values()), default=None),
        similarities=similarities,
        without_similar=without_similar,
    )


def log_left_out(result: PairsResult) -> None:
    """Log counts of skipped utterances and pairs, and of pairs with a second-best prompt."""
    if result.lone_speakers:
        logger.warning(
            "Skipped %s with a single utterance: %s",
            counted(len(result.lone_speakers), "speaker"),
            listed(result.lone_speakers, 5),
        )
    if result.speakers_without_prompts:
        logger.info(
            "%s with too few clips of %g to %g s, so their prompts are of any length: %s",
            counted(len(result.speakers_without_prompts), "speaker"),
            PROMPT_MIN_S,
            PROMPT_MAX_S,
            listed(result.speakers_without_prompts, 5),
        )
    for name, (noun, what) in COUNTED.items():
        if result.counts[name]:
            logger.info("%s %s", counted(result.counts[name], noun), what)
    _warn_about_dominant_speaker(result.pairs)


def _warn_about_dominant_speaker(pairs: Sequence[Pair]) -> None:
    num_of = Counter(pair.speaker for pair in pairs)
    [(speaker, num)] = num_of.most_common(1)
    if len(num_of) > 1 and num > MAX_SPEAKER_SHARE * len(pairs):
        logger.warning(
            "%.0f %% of the pairs are by the speaker %s, so the model learns little about the %s. To train "
            "their voices too, use --max-pairs-per-speaker %d",
            100 * num / len(pairs),
            speaker,
            counted(len(num_of) - 1, "other speaker"),
            len(pairs) - num,
        )


def _clips_by_store(utterances: Iterable[Utterance]) -> dict[tuple[str, Path], list[Utterance]]:
    """Return the clips of each speaker and feature store, sorted by id; a pair uses a single store."""
    clips_of: dict[tuple[str, Path], list[Utterance]] = defaultdict(list)
    for utterance in utterances:
        if utterance.features is None:
            raise UserError(
                f"utterance {utterance.id!r} has no features; preprocess its manifest with "
                "tools/preprocess_data.py first"
            )
        clips_of[utterance.speaker, utterance.features].append(utterance)
    for clips in clips_of.values():
        clips.sort(key=lambda utterance: utterance.id)
    return clips_of


def _shuffled(clips: Sequence[Utterance], salt: str) -> list[Utterance]:
    """Return the clips in a pseudo-random order that depends only on their ids."""
    return sorted(clips, key=lambda clip: hashlib.sha256(f"{salt} {clip.id}".encode()).digest())


def _num_prompts(targets: Sequence[Utterance], max_prompts: int, limit: int) -> dict[str, int]:
    """Return the number of prompts of each target, by id, so that a speaker has at most `limit` pairs."""
    if not 0 < limit < max_prompts * len(targets):
        return {target.id: max_prompts for target in targets}
    each, more = divmod(limit, len(targets))
    return {target.id: each + (position < more) for position, target in enumerate(targets)}


def _choose_prompts(
    clips: Sequence[Utterance],
    prompts: Sequence[Utterance],
    num_of: dict[str, int],
    seed: int,
    voices: Voices,
) -> dict[str, list[Utterance]]:
    """Return the prompts of each target, by id: of `prompts` if possible, else of all `clips`."""
    facts = facts_of(clips, voices)
    preferred = PromptQueue(_shuffled(prompts, f"{seed} prompts"), facts, voices.limit)
    fallback = preferred
    if len(prompts) < len(clips):
        fallback = PromptQueue(_shuffled(clips, f"{seed} prompts"), facts, voices.limit)
    chosen = {}
    for target in clips:
        if target.id in num_of:
            num = num_of[target.id]
            chosen[target.id] = preferred.take(target, num) or fallback.take(target, num)
    return chosen


def _pair(prompt: Utterance, target: Utterance, taken: set[str]) -> Pair:
    assert target.features is not None
    assert target.num_codes is not None
    assert target.features_key is not None
    assert prompt.features_key is not None
    id = f"{target.id}__{prompt.id}"
    while id in taken:  # ids that contain "__": a__b + c and a + b__c
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
        target_text_origin=target.text_origin,
    )


class Facts(NamedTuple):
    """What decides whether two clips can be a pair; a group has similar voices."""

    sentence: str
    sound: str | None
    voice: Vector
    group: int


def facts_of(clips: Sequence[Utterance], voices: Voices) -> dict[str, Facts]:
    """Return the facts of clips by id."""
    rows = voices.rows(clips)
    groups = groups_of(rows, voices.limit)
    return {
        clip.id: Facts(text_key(clip.text), clip.features_key, row, group)
        for clip, row, group in zip(clips, rows, groups, strict=True)
    }


def groups_of(rows: Vectors, limit: float) -> list[int]:
    """Return a group for each row: those near the first row, then near the first that is not, ...: (N,).

    The work is linear in the rows and in the groups, not quadratic in the rows.
    """
    groups, rest = [0] * len(rows), np.arange(len(rows))
    while len(rest):
        is_near = rows[rest] @ rows[rest[0]] >= limit
        is_near[0] = True
        for place in rest[is_near].tolist():
            groups[place] = int(rest[0])
        rest = rest[~is_near]
    return groups


class PromptQueue:
    """Queues of a speaker's clips: a clip that was a prompt moves to the end, so all are used about equally.

    A prompt never has the target's audio or sentence, nor another voice, and clips of other recordings come
    before those of the target's recording. Clips with similar voices are a queue.
    """

    def __init__(self, clips: Sequence[Utterance], facts: Mapping[str, Facts], limit: float) -> None:
        """Start with `clips` in this order; their ids differ, and `facts` has those of all targets too."""
        self._clips, self._facts, self._limit = clips, facts, limit
        self._queues: dict[int, deque[Utterance]] = defaultdict(deque)
        for clip in clips:
            self._queues[facts[clip.id].group].append(clip)
        self._num_found = np.zeros(len(clips), np.int64)  # how often a search of all clips found each

    def take(self, target: Utterance, num: int) -> list[Utterance]:
        """Return up to `num` different prompts for `target`, fewer only if there are no more."""
        if num == 0:
            return []
        sentence, sound, voice, group = self._facts[target.id]
        waiting = self._queues[group]
        other_recording: list[Utterance] = []
        same_recording: list[Utterance] = []
        inspected: list[Utterance] = []
        while waiting and len(other_recording) < num and len(inspected) < MAX_INSPECTED:
            clip = waiting.popleft()
            inspected.append(clip)
            facts = self._facts[clip.id]
            if facts.sound == sound or facts.sentence == sentence or voice @ facts.voice < self._limit:
                continue
            is_same = clip.recording is not None and clip.recording == target.recording
            (same_recording if is_same else other_recording).append(clip)
        taken = [*other_recording, *same_recording][:num]
        ids = {clip.id for clip in taken}
        waiting.extendleft(reversed([clip for clip in inspected if clip.id not in ids]))
        waiting.extend(taken)
        return taken or self._search(target, num)

    def _search(self, target: Utterance, num: int) -> list[Utterance]:
        """Return prompts if no inspected clip fits: of all that fit, those that were found least often."""
        sentence, sound, voice, _ = self._facts[target.id]
        sentences, sounds, voices = self._columns
        fits = (sentences != hash(sentence)) & (sounds != hash(sound)) & (voices @ voice >= self._limit)
        places = np.flatnonzero(fits)
        places = places[np.argsort(self._num_found[places], kind="stable")[:num]]
        self._num_found[places] += 1
        return [self._clips[place] for place in places.tolist()]

    @cached_property
    def _columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Vectors]:
        """Return hashes of sentence and sound of all clips, and their voices (N, V)."""
        sentences, sounds, voices, _ = zip(*(self._facts[clip.id] for clip in self._clips), strict=True)
        return np.array([*map(hash, sentences)]), np.array([*map(hash, sounds)]), np.stack(voices)
