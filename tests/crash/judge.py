"""Compares what a restarted broker has with what clients were promised (``tests/crash/record.py``).

``look`` is called after each kill and restart, when no client is connected. Invariants that it knows:

* what was receipted, or shown to a reader, is at its partition and offset, with its bytes;
* a topic's offsets are dense; in a queue's log only what is settled may be missing, and where the last message of each
  key is kept, only what a later one has replaced;
* no message is there twice; each producer's messages keep their order in each partition;
* what was acknowledged with a receipt never comes back; what was not is still there;
* in one run of the broker a message goes to one consumer, unless that one gave it back; what somebody had in hand
  comes marked as redelivered;
* a transaction is there as a whole, over all its partitions and ACKs, or not at all; with a receipt, as a whole.

What is found once must stay: an ACK or COMMIT without a receipt may have happened or not, but only once and for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from radiator.stomp.frames import Frame
from tests.crash import clients
from tests.crash.record import events, id_of
from tests.running import BrokerProcess
from tests.server.wire import WAIT_SECONDS, Wire

QUEUES = (clients.WORK, clients.JOBS, clients.OUT)
WITH_GAPS = (*QUEUES, clients.TABLE)
SOURCES = (clients.LOG, clients.SHARED + ".*", clients.SPREAD, *WITH_GAPS)


class Judge:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.read: dict[str, int] = {}
        self.logs: dict[str, dict[int, str]] = {}  # what was found, by partition and offset
        self.ends: dict[str, int] = {}
        self.places: dict[str, tuple[str, int]] = {}  # the same by id
        self.last: dict[tuple[str, str], int] = {}  # by producer and partition
        self.promised: dict[tuple[str, int], str] = {}
        self.acked: set[str] = set()
        self.acking: set[str] = set()
        self.waiting: set[str] = set()
        self.aborted: set[str] = set()
        self.unmarked: Counter[str] = Counter()
        self.heard: set[str] = set()
        self.counts: Counter[str] = Counter()

    # --- what clients say ---------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Read what the round before the kill has added to the records."""
        self.commits: dict[str, tuple[list[str], list[str]]] = {}
        self.committed: set[str] = set()
        deliveries: Counter[str] = Counter()
        settled_before = self.acked.copy()
        for kind, *rest in events(self.directory, self.read):
            self.counts[kind] += 1
            if kind in ("stored", "seen"):
                self.promise(*rest)
            elif kind == "got":
                ident, marked, partition, offset = rest
                assert ident not in settled_before, f"{ident} had been settled, and was delivered again"
                self.promise(partition, offset, ident)
                self.heard.add(ident)
                deliveries[ident] += 1
                self.unmarked[ident] += not marked
                assert self.unmarked[ident] < 2, f"{ident} was delivered again without a mark"
            elif kind == "back":
                deliveries.subtract(rest[0])
            elif kind == "acking":
                self.acking.update(rest[0])
            elif kind == "acked":
                self.acked.update(rest[0])
            elif kind == "aborting":
                self.aborted.update(rest[0])
            elif kind == "committing":
                name, sends, acks = rest
                self.commits[name] = (sends, acks)
            else:
                self.committed.add(rest[0])
        twice = [ident for ident, count in deliveries.items() if count > 1]
        assert not twice, f"{twice[:5]} went to two consumers"

    def promise(self, partition: str, offset: int, ident: str) -> None:
        known = self.promised.setdefault((partition, offset), ident)
        assert known == ident, f"{partition}@{offset} was {known}, and then {ident}"

    # --- what the broker says -----------------------------------------------------------------------------------------

    def look(self, broker: BrokerProcess) -> None:
        """After a kill and a restart. Raises AssertionError."""
        self.listen()
        self.check_logs(broker)
        waiting = {queue: self.browse(broker, queue) for queue in QUEUES}
        self.waiting = set().union(*waiting.values())
        self.check_transactions()
        self.check_queues()

    def check_logs(self, broker: BrokerProcess) -> None:
        for source in SOURCES:
            for frame in replay(broker, source, min(self.ends.get(name, 0) for name in partitions_of(source))):
                self.record(frame, source in WITH_GAPS)
        settled = self.acked.union(self.acking, *(acks for _, acks in self.commits.values()))
        lasts = lasts_of(self.logs.get(clients.TABLE, {}))
        for (partition, offset), ident in self.promised.items():
            found = self.logs.get(partition, {}).get(offset)
            gone = found is None and (ident in settled or replaced(lasts, partition, offset, ident))
            assert gone or found == ident, f"{partition}@{offset} should be {ident}, and is {found}"
        self.promised.clear()

    def record(self, frame: Frame, may_skip: bool) -> None:
        partition, offset, ident = frame.headers["partition"], int(frame.headers["offset"]), id_of(frame.body)
        end = self.ends.get(partition, 0)
        if offset < end:
            found = self.logs[partition].get(offset)
            assert found == ident, f"{partition}@{offset} was {found}, and is {ident}"
            return
        assert offset == end or may_skip, f"{partition}: offsets {end} to {offset} are missing"
        assert ident not in self.places, f"{ident} is at {self.places[ident]}, and at {partition}@{offset}"
        producer, _, number = ident.partition(":")
        last = self.last.get((producer, partition), -1)
        assert int(number) > last, f"{partition}@{offset}: {producer}'s {number} behind its {last}"
        self.last[producer, partition] = int(number)
        self.logs.setdefault(partition, {})[offset] = ident
        self.places[ident] = (partition, offset)
        self.ends[partition] = offset + 1

    def browse(self, broker: BrokerProcess, queue: str) -> list[str]:
        """What waits there."""
        found = []
        for frame in replay(broker, queue, None):
            ident = id_of(frame.body)
            assert self.places[ident] == (queue, int(frame.headers["offset"]))
            found.append(ident)
        assert len(found) == len(set(found)), f"{queue}: a message waits twice"
        return found

    def check_transactions(self) -> None:
        settled = self.acked | self.acking
        for name, (sends, acks) in self.commits.items():
            there = [ident in self.places or ident in settled for ident in sends]
            there += [ident not in self.waiting for ident in acks]
            assert all(there) or not any(there), f"half of transaction {name}: {sends} {acks} {there}"
            assert there[0] or name not in self.committed, f"transaction {name} was receipted, and is gone"
            if there[0]:
                self.acked.update(acks)
        there_all_the_same = self.aborted & self.places.keys()
        assert not there_all_the_same, f"{there_all_the_same} were in aborted transactions"

    def check_queues(self) -> None:
        back = self.acked & self.waiting
        assert not back, f"{len(back)} messages were settled, and came back: {sorted(back)[:5]}"
        stored = {ident for ident, (partition, _) in self.places.items() if partition in QUEUES}
        lost = stored - self.waiting - self.acked - self.acking
        assert not lost, f"{len(lost)} messages were not settled, and are gone: {sorted(lost)[:5]}"
        self.acked |= stored - self.waiting
        self.acking.clear()

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self, broker: BrokerProcess) -> None:
        """Everything is read again, and every queue drained by two consumers. The broker has been stopped and started
        since the last ``look``."""
        for source in SOURCES:
            found = {(frame.headers["partition"], int(frame.headers["offset"])) for frame in replay(broker, source, 0)}
            for partition in partitions_of(source):
                log = self.logs.get(partition, {})
                left = {offset: log[offset] for name, offset in found if name == partition}
                lasts = lasts_of(left)
                for offset in log.keys() - left.keys():
                    gone = log[offset] in self.acked or replaced(lasts, partition, offset, log[offset])
                    assert gone, f"{partition}@{offset} was there before"
                if source == clients.TABLE:
                    self.counts["replaced"] = len(log) - len(left)
        for queue in QUEUES:
            expected = {ident for ident in self.waiting if self.places[ident][0] == queue}
            for ident, marked in drain(broker, queue, len(expected)):
                assert ident in expected, f"{ident} came, and did not wait, or came twice"
                expected.remove(ident)
                assert marked or ident not in self.heard, f"{ident} had been delivered, and has no mark"
            looks = 0
            while list(replay(broker, queue, None)):  # ACKs without a receipt are gathered for some milliseconds
                looks += 1
                assert looks < 1_000, f"{queue} is not empty"


