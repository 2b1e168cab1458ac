"""Follow topics by a pattern with stomp.py: stored messages first, then new ones.

    python examples/follow.py [--url HOST:PORT] [--pattern P] [--count N]

The header ``start-position: first`` does it. History and live messages come as one stream, every offset of a
destination once and in order; the program checks that. Try ``last:10``, ``ago:1h`` or ``time:2013-01-01T05:00:00Z``.
"""

from __future__ import annotations

import argparse
import threading
from collections import defaultdict

import stomp


class Follower(stomp.ConnectionListener):
    """Prints messages and checks their offsets."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.seen: dict[str, list[int]] = defaultdict(list)
        self.done = threading.Event()

    def on_message(self, frame: stomp.utils.Frame) -> None:
        if not self.left:
            return
        destination, offset = frame.headers["destination"], int(frame.headers["offset"])
        mark = "history" if frame.headers.get("replayed") == "true" else "live"
        print(f"{destination} {offset} ({mark}): {frame.body}")
        self.seen[destination].append(offset)
        self.left -= 1
        if not self.left:
            self.done.set()

    def on_error(self, frame: stomp.utils.Frame) -> None:
        print("refused:", frame.headers.get("message"))
        self.done.set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="127.0.0.1:61613")
    parser.add_argument("--pattern", default="/topic/temperature.*")
    parser.add_argument("--count", type=int, default=300)
    options = parser.parse_args()
    host, _, port = options.url.rpartition(":")

    follower = Follower(options.count)
    connection = stomp.Connection12([(host, int(port))])
    connection.set_listener("follower", follower)
    connection.connect(wait=True)
    connection.subscribe(options.pattern, "1", "auto", {"start-position": "first"})
    complete = follower.done.wait(60)
    connection.disconnect()
    for destination, offsets in sorted(follower.seen.items()):
        assert offsets == list(range(len(offsets))), f"{destination}: {offsets}"
    if not complete or follower.left:
        raise SystemExit(f"{follower.left} messages did not come")
    print(f"{options.count} messages of {len(follower.seen)} destinations, every offset once and in order")


if __name__ == "__main__":
    main()
