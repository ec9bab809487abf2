"""The password check, and what happens to who guesses.

The right password is accepted at once, however many wrong ones came before: a stranger cannot lock the owner
out. Wrong ones are answered late: FREE_FAILURES of a name at once, and then each waits twice as long as the
one before, up to MAX_FAILURES. A name is forgiven one failure every FORGIVE_S.

The terminal hears of failures at most every TELL_S. It shows no name, because people type their password
there by mistake.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

logger = logging.getLogger(__name__)

FREE_FAILURES = 10
MAX_FAILURES = 15  # in a row; more change nothing
FORGIVE_S = 6.0
DELAY_S = 0.25  # after that it doubles, up to 8 s
MAX_NAMES = 1024
MAX_WAITING = 1000
TELL_S = 10.0


class PasswordCheck:
    """Constant-time check of user and password, with late answers to wrong ones.

    It stores no password, so that `vars()` of the server reveals none.
    """

    def __init__(self, user: str, password: str) -> None:
        self._key = secrets.token_bytes(32)
        self._expected = self._digest(user, password)
        self.delays = Delays()
        self.num_waiting = 0

    def __call__(self, user: str, password: str) -> bool:
        return hmac.compare_digest(self._digest(user, password), self._expected)

    async def verify(self, user: str, password: str) -> bool:
        """Return whether user and password are right; if not, only after the delay of that user."""
        if self(user, password):
            return True
        delay_s = self.delays.after_failure(user)
        if self.num_waiting < MAX_WAITING:  # else the waiting itself would fill the memory
            self.num_waiting += 1
            try:
                await asyncio.sleep(delay_s)
            finally:
                self.num_waiting -= 1
        return False

    def _digest(self, user: str, password: str) -> bytes:
        # The length distinguishes "a" + "bc" from "ab" + "c". A lone surrogate must not crash.
        message = f"{len(user)} {user} {password}".encode(errors="surrogatepass")
        return hmac.new(self._key, message, hashlib.sha256).digest()


class Delays:
    """Recent failures of each name that was tried, and the delay that follows from them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.failures: OrderedDict[str, tuple[float, float]] = OrderedDict()  # number, and when it was noted

    def after_failure(self, name: str) -> float:
        """Note a failure of `name` and return the seconds until it is answered."""
        now = self.clock()
        before, noted_at = self.failures.pop(name, (0.0, now))
        number = min(MAX_FAILURES, max(0.0, before - (now - noted_at) / FORGIVE_S) + 1)
        self.failures[name] = (number, now)
        if len(self.failures) > MAX_NAMES:
            self.failures.popitem(last=False)
        excess = number - FREE_FAILURES
        return 0.0 if excess <= 0 else DELAY_S * 2.0**excess


class FailedSignIns:
    """Failures that the terminal has not heard of yet."""

    def __init__(self) -> None:
        self.num_unlogged = 0
        self.last_client = ""
        self.timer: asyncio.TimerHandle | None = None

    def note(self, client: str) -> None:
        """Tell the terminal of a failure from an address, now or together with the next ones."""
        self.num_unlogged += 1
        self.last_client = client
        if self.timer is None:
            self._tell()

    def _tell(self) -> None:
        self.timer = None
        if self.num_unlogged == 0:
            return
        if self.num_unlogged == 1:
            logger.warning("a sign-in failed, from %s", self.last_client)
        else:
            logger.warning(
                "%d sign-ins failed within %.0f s, the last from %s; somebody may be guessing the password",
                self.num_unlogged,
                TELL_S,
                self.last_client,
            )
        self.num_unlogged = 0
        self.timer = asyncio.get_running_loop().call_later(TELL_S, self._tell)
