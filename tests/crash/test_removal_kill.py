"""Queues of sessions come and go while the broker is killed: they leave nothing, and other queues lose nothing."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from radiator.client import ClientError, connect
from tests.crash.killing import new_seed
from tests.running import BrokerProcess

SECONDS_MAX = 20
EXPIRES = {"x-expires": "300"}
KILLS = 3


def until(done: object) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not done():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


def directories(broker: BrokerProcess) -> set[str]:
    return {path.name for path in (broker.data / "partitions").iterdir()}


class Sessions:
    """One session after the other: a queue that expires, a message, an ACK, and a message for ``/queue/kept``."""

    def __init__(self, address: str, name: str) -> None:
        self.address, self.name = address, name
        self.receipted: list[bytes] = []
        self.sent = 0
        self.faults: list[str] = []
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.done.is_set():
            with contextlib.suppress(ClientError):
                self.session()

    def session(self) -> None:
        with connect(self.address, timeout=SECONDS_MAX) as connection:
            number = self.sent = self.sent + 1
            queue = f"/queue/{self.name}.{number % 5}"  # a name is used again and again
            inbox = connection.subscribe(queue, ack="client-individual", prefetch=10, headers=EXPIRES)
            body = f"{self.name} {number}".encode()
            connection.send(queue, body, receipt=True)
            seen: list[bytes] = []
            while body not in seen:
                message = inbox.fetch(SECONDS_MAX)
                if message is None:
                    self.faults.append(f"{body!r} has a receipt and does not come; {seen}")
                    return
                seen.append(message.body)
                message.ack()
            connection.send("/queue/kept", body, receipt=True)
            self.receipted.append(body)


@pytest.mark.thorough
def test_a_queue_with_auto_delete_is_gone_when_its_consumer_has_left(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        with connect(broker.address) as connection, connect(broker.address) as other:
            for number in range(3):
                inbox = connection.subscribe(f"/queue/s.{number}", ack="auto", headers={"auto-delete": "true"})
                other.send(f"/queue/s.{number}", b"x", receipt=True)
                assert inbox.fetch(SECONDS_MAX) is not None
            assert len(directories(broker)) == 3
            connection.close()
            until(lambda: not directories(broker))
            other.send("/queue/s.0", b"y", receipt=True)
            inbox = other.subscribe("/queue/s.0")
            message = inbox.fetch(SECONDS_MAX)
            assert message is not None and message.body == b"y" and message.headers["message-id"].endswith("@0")
        assert broker.stop() == 0
        broker.start()
        assert directories(broker) == {"%2Fqueue%2Fs.0"}
    finally:
        broker.kill()


@pytest.mark.thorough
def test_kills_during_removals_lose_no_other_message_and_leave_no_directory(tmp_path: Path) -> None:
    chance = random.Random(new_seed())
    broker = BrokerProcess(tmp_path)
    broker.start()
    sessions = [Sessions(broker.address, name) for name in ("a", "b", "c")]
    try:
        for each in sessions:
            each.thread.start()
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.3, 1.0))  # the moment of the kill is the point of the test
            broker.kill()
            broker.start()
        time.sleep(0.5)
        for each in sessions:
            each.done.set()
            each.thread.join()
        assert not [fault for each in sessions for fault in each.faults]
        until(lambda: directories(broker) == {"%2Fqueue%2Fkept"})
        receipted = {body for each in sessions for body in each.receipted}
        assert len(receipted) > 20
        with connect(broker.address) as connection:
            inbox = connection.subscribe("/queue/kept", ack="client-individual", prefetch=1_000)
            while receipted:
                message = inbox.fetch(SECONDS_MAX)
                assert message is not None, receipted
                receipted.discard(message.body)
                message.ack()
        assert broker.stop() == 0
        assert not (broker.data / "removals").exists() and not (broker.data / "removed").exists()
        checked = subprocess.run(
            [sys.executable, "-m", "radiator", "fsck", "--data", str(broker.data)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
    finally:
        for each in sessions:
            each.done.set()
        broker.kill()
