"""Decide when and where a client connects again after a lost connection.

``Reconnect`` is the policy that a user passes to ``connect``. ``Attempts`` applies it: it returns the address of the
next attempt and the wait before it. Both do no I/O and read no clock; the blocking client and the asyncio client use
them alike.

A connection that ends soon, and before the broker has sent a RECEIPT or a MESSAGE, does not count as a success: the
waits go on to grow, and the time limit counts from the first loss. So a message that ends every connection is not sent
for ever.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from radiator.client.address import Address
from radiator.client.errors import BadTls, ConnectFailed, Disconnected, ServerError
from radiator.errors import ClientError

# ERROR codes after which another attempt may succeed: the broker restarts or drains, or the peer was silent too long.
TRANSIENT_CODES = frozenset({"shutting-down", "draining", "timeout"})
MOVING_CODES = frozenset({"shutting-down", "draining"})  # the broker leaves: begin with the next address
REFUSED_FOR_NOW = TRANSIENT_CODES | {"too-many"}  # answers to CONNECT after which another attempt may succeed


@dataclass(frozen=True)
class Reconnect:
    """The policy by which a client connects, and connects again after a lost connection.

    Every address is tried once, then the client waits. The wait doubles from round to round. It is shortened by a
    random part, so that clients that were cut at the same moment do not return at the same moment.

    Attributes:
        delay: The wait after the first failed round, in seconds.
        delay_max: The longest wait, in seconds.
        jitter: The part of a wait that is random, from 0 (none) to 1 (all of it).
        timeout: The time without a broker after which the client gives up, in seconds; None never gives up. Every
            address is tried at least once.
    """

    delay: float = 0.1
    delay_max: float = 5.0
    jitter: float = 0.5
    timeout: float | None = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.delay <= self.delay_max:
            raise ValueError(f"delay: expected more than 0 and at most delay_max, got {self.delay}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter: expected 0 to 1, got {self.jitter}")
        if self.timeout is not None and self.timeout < 0:
            raise ValueError(f"timeout: expected at least 0 seconds, got {self.timeout}")


ONCE = Reconnect(timeout=0.0)  # each address once, then an error


def policy_of(reconnect: bool | Reconnect) -> Reconnect | None:
    """Return the policy for the argument ``reconnect`` of ``connect``, or None for no reconnects.

    Args:
        reconnect: True for the default policy, False for none, or a policy.
    """
    if isinstance(reconnect, Reconnect):
        return reconnect
    return Reconnect() if reconnect else None


class Attempts:
    """The attempts to connect to one of several addresses.

    Args:
        addresses: The addresses, in the order in which they are tried.
        policy: The policy.
        chance: Returns a random number from 0 to 1.
    """

    def __init__(
        self, addresses: Sequence[Address], policy: Reconnect, chance: Callable[[], float] = random.random
    ) -> None:
        assert addresses
        self._addresses = addresses
        self._policy = policy
        self._chance = chance
        self._index = 0
        self._left = 0  # addresses that this round has not tried
        self._first_round = True
        self._pause = policy.delay
        self._deadline: float | None = None
        self._trying = False
        self._connected_at: float | None = None
        self._loss: ClientError | None = None
        self._problem: ClientError | None = None

    @property
    def address(self) -> Address:
        """The address of the present attempt."""
        return self._addresses[self._index]

    def begin(self, now: float, error: ClientError | None = None) -> float | None:
        """Begin attempts, and return the wait before the first one in seconds, or None to give up.

        The first attempt has the address of the lost connection, unless its broker announced that it leaves.

        Args:
            now: The time on a monotonic clock, in seconds.
            error: The reason for the end of the connection, or None if there was none.
        """
        if isinstance(error, ServerError) and error.code in MOVING_CODES:
            self._next_address()
        self._loss = self._problem = error
        self._left = len(self._addresses)
        lasted = 0.0 if self._connected_at is None else now - self._connected_at
        self._connected_at = None
        if self._trying and lasted < self._policy.delay_max:  # the connection ended before it was of use
            self._first_round = False
            return self._wait(now)
        self._trying = self._first_round = True
        self._pause = self._policy.delay
        timeout = self._policy.timeout
        self._deadline = None if timeout is None else now + timeout
        return 0.0 if error is None else self._policy.delay * self._policy.jitter * self._chance()

    def failed(self, now: float, problem: ClientError) -> float | None:
        """Choose the next address, and return the wait before the next attempt in seconds, or None to give up.

        Args:
            now: The time on a monotonic clock, in seconds.
            problem: The error of the attempt.
        """
        self._problem = problem
        if not may_connect_later(problem):
            return None
        self._next_address()
        self._left -= 1
        if self._left > 0:
            return 0.0 if self._first_round or self._is_before_end(now) else None
        self._left = len(self._addresses)
        self._first_round = False
        return self._wait(now)

    def error(self) -> ClientError:
        """Return the error for the caller, after the attempts have failed."""
        problem = self._problem
        assert problem is not None
        if problem is self._loss or not may_connect_later(problem):
            return problem
        if self._loss is not None:
            return ConnectFailed(f"the connection was lost ({self._loss}), and no other could be opened: {problem}")
        if len(self._addresses) > 1:
            places = ", ".join(str(address) for address in self._addresses)
            return ConnectFailed(f"no broker answers at any of {places}; the last error: {problem}")
        return problem

    def connected(self, now: float) -> None:
        """Note that a connection is open. It may still end before it is of use.

        Args:
            now: The time on a monotonic clock, in seconds.
        """
        self._connected_at = now

    def succeeded(self) -> None:
        """End the attempts: the broker answered something on the new connection."""
        self._trying = False

    def limit(self, now: float, seconds: float) -> float:
        """Return the time limit of the next attempt, in seconds. In the first round every address has the full limit.

        Args:
            now: The time on a monotonic clock, in seconds.
            seconds: The time limit of an attempt without other limits.
        """
        if self._first_round or self._deadline is None:
            return seconds
        return min(seconds, max(0.05, self._deadline - now))

    def _is_before_end(self, now: float) -> bool:
        return self._deadline is None or now <= self._deadline

    def _next_address(self) -> None:
        self._index = (self._index + 1) % len(self._addresses)

    def _wait(self, now: float) -> float | None:
        wait = self._pause * (1 - self._policy.jitter * self._chance())
        self._pause = min(2 * self._pause, self._policy.delay_max)
        return wait if self._is_before_end(now + wait) else None


def may_return(error: ClientError) -> bool:
    """Return True if a connection that ended with this error may be replaced by a new one.

    Args:
        error: The reason for the end of the connection.
    """
    if isinstance(error, ServerError):
        return error.code in TRANSIENT_CODES
    return isinstance(error, Disconnected)


def may_connect_later(error: ClientError) -> bool:
    """Return True if another attempt to connect may succeed.

    Args:
        error: The error of the attempt.
    """
    if isinstance(error, ServerError):
        return error.code in REFUSED_FOR_NOW
    return isinstance(error, ConnectFailed | Disconnected) and not isinstance(error, BadTls)
