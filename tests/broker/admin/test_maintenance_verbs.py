"""Maintenance on request: what it does, how far it is, and that it is bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from radiator.clock import NS_PER_SECOND
from tests.broker.harness import Client, World

CONFIG = """
defaults: {segment: {size: 64KiB}}
destinations:
  - {match: /topic/table.>, compact_by: 'header:key', merge_commits: false}
  - {match: /topic/packed, compress: zstd}
  - {match: /topic/short, retention: {count: 10}}
  - {match: /topic/leaves, compress: zstd, retention: {count: 1000}, expire: {idle: 1m}}
"""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(CONFIG)
    monkeypatch.setattr(world.store, "_sweep", Never())  # no maintenance but that on request
    return world


class Never:
    def take(self, now_ns: int) -> list[Any]:
        return []


def request(client: Client, verb: str, **args: Any) -> None:
    body = json.dumps({"do": verb, **args})
    client.say("SEND", body, destination="/radiator/admin", reply_to="/temp-queue/answers")


def answers(client: Client) -> list[dict[str, Any]]:
    client.world.settle()
    return [json.loads(each.body) for each in client.messages()]


def work(world: World) -> None:
    """One look of the run, and the work of the background threads that it has brought."""
    world.tick(0.05)
    while (job := world.store.maintenance.take()) is not None:
        job.run(lambda: True)
        world.broker.maintenance_done(job, world.time)
        world.settle()


def finished(world: World, client: Client) -> dict[str, Any]:
    for _ in range(1_000):
        if found := answers(client):
            return found[0]
        work(world)
    raise AssertionError("the run does not end")


def fill(world: World, name: str, count: int = 300, **headers: str) -> None:
    client = world.connect()
    for number in range(count):
        client.publish(name, f"{number} ".ljust(1_000), **headers)
        if number % 20 == 0:
            world.settle()  # segments of several batches
    world.settle()


def segments(world: World, name: str) -> int:
    return len(world.store.partitions[name].segments)


def test_everything_is_done_at_once_although_little_of_it_is_due(world: World) -> None:
    fill(world, "/topic/table.a", key="k")
    fill(world, "/topic/packed")
    fill(world, "/topic/short")
    before = {name: world.store.partitions[name].size_bytes for name in ("/topic/table.a", "/topic/packed")}
    client = world.connect()
    request(client, "maintenance.run")
    found = finished(world, client)
    assert found["ok"] and not found["running"] and found["failed"] == 0
    assert found["logs"] == found["logs_done"] == len(world.store.partitions)
    assert set(found["done"]) == {"retention", "compaction", "checkpoint"}
    assert found["done"]["checkpoint"] == 1
    assert found["done"]["compaction"] >= 4
    assert segments(world, "/topic/short") <= 2
    for name, size in before.items():
        assert world.store.partitions[name].size_bytes < size / 2


def test_a_log_is_compacted_on_request_although_one_part_in_eight_is_not_new(world: World) -> None:
    client = world.connect()
    for number in range(1_000):
        client.publish("/topic/table.a", f"{number}".ljust(1_000), key=f"k{number}")
        if number % 20 == 0:
            world.settle()
    partition = world.store.partitions["/topic/table.a"]
    fill(world, "/topic/table.a", 100, key="k1")
    request(client, "maintenance.run", tasks=["compaction"])
    assert finished(world, client)["done"]["compaction"] > 0
    fill(world, "/topic/table.a", 100, key="k1")
    world.store.maintenance.sweep(world.time, [partition])
    assert world.store.maintenance.take() is None
    request(client, "maintenance.run", tasks=["compaction"])
    assert finished(world, client)["done"]["compaction"] > 0


def test_match_limits_the_logs_and_tasks_the_work(world: World) -> None:
    fill(world, "/topic/table.a", key="k")
    fill(world, "/topic/table.b", key="k")
    sizes = {name: world.store.partitions[name].size_bytes for name in ("/topic/table.a", "/topic/table.b")}
    client = world.connect()
    request(client, "maintenance.run", tasks=["retention"], match="/topic/table.a")
    assert finished(world, client)["done"] == {"retention": 0}
    assert {name: world.store.partitions[name].size_bytes for name in sizes} == sizes
    request(client, "maintenance.run", tasks=["compaction"], match="/topic/table.a")
    assert finished(world, client)["done"]["compaction"] > 0
    assert world.store.partitions["/topic/table.a"].size_bytes < sizes["/topic/table.a"] / 2


def test_a_second_run_is_refused_while_one_is_in_progress_and_the_status_shows_it(world: World) -> None:
    fill(world, "/topic/table.a", key="k")
    client = world.connect()
    request(client, "maintenance.run", background=True)
    (begun,) = answers(client)
    assert begun["running"] is True
    request(client, "maintenance.run")
    (refused,) = answers(client)
    assert refused["error"]["code"] == "too-many"
    while True:
        request(client, "maintenance.status")
        (found,) = answers(client)
        if not found["running"]:
            break
        work(world)
    assert found["done"]["compaction"] > 0 and found["done"]["checkpoint"] == 1
    request(client, "maintenance.run", tasks=["checkpoint"])
    assert finished(world, client)["done"] == {"checkpoint": 1}


def test_a_run_goes_on_without_its_client(world: World) -> None:
    fill(world, "/topic/table.a", key="k")
    client = world.connect()
    request(client, "maintenance.run")
    world.settle()
    client.drop()
    for _ in range(100):
        work(world)
    assert world.broker.maintenance_run.progress()["running"] is False
    assert world.store.maintenance.counts["rewritten"] > 0


def test_a_checkpoint_that_fails_ends_the_run(world: World) -> None:
    fill(world, "/topic/packed", 10)
    client = world.connect()
    world.fs.fail("rename", times=1_000)
    request(client, "maintenance.run", tasks=["checkpoint"])
    assert finished(world, client)["done"] == {"checkpoint": 0}


def test_a_run_ends_although_a_destination_is_removed_meanwhile(world: World) -> None:
    fill(world, "/topic/leaves")
    world.now += 58 * NS_PER_SECOND
    world.broker.tick(world.time)
    client = world.connect()
    request(client, "maintenance.run")  # it wants the retention of the log
    world.broker.tick(world.time)
    world.now += 3 * NS_PER_SECOND
    world.broker.tick(world.time)
    assert world.store.removals.names == {"/topic/leaves"}
    for _ in range(10):
        world.tick(0.05)  # the background threads have not begun
    assert finished(world, client)["running"] is False
    assert "/topic/leaves" not in world.store.partitions


def test_a_kill_during_a_run_loses_nothing(world: World) -> None:
    fill(world, "/topic/table.a", key="k")
    client = world.connect()
    request(client, "maintenance.run")
    world.settle()
    job = None
    for _ in range(20):
        world.tick(0.05)
        job = job or world.store.maintenance.take()
    assert job is not None
    job.run(lambda: False)
    world.kill()
    reader = world.connect()
    reader.subscribe("/topic/table.a", ack="auto", start_position="last:1")
    world.settle()
    assert reader.bodies()[0].startswith("299 ")
    assert world.broker.maintenance_run.progress()["running"] is False


@pytest.mark.parametrize(
    "args", [{"tasks": []}, {"tasks": "retention"}, {"tasks": ["everything"]}, {"match": ">.a"}, {"background": 1}]
)
def test_bad_arguments_are_refused(world: World, args: dict[str, Any]) -> None:
    client = world.connect()
    request(client, "maintenance.run", **args)
    (found,) = answers(client)
    assert found["ok"] is False
    request(client, "maintenance.status")
    assert answers(client)[0]["running"] is False
