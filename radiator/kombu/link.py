"""Connect kombu to the broker: subscriptions of queues, and the bindings of exchanges.

    kombu                      radiator
    queue  celery              /queue/celery
    fanout exchange x          /topic/kombu.fanout.x      every bound queue has a subscription
    bindings of exchange x     /topic/kombu.bindings.x    one message each; a later one with ``unbound`` removes it

AMQP stores the bindings of direct and topic exchanges in the broker. Here they are a topic that is replayed, so each
publisher knows the bindings of all clients, also after a restart.

A ``QueueConsumer`` receives the messages of one queue. It has one subscription, and opens further ones when kombu
needs more unacknowledged messages than the windows allow (a worker does while tasks with a countdown wait).

Invariants: messages that arrived and were not taken are in the inboxes of a consumer, unacknowledged. ``arrived`` is
notified when a message arrives or the connection ends.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from radiator.client import Connection, Message, Subscription
from radiator.client.admin import ask
from radiator.client.errors import ServerError, copy_error
from radiator.clock import NS_PER_SECOND, monotonic_ns, now_ns
from radiator.stomp.frames import Frame

log = logging.getLogger("radiator.kombu")

WINDOW = 64  # of a consumer without a limit: fast, and leaves messages to others
WINDOW_MAX = 10_000
SAFE = "/@:+=!~ "  # beside letters, digits and ``_.-``: not special in a pattern, so not quoted


class Inbox(Subscription):
    """A subscription that also notifies the link when a message arrives.

    Args:
        connection: The connection.
        name: The subscription id.
        destination: The destination.
        ack: The acknowledgement mode.
        arrived: The condition to notify.
    """

    def __init__(self, connection: Connection, name: str, destination: str, ack: str, arrived: threading.Condition):
        super().__init__(connection, name, destination, ack)
        self._everywhere = arrived

    def put(self, frame: Frame) -> None:
        """Store a MESSAGE frame. Called by the reader thread with the lock held."""
        super().put(frame)
        self._everywhere.notify_all()

    def wake(self) -> None:
        """Wake the threads that wait for a message. Called with the lock held."""
        super().wake()
        self._everywhere.notify_all()


class QueueConsumer:
    """The messages of one destination for one consumer.

    Args:
        link: The link.
        destination: The destination.
        ack: The acknowledgement mode.
        window: The window of the first subscription.

    Attributes:
        unacknowledged: The number of messages that were taken and not settled.
    """

    def __init__(self, link: Link, destination: str, ack: str, window: int) -> None:
        self._link = link
        self._destination = destination
        self._ack = ack
        self._window = min(max(1, window), WINDOW_MAX)
        self._inboxes: list[Inbox] = []
        self._window_total = 0  # the sum of the windows
        self.unacknowledged = 0  # taken and not settled

    @property
    def pending(self) -> bool:
        """True if a message has arrived."""
        return any(inbox.pending for inbox in self._inboxes)

    def open(self) -> None:
        """Subscribe; each further call opens a subscription with a window as large as all earlier ones together."""
        window = min(self._window_total or self._window, WINDOW_MAX)
        self._window_total += window
        self._inboxes.append(self._link.subscribe(self._destination, self._ack, window))

    def take(self, timeout: float = 0.0) -> Message | None:
        """Return the next message, or None if none came within ``timeout`` seconds."""
        for inbox in self._inboxes:
            if inbox.pending or timeout:
                message = inbox.fetch(timeout)
                if message is not None:
                    self.unacknowledged += self._ack != "auto"
                    return message
        return None

    def settled(self) -> None:
        """Count a message as acknowledged or returned."""
        self.unacknowledged -= 1

    def full(self) -> bool:
        """Return True if all windows are used up and another subscription could be opened."""
        return self._ack != "auto" and self._window_total <= self.unacknowledged < WINDOW_MAX

    def close(self) -> None:
        """Unsubscribe. Unacknowledged messages return to the queue."""
        inboxes, self._inboxes = self._inboxes, []
        for inbox in inboxes:
            inbox.close()


class Link:
    """One connection of kombu.

    Args:
        connect: Opens a connection.
        queue_prefix: The prefix of the destinations of queues.
        topic_prefix: The prefix of the destinations of exchanges.
    """

    def __init__(self, connect: Callable[[], Connection], queue_prefix: str, topic_prefix: str) -> None:
        self.connection = connect()
        self.arrived = threading.Condition(self.connection.link.lock)
        self._queue_prefix = queue_prefix
        self._topic_prefix = topic_prefix
        self._numbers = iter(range(1, 1 << 62))
        self._bindings: dict[str, Bindings] = {}

    # --- names --------------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> str:
        """Return the destination of a queue."""
        return self._queue_prefix + quote(name, SAFE)

    def fanout(self, exchange: str) -> str:
        """Return the destination of a fanout exchange."""
        return f"{self._topic_prefix}fanout.{quote(exchange, SAFE)}"

    # --- messages -----------------------------------------------------------------------------------------------------

    def send(self, destination: str, payload: Any, headers: dict[str, str | int]) -> None:
        """Send a message, and return when it is stored."""
        self.connection.send(destination, payload, {"content-type": "application/json", **headers})

    def subscribe(self, destination: str, ack: str, window: int) -> Inbox:
        """Return a new subscription."""
        inbox = Inbox(self.connection, f"k{next(self._numbers)}", destination, ack, self.arrived)
        self.connection.open_subscription(inbox, {"prefetch-count": window} if ack != "auto" else {})
        return inbox

    def wait(self, decided: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until ``decided()`` is True, and return True; return False after ``timeout`` seconds.

        Raises:
            ServerError: The broker answered ERROR.
            Disconnected: The connection has ended.
        """
        link = self.connection.link
        with self.arrived:
            found = self.arrived.wait_for(lambda: decided() or link.error is not None, timeout)
            if link.error is not None and not decided():
                raise copy_error(link.error)
        return found

    def size(self, name: str) -> int:
        """Return the number of messages that wait in a queue; 0 if the user has no right to request it."""
        destination = self.queue(name)
        try:
            listed = ask(self.connection, "destinations.ls", match=destination, limit=1)
        except ServerError:
            return 0
        return int(listed["destinations"][0].get("ready") or 0) if listed["destinations"] else 0

    def purge(self, name: str) -> int:
        """Settle the messages that wait in a queue now, and return how many there were. Later messages stay."""
        count = 0
        began_ns = now_ns()
        with self.connection.subscribe(
            self.queue(name), ack="client-individual", prefetch=PURGE_WINDOW
        ) as subscription:
            last_ns = monotonic_ns()
            while (message := subscription.fetch(PURGE_SECONDS)) is not None:
                if (message.receive_time or 0) < began_ns:
                    message.ack()
                    count += 1
                    last_ns = monotonic_ns()
                elif monotonic_ns() - last_ns > PURGE_SECONDS * NS_PER_SECOND:
                    break  # newer ones return when the subscription ends
        return count

    # --- bindings -----------------------------------------------------------------------------------------------------

    def bindings(self, exchange: str) -> Bindings:
        """Return the bindings of an exchange."""
        found = self._bindings.get(exchange)
        if found is None:
            destination = f"{self._topic_prefix}bindings.{quote(exchange, SAFE)}"
            found = self._bindings[exchange] = Bindings(self, destination)
        return found

    def close(self) -> None:
        """Disconnect. Unacknowledged messages return to their queues."""
        self.connection.close()


