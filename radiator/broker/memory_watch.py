"""What follows when ``limits.memory`` is used up: the error of a client that wants more, a counter and the log.

Knows: the account and its shares. Must not know: who waits, sockets, clocks (the time comes in).
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

CALM_NS: Final = 10 * NS_PER_SECOND  # nothing wanted more for so long: then the log reports that there is room


class MemoryWatch:
    """The watch over one account.

    Args:
        account: all that clients can make the broker hold.
        stats: where ``memory_pauses`` and ``memory_refusals`` are counted.
    """

    __slots__ = ("_met", "_met_ns", "_stats", "account", "is_full")

    def __init__(self, account: MemoryAccount, stats: Stats) -> None:
        self.account = account
        self.is_full = False  # reported in the log, and not yet that there is room
        self._stats = stats
        self._met = False  # since the last look
        self._met_ns = 0

    def met(self, share: MemoryShare) -> None:
        """Report that a share could not grow. The log has one line for it until there is room again."""
        self._met = True
        if not self.is_full:
            self.is_full = True
            self._stats.count(memory_pauses=1)
            log.warning(
                "memory: %s. Clients that need more wait or are refused; consumers and acknowledgements go on",
                share.usage(),
            )

    def refusal(self, share: MemoryShare, what: str, remedy: str) -> ProtocolError:
        """The error of a client that wants more of a share than there is, counted.

        Args:
            share: the share that may not grow.
            what: what there is no memory for ("the transaction").
            remedy: what the client or the operator can do, a sentence.
        """
        self.met(share)
        self._stats.count(memory_refusals=1)
        return ProtocolError("full", f"no memory is free for {what}", f"{share.usage()}. {remedy}")

    def require(self, share: MemoryShare, size: int, what: str, remedy: str) -> None:
        """Raise the ``refusal`` unless the share may grow by ``size`` bytes."""
        if not share.fits(size):
            raise self.refusal(share, what, remedy)

    def require_subscription(self, size: int) -> None:
        """Raise the ``refusal`` unless the subscriptions may grow by ``size`` bytes."""
        remedy = "Expected fewer or narrower subscriptions, or shorter selectors."
        self.require(self.account.shares[SUBSCRIPTIONS], size, "the subscription", remedy)

    def look(self, now_ns: MonoNs) -> None:
        """Report in the log that there is room again, once nothing has wanted more for ``CALM_NS``."""
        if self._met:
            self._met, self._met_ns = False, now_ns
        elif self.is_full and not self.account.full and now_ns - self._met_ns >= CALM_NS:
            self.is_full = False
            log.warning("memory: there is room again")
