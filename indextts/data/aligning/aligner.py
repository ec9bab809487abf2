"""Cut a long recording with a text, but without times, into clips: a speech recognizer aligns the text.

Axes: S samples, T positions of the recognizer, L columns of letters.

    recording --windows--> letter costs (T, L) in a temporary file --text_placing--> places of the sentences
              --cuts--> clips in pauses; what does not fit is doubtful, and left to the review

A CTC model is required: others do not say when a letter is spoken. Memory does not grow with the length of
the recording, except for a few numbers per position.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from indextts.commands.data import ImportDataset
from indextts.commands.normalizer_options import NormalizerOptions, Reading
from indextts.data.aligning.cuts import Part, plan_aligned
from indextts.data.aligning.text_placing import (
    Heard,
    Place,
    Sentence,
    place_sentences,
    read_sentences,
    word_ends,
)
from indextts.data.importing.items import Location, Passage, Rejection, Row
from indextts.data.importing.text_lines import text_lines
from indextts.data.progress import Progress
from indextts.data.quality.heard import load_chosen
from indextts.data.silences import Limits, silences_of
from indextts.errors import UserError
from indextts.features.audio import audio_duration_s
from indextts.features.decoding import find_speech_in_file, read_chunks
from indextts.features.recognizers.forced_alignment import Costs
from indextts.features.vad import Span
from indextts.text.readings import read_rows, readings_for, used_readings
from indextts.text.transcripts import edit_distance, scored

if TYPE_CHECKING:  # it imports torch
    from indextts.features.recognizers.ctc import CtcRecognizer

logger = logging.getLogger(__name__)

ALIGNING_VERSION = 2  # raise it when the rules change, to align imported recordings again
WINDOW_S = 20.0
CONTEXT_S = 2.0  # before and after a window: the edges of a clip are recognized worse
WINDOWS_AT_ONCE = 8
MIN_UNPLACED = 4  # heard letters without a text that make a part; fewer are errors of the recognizer
NEAR_S = 0.1  # of a letter from speech: the detector misses soft consonants
PART_PAUSE_S = 0.5  # that ends a part without a text
MAX_PART_S = 12.0
MAX_UNCUT_S = 10.0  # of a sentence without the times of its words: its clip cannot be cut
MIN_PLACED_SHARE = 0.2  # of the letters of a text that belongs to the recording
MAX_DISTANCE = 0.5  # share of letters by which a line differs from what was heard of it
NEAREST = 10  # lines that are compared by letter with a part, those that share the most pairs of letters
MAX_SHOWN_CHARS = 60


@dataclass(frozen=True)
class Listened:
    """Output of the recognizer for a recording."""

    costs: Costs  # (T, L), float16 in a temporary file
    tokens: NDArray[np.int32]  # (T,), the best of each position
    times: NDArray[np.floating]  # (T,), the middle of each position in seconds
    heard: Heard  # the letters on the best path

    @property
    def step_s(self) -> float:
        return float(np.median(np.diff(self.times))) if len(self.times) > 1 else 1.0

    def start_s(self, position: int) -> float:
        return float(self.times[position]) - self.step_s / 2

    def end_s(self, position: int) -> float:
        return float(self.times[position]) + self.step_s / 2


class Aligner:
    """The recognizer of an import, loaded for the first recording that needs it. Threads take turns."""

    def __init__(self, command: ImportDataset) -> None:
        self._command = command
        self._turn = threading.Lock()

    def plan(self, audio: Path, found: Row, aside: Path) -> list[Passage | Rejection]:
        """Return the clips of a recording, and what cannot be used of its text.

        Args:
            audio: the recording as a file that libsndfile reads.
            found: the row with the text file.
            aside: for a temporary file.

        Raises:
            UserError: the recognizer cannot be loaded or is no CTC model.
        """
        assert found.text_file is not None
        text_file = found.text_file
        options = reading_options(self._command, found.language or self._command.language)
        sentences, rejections = read_sentences(text_file, options, found.keep)
        if not sentences:
            return [*rejections, Rejection(Location(text_file), "empty_text", "no sentence with letters")]
        with self._turn:
            recognizer = self._recognizer
            try:
                listened = listen(recognizer, audio, aside)
                columns = [np.array(recognizer.letter_columns(each.letters), np.int64) for each in sentences]
                places = place_sentences(columns, listened.costs, listened.heard, 1 / listened.step_s)
            finally:
                aside.unlink(missing_ok=True)
        num_placed = sum(len(place.first) for place in places)
        share = num_placed / max(1, sum(map(len, columns)))
        if share < MIN_PLACED_SHARE:
            reason = (
                f"{100 * share:.0f} % of the text was heard in {audio.name}; check that they belong "
                f"together, and that {recognizer.name} knows the language"
            )
            return [*rejections, Rejection(Location(text_file), "not_heard", reason)]
        speech, duration_s = find_speech_in_file(audio)
        parts = _parts(sentences, places, listened, speech, recognizer, options)
        limits = Limits(self._command.min_clip_s, self._command.max_clip_s)
        planned = plan_aligned(text_file, parts, silences_of(speech, duration_s), limits, recognizer.name)
        in_review = {(part.line, part.text) for part in parts}
        placed = {place.sentence for place in places}
        missing = (each for number, each in enumerate(sentences) if number not in placed)
        gone = [each for each in missing if (each.line, each.text) not in in_review]
        not_heard = []
        for each in gone:
            shown = (
                each.text if len(each.text) <= MAX_SHOWN_CHARS else f"{each.text[: MAX_SHOWN_CHARS - 3]}..."
            )
            reason = f"not found in the recording: {shown}"
            not_heard.append(Rejection(Location(text_file, each.line), "not_heard", reason))
        cuts = [item for item in planned if isinstance(item, Passage)]
        logger.info(
            "%s: %d of %d sentences aligned, %d not heard; %d clips, %d of them doubtful",
            audio.name,
            len(places),
            len(sentences),
            len(gone),
            len(cuts),
            sum(cut.provenance is not None and cut.provenance.is_doubtful for cut in cuts),
        )
        return [*rejections, *planned, *not_heard]

    @cached_property
    def _recognizer(self) -> "CtcRecognizer":
        from indextts.features.recognizers.ctc import CtcRecognizer  # imports torch, which takes seconds

        command = self._command
        loaded = load_chosen(command, command.language)
        if not isinstance(loaded, CtcRecognizer):
            raise UserError(
                f"--asr {command.asr}: generates texts without times; pass a CTC model, such as Wav2Vec2, "
                "MMS or Wav2Vec2-BERT"
            )
        return loaded


def reading_options(command: ImportDataset, language: str) -> NormalizerOptions:
    """Return the options that read texts in a language; a UserError for an unusable table of readings."""
    rows = [] if command.readings is None else read_rows(command.readings)
    return NormalizerOptions(language=language, readings=readings_for(rows, language))


def readings_of_text(command: ImportDataset, text_file: Path, language: str) -> list[Reading]:
    """Return the readings that a text file contains; errors as for `reading_options`."""
    readings = reading_options(command, language).readings
    lines = [line for _, line in text_lines(text_file) if isinstance(line, str)] if readings else []
    return sorted({reading for line in lines for reading in used_readings(line, readings)})


def listen(recognizer: "CtcRecognizer", audio: Path, aside: Path) -> Listened:
    """Return what the recognizer hears in a recording, window by window; `aside` is for the costs."""
    rate = recognizer.sample_rate_hz
    num_columns = 0
    tokens: list[NDArray[np.int32]] = []
    times: list[NDArray[np.floating]] = []
    num_windows = -int(-audio_duration_s(audio) // WINDOW_S)
    progress = Progress(f"Aligning {audio.name}", num_windows, num_windows * WINDOW_S, noun="windows")
    columns: list[NDArray[np.int64]] = []
    with aside.open("wb") as file:
        windows = _windows(audio, rate)
        while group := list(islice(windows, WINDOWS_AT_ONCE)):
            outputs = recognizer.log_probabilities([samples for _, samples, _ in group])
            for (start_s, samples, (low_s, high_s)), scores in zip(group, outputs, strict=True):
                step_s = len(samples) / rate / max(1, len(scores))
                middles = start_s + (np.arange(len(scores)) + 0.5) * step_s  # (T,)
                is_inside = (middles >= low_s) & (middles < high_s)
                costs = recognizer.letter_costs(scores)[is_inside]
                num_columns = costs.shape[1]
                file.write(costs.astype(np.float16).tobytes())
                columns.append(costs.argmin(axis=1))
                tokens.append(scores.argmax(-1).numpy()[is_inside].astype(np.int32))
                times.append(middles[is_inside])
                progress.advance(WINDOW_S)
    path = np.concatenate(columns)  # (T,)
    costs_of_all = np.memmap(aside, np.float16, "r", shape=(len(path), num_columns))
    changes = np.flatnonzero(np.diff(path, prepend=0) * (path != 0))
    heard = Heard(path[changes], changes)
    return Listened(costs_of_all, np.concatenate(tokens), np.concatenate(times), heard)


def _windows(audio: Path, rate: int) -> Iterator[tuple[float, NDArray[np.float32], tuple[float, float]]]:
    """Yield the start of each window with its context, its samples (S,), and the window itself in seconds."""
    context = round(CONTEXT_S * rate)
    before = np.zeros(0, np.float32)
    start_s = 0.0
    chunks = read_chunks(audio, rate, round(WINDOW_S * rate))
    chunk = next(chunks, None)
    while chunk is not None:
        following = next(chunks, None)
        after = chunk[:0] if following is None else following[:context]
        end_s = start_s + len(chunk) / rate
        yield start_s - len(before) / rate, np.concatenate([before, chunk, after]), (start_s, end_s)
        before, start_s, chunk = chunk[-context:], end_s, following


def _parts(
    sentences: Sequence[Sentence],
    places: Sequence[Place],
    listened: Listened,
    speech: Sequence[Span],
    recognizer: "CtcRecognizer",
    options: NormalizerOptions,
) -> list[Part]:
    """Return the parts of the recording in order: sentences, and speech without a text."""
    import torch  # takes seconds, and most imports do without it

    spoken = _spoken_positions(listened, speech)
    nearest = _nearest_line(sentences, options)
    placed = {place.sentence for place in places}
    found: list[Part] = []
    bounds = [0, *(bound for place in places for bound in (place.start, place.end)), len(listened.times)]
    for place, low, high in zip([*places, None], bounds[::2], bounds[1::2], strict=True):
        for first, last in _unplaced(listened, spoken[(spoken >= low) & (spoken < high)]):
            tokens = torch.from_numpy(listened.tokens[first : last + 1].astype(np.int64))
            text = recognizer.text_of_tokens(tokens).strip()
            if not text:
                continue
            number, distance = nearest(text)
            near = sentences[number]
            is_that_line = number not in placed and distance <= MAX_DISTANCE
            shown, other = (near.text, text) if is_that_line else (text, near.text)
            start_s, end_s = listened.start_s(first), listened.end_s(last)
            found.append(Part(start_s, end_s, shown, near.line, None, other, is_doubtful=True))
        if place is not None:
            sentence = sentences[place.sentence]
            start_s, end_s = listened.start_s(place.start), listened.end_s(place.end - 1)
            is_cut = end_s - start_s > MAX_UNCUT_S
            words = _words(sentence, place, listened, recognizer, options) if is_cut else ()
            found.append(Part(start_s, end_s, sentence.text, sentence.line, place.score, words=words))
    return found


def _words(
    sentence: Sentence,
    place: Place,
    listened: Listened,
    recognizer: "CtcRecognizer",
    options: NormalizerOptions,
) -> tuple[tuple[str, float, float], ...]:
    """Return each word, or words that are read together, with the times of its letters in seconds."""
    found, pending, start = [], "", 0
    for word, num_letters in word_ends(sentence, options):
        pending = f"{pending} {word}".strip()
        if num_letters < 0:
            continue
        end = len(recognizer.letter_columns(sentence.letters[:num_letters]))
        if end > start:
            first, last = int(place.first[start]), int(place.last[end - 1])
            found.append((pending, listened.start_s(first), listened.end_s(last)))
            pending, start = "", end
    if pending and found:
        found[-1] = (f"{found[-1][0]} {pending}", *found[-1][1:])
    return tuple(found)


def _spoken_positions(listened: Listened, speech: Sequence[Span]) -> NDArray[np.int64]:
    """Return the positions of heard letters in spans of speech."""
    positions = listened.heard.positions
    times = listened.times[positions]
    if not speech:
        return positions[:0]
    number = np.searchsorted([span.start_s - NEAR_S for span in speech], times, side="right") - 1
    ends = np.array([span.end_s + NEAR_S for span in speech])
    return positions[(number >= 0) & (times <= ends[number])]


def _unplaced(listened: Listened, positions: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield first and last position of each stretch of speech, from the positions of its letters."""
    group: list[int] = []
    for position, time in [*zip(positions.tolist(), listened.times[positions], strict=True), (-1, np.inf)]:
        if group and (
            time - listened.times[group[-1]] > PART_PAUSE_S or time - listened.times[group[0]] > MAX_PART_S
        ):
            if len(group) >= MIN_UNPLACED:
                yield group[0], group[-1]
            group = []
        group.append(position)


def _nearest_line(
    sentences: Sequence[Sentence], options: NormalizerOptions
) -> Callable[[str], tuple[int, float]]:
    """Return what finds the index of the sentence nearest to a text, and the share of letters that differ."""
    pairs_of = [Counter(pairwise(each.letters)) for each in sentences]

    def find(heard: str) -> tuple[int, float]:
        letters = scored(heard, options)
        pairs = Counter(pairwise(letters))
        shared = [(pairs & own).total() / max(1, pairs.total(), own.total()) for own in pairs_of]
        best = sorted(range(len(shared)), key=lambda number: -shared[number])[:NEAREST]

        def distance(number: int) -> float:
            other = sentences[number].letters
            return edit_distance(letters, other) / max(len(letters), len(other), 1)

        return min(((number, distance(number)) for number in best), key=itemgetter(1))

    return find
