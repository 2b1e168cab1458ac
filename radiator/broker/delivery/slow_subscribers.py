"""Slow subscribers: count the messages that they miss, and log each slow subscription once.

A slow subscriber is an offset that lags. A topic in files loses nothing to it while the files are retained. A topic in
memory drops its oldest messages, and a reader behind them gets a ``gap``. Other subscribers are not affected.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from radiator.broker.clients.session import Reader
    from radiator.broker.peer_log import PeerLog
    from radiator.broker.stats import Stats

log = logging.getLogger("radiator.broker")


class SlowSubscribers:
    """The slow subscriptions of one broker."""

    def __init__(self, stats: Stats, peer_log: PeerLog) -> None:
        self._stats = stats
        self._peer_log = peer_log

    def missed(self, reader: Reader, count: int) -> None:
        """Count records that were removed before this reader read them, and log the subscription the first time."""
        subscription = reader.subscription
        self._stats.count(missed_by_slow=count)
        if subscription.reported_slow:
            return
        subscription.note_slow()
        session = subscription.session
        self._peer_log.line(
            logging.WARNING,
            "slow subscription",
            session.origin,
            "session %s %s: subscription %s is too slow for the retention of %s: it missed %d messages and gets a "
            "gap. Set store: file or a larger retention. Further gaps of this subscription are not logged",
            session.id,
            session.address,
            subscription.id,
            reader.feed.partition.name,
            count,
            logger=log,
            peer=session,
        )
