"""What a broker has, asked for over the wire: the whole of a log, and what waits in a queue."""

from __future__ import annotations

from tests.running import BrokerProcess
from tests.server.wire import Wire

QUEUE = "/queue/work"


def replay(broker: BrokerProcess, destination: str) -> dict[int, bytes]:
    """Everything that the log has, by offset."""
    found: dict[int, bytes] = {}
    with Wire(broker) as wire:
        wire.open().say("SUBSCRIBE", destination=destination, id="0", start_position="first", stop_position="end")
        while "replay-end" not in (message := wire.hear("MESSAGE")).headers:
            found[int(message.headers["offset"])] = message.body
    return found


def drain(broker: BrokerProcess, destination: str = QUEUE) -> list[tuple[bytes, bool]]:
    """Everything that waits in the queue, acknowledged: (body, redelivered)."""
    found: list[tuple[bytes, bool]] = []
    with Wire(broker) as wire:
        wire.open()
        wire.say("SEND", b"the end", destination=destination, receipt="r")
        wire.hear("RECEIPT")
        wire.say("SUBSCRIBE", destination=destination, id="0", ack="client-individual", prefetch_count="500")
        while (message := wire.hear("MESSAGE")).body != b"the end":
            found.append((message.body, "redelivered" in message.headers))
            wire.say("ACK", id=message.headers["ack"])
        wire.say("ACK", id=message.headers["ack"], receipt="last")
        wire.hear("RECEIPT", receipt_id="last")
    return found
