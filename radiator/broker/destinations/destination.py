"""A destination: a name, its policy, the feeds of its partitions, and its queue if it is one.

The destination chooses the partition of a message (by its headers ``priority``, ``partition`` or a key, or round robin)
and encodes the end of the RECEIPT of a SEND.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from radiator.broker.queues.queue import is_limited
from radiator.errors import ProtocolError
from radiator.routing.rules import DEFAULT_PRIORITY, PRIORITIES
from radiator.stomp.encoder import SERVER_END
from radiator.stomp.headers import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from radiator.broker.logs.feed import Feed
    from radiator.broker.queues.queue import Queue
    from radiator.routing.policy import Policy

SUFFIXES_MAX = 64  # cached suffixes; usual are a few partitions, versions and numbers of subscribers
_PRIORITY = re.compile(r"-?\d{1,9}", re.ASCII)
DUPLICATE = -1  # in place of a number of subscribers


class Destination:
    """One destination.

    Args:
        name: The name.
        policy: The policy that the rules give the name.
        feeds: The feeds of its partitions.
        open_priority: Called with the destination and the name of a partition, to create the feed of a priority level.

    Attributes:
        orphaned: Feeds of logs that the rule does not name any more and that have messages to deliver.
        queue: The queue, or None for a topic or a fan-out source.
        parents: The fan-out sources that the queue is bound to.
        subscribers: The number of live subscriptions that match the destination.
        sent: True if a client has sent to the destination in this run, or tried to, or if a start found messages of it.
    """

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
        self.orphaned: list[Feed] = []
        self.queue: Queue | None = None
        self.parents: list[Destination] = []
        self.subscribers = 0
        self.sent = False
        self._open_priority = open_priority
        self._turn = 0
        self._suffixes: dict[tuple[Feed, int, str], bytes] = {}

    def set_policy(self, policy: Policy) -> None:
        """Replace the policy by one with the same kind, partitions and bound queues."""
        self.policy = policy

    def set_queue(self, queue: Queue) -> None:
        """Set the queue that delivers the messages."""
        self.queue = queue

    def count_subscribers(self, number: int) -> None:
        """Count ``number`` more live subscriptions; fewer if negative."""
        self.subscribers += number

    def note_sent(self) -> None:
        """Note that a client has sent to the destination, or tried to."""
        self.sent = True

    @property
    def limited(self) -> bool:
        """True if the rule limits the messages or bytes that wait."""
        return is_limited(self.policy.settings)

    @property
    def is_parent(self) -> bool:
        """True if the destination is a fan-out source that is a queue: only its bound queues deliver its messages."""
        return self.queue is None and self.policy.kind == "queue"

    @property
    def unused(self) -> bool:
        """True if the destination has no subscription and nothing was sent, so that it can be removed."""
        if self.subscribers or self.parents or self.orphaned or self.policy.fan_out:
            return False
        if self.queue is not None and self.queue.paused:
            return False
        if not any(feed.partition.next_offset or feed.partition.last_receive_ns for feed in self.feeds):
            return True
        return self.silent

    @property
    def silent(self) -> bool:
        """True if it is certain that nothing was ever sent to it. Other destinations may use its log."""
        partitions = [feed.partition for feed in self.feeds]
        return not self.sent and not any(self.name in each.destinations or not each.whole for each in partitions)

    def choose(self, headers: Mapping[str, str]) -> Feed | None:
        """Return the feed for a message; None if the message has no key.

        Args:
            headers: The headers of the message.

        Raises:
            ProtocolError: The header ``partition`` or ``priority`` is not valid (bad-header).
        """
        feeds = self.feeds
        forced = headers.get("partition")
        if self.policy.priority:
            return self._log_of_priority(headers.get("priority"))
        if forced is not None and (len(feeds) > 1 or self.policy.rule.partition_by is not None):
            return self._forced(forced)
        if len(feeds) == 1:
            return feeds[0]
        key = headers.get("partition-key")
        if key is None and self.policy.rule.partition_by is not None:
            key = headers.get(self.policy.rule.partition_by)
        return None if key is None else self.feed_of(key)

    def feed_of(self, key: str) -> Feed:
        """Return the feed of a key, which is always the same.

        It is chosen by CRC-32 of the key's UTF-8 bytes modulo the number of partitions (``docs/configuration.md``,
        "partition_by").
        """
        return self.feeds[zlib.crc32(key.encode()) % len(self.feeds)]

    def _log_of_priority(self, text: str | None) -> Feed:
        """Return the feed of a priority level, created at first use.

        Args:
            text: The header ``priority``. A number outside of 0 to 9 counts as the nearest in it.
        """
        if text is None:
            priority = DEFAULT_PRIORITY
        elif _PRIORITY.fullmatch(text) is not None:
            priority = min(max(int(text), 0), PRIORITIES - 1)
        else:
            raise ProtocolError(
                "bad-header",
                f"header priority: not a number: {text[:100]!r}",
                f"Expected 0 to {PRIORITIES - 1}, because the rule of the destination sets priority: true.",
            )
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
        """Return the next feed of the round robin, for messages without a key."""
        feed = self.feeds[self._turn]
        self._turn = (self._turn + 1) % len(self.feeds)
        return feed

    @property
    def only_feed(self) -> Feed | None:
        """The feed if there is only one, else None."""
        feeds = self.feeds
        return feeds[0] if len(feeds) == 1 else None

    def delay_refusal(self) -> ProtocolError:
        """Return the error of a message with a delay to a destination without a queue."""
        if self.is_parent:
            return ProtocolError(
                "unsupported",
                f"delay and deliver-at are not allowed on {self.name[:200]!r}, a queue with fan_out",
                "Send messages with a delay to the queues in its fan_out.",
            )
        return ProtocolError(
            "unsupported",
            f"delay and deliver-at are not allowed on {self.name[:200]!r}, a topic",
            "Subscriptions read a topic in the order of its log; delay and deliver-at are for queues.",
        )

    def receipt_suffix(self, feed: Feed, version: str) -> bytes:
        """Return the end of the RECEIPT of a SEND: the same object for the same content."""
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
        """Return the end of the RECEIPT of a SEND whose message is a duplicate."""
        key = (feed, DUPLICATE, version)
        suffix = self._suffixes.get(key)
        if suffix is None:
            partition = escape(feed.partition.name, version).encode()
            suffix = self._suffixes[key] = b"\npartition:%b\nduplicate:true\n\n%b" % (partition, SERVER_END)
        return suffix
