"""How often a password may be tried.

Each client has a bucket of tries that fills again with time, and all clients together have one more. A client
whose own bucket is empty takes nothing from the common one. What is known is in memory and bounded.

Behind a proxy that does not say who asks, all visitors are one client. Somebody who tries passwords there
keeps others from signing in for as long as he goes on and a few seconds longer, never for good; who is signed
in notices nothing.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

CLIENT_TRIES, CLIENT_REFILL_S = 10, 6.0
ALL_TRIES, ALL_REFILL_S = 60, 2.0
MAX_CLIENTS = 1024


@dataclass
class Bucket:
    """Tries that are left at a time.

    Args:
        size: tries that it holds when full.
        refill_s: seconds until one more is there.
        left, at: what was left at which time.
    """

    size: int
    refill_s: float
    left: float
    at: float

    def fill(self, now: float) -> None:
        self.left = min(self.size, self.left + (now - self.at) / self.refill_s)
        self.at = now

    def wait_s(self) -> float:
        """Return the seconds until a whole try is there; 0 if one is."""
        return max(0.0, 1 - self.left) * self.refill_s


class LoginThrottle:
    """Decides whether a client may try a password now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.everybody = Bucket(ALL_TRIES, ALL_REFILL_S, ALL_TRIES, clock())
        self.clients: OrderedDict[str, Bucket] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """Take a try for `client` and return 0, or return the seconds until there is one."""
        now = self.clock()
        own = self.clients.setdefault(client, Bucket(CLIENT_TRIES, CLIENT_REFILL_S, CLIENT_TRIES, now))
        self.clients.move_to_end(client)
        if len(self.clients) > MAX_CLIENTS:
            self.clients.popitem(last=False)
        for bucket in (own, self.everybody):
            bucket.fill(now)
            if bucket.left < 1:
                return bucket.wait_s()
        own.left -= 1
        self.everybody.left -= 1
        return 0.0

    def signed_in(self, client: str) -> None:
        """Give back the try of a client that knew the password."""
        for bucket in (self.clients.get(client), self.everybody):
            if bucket is not None:
                bucket.left = min(bucket.size, bucket.left + 1)
