"""Which of a speaker's clips are prompts for which targets."""

import itertools
from collections import deque
from collections.abc import Iterator, Sequence

from indextts.data.manifest import Utterance
from indextts.text.text_key import text_key

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
