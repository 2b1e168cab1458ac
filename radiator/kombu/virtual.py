"""Implement the classes that kombu calls: a transport with channels, over one ``Link`` per connection.

kombu's virtual transports usually store unacknowledged messages themselves and publish them again when a worker ends.
Here the broker stores them: an acknowledgement is an ACK, a rejection a NACK, and unacknowledged messages of a lost or
closed connection return to their queue at once, at their place and with the redelivered flag.

Source: "Virtual AMQP", ``kombu.transport.virtual``.
"""

from __future__ import annotations

import time
from queue import Empty
from typing import Any

from kombu.transport import virtual
from kombu.utils.json import dumps, loads

from radiator.client import ClientError, Message, connect
from radiator.kombu.link import WINDOW, Link, QueueConsumer

DEFAULT_PORT = 61613
GET_SECONDS = 0.2  # the wait of ``basic_get``: an available message arrives within that
WAIT_SECONDS_MAX = 1.0  # an acknowledgement in another thread does not wake the waiting one
AUTO, INDIVIDUAL = "auto", "client-individual"
PRIORITY_MAX = 9


class QoS(virtual.QoS):  # type: ignore[misc]
    """Map delivery tags to messages of the broker."""

    restore_at_shutdown = False  # the broker does it

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge the message of a delivery tag."""
        self.channel.settle(delivery_tag, lambda message: message.ack())
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Return the message of a delivery tag to its queue, or reject it."""
        if requeue:
            self.channel.settle(delivery_tag, lambda message: message.nack())
        else:
            self.channel.settle(delivery_tag, lambda message: message.reject())
        self._quick_ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Return all unacknowledged messages to their queues (``basic.recover``)."""
        self._flush()
        for delivery_tag in list(self._delivered):
            self.channel.settle(delivery_tag, lambda message: message.nack())
        self._delivered.clear()
        return []


class Channel(virtual.Channel):  # type: ignore[misc]
    """A channel: consumers of queues, and their unacknowledged messages."""

    QoS = QoS
    do_restore = False
    supports_fanout = True
    body_encoding = "base64"

    def __init__(self, connection: Transport, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._queue_consumers: dict[str, QueueConsumer] = {}
        # by delivery tag: the consumer, the message, and the queue if the consumer exists for this message only
        self._unacknowledged: dict[str, tuple[QueueConsumer, Message, str]] = {}
        self._fanout: dict[str, str] = {}  # queue -> exchange
        self._no_ack: set[str] = set()
        self._cancelled: set[QueueConsumer] = set()  # consumers that take no more messages
        self._closing = False
        self._auto_delete: set[str] = set()
        self._numbers = iter(range(1, 1 << 62))

    @property
    def link(self) -> Link:
        """The link of the connection."""
        found: Link = self.connection.link
        return found

    # --- publishing ---------------------------------------------------------------------------------------------------

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        self.link.send(self.link.queue(queue), dumps(message), _headers(message))

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **kwargs: Any) -> None:
        self.link.send(self.link.fanout(exchange), dumps(message), _headers(message))

    # --- exchanges and queues -----------------------------------------------------------------------------------------

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        if self.typeof(exchange).type == "fanout":
            self._fanout[queue] = exchange
        else:
            self.link.bindings(exchange).bind(routing_key, pattern, queue)

    def get_table(self, exchange: str) -> list[tuple[str, str | None, str]]:
        """Return the bindings of all clients.

        Raises:
            KeyError: The exchange was not declared here, as kombu expects.
        """
        self.state.exchanges[exchange]
        if self.typeof(exchange).type == "fanout":
            return []
        return self.link.bindings(exchange).rows()

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> list[str]:
        if exchange and exchange in self.state.exchanges and self.typeof(exchange).type != "fanout":
            kind = self.typeof(exchange)
            found = kind.lookup(self.get_table(exchange), exchange, routing_key, default)
            if not found:  # a recent binding may not have arrived
                self.link.bindings(exchange).refresh()
        queues: list[str] = super()._lookup(exchange, routing_key, default)
        return queues

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **kwargs: Any
    ) -> None:
        """Remove a binding for all clients."""
        self.state.binding_delete(queue, exchange, routing_key)
        if exchange and self._fanout.get(queue) == exchange:
            del self._fanout[queue]
        elif exchange:
            self.link.bindings(exchange).unbind(routing_key, queue)

    def _new_queue(self, queue: str, auto_delete: bool = False, **kwargs: Any) -> None:
        if auto_delete:
            self._auto_delete.add(queue)

    def _size(self, queue: str) -> int:
        return self.link.size(queue)

    def _purge(self, queue: str) -> int:
        return self.link.purge(queue)

    def _delete(self, queue: str, exchange: str = "", *meta: Any, **kwargs: Any) -> None:
        if self._fanout.pop(queue, None) is None:
            if exchange and meta:
                self.link.bindings(exchange).unbind(meta[0], queue)
            self._purge(queue)

    # --- consuming ----------------------------------------------------------------------------------------------------

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        """Subscribe to a queue, or to the fanout exchange that it is bound to."""
        if no_ack:
            self._no_ack.add(queue)
        self._queue_consumer(queue)
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def basic_cancel(self, consumer_tag: str) -> Any:
        """Stop consuming.

        Unacknowledged messages can still be acknowledged; the subscription ends with the last of them.

        The last consumer of an ``auto_delete`` queue deletes the queue.
        """
        queue = self._tag_to_queue.get(consumer_tag)
        result = super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues:
            self._no_ack.discard(queue)
            consumer = self._queue_consumers.get(queue)
            if consumer is not None and consumer.unacknowledged and not self._closing:
                self._cancelled.add(self._queue_consumers.pop(queue))
            else:
                self._close_consumer(queue)
            if queue in self._auto_delete and not self.link.connection.closed:
                self._auto_delete.discard(queue)
                self.queue_delete(queue)
        return result

    def _queue_consumer(self, queue: str, window: int = 0) -> QueueConsumer:
        consumer = self._queue_consumers.get(queue)
        if consumer is None:
            exchange = self._fanout.get(queue)
            destination = self.link.queue(queue) if exchange is None else self.link.fanout(exchange)
            ack = AUTO if exchange is not None or queue in self._no_ack else INDIVIDUAL
            consumer = QueueConsumer(self.link, destination, ack, window or self.qos.prefetch_count or WINDOW)
            consumer.open()
            self._queue_consumers[queue] = consumer
        return consumer

    def _close_consumer(self, queue: str) -> None:
        consumer = self._queue_consumers.pop(queue, None)
        if consumer is not None:
            self._release(consumer)

    def _release(self, consumer: QueueConsumer) -> None:
        """Return the unacknowledged messages of a consumer to the queue."""
        for tag, held in list(self._unacknowledged.items()):  # a copy: Celery acknowledges in another thread
            if held[0] is consumer and self._unacknowledged.pop(tag, None) is not None:
                self.qos._quick_ack(tag)
        if not self.link.connection.closed:
            consumer.close()

    @property
    def deliverable(self) -> bool:
        """True if a message has arrived that may be delivered."""
        if not self._consumers or not self.qos.can_consume():
            return False
        return any(
            self._queue_consumers[queue].pending for queue in self._active_queues if queue in self._queue_consumers
        )

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        """Return the next message.

        Raises:
            Empty: There is none.
        """
        consuming = queue in self._active_queues
        consumer = self._queue_consumer(queue, 0 if consuming else 1)
        message = consumer.take(0.0 if consuming else GET_SECONDS)
        if message is None:
            if not consuming:
                self._close_consumer(queue)
            elif consumer.full():
                consumer.open()
            raise Empty
        payload: dict[str, Any] = loads(message.body)
        tag = f"{self.channel_id}-{next(self._numbers)}"
        payload["properties"]["delivery_tag"] = tag
        if message.redelivered:
            payload["properties"]["delivery_info"]["redelivered"] = True
        if message.subscription.ack != AUTO:
            self._unacknowledged[tag] = (consumer, message, "" if consuming else queue)
        return payload

    @property
    def subscribed(self) -> bool:
        """True while a consumer, or a message taken by ``basic_get``, has a subscription."""
        return bool(self._queue_consumers)

    def settle(self, delivery_tag: str, how: Any) -> None:
        """Call ``how`` with the message of a delivery tag. Does nothing if it is settled, or returned to the broker."""
        held = self._unacknowledged.pop(delivery_tag, None)
        if held is not None:
            consumer, message, only = held
            consumer.settled()
            try:
                how(message)
            finally:
                if consumer in self._cancelled and not consumer.unacknowledged:
                    self._cancelled.discard(consumer)
                    consumer.close()
                if only and only not in self._active_queues:
                    self._close_consumer(only)

    def close(self) -> None:
        """Close the channel. Its unacknowledged messages return to their queues."""
        if not self.closed:
            self._closing = True
            for consumer in list(self._cancelled):
                self._release(consumer)
            self._cancelled.clear()
            for queue in list(self._queue_consumers):
                if queue not in self._active_queues:
                    self._close_consumer(queue)
        super().close()


class Transport(virtual.Transport):  # type: ignore[misc]
    """The transport ``radiator://[user:password@]host:port//``. ``docs/celery.md`` documents ``transport_options``."""

    Channel = Channel
    default_port = DEFAULT_PORT
    driver_type = "radiator"
    driver_name = "radiator"
    polling_interval = None
    connection_errors = (ClientError, OSError)
    channel_errors = (KeyError,)
    implements = virtual.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.link: Link

    def driver_version(self) -> str:
        """Return the version of radiator."""
        from radiator import __version__

        return __version__

    def establish_connection(self) -> Any:
        """Connect. The connection object of kombu is this transport."""
        options = self.client.transport_options
        self.link = Link(
            self._connect, options.get("queue_prefix", "/queue/"), options.get("topic_prefix", "/topic/kombu.")
        )
        return super().establish_connection()

    def _connect(self) -> Any:
        client, options = self.client, self.client.transport_options
        scheme = "stomp+tls" if client.transport_cls == "radiator+tls" else "stomp"
        hostname = client.hostname or "127.0.0.1"
        host = f"[{hostname}]" if ":" in hostname and not hostname.startswith("[") else hostname
        address = f"{scheme}://{host}:{client.port or DEFAULT_PORT}"
        if scheme == "stomp":
            address = address.removeprefix("stomp://")
        virtual_host = client.virtual_host if client.virtual_host not in (None, "", "/") else None
        heart_beat = options.get("heart_beat", (10_000, 10_000))
        return connect(
            options.get("address", address),
            login=client.userid or None,
            passcode=client.password or None,
            host=virtual_host,
            heart_beat=tuple(heart_beat),
            timeout=options.get("timeout", 30.0),
            connect_timeout=client.connect_timeout or 10.0,
        )

    def close_connection(self, connection: Any) -> None:
        """Disconnect. Unacknowledged messages return to their queues."""
        super().close_connection(connection)
        self.link.close()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message to its consumer.

        Raises:
            TimeoutError: No message came within ``timeout`` seconds.
            ServerError: The broker answered ERROR.
            Disconnected: The connection has ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                self.cycle.get(self._deliver, timeout=0)
            except Empty:
                pass
            else:
                return
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                self.link.connection.link.session.check()
                raise TimeoutError
            self.link.wait(self._deliverable, WAIT_SECONDS_MAX if left is None else min(left, WAIT_SECONDS_MAX))

    def _deliverable(self) -> bool:
        return any(channel.deliverable for channel in self.channels)

    def verify_connection(self, connection: Any) -> bool:
        """Return False if the connection has ended and nothing is subscribed on it.

        kombu then replaces it at the next use and reports nothing. The new connection has no subscriptions, so a
        consumer on the old one would wait for ever; as long as there is one, the next use must raise what ended it.
        """
        return not self.link.connection.closed or any(channel.subscribed for channel in self.channels)


def _headers(message: dict[str, Any]) -> dict[str, str | int]:
    """Return the headers for the properties of a kombu message."""
    properties = message["properties"]
    headers: dict[str, str | int] = {}
    priority = properties.get("priority")
    if priority:
        headers["priority"] = min(max(0, int(priority)), PRIORITY_MAX)
    expiration = properties.get("expiration")
    if expiration:  # milliseconds from now, as text
        headers["expires"] = int(time.time() * 1000 + float(expiration))
    if properties.get("correlation_id"):
        headers["correlation-id"] = str(properties["correlation_id"])
    return headers
