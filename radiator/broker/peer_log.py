"""Log lines that peers cause, limited in number.

Every peer that reaches a listener can cause refusals, wrong logins or broken handshakes without limit. ``PeerLog``
writes the first lines of each kind from each origin in full. Later lines within the interval are only counted. The
interval ends with a summary of the number and the origins. The counters in ``/stats`` count every event.

Bound: at most ``FULL_PER_KIND + SUMMARIES + 1`` lines of a kind per interval, however many origins there are. The
kinds are constants in the code.
"""

from __future__ import annotations

import logging
from heapq import nlargest
from typing import Final, Protocol

from radiator.clock import NS_PER_SECOND, MonoNs

INTERVAL_NS: Final = 60 * NS_PER_SECOND
FULL_PER_ORIGIN: Final = 5  # lines of a kind in an interval
FULL_PER_KIND: Final = 20  # the same for all origins together
SUMMARIES: Final = 5  # origins of a kind that a summary names
ORIGINS_MAX: Final = 1_000  # of a kind that are counted separately in an interval; further ones are counted together

log = logging.getLogger("radiator.peers")


class Peer(Protocol):
    """The session whose client causes a line. Its names are the fields of the line in JSON."""

    id: str
    address: str

    @property
    def user(self) -> str:
        """The name of the user; empty for anonymous."""


class _Kind:
    """The lines of one kind in this interval."""

    __slots__ = ("full", "held_back", "level", "written")

    def __init__(self, level: int) -> None:
        self.level = level
        self.full = 0  # lines written in full
        self.written: dict[str, int] = {}  # by origin: lines written in full
        self.held_back: dict[str, int] = {}  # by origin: lines counted only


class PeerLog:
    """The limited log lines of one broker."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._began_ns: MonoNs | None = None

    def line(
        self,
        level: int,
        kind: str,
        origin: str,
        text: str,
        *args: object,
        logger: logging.Logger = log,
        error: BaseException | None = None,
        peer: Peer | None = None,
    ) -> None:
        """Log a line, or count it if its kind has too many in this interval.

        Args:
            level: The level, such as ``logging.INFO``.
            kind: The event in a few words, for the summary. Never text of a peer.
            origin: The origin of the event: usually an address without its port.
            text: The line, with the placeholders of ``logging``.
            args: The values of the placeholders.
            logger: The logger of the line.
            error: An exception whose traceback follows the line.
            peer: The session of the client, if there is one.
        """
        if not logger.isEnabledFor(level):
            return
        now = self._kinds.get(kind)
        if now is None:
            now = self._kinds[kind] = _Kind(level)
        written = now.written.get(origin, 0)
        if now.full < FULL_PER_KIND and written < FULL_PER_ORIGIN:
            now.full += 1
            now.written[origin] = written + 1
            who = None if peer is None else {"user": peer.user, "address": peer.address, "session": peer.id}
            logger.log(level, text, *args, exc_info=error, extra=who)
            return
        if origin not in now.held_back and len(now.held_back) >= ORIGINS_MAX:
            origin = ""
        now.held_back[origin] = now.held_back.get(origin, 0) + 1

    def tick(self, now_ns: MonoNs) -> None:
        """Log the summaries if the interval has ended.

        Args:
            now_ns: The monotonic time, in nanoseconds.
        """
        if not self._kinds:
            self._began_ns = None
        elif self._began_ns is None:
            self._began_ns = now_ns
        elif now_ns - self._began_ns >= INTERVAL_NS:
            self.summarise()

    def summarise(self) -> None:
        """End the interval and log the number of lines of each kind that were only counted."""
        kinds, self._kinds = self._kinds, {}
        self._began_ns = None
        for name, kind in kinds.items():
            origins_known = [origin for origin in kind.held_back if origin]
            busiest = nlargest(SUMMARIES, origins_known, key=kind.held_back.__getitem__)
            for origin in busiest:
                log.log(kind.level, "%s: %d more from %s in the last 60 s", name, kind.held_back[origin], origin)
            more = sum(kind.held_back.values()) - sum(map(kind.held_back.__getitem__, busiest))
            if more:
                origins = len(origins_known) - len(busiest)
                at_least = "at least " if "" in kind.held_back else ""
                log.log(
                    kind.level, "%s: %d more from %s%d others in the last 60 s", name, more, at_least, max(1, origins)
                )
