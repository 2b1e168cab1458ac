"""COMMIT to many new destinations: what it needs is made in portions, and it still happens as a whole."""

from __future__ import annotations

import errno

import pytest

from radiator import limits
from radiator.clock import NS_PER_SECOND
from radiator.storage import store as store_module
from radiator.storage.file_partition import AppendJob, RollJob
from tests.broker.harness import Client, World, bodies

FILES = 20


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NEW_FILES_TOGETHER_MAX", 4)
    monkeypatch.setattr(store_module, "NEW_FILES_MAX", 4)


def committing(world: World) -> Client:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    for number in range(FILES):
        client.publish(f"/queue/new.{number}", str(number), transaction="t")
    client.say("COMMIT", transaction="t", receipt="done")
    return client


def stored(world: World) -> list[str]:
    client = world.connect()
    client.subscribe("/queue/new.*", ack="auto", prefetch_count=100)
    world.settle()
    found = bodies(client.messages())
    client.drop()
    return sorted(found, key=int)


def test_no_group_commit_makes_many_files_and_all_messages_are_written_in_one() -> None:
    world = World()
    client = committing(world)
    made, writers = [], []
    for _ in range(50):
        world.take()
        made.append(sum(isinstance(job, RollJob) for job in world.jobs))
        writers.append(sum(isinstance(job, AppendJob) for job in world.jobs))
        world.write()
        world.sync()
        world.completed()
        client.go_on()
    assert sum(made) == FILES
    assert max(made) == 4
    assert [each for each in writers if each] == [FILES]
    assert client.receipts() == ["done"]
    assert stored(world) == [str(number) for number in range(FILES)]


def test_destinations_are_created_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TURN_WORK", 250)
    world = World()
    client = committing(world)
    assert 0 < len(world.broker.destinations) < 10
    assert client.rest
    world.settle()
    assert client.receipts() == ["done"]
    assert stored(world) == [str(number) for number in range(FILES)]


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("end", ["kill", "power_cut"])
def test_a_stop_in_between_leaves_nothing_of_it_or_all(turns: int, end: str) -> None:
    world = World()
    client = committing(world)
    for _ in range(turns):
        world.commit()
        client.go_on()
    promised = client.receipts()
    getattr(world, end)()
    found = stored(world)
    assert found in ([], [str(number) for number in range(FILES)])
    assert found or not promised
    world.connect().publish("/queue/new.3", "99")
    world.settle()
    world.kill()
    assert "99" in stored(world)


def test_a_client_that_leaves_while_files_are_created_has_sent_nothing() -> None:
    world = World()
    client = committing(world)
    world.commit()
    client.go_on()
    client.drop()
    world.settle()
    world.restart()
    assert stored(world) == []


def test_a_file_that_cannot_be_made_refuses_the_whole() -> None:
    world = World()
    client = committing(world)
    world.fs.fail("open", 3)
    for _ in range(20):
        world.commit()
        client.go_on()
    assert client.error() == "storage"
    assert stored(world) == []


def test_a_subscription_that_ends_while_files_are_created_leaves_the_log_to_the_sender() -> None:
    world = World()
    reader = world.connect()
    reader.subscribe("/queue/new.1")
    client = committing(world)
    world.take()
    reader.say("UNSUBSCRIBE", id="0")
    world.write()
    world.sync()
    world.completed()
    world.settle()
    assert client.receipts() == ["done"]
    assert stored(world) == [str(number) for number in range(FILES)]


def test_a_file_that_did_not_fit_on_the_disk_is_created_when_there_is_room() -> None:
    world = World()
    client = committing(world)
    world.commit()
    world.fs.fail("open", 1, errno.ENOSPC)
    world.commit()
    assert world.store.failures()
    world.now += 3 * NS_PER_SECOND
    world.broker.tick(world.time)
    while world.store.failures():
        world.commit()
    for _ in range(2 * FILES):
        client.go_on()
        world.commit()
    assert client.receipts() == ["done"]
    assert stored(world) == [str(number) for number in range(FILES)]
