"""Transcode the recordings of a source in their order, several at a time."""

import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from indextts.commands.data import ImportDataset
from indextts.data.importing.aligning import Aligner
from indextts.data.importing.embedded import AudioReader, transcode_embedded, write_embedded
from indextts.data.importing.items import Rejection, SourceRecording
from indextts.data.importing.storing import Transcoded, transcode

_WAITING_PER_WORKER = 4  # recordings: more would only take disk space

_Result = Future[Transcoded] | Transcoded | None


def transcoded_items(
    found: Sequence[SourceRecording],
    is_current: Callable[[SourceRecording], bool],
    command: ImportDataset,
    folder: Path,
) -> Generator[tuple[SourceRecording, Transcoded | None]]:
    """Yield the recordings in order with their transcoded files in `folder`; None for a current one.

    If it is closed early, temporary files of the following recordings remain.
    """
    aligner = Aligner(command) if command.asr else None
    num_workers = command.num_workers or os.cpu_count() or 1
    reader = AudioReader()
    waiting: deque[tuple[SourceRecording, _Result]] = deque()
    with ThreadPoolExecutor(num_workers) as pool:

        def start(number: int, item: SourceRecording) -> _Result:
            if is_current(item):
                return None
            if item.embedded is None:
                return pool.submit(transcode, item, command, folder, number, aligner)
            audio = reader.read(item)
            if isinstance(audio, Rejection):
                return Transcoded("", [], [audio])
            aside = write_embedded(*audio, folder, number)
            return pool.submit(transcode_embedded, item, aside, command, folder, number)

        try:
            for number, item in enumerate(found):
                waiting.append((item, start(number, item)))
                if len(waiting) > _WAITING_PER_WORKER * num_workers:
                    yield _finished(*waiting.popleft())
            while waiting:
                yield _finished(*waiting.popleft())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _finished(item: SourceRecording, result: _Result) -> tuple[SourceRecording, Transcoded | None]:
    return item, result.result() if isinstance(result, Future) else result
