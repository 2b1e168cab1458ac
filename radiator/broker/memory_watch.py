"""Errors, counters and log lines for the case that ``limits.memory`` is used up.

The module knows the memory account and its shares, but not clients, sockets or clocks.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from radiator.clock import NS_PER_SECOND, MonoNs
from radiator.errors import ProtocolError
from radiator.memory import SUBSCRIPTIONS

if TYPE_CHECKING:
    from radiator.broker.stats import Stats
    from radiator.memory import MemoryAccount, MemoryShare

log = logging.getLogger("radiator.broker")

CALM_NS: Final = 10 * NS_PER_SECOND  # so long without a refusal: then the log reports free memory


class MemoryWatch:
    """Reports when a memory account is full.

    Args:
        account: The account of all memory that clients can make the broker use.
        stats: The counters; ``memory_pauses`` and ``memory_refusals`` are counted here.
    """

    __slots__ = ("_met", "_met_ns", "_stats", "account", "is_full")

    def __init__(self, account: MemoryAccount, stats: Stats) -> None:
        self.account = account
        self.is_full = False  # the log reports full memory, and no free memory since
        self._stats = stats
        self._met = False  # a share could not grow since the last look()
        self._met_ns = 0

    def met(self, share: MemoryShare) -> None:
        """Report that a share could not grow. The log has one line until memory is free again."""
        self._met = True
        if not self.is_full:
            self.is_full = True
            self._stats.count(memory_pauses=1)
            log.warning(
                "memory: %s. Clients that need more must wait or are refused; consumers are still served",
                share.usage(),
            )

    def refusal(self, share: MemoryShare, what: str, remedy: str) -> ProtocolError:
        """Return the error for a client that needs more of a share than is free, and count it.

        Args:
            share: The share that may not grow.
            what: The purpose of the memory, such as "the transaction".
            remedy: What the client or the operator can do, as a sentence.
        """
        self.met(share)
        self._stats.count(memory_refusals=1)
        return ProtocolError("full", f"no memory is free for {what}", f"{share.usage()}. {remedy}")

    def require(self, share: MemoryShare, size: int, what: str, remedy: str) -> None:
        """Check that a share may grow by ``size`` bytes. The other arguments are those of ``refusal``.

        Raises:
            ProtocolError: The share may not grow (full).
        """
        if not share.fits(size):
            raise self.refusal(share, what, remedy)

    def require_subscription(self, size: int) -> None:
        """Check that the memory of subscriptions may grow by ``size`` bytes.

        Raises:
            ProtocolError: It may not grow (full).
        """
        remedy = "Expected fewer or narrower subscriptions, or shorter selectors."
        self.require(self.account.shares[SUBSCRIPTIONS], size, "the subscription", remedy)

    def look(self, now_ns: MonoNs) -> None:
        """Log that memory is free again, once no share was refused for ``CALM_NS``."""
        if self._met:
            self._met, self._met_ns = False, now_ns
        elif self.is_full and not self.account.full and now_ns - self._met_ns >= CALM_NS:
            self.is_full = False
            log.warning("memory: usage is below the limit again")
