"""A publisher with stomp.py from PyPI: up to WINDOW messages outstanding, none lost in a crash.

    python -m examples.flights.publisher --port 61613 --input EWR.jsonl --receipts receipts.jsonl

The publisher does not wait for each message. Every SEND requests a receipt, and the publisher remembers messages
without one. If the connection is lost, it connects again and repeats these, in order. Some of them were stored, and
only their receipt was lost; each has a ``dedup-id``, so the broker stores it once. Each message keeps its
``transmit-time``, so an outage shows in the latencies.

stdout reports the progress, as JSON lines. At each gate of ``--plan`` the publisher waits for a line on stdin, then
continues at that gate's rate. At the end it writes the receipts: the partition and the offset of each message.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import stomp

WINDOW = 500
TELL_SECONDS = 0.02
RETRY_SECONDS = 0.05
GIVE_UP_SECONDS = 60.0


class Link(stomp.ConnectionListener):
    """A connection of the publisher, which reports receipts and its end."""

    def __init__(self, port: int, publisher: Publisher) -> None:
        self.publisher = publisher
        self.lost = False
        # this program waits for an absent broker, not stomp.py: one attempt at a time
        self.connection = stomp.Connection12([("127.0.0.1", port)], reconnect_attempts_max=1)
        self.connection.set_listener("publisher", self)
        self.connection.connect(wait=True)

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        self.publisher.receipted(frame.headers)

    def on_error(self, frame: stomp.utils.Frame) -> None:
        self.publisher.refused(f"{frame.headers.get('message')}: {frame.body}")

    def on_disconnected(self) -> None:
        with self.publisher.changed:
            self.lost = True
            self.publisher.changed.notify_all()


class Publisher:
    """The publisher. ``changed`` guards the state that the connection's thread and the main thread share."""

    def __init__(self, port: int, records: list[dict[str, Any]]) -> None:
        self.port = port
        self.records = records
        self.changed = threading.Condition()
        self.on_the_way: dict[int, dict[str, Any]] = {}  # number -> record, oldest first
        self.done = 0
        self.sent_again = 0
        self.error = ""
        self.told = 0.0
        self.link = Link(port, self)

    # --- called by the connection's thread ---------------------------------------------------------------------------

    def receipted(self, headers: dict[str, str]) -> None:
        with self.changed:
            record = self.on_the_way.pop(int(headers["receipt-id"]), None)
            if record is not None:  # both copies of a repeated message may have a receipt: ignore the second
                record.update(offset=int(headers["offset"]), partition=headers["partition"], at=time.time_ns())
                self.done += 1
                self.changed.notify_all()

    def refused(self, text: str) -> None:
        with self.changed:
            self.error = text
            self.changed.notify_all()

    # --- called by the main thread -----------------------------------------------------------------------------------

    def publish(self, start: int, stop: int, rate: float) -> None:
        """Send these records, at most ``rate`` a second, and wait for all receipts."""
        began = time.monotonic()
        for number in range(start, stop):
            ahead = (number - start) / rate - (time.monotonic() - began)
            if ahead > 0.005:
                time.sleep(ahead)
            self.wait_until_fewer(WINDOW)
            record = self.records[number]
            record["headers"]["transmit-time"] = str(time.time_ns())
            record["sends"] = 1
            with self.changed:
                self.on_the_way[number] = record
            self.send(number, record)
        self.wait_until_fewer(1)
        self.tell()

    def wait_until_fewer(self, count: int) -> None:
        """Wait until less than ``count`` messages are outstanding, and connect again if necessary."""
        while True:
            with self.changed:
                if len(self.on_the_way) >= count and not self.link.lost and not self.error:
                    self.changed.wait(TELL_SECONDS)
                if self.error:
                    raise SystemExit(f"the broker refused: {self.error}")
                enough, lost = len(self.on_the_way) < count, self.link.lost
            if time.monotonic() - self.told > TELL_SECONDS:
                self.tell()
            if lost:
                self.connect_again()
            elif enough:
                return

    def send(self, number: int, record: dict[str, Any]) -> None:
        try:
            self.link.connection.send(
                record["destination"],
                record["body"].encode(),
                content_type="application/json",
                headers={**record["headers"], "dedup-id": record["id"], "receipt": str(number)},
            )
        except (stomp.exception.StompException, OSError, AttributeError):  # the last: the socket is closed
            self.link.lost = True

    def connect_again(self) -> None:
        """Wait for the broker, then repeat the messages without a receipt."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                self.link = Link(self.port, self)
                break
            except (stomp.exception.StompException, OSError):
                if time.monotonic() > deadline:
                    raise SystemExit(f"no broker on port {self.port} for {GIVE_UP_SECONDS:.0f} s") from None
                time.sleep(RETRY_SECONDS)
        with self.changed:
            waiting = list(self.on_the_way.items())
        for number, record in waiting:
            record["sends"] += 1
            self.sent_again += 1
            self.send(number, record)

    def tell(self, **more: Any) -> None:
        self.told = time.monotonic()
        say(done=self.done, sent_again=self.sent_again, **more)

    def write_receipts(self, path: Path) -> None:
        with path.open("w") as file:
            for record in self.records:
                line = {key: record[key] for key in ("destination", "id", "partition", "offset", "sends", "at")}
                line["event_ns"] = int(record["headers"]["event-time"])
                line["transmit_ns"] = int(record["headers"]["transmit-time"])
                line["crc32"] = zlib.crc32(record["body"].encode())
                file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        self.link.connection.disconnect()
        self.link.connection.transport.stop()


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=61613)
    parser.add_argument("--input", type=Path, required=True, help="JSON lines: destination, id, headers, body")
    parser.add_argument("--receipts", type=Path, required=True, help="where to write what lies where")
    parser.add_argument(
        "--plan",
        default="0:1e9",
        metavar="RECORD:RATE,...",
        help="before RECORD wait for a line on stdin; RATE is a second",
    )
    options = parser.parse_args()
    logging.getLogger("stomp.py").setLevel(logging.CRITICAL)

    with options.input.open() as file:
        publisher = Publisher(options.port, [json.loads(line) for line in file])
    gates = [(int(gate), float(rate)) for gate, _, rate in (part.partition(":") for part in options.plan.split(","))]
    say(ready=True)
    for (start, rate), (stop, _) in itertools.pairwise([*gates, (len(publisher.records), 0)]):
        publisher.tell(gate=start)
        if not sys.stdin.readline():
            return  # the parent process has ended
        publisher.publish(start, stop, rate)
    publisher.write_receipts(options.receipts)
    publisher.close()
    say(finished=True)


if __name__ == "__main__":
    main()
