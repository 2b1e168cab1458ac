"""Send and receive messages over STOMP in asyncio.

Example:
    with a broker on 127.0.0.1:61613::

        from radiator.client.aio import connect

        async with connect("127.0.0.1:61613", reconnect=True) as client:
            await client.send("/queue/orders", b"one")
            async for message in client.subscribe("/queue/orders"):
                print(message.text)
                await message.ack()

The client has the methods of ``radiator.client``, as coroutines. Both drive the same ``radiator.client.session``, so
they reconnect, subscribe again and send again by the same rules. ``docs/client.md`` is the guide. The modules, from the
public entry down: ``client``, ``link`` (the task that reads and connects) and ``stream`` (sockets, TLS, WebSocket).
"""

from radiator.client.aio.client import Client, Message, Subscription, Transaction, connect
from radiator.client.aio.link import Pending
from radiator.client.aio.producer import Producer

__all__ = ["Client", "Message", "Pending", "Producer", "Subscription", "Transaction", "connect"]
