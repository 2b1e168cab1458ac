"""Subscribers that are too slow for what is kept: counted, and told in the broker's log.

A slow subscriber is an offset that lags. Of a topic in files nothing is lost to it while the files are kept; of one in
memory the oldest messages go as new ones come, and who had not come to them hears of it by ``gap``. Nobody else
notices.

Knows: who missed how many. Invariant: each subscription is told once, however often it falls behind.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from radiator.broker.clients.session import Reader
    from radiator.broker.peer_log import PeerLog
    from radiator.broker.stats import Stats

log = logging.getLogger("radiator.broker")


class Slow:
    """All of one broker."""

    def __init__(self, stats: Stats, peer_log: PeerLog) -> None:
        self._stats = stats
        self._peer_log = peer_log

    def missed(self, reader: Reader, count: int) -> None:
        """So many records were gone before this reader came to them."""
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
            "session %s %s: subscription %s is too slow for what is kept of %s: it has missed %d messages, and is told "
            "by gap; a file, or a larger retention, keeps more. Of this subscription nothing more is said here",
            session.id,
            session.address,
            subscription.id,
            reader.feed.partition.name,
            count,
            logger=log,
        )
