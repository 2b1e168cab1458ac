"""The broker and the other processes of the demo: start them, observe them, wait for them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.flights import checks
from examples.flights.checks import Address, Claim
from examples.flights.children import Child, ChildFailed, Children
from examples.flights.data import DELAYS, Load
from examples.flights.show import Show
from radiator.client import connect

CONFIG = Path(__file__).with_name("radiator.yaml")
PATTERN = "/topic/flights.>"
READY = "/topic/ready"
FORMAT = r"%T %i %t %e %g\n"  # receive-time, message-id, destination, event-time, tags
FIRST_ACT = 0.6  # share of each publisher's messages
HELD_BACK = 0.9  # share of the first act: the rest waits for the late subscriber, which has long joined by then
SECOND_ACT_FASTER = 3  # times the pace, so that the broker dies under load
STALL_SECONDS = 60.0
POLL_SECONDS = 0.02


@dataclass
class Follower:
    """A run of `radiator tail`, whose output file is read while it grows."""

    child: Child
    seen: list[Address] = field(default_factory=list)
    last_ns: dict[str, int] = field(default_factory=dict)  # partition -> receive-time of its last message
    next_offset: dict[str, int] = field(default_factory=dict)
    _position: int = 0

    def read(self) -> int:
        """Read new lines and return the number of flights so far."""
        assert self.child.output is not None
        with self.child.output.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self._position += len(data)
        for line in data.decode().splitlines():
            receive_ns, message_id, destination = line.split(" ")[:3]
            if destination != READY:
                partition, offset = checks.address(message_id)
                self.seen.append((partition, offset))
                self.last_ns[partition] = int(receive_ns)
                self.next_offset[partition] = offset + 1
        return len(self.seen)


class Stage:
    """All processes of a run. ``pace``: the minimum duration of the first act in seconds."""

    def __init__(self, out: Path, loads: list[Load], pace: float, children: Children, show: Show) -> None:
        self.out, self.loads, self.pace, self.children, self.show = out, loads, pace, children, show
        self.data = out / "data"
        self.receipts = out / "receipts"
        self.receipts.mkdir()
        self.splits = [math.floor(len(load.sent) * FIRST_ACT) for load in loads]
        self.first_act, self.all_flights = self._flights(self.splits), self._flights([None] * len(loads))
        self.late = sum(len(load.ids(DELAYS)) for load in loads)
        self.claims: list[Claim] = []
        self.port = 0
        self.killed_ns = 0
        self.followers: list[Follower] = []
        self.workers: dict[str, Child] = {}

        self.broker = self.start_broker()
        self.publishers = [self._publisher(load, split) for load, split in zip(loads, self.splits, strict=True)]
        self.subscriber = children.start(
            "late subscriber", "examples.flights.subscriber", ["--port", self.port, "--seen", out / "seen.json"]
        )
        self.follow("next")
        for child in (*self.publishers, self.subscriber):
            child.wait_for("ready")
        with connect(self.address) as connection:
            # "next" begins once the tail is subscribed; a receipt says how many subscriptions its message matched
            self.until(
                "radiator tail", lambda: any(receipt.delivered_to for receipt in connection.send_many([(READY, "?")]))
            )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    # --- starting -----------------------------------------------------------------------------------------------------

    def start_broker(self) -> Child:
        """Start `radiator serve`, on a free port or again on its last one, and return when it is ready."""
        arguments = ["serve", "--config", CONFIG, "--data", self.data, "--listen", f"stomp://{self.address}", "--json"]
        broker = self.children.start("broker", "radiator", arguments)
        self.port = int(broker.wait_for("listen")[0].rpartition(":")[2])
        return broker

    def _publisher(self, load: Load, split: int) -> Child:
        rate, rest = split / self.pace, len(load.sent) - split
        faster = max(rest / self.pace * SECOND_ACT_FASTER, rate)
        plan = f"0:{rate},{math.floor(split * HELD_BACK)}:{rate},{split}:{faster}"
        arguments = ["--port", self.port, "--input", load.path, "--plan", plan]
        arguments += ["--receipts", self.receipts / f"{load.origin}.jsonl"]
        return self.children.start(f"{load.origin} publisher", "examples.flights.publisher", arguments)

    def follow(self, position: str) -> None:
        """Start `radiator tail` from a position on."""
        name = f"tail-{len(self.followers) + 1}"
        arguments = ["tail", PATTERN, READY, "-o", position, "-f", FORMAT, "--url", self.address]
        self.followers.append(Follower(self.children.start(name, "radiator", arguments, self.out / f"{name}.txt")))

    def start_worker(self, name: str, seconds: float) -> None:
        arguments = ["--port", self.port, "--name", name, "--seconds", seconds]
        self.workers[name] = self.children.start(name, "examples.flights.worker", arguments, self.out / f"{name}.jsonl")

    # --- looking ------------------------------------------------------------------------------------------------------

    def published(self) -> int:
        """Return the number of messages with a receipt."""
        return sum(publisher.state.get("done", 0) for publisher in self.publishers)

    def jobs_done(self) -> int:
        return sum(worker.lines() for worker in self.workers.values())

    def journals(self) -> dict[str, list[dict[str, Any]]]:
        """Return the journal of each worker."""
        return {name: read_lines(self.out / f"{name}.jsonl") for name in self.workers}

    def jobs_waiting(self) -> int:
        """Count the unacknowledged messages of the queue, with a browser, which takes none."""
        with connect(self.address) as connection:
            browser = connection.subscribe(DELAYS, browser=True, stop_position="end")
            return sum(1 for _ in browser)

    def _flights(self, firsts: Sequence[int | None]) -> dict[str, list[int]]:
        """Return the ids per topic in the order of publishing, of the first messages only."""
        return {load.topic: load.ids(load.topic, first) for load, first in zip(self.loads, firsts, strict=True)}

    def refresh(self) -> tuple[int, ...]:
        """Show the progress of all processes and return it, to detect a stall."""
        for load, publisher in zip(self.loads, self.publishers, strict=True):
            again = publisher.state.get("sent_again", 0)
            note = f"{again:,} sent again" if again else ""
            self.show.bar(publisher.name, publisher.state.get("done", 0), len(load.sent), note)
        runs = [follower.read() for follower in self.followers]
        seam = f"second run from {runs[0]:,}" if len(runs) > 1 else ""
        self.show.bar("radiator tail", sum(runs), count(self.all_flights), seam)
        seen, live = (self.subscriber.state.get(key, 0) for key in ("seen", "live"))
        note = f"{live:,} of them live" if seen else "not there yet"
        self.show.bar("late subscriber", seen, count(self.first_act), note)
        shares = ", ".join(f"{name} {worker.lines():,}" for name, worker in self.workers.items())
        self.show.bar("workers", self.jobs_done(), self.late, shares)
        return self.published(), *runs, seen, self.jobs_done()

    def until(self, what: str, condition: Callable[[], object], watched: Iterable[Child] = ()) -> None:
        """Wait for a condition. Raise if there is no progress for too long, or if one of ``watched`` has died."""
        before: tuple[int, ...] = ()
        since = time.monotonic()
        watched = list(watched)
        while not condition():
            now = self.refresh()
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > STALL_SECONDS:
                told = f"nothing has moved for {STALL_SECONDS:.0f} s, waiting for {what}"
                raise ChildFailed(f"{told}; the logs are in {self.children.logs}")
            for child in watched:
                child.must_run()
            time.sleep(POLL_SECONDS)
        self.refresh()

    def claim(self, claim: Claim) -> None:
        self.claims.append(claim)
        self.show.claim(claim)


def count(flights: dict[str, list[int]]) -> int:
    return sum(map(len, flights.values()))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    with path.open() as file:
        return [json.loads(line) for line in file]
