"""A destination: a name, its policy, the feeds of its partitions, and for a queue its consumers.

It answers where a message goes (by key, by the client's ``partition`` header, or round robin) and what the RECEIPT of a
SEND ends with.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from radiator.broker.destinations.priorities import priority_of
from radiator.errors import ProtocolError
from radiator.stomp.encoder import SERVER_END
from radiator.stomp.headers import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from radiator.broker.logs.feed import Feed
    from radiator.broker.queues.queue import Queue
    from radiator.routing.policy import Policy

SUFFIXES_MAX = 64  # remembered: a few partitions, versions and numbers of subscribers
DUPLICATE = -1  # in the place of a number of subscribers


class Destination:
    """One named destination. ``subscribers`` counts the live subscriptions that match it."""

    __slots__ = (
        "_open_priority",
        "_suffixes",
        "_turn",
        "feeds",
        "orphaned",
        "name",
        "parents",
        "policy",
        "queue",
        "sent",
        "subscribers",
    )

    def __init__(
        self, name: str, policy: Policy, feeds: list[Feed], open_priority: Callable[[Destination, str], Feed]
    ) -> None:
        self.name = name
        self.policy = policy
        self.feeds = feeds
        self.orphaned: list[Feed] = []  # logs that its rule does not name any more, which have something to hand out
        self.queue: Queue | None = None
        self.parents: list[Destination] = []  # whose messages it gets as well
        self.subscribers = 0
        self.sent = False  # somebody has wanted to send to it, in this run
        self._open_priority = open_priority
        self._turn = 0
        self._suffixes: dict[tuple[Feed, int, str], bytes] = {}

    def set_queue(self, queue: Queue) -> None:
        """Hand its messages out as those of a queue."""
        self.queue = queue

    def count_subscribers(self, number: int) -> None:
        """Count ``number`` more live subscriptions; fewer if it is negative."""
        self.subscribers += number

    def note_sent(self) -> None:
        """Note that a client has wanted to send to it, in this run."""
        self.sent = True

    @property
    def limited(self) -> bool:
        """True if its rule says how much may wait in it."""
        return self.policy.settings.max_messages is not None or self.policy.settings.max_bytes is not None

    @property
    def is_parent(self) -> bool:
        """True if it is a queue whose messages only others hand out (``fan_out``)."""
        return self.queue is None and self.policy.kind == "queue"

    @property
    def unused(self) -> bool:
        """True if nobody is subscribed and nothing was sent, not even in vain: only its name is left of it then."""
        if self.subscribers or self.parents or self.orphaned or self.policy.fan_out:
            return False
        if not any(feed.partition.next_offset or feed.partition.last_receive_ns for feed in self.feeds):
            return True
        return self.silent

    @property
    def silent(self) -> bool:
        """True if nothing was ever sent to it, as far as is known for certain; others may use its log."""
        partitions = [feed.partition for feed in self.feeds]
        return not self.sent and not any(self.name in each.destinations or not each.whole for each in partitions)

    def choose(self, headers: Mapping[str, str]) -> Feed | None:
        """The feed for a message with these headers, or None: each message takes the next one (``next_feed``).

        The same key goes to the same partition for ever: CRC-32 of its UTF-8 bytes modulo the number of partitions
        (``docs/configuration.md``, "partition_by").
        """
        feeds = self.feeds
        forced = headers.get("partition")
        if self.policy.priority:
            return self._log_of_priority(priority_of(headers))
        if forced is not None and (len(feeds) > 1 or self.policy.rule.partition_by is not None):
            return self._forced(forced)
        if len(feeds) == 1:
            return feeds[0]
        key = headers.get("partition-key")
        if key is None and self.policy.rule.partition_by is not None:
            key = headers.get(self.policy.rule.partition_by)
        if key is None:
            return None
        return feeds[zlib.crc32(key.encode()) % len(feeds)]

    def _log_of_priority(self, priority: int) -> Feed:
        """The feed of one priority; made when it is first used."""
        name = self.policy.partitions[priority]
        for feed in self.feeds:
            if feed.partition.name == name:
                return feed
        return self._open_priority(self, name)

    def _forced(self, text: str) -> Feed:
        for index, feed in enumerate(self.feeds):
            if text in (str(index), feed.partition.name):
                return feed
        raise ProtocolError(
            "bad-header",
            f"header partition: {text[:100]!r} is not a partition of {self.name}",
            f"Expected a number from 0 to {len(self.feeds) - 1}, or one of the partitions' names.",
        )

    def next_feed(self) -> Feed:
        """Round robin over the partitions, for messages without a key."""
        feed = self.feeds[self._turn]
        self._turn = (self._turn + 1) % len(self.feeds)
        return feed

    @property
    def only_feed(self) -> Feed | None:
        """Its partition if it has only one."""
        feeds = self.feeds
        return feeds[0] if len(feeds) == 1 else None

    def receipt_suffix(self, feed: Feed, version: str) -> bytes:
        """How the RECEIPT of a SEND ends; the same object for as long as it says the same."""
        key = (feed, self.subscribers, version)
        suffix = self._suffixes.get(key)
        if suffix is None:
            if len(self._suffixes) >= SUFFIXES_MAX:
                self._suffixes.clear()
            partition = escape(feed.partition.name, version).encode()
            suffix = b"\npartition:%b\ndelivered-to:%d\n\n%b" % (partition, self.subscribers, SERVER_END)
            self._suffixes[key] = suffix
        return suffix

    def duplicate_suffix(self, feed: Feed, version: str) -> bytes:
        """The same for a SEND whose message is on its way already."""
        key = (feed, DUPLICATE, version)
        suffix = self._suffixes.get(key)
        if suffix is None:
            partition = escape(feed.partition.name, version).encode()
            suffix = self._suffixes[key] = b"\npartition:%b\nduplicate:true\n\n%b" % (partition, SERVER_END)
        return suffix