PURGE_SECONDS = 0.2  # without an old message, until the purge ends
PURGE_WINDOW = 1_000


class Bindings:
    """The bindings of one exchange by all clients: a replay that continues live.

    Args:
        link: The link.
        destination: The topic of the bindings.
    """

    def __init__(self, link: Link, destination: str) -> None:
        self._link = link
        self._destination = destination
        self._next = 0  # the next offset to apply
        self._rows: dict[tuple[str, str], tuple[str, str | None, str]] = {}
        self._inbox = link.connection.subscribe(destination, ack="auto", start_position="first")
        self.refresh()

    def rows(self) -> list[tuple[str, str | None, str]]:
        """Return (routing key, pattern, queue) of each binding, as in kombu's tables."""
        while (message := self._inbox.fetch(0)) is not None:
            self._apply(message)
        return list(self._rows.values())

    def refresh(self) -> None:
        """Read all bindings that were published before this call."""
        for message in self._history():
            self._apply(message)

    def _history(self) -> Iterator[Message]:
        begin = f"offset:{self._next}" if self._next else "first"
        return self._link.connection.subscribe(self._destination, ack="auto", start_position=begin, stop_position="end")

    def _apply(self, message: Message) -> None:
        self._next = max(self._next, (message.offset or 0) + 1)
        try:
            binding = message.json()
            key = (str(binding["queue"]), str(binding["routing_key"]))
        except (ValueError, TypeError, KeyError):
            log.warning("%s: %s is not a binding, ignored", self._destination, message.id)
            return
        if binding.get("unbound"):
            self._rows.pop(key, None)
        else:
            self._rows[key] = (key[1], binding.get("pattern"), key[0])

    def bind(self, routing_key: str, pattern: str | None, queue: str) -> None:
        """Publish a binding, unless it is known."""
        if (queue, routing_key) not in self._rows:
            self._publish(queue, routing_key, {"pattern": pattern})
            self._rows[queue, routing_key] = (routing_key, pattern, queue)

    def unbind(self, routing_key: str, queue: str) -> None:
        """Publish the end of a binding."""
        if self._rows.pop((queue, routing_key), None) is not None:
            self._publish(queue, routing_key, {"unbound": True})

    def _publish(self, queue: str, routing_key: str, more: dict[str, Any]) -> None:
        body = json.dumps({"queue": queue, "routing_key": routing_key, **more})
        self._link.send(self._destination, body, {"binding": json.dumps([queue, routing_key])})
