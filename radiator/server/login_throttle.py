"""Slow down password guessing: after failed logins the next attempt waits, longer each time.

Failures count for a user at an origin (an IPv4 address or an IPv6 subnet), and for the origin. A user who has logged in
from an origin before has a counter of its own there. So an attacker at another origin cannot delay a user, and neither
can one at the user's origin who guesses another name. An attacker with many addresses gets as many times the attempts;
these are bounded by the verification thread.

Runs on the event loop; the time is an argument. Must not see passcodes.

Invariants: the tables are bounded, and the oldest entry is dropped first. No attempt waits longer than WAIT_NS_MAX: it
is refused at once instead, so parallel attempts cannot build up a delay for others.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from radiator.clock import NS_PER_MS, NS_PER_SECOND, MonoNs

ENTRIES_MAX: Final = 10_000  # of each table: some megabytes
USER_FAILURES_FREE: Final = 3  # typing errors
HOST_FAILURES_FREE: Final = 10  # many users may share an address
FIRST_DELAY_NS: Final = 250 * NS_PER_MS
DELAY_NS_MAX: Final = 4 * NS_PER_SECOND
WAIT_NS_MAX: Final = 8 * NS_PER_SECOND  # an attempt that waits longer would exceed the connect time-out
FORGET_NS: Final = 600 * NS_PER_SECOND  # after the last failure

Key = tuple[str, ...]


class _Record:
    __slots__ = ("failures", "last_ns", "delayed_until_ns")

    def __init__(self) -> None:
        self.failures = 0
        self.last_ns = 0
        self.delayed_until_ns = 0  # no attempt is verified before


class LoginThrottle:
    """Failed logins by user and origin. Times are monotonic nanoseconds."""

    def __init__(self) -> None:
        self._records: OrderedDict[Key, _Record] = OrderedDict()
        self._known_origins: OrderedDict[Key, None] = OrderedDict()  # (user, host) of correct logins

    def wait_ns(self, user: str, host: str, now_ns: MonoNs) -> int | None:
        """Return how long this attempt must wait, in nanoseconds, or None to refuse it."""
        records = [(key, record) for key in self._keys(user, host) if (record := self._record(key, now_ns)) is not None]
        start_ns = max([now_ns, *(record.delayed_until_ns for _, record in records)])
        if start_ns - now_ns > WAIT_NS_MAX:
            return None
        for key, record in records:
            record.delayed_until_ns = start_ns + _delay_ns(key, record.failures)
        return start_ns - now_ns

    def is_delayed(self, user: str, host: str, now_ns: MonoNs) -> bool:
        """Return True if an attempt would have to wait now. Changes nothing."""
        records = [self._record(key, now_ns) for key in self._keys(user, host)]
        return any(record is not None and record.delayed_until_ns > now_ns for record in records)

    def failed(self, user: str, host: str, now_ns: MonoNs) -> None:
        """Count a wrong login."""
        for key in self._keys(user, host):
            record = self._record(key, now_ns)
            if record is None:
                record = self._records[key] = _Record()
            record.failures += 1
            record.last_ns = now_ns
            record.delayed_until_ns = max(record.delayed_until_ns, now_ns + _delay_ns(key, record.failures))
            self._records.move_to_end(key)
        while len(self._records) > ENTRIES_MAX:
            self._records.popitem(last=False)

    def succeeded(self, user: str, host: str) -> None:
        """Count a correct login: the user's failures at this origin are forgotten."""
        known = (user, host)
        self._records.pop(known, None)
        self._known_origins[known] = None
        self._known_origins.move_to_end(known)
        if len(self._known_origins) > ENTRIES_MAX:
            self._known_origins.popitem(last=False)

    def _keys(self, user: str, host: str) -> list[Key]:
        return [(user, host)] if (user, host) in self._known_origins else [("user", user, host), ("host", "", host)]

    def _record(self, key: Key, now_ns: MonoNs) -> _Record | None:
        record = self._records.get(key)
        if record is not None and now_ns - record.last_ns >= FORGET_NS:
            del self._records[key]
            return None
        return record


def _delay_ns(key: Key, failures: int) -> int:
    over = failures - (HOST_FAILURES_FREE if len(key) == 3 and key[0] == "host" else USER_FAILURES_FREE)
    return min(DELAY_NS_MAX, FIRST_DELAY_NS << min(over, 10)) if over >= 0 else 0
