"""Backups of a broker that decides transactions over several logs and makes checkpoints, and of one that was killed."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from radiator.cli.main import run
from tests.running import BrokerProcess
from tests.server.wire import Wire
from tests.storage.driving import opened, read_all

BACKUPS = 12
CONFIG = """
version: 1
defaults: {retention: {acked: keep}, merge_commits: false}
destinations:
  - {match: /topic/weak, fsync: 200ms}
  - {match: /topic/none, fsync: never}
"""
LOGS = ("/topic/a", "/topic/b", "/topic/weak", "/topic/none")


class Mover(threading.Thread):
    """Takes from a queue, and sends what it has taken to several topics, in one transaction with the ACK."""

    def __init__(self, broker: BrokerProcess, name: str) -> None:
        super().__init__(daemon=True)
        self.wire = Wire(broker).open()
        self.wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.label = name
        self.moved = 0
        self.start()

    def run(self) -> None:
        wire, queue = self.wire, f"/queue/{self.label}"
        wire.say("SUBSCRIBE", destination=queue, id="0", ack="client-individual")
        try:
            for number in range(1_000_000):
                large = b"x" * (30_000 if number % 5 == 0 else 10)
                wire.say("SEND", b"%d" % number, destination=queue)
                wire.say("SEND", large, destination=LOGS[number % 4])  # by itself: it may pass the journal by
                message = wire.hear("MESSAGE")
                wire.say("BEGIN", transaction="t")
                for log in LOGS:
                    wire.say("SEND", f"{self.label}:{number}".encode(), destination=log, transaction="t")
                wire.say("ACK", id=message.headers["ack"], transaction="t")
                wire.say("COMMIT", transaction="t", receipt="done")
                wire.hear("RECEIPT")
                self.moved += 1
        except (OSError, AssertionError, EOFError):
            pass  # it was killed


def checked(capfd: pytest.CaptureFixture[str], copy: Path, again: Path, movers: list[Mover], done: list[int]) -> None:
    assert run(["restore", str(copy), "--to", str(again)]) == 0, capfd.readouterr().err
    manifest = json.loads((copy / "MANIFEST.json").read_text())
    assert manifest["whole_transactions"]
    assert run(["fsck", "--data", str(again)]) == 0, capfd.readouterr().out
    store, notes = opened(root=str(again))
    assert {note.kind for note in notes} <= {"cursors"}, [str(note) for note in notes]
    ends = {each["name"]: each["next_offset"] for each in manifest["partitions"]}
    assert {name: partition.next_offset for name, partition in store.partitions.items()} == ends
    found = [[body for body in read_all(store.partitions[log], memory=False).values() if b":" in body] for log in LOGS]
    assert all(each == found[0] for each in found), "transactions in part, or in another order"
    for mover, least in zip(movers, done, strict=True):
        moved = [body for body in found[0] if body.startswith(mover.label.encode())]
        assert moved == [f"{mover.label}:{number}".encode() for number in range(len(moved))]
        assert len(moved) >= least, "receipted before the backup began"
        queue = f"/queue/{mover.label}"
        cursor = store.cursors.get(f"queue:{queue}", queue)
        assert cursor is not None and cursor.floor == len(moved), "an ACK without its messages, or they without it"
    store.close()
    capfd.readouterr()


@pytest.mark.thorough
def test_transactions_are_whole_in_each_backup(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker(CONFIG)
    assert broker.stop() == 0
    broker.program = ["tests.upkeep.small_journal"]
    broker.start()
    movers = [Mover(broker, f"m{number}") for number in range(3)]
    time.sleep(0.5)
    made: list[tuple[Path, list[int]]] = []
    for number in range(BACKUPS + 1):
        time.sleep(0.1)
        if number == BACKUPS:
            broker.kill()
        done = [mover.moved for mover in movers]
        assert run(["backup", "--data", str(broker.data), "--to", str(tmp_path / f"copy-{number}")]) == 0
        made.append((tmp_path / f"copy-{number}", done))
    for mover in movers:
        mover.join(10)
    assert min(mover.moved for mover in movers) > 50
    for number, (copy, done) in enumerate(made):
        checked(capfd, copy, tmp_path / f"again-{number}", movers, done)
    assert any((copy / "journal").exists() for copy, _ in made)
