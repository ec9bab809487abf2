"""What is rendered: sentences of which a manifest has recordings, each in the voice of another clip."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from indextts.data.manifest import Utterance, read_utterances
from indextts.data.prompts import PromptDealer
from indextts.errors import UserError
from indextts.features.voice_limits import MAX_RECORDING_S, MIN_REFERENCE_S, SHORT_REFERENCE_S

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HeldOut:
    """A sentence with its recording, and a clip of the same speaker that says something else."""

    utterance: Utterance
    prompt: Utterance


def read_held_out(manifest: Path, limit: int) -> list[HeldOut]:
    """Return sentences of a manifest, in turn of each speaker, the same each time.

    Args:
        manifest: raw or preprocessed.
        limit: how many at most; 0 for all.

    Raises:
        UserError: the manifest cannot be read, or no speaker has two fitting clips.
    """
    of_speaker: dict[str, list[Utterance]] = {}
    for utterance in read_utterances(manifest):
        known = utterance.features_key or str(utterance.audio)
        of_speaker.setdefault(utterance.speaker, []).append(replace(utterance, features_key=known))
    dealt = [list(_deal(clips)) for clips in of_speaker.values()]
    chosen = [one for turn in zip_longest(*dealt) for one in turn if one is not None]
    if not chosen:
        raise UserError(
            f"--manifest {manifest}: no speaker has two clips with different texts, one of them a second or "
            "longer to speak like; give a larger manifest"
        )
    num_without = sum(map(len, of_speaker.values())) - len(chosen)
    if num_without:
        logger.warning(
            "%d clips of %s have no other clip of their speaker to speak like", num_without, manifest
        )
    return chosen[:limit] if limit else chosen


def _deal(clips: list[Utterance]) -> Iterator[HeldOut]:
    """Yield a speaker's sentences with their prompts, long enough ones where there are any."""
    long = [clip for clip in clips if SHORT_REFERENCE_S <= clip.duration_s <= MAX_RECORDING_S]
    fitting = [clip for clip in clips if MIN_REFERENCE_S <= clip.duration_s <= MAX_RECORDING_S]
    dealer = PromptDealer(long if len(long) > 1 else fitting)
    for clip in clips:
        for prompt in dealer.deal(clip, 1):
            yield HeldOut(clip, prompt)
