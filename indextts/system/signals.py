"""Stop signals of the trainer: SIGINT, SIGTERM, SIGHUP, and SIGUSR1, which clusters send before a shutdown.

On a stop signal the trainer finishes the step, saves, and exits with 128 + the signal number.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class StopRequest:
    """A context that records the signals in SIGNALS.

    The handler only records the signal, because an exception in the middle of an optimizer step would leave
    a half-updated state. A third signal ends the process at once; the newest checkpoint is always complete.

    Args:
        ends_process: the process ends after this context. Later signals are ignored, so that they cannot
            change its exit status.
    """

    def __init__(self, *, ends_process: bool) -> None:
        self.ends_process = ends_process
        self.signal: int | None = None
        self.count = 0
        self._before: dict[int, signal._HANDLER] = {}

    @property
    def is_requested(self) -> bool:
        """A stop was requested."""
        return self.signal is not None

    def listen(self) -> Self:
        """Install the signal handlers."""
        self._before = {
            number: signal.signal(number, self._record)
            for number in SIGNALS
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN  # as nohup sets it
        }
        return self

    def request(self, number: int) -> None:
        """Request a stop as signal `number` would, on behalf of another rank that received it."""
        if self.signal is None:
            self.signal = number

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Restore the default handlers within this context, for calls that a recorded signal cannot stop."""
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

    def _record(self, number: int, _frame: FrameType | None) -> None:
        self.signal = number
        self.count += 1
        if self.count == 3:
            os._exit(128 + number)
