"""The signal that asks a training to end: SIGINT, SIGTERM, SIGHUP, or SIGUSR1 as a cluster's notice.

The step is finished, the state saved, and the process leaves with 128 + the signal's number.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class StopRequest:
    """Takes a note of the signals in SIGNALS for as long as it is entered.

    The handler only takes a note: an exception in the middle of an optimizer step would leave a state that is
    half old, half new. A third signal ends at once; the newest checkpoint is whole at any instant.

    Args:
        ends_process: nothing but the end of the process follows. Then signals are ignored behind it: the run
            has ended, and its exit status stands.
    """

    def __init__(self, *, ends_process: bool) -> None:
        self.ends_process = ends_process
        self.signal: int | None = None
        self.count = 0
        self._before: dict[int, signal._HANDLER] = {}

    @property
    def is_requested(self) -> bool:
        return self.signal is not None

    def listen(self) -> Self:
        """Take note from now on."""
        self._before = {
            number: signal.signal(number, self._note)
            for number in SIGNALS
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN  # as nohup sets it
        }
        return self

    def request(self, number: int) -> None:
        """Ask for the end as signal `number` would, where another process of the training got it."""
        if self.signal is None:
            self.signal = number

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Let the signals end the process at once within: for calls that would not return for a note."""
        handlers = {number: signal.signal(number, signal.SIG_DFL) for number in self._before}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def __enter__(self) -> Self:
        return self if self._before else self.listen()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.ends_process else handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal = number
        self.count += 1
        if self.count == 3:
            os._exit(128 + number)
