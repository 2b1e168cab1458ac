"""The late subscriber, with stomp.py: it joins while others publish, and reads everything from the start.

    python -m examples.flights.subscriber --port 61613 --seen seen.json

The header ``start-position: first`` does it. Messages that were stored before the subscription come first, marked
``replayed``, then new ones, without gap or repeat between them. The file ``--seen`` gets the received messages per
destination, in the order of arrival, as ``[offset, id of the flight, replayed]``; ``checks`` reads it.

The subscriber joins at the first line on stdin and leaves at the second. The receipt of UNSUBSCRIBE follows all
messages that were sent before, so then no message is outstanding.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import threading
from collections import defaultdict
from pathlib import Path

import stomp

from examples.flights.publisher import say

PATTERN = "/topic/flights.>"
TELL_SECONDS = 0.05


class Subscriber(stomp.ConnectionListener):
    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[int, int, bool]]] = defaultdict(list)
        self.count = 0
        self.live = 0
        self.left = threading.Event()

    def on_message(self, frame: stomp.utils.Frame) -> None:
        replayed = frame.headers.get("replayed") == "true"
        flight = json.loads(frame.body)["id"]
        self.seen[frame.headers["destination"]].append((int(frame.headers["offset"]), flight, replayed))
        self.count += 1
        self.live += not replayed

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        if frame.headers["receipt-id"] == "left":
            self.left.set()

    def on_disconnected(self) -> None:
        self.left.set()

    def tell_until(self, stop: threading.Event) -> None:
        while not stop.wait(TELL_SECONDS):
            say(seen=self.count, live=self.live)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=61613)
    parser.add_argument("--seen", type=Path, required=True)
    options = parser.parse_args()
    logging.getLogger("stomp.py").setLevel(logging.CRITICAL)

    subscriber = Subscriber()
    connection = stomp.Connection12([("127.0.0.1", options.port)])
    connection.set_listener("subscriber", subscriber)
    connection.connect(wait=True)
    say(ready=True)

    if not sys.stdin.readline():
        return
    connection.subscribe(PATTERN, id="1", ack="auto", headers={"start-position": "first"})
    teller = threading.Thread(target=subscriber.tell_until, args=(subscriber.left,), daemon=True)
    teller.start()
    sys.stdin.readline()
    connection.unsubscribe(id="1", headers={"receipt": "left"})
    subscriber.left.wait()
    teller.join()
    options.seen.write_text(json.dumps(subscriber.seen))
    connection.disconnect()
    say(seen=subscriber.count, live=subscriber.live, finished=True)


if __name__ == "__main__":
    main()
