"""Publish readings of a few thermometers with stomp.py, an unmodified STOMP client, and count the receipts.

    python examples/publish.py [--url HOST:PORT] [--count N]

Each message has an event time (``event-time``) and a tag (``tag-room``). Both are stored, delivered, and columns in
Spark. A RECEIPT means that the message is stored as its rule promises: on disk by default.
"""

from __future__ import annotations

import argparse
import json
import threading
import time

import stomp

ROOMS = ("kitchen", "cellar", "attic")


class Receipts(stomp.ConnectionListener):
    """Counts the receipts."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.offsets: list[int] = []
        self.complete = threading.Event()
        self.error = ""

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        if "offset" in frame.headers:
            self.offsets.append(int(frame.headers["offset"]))
            if len(self.offsets) == self.expected:
                self.complete.set()

    def on_error(self, frame: stomp.utils.Frame) -> None:
        self.error = frame.headers.get("message", "")
        self.complete.set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="127.0.0.1:61613")
    parser.add_argument("--count", type=int, default=300)
    options = parser.parse_args()
    host, _, port = options.url.rpartition(":")

    receipts = Receipts(options.count)
    connection = stomp.Connection12([(host, int(port))])
    connection.set_listener("receipts", receipts)
    connection.connect(wait=True)
    for number in range(options.count):
        room = ROOMS[number % len(ROOMS)]
        reading = {"room": room, "celsius": 15 + number % 10, "number": number}
        headers = {"event-time": str(time.time_ns()), "tag-room": room, "receipt": f"r{number}"}
        connection.send(f"/topic/temperature.{room}", json.dumps(reading), "application/json", headers)
    receipts.complete.wait(60)
    connection.disconnect()
    if len(receipts.offsets) < options.count:
        raise SystemExit(f"only {len(receipts.offsets)} of {options.count} were receipted; {receipts.error}")
    print(f"{len(receipts.offsets)} messages stored in {len(ROOMS)} topics")


if __name__ == "__main__":
    main()
