"""Send and receive messages over STOMP with a blocking client, from threads or from gevent greenlets.

Example:
    with a broker on 127.0.0.1:61613::

        from radiator.client import connect

        with connect("127.0.0.1:61613") as connection:
            connection.send("/queue/orders", b"one")
            with connection.subscribe("/queue/orders").receive(timeout=5) as message:
                print(message.text)

``docs/client.md`` is the guide, and ``radiator.client.aio`` is the same client for asyncio. The modules, from the
public entry down: ``connection``, ``transaction``, ``subscription``, ``message``, ``core`` (sends and receipts on a
connection), ``link`` (the socket, its reader thread, heart-beats and the waiting callers), ``base`` (base classes of
both clients), ``session`` (receipts and subscriptions over any number of connections, without I/O), ``reconnect``
(when and where to connect), ``sending``, ``receipts``, ``address``, ``typed`` and ``errors``. The protocol itself is
``radiator.stomp``, which does no I/O.
"""

from radiator.client.connection import Connection, connect
from radiator.client.errors import (
    BadAddress,
    ClientError,
    ConnectFailed,
    Disconnected,
    ServerError,
    StaleDelivery,
    TimedOut,
)
from radiator.client.message import Message
from radiator.client.producer import Producer
from radiator.client.receipts import Receipt
from radiator.client.reconnect import Reconnect
from radiator.client.sending import Outgoing
from radiator.client.subscription import Subscription
from radiator.client.transaction import Transaction
from radiator.client.typed import typed

__all__ = [
    "BadAddress",
    "ClientError",
    "ConnectFailed",
    "Connection",
    "Disconnected",
    "Message",
    "Outgoing",
    "Producer",
    "Receipt",
    "Reconnect",
    "ServerError",
    "StaleDelivery",
    "Subscription",
    "TimedOut",
    "Transaction",
    "connect",
    "typed",
]
