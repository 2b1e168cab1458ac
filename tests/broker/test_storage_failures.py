"""A disk that fails is told when it begins, now and then while it lasts, and when it ends, with what it refused."""

from __future__ import annotations

import logging

import pytest

from radiator.broker.storage_failures import TEXTS_MAX, StorageFailures
from radiator.clock import NS_PER_SECOND
from radiator.errors import StorageError
from radiator.storage.jobs import Job
from tests.broker.harness import World

A = "/queue/a"


def reported(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]
    caplog.clear()
    return lines


def ack_in_vain(world: World, count: int) -> None:
    """The attempt that these ACKs wait for fails as well."""
    clients = [world.connect() for _ in range(count)]
    for client in clients:
        client.subscribe(A)
        world.settle()
        (message,) = client.messages()
        client.ack(message, receipt="r")
        world.settle()
    world.fs.fail("rename", under="/cursors/")
    world.tick(2)
    assert all(client.error() == "storage" for client in clients)


def test_acks_that_cannot_be_stored_cost_a_line_and_not_one_for_each_ack(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    sender = world.connect()
    sender.publish(A, *map(str, range(60)))
    world.settle()
    world.fs.fail("fdatasync")
    ack_in_vain(world, 20)
    first, second = reported(caplog)
    assert "cannot sync the journal" in first and "cannot write the snapshot" in second
    for _ in range(5):
        ack_in_vain(world, 2)
    (line,) = reported(caplog)
    assert line.endswith("(still failing: 26 more were refused)"), "one line for ten seconds"
    world.fs.heal()
    world.tick(2.5)
    world.tick(1)
    assert reported(caplog) == ["storage: cursors: works again; 30 were refused in the meantime"]
    world.tick(60)
    assert not reported(caplog)


def test_a_partition_that_refuses_sends_costs_a_line_and_not_one_for_each_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    first = world.connect()
    first.publish(A, "kept", receipt="r")
    world.settle()
    world.fs.fail("pwritev", under="/partitions/")
    first.publish(A, "in the journal", receipt="s")
    world.settle()
    assert first.receipts() == ["r", "s"]
    for number in range(15):
        client = world.connect()
        client.publish(A, "m", receipt=str(number))
        world.settle()
        assert client.error() == "storage"
    (line,) = reported(caplog)
    assert "cannot write" in line and "%2Fqueue%2Fa" in line
    world.tick(2.5)
    world.tick(1)
    lines = reported(caplog)
    assert f"storage: {A}: works again; 15 were refused in the meantime" in lines
    assert not [line for line in lines if "still failing" in line]
    world.fs.fail("pwritev", under="/partitions/")
    first.publish(A, "in the journal, too")
    world.settle()
    assert len(reported(caplog)) == 1, "a new failure is reported at once"


class Failed(Job):
    def __init__(self, text: str, partition: object = None) -> None:
        super().__init__(partition)
        self.error = StorageError(text)


def test_frequent_errors_without_a_state_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    storage_failures, now = StorageFailures(), 0
    for _ in range(50):
        storage_failures.failed(Failed("cannot remove"), now)
    assert reported(caplog) == ["storage: cannot remove"]
    storage_failures.tick(now + 5 * NS_PER_SECOND)
    assert not reported(caplog)
    storage_failures.tick(now + 10 * NS_PER_SECOND)
    assert reported(caplog) == ["storage: cannot remove (still failing: 49 times more)"]
    storage_failures.tick(now + 20 * NS_PER_SECOND)
    assert not reported(caplog)
    storage_failures.failed(Failed("cannot remove"), now + 21 * NS_PER_SECOND)
    assert reported(caplog) == ["storage: cannot remove"], "it had ended"


def test_other_errors_of_the_same_partition_are_logged_in_bounded_number(caplog: pytest.LogCaptureFixture) -> None:
    class Component:
        name = "p"
        failed: StorageError | None = StorageError("0")

    storage_failures, component = StorageFailures(), Component()
    for number in range(100):
        storage_failures.failed(Failed(str(number), component), 0)
    assert reported(caplog) == [f"storage: {number}" for number in range(TEXTS_MAX)]
    component.failed = None
    storage_failures.tick(1)
    assert reported(caplog) == ["storage: p: works again; 0 were refused in the meantime"]