def lasts_of(log: dict[int, str]) -> dict[str, int]:
    """Where the last message of each key is."""
    return {clients.key_of(ident): offset for offset, ident in sorted(log.items())}


def replaced(lasts: dict[str, int], partition: str, offset: int, ident: str) -> bool:
    """Whether the table has a later message of the same key."""
    return partition == clients.TABLE and offset < lasts.get(clients.key_of(ident), -1)


def partitions_of(source: str) -> list[str]:
    if source == clients.SPREAD:
        return [f"{source}-{number}" for number in range(3)]
    return ["shared"] if source.startswith(clients.SHARED) else [source]


def replay(broker: BrokerProcess, source: str, start: int | None) -> Iterator[Frame]:
    """From an offset on; without one, what waits in a queue."""
    headers: dict[str, Any] = {"browser": "true"}
    if start is not None:
        headers = {"start_position": f"offset:{start}" if start else "first", "stop_position": "end"}
    with Wire(broker) as wire:
        wire.open().say("SUBSCRIBE", destination=source, id="0", **headers)
        while True:
            assert wire.more(1 << 20), "the broker is gone"
            frames, wire.inbox = wire.inbox, []
            for frame in frames:
                assert frame.command == "MESSAGE", frame
                if "replay-end" in frame.headers:
                    return
                assert "gap" not in frame.headers, f"a gap: {frame.headers}"
                yield frame


def drain(broker: BrokerProcess, queue: str, count: int) -> Iterator[tuple[str, bool]]:
    """``count`` messages by two consumers, all acknowledged: (id, redelivered)."""
    with Wire(broker) as one, Wire(broker) as two:
        for wire in (one, two):
            wire.open().say("SUBSCRIBE", destination=queue, id="0", ack="client-individual", prefetch_count="300")
        one.socket.settimeout(0.01)
        two.socket.settimeout(0.01)
        idle = 0
        while count:
            for wire in (one, two):
                try:
                    assert wire.more(1 << 20)
                except TimeoutError:
                    idle += 1
                    assert idle < 3_000, f"{queue}: {count} messages did not come"
                frames, wire.inbox = wire.inbox, []
                for frame in frames:
                    yield id_of(frame.body), "redelivered" in frame.headers
                    count -= 1
                    wire.say("ACK", id=frame.headers["ack"])
        for wire in (one, two):
            wire.socket.settimeout(WAIT_SECONDS)
            wire.say("DISCONNECT", receipt="bye")
            wire.hear("RECEIPT")
