"""``archive:`` rules: each that matches stores a copy in another destination, with the message or not at all."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from radiator.config.load import load_text
from radiator.errors import ConfigError
from radiator.routing.rules import Rules
from radiator.stomp.frames import Frame
from tests.broker.harness import Client, World
from tests.storage.faults import Crash

ALL, AUDIT = "/topic/all", "/queue/audit"
CONFIG = f"""
defaults: {{fsync: 50ms, prefetch: 10}}
destinations:
  - {{match: {ALL}, partition: everything}}
  - {{match: /topic/joint, partition: everything}}
  - {{match: /topic/live, store: memory, retention: {{count: 1}}}}
  - {{match: /queue/drops, max_messages: 1, on_full: drop_newest}}
  - {{match: /queue/source, fan_out: [/queue/bound]}}
  - {{match: /topic/closed, create: deny}}
archive:
  - {{match: "/topic/orders.*, /topic/joint, /topic/live, /queue/>", to: {ALL}}}
  - {{match: /topic/orders.*, to: "/topic/copies.{{1}}"}}
  - {{match: /topic/orders.audited, to: {AUDIT}}}
  - {{match: /topic/refused, to: /topic/closed}}
"""


@pytest.fixture
def world() -> World:
    return World(CONFIG)


def stored(world: World, name: str) -> list[Frame]:
    client = world.connect()
    client.subscribe(name, ack="auto", start_position="first", **({"browser": "true"} if "queue" in name else {}))
    world.settle()
    found = [frame for frame in client.messages() if "replay-end" not in frame.headers]
    client.drop()
    return found


def bodies(world: World, name: str) -> list[str]:
    return [frame.body.decode() for frame in stored(world, name)]


def send(client: Client, name: str, body: str = "x", receipt: str | None = "r", **headers: Any) -> None:
    client.say("SEND", body, receipt, destination=name, **headers)


def test_every_rule_that_matches_stores_a_copy(world: World) -> None:
    client = world.connect()
    send(client, "/topic/orders.audited", "1", priority="7", tag_a="b")
    send(client, "/topic/orders.other", "2", None)
    send(client, "/topic/elsewhere", "3")
    world.settle()
    (receipt, _) = client.take("RECEIPT")
    assert (receipt.headers["offset"], receipt.headers["partition"]) == ("0", "/topic/orders.audited")
    assert receipt.headers["delivered-to"] == "0"
    assert bodies(world, ALL) == ["1", "2"]
    assert bodies(world, "/topic/copies.audited") == bodies(world, AUDIT) == bodies(world, "/topic/orders.audited")
    (copy, _) = stored(world, ALL)
    assert copy.headers["archived-from"] == "/topic/orders.audited"
    assert (copy.headers["destination"], copy.headers["priority"], copy.headers["tag-a"]) == (ALL, "7", "b")
    assert world.broker.stats.messages_in == 3
    assert world.broker.stats.messages_copied == 5


DAY_NS = 86_400 * 10**9


def test_a_target_with_a_date_is_another_one_each_day() -> None:
    config = """
    archive:
      - {match: "/topic/orders.*, /topic/days.*", to: "/topic/days.{date}"}
      - {match: "/topic/orders.*", to: "/topic/days.{date}"}
      - {match: "/topic/orders.*", to: "/topic/{1}/{date}"}
    """
    world = World(config)
    client = world.connect()
    first, second = (f"{datetime.fromtimestamp((world.time.wall + more) / 1e9, UTC):%Y-%m-%d}" for more in (0, DAY_NS))
    for number in range(4):
        if number == 2:
            world.now += DAY_NS
            world.broker.tick(world.time)
        send(client, "/topic/orders.a", str(number))
        world.settle()
    client.say("BEGIN", transaction="t")
    send(client, "/topic/orders.b", "4", transaction="t")
    client.say("COMMIT", transaction="t")
    send(client, f"/topic/days.{second}", "5")
    world.settle()
    assert bodies(world, f"/topic/days.{first}") == ["0", "1"]
    assert bodies(world, f"/topic/days.{second}") == ["2", "3", "4", "5"]
    assert bodies(world, f"/topic/a/{second}") == ["2", "3"] and bodies(world, f"/topic/b/{second}") == ["4"]
    assert world.broker.destinations[f"/topic/days.{second}"].feeds[0].partition.name == f"/topic/days.{second}"
    assert "archive: /topic/days.{date}, /topic/a/{date}" in Rules(load_text(config)).explain("/topic/orders.a")


def test_subscribers_of_the_target_get_the_copy_and_a_queue_still_has_its_consumers(world: World) -> None:
    client = world.connect()
    client.subscribe(ALL, id="all")
    client.subscribe("/queue/work", id="work")
    client.publish("/queue/work", "job")
    world.settle()
    assert sorted(each.headers["subscription"] for each in client.messages()) == ["all", "work"]


def test_a_message_to_the_target_itself_is_not_copied_and_copies_are_not_copied_again(world: World) -> None:
    client = world.connect()
    client.publish(ALL, "own")
    client.publish("/topic/copies.a", "own")
    world.settle()
    assert bodies(world, ALL) == ["own"]
    assert world.broker.stats.messages_copied == 0


def test_the_copy_outlives_the_retention_of_its_source(world: World) -> None:
    client = world.connect()
    for number in range(3):
        send(client, "/topic/live", str(number))
        world.settle()
    assert client.receipts() == ["r", "r", "r"]
    assert bodies(world, "/topic/live") == ["2"]
    assert bodies(world, ALL) == ["0", "1", "2"]


def test_source_and_target_may_share_a_log(world: World) -> None:
    client = world.connect()
    send(client, "/topic/joint", "1")
    world.settle()
    assert client.receipts() == ["r"]
    assert bodies(world, "/topic/joint") == bodies(world, ALL) == ["1"]


def test_a_repeat_is_not_copied_again_and_its_id_means_nothing_in_the_target(world: World) -> None:
    client = world.connect()
    for name in ("/topic/orders.a", "/topic/orders.a", "/topic/orders.b"):
        send(client, name, "x", dedup_id="1")
    world.settle()
    assert [each.headers.get("duplicate") for each in client.take("RECEIPT")] == [None, "true", None]
    assert bodies(world, ALL) == ["x", "x"]
    world.restart()
    send(world.connect(), ALL, "y", dedup_id="1")
    world.settle()
    assert bodies(world, ALL) == ["x", "x", "y"]


def test_times_and_conditions_of_the_message_are_not_those_of_the_copy(world: World) -> None:
    client = world.connect()
    send(client, "/queue/work", "1", delay="60s", expires="99999999999999")
    send(client, "/queue/work", "2", expected_offset=1)
    world.settle()
    first, second = stored(world, ALL)
    assert first.body == b"1"
    assert not {"deliver-at", "expires", "expected-offset"} & set(first.headers) | set(second.headers) & {"delay"}


def test_a_message_that_is_dropped_has_no_copy(world: World) -> None:
    client = world.connect()
    send(client, "/queue/drops", "1")
    send(client, "/queue/drops", "2")
    world.settle()
    assert [each.headers.get("dropped") for each in client.take("RECEIPT")] == [None, "true"]
    assert bodies(world, ALL) == ["1"]


def test_a_source_with_fan_out_is_copied_once(world: World) -> None:
    client = world.connect()
    send(client, "/queue/source", "1")
    world.settle()
    assert bodies(world, ALL) == bodies(world, "/queue/bound") == ["1"]


def test_messages_of_a_transaction_are_copied_with_it(world: World) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    send(client, "/topic/orders.audited", "1", None, transaction="t")
    send(client, "/queue/work", "2", None, transaction="t")
    world.settle()
    assert bodies(world, ALL) == []
    client.say("COMMIT", receipt="c", transaction="t")
    world.settle()
    assert client.receipts() == ["c"]
    assert bodies(world, ALL) == ["1", "2"]
    assert bodies(world, AUDIT) == ["1"]
    assert (world.broker.stats.messages_in, world.broker.stats.messages_copied) == (2, 4)


def test_an_aborted_or_refused_transaction_leaves_no_copy(world: World) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    send(client, "/topic/orders.a", "1", None, transaction="t")
    client.say("ABORT", transaction="t")
    client.say("BEGIN", transaction="u")
    send(client, "/topic/orders.a", "2", None, transaction="u")
    send(client, "/topic/orders.b", "3", None, transaction="u", expected_offset=7)
    client.say("COMMIT", transaction="u")
    world.settle()
    assert client.error() == "conflict"
    assert bodies(world, ALL) == []


def test_a_queue_that_drops_messages_of_a_transaction_keeps_its_limit_beside_copies_in_its_log() -> None:
    world = World(
        """
        destinations:
          - {match: /queue/drops, partition: near, max_messages: 2, on_full: drop_newest}
          - {match: /topic/near, partition: near}
        archive: [{match: /queue/drops, to: /topic/near}]
        """
    )
    client = world.connect()
    client.say("BEGIN", transaction="t")
    for number in range(4):
        send(client, "/queue/drops", str(number), None, transaction="t")
    client.say("COMMIT", receipt="c", transaction="t")
    world.settle()
    assert client.receipts() == ["c"]
    assert bodies(world, "/queue/drops") == ["0", "1"]
    assert bodies(world, "/topic/near") == ["0", "1", "2", "3"]


@pytest.mark.parametrize("transaction", [False, True])
def test_after_a_power_cut_at_any_call_the_message_and_its_copies_are_there_or_none_is(transaction: bool) -> None:
    names = ("/topic/orders.audited", ALL, AUDIT, "/topic/copies.audited")
    kept = set()
    for nth in range(1, 200):
        world = World(CONFIG)
        client = world.connect()
        client.publish(names[0], "before")
        client.publish("/topic/elsewhere", "before")
        world.settle()
        world.tick(1)  # synced
        if transaction:
            client.say("BEGIN", transaction="t")
        send(client, names[0], "now", None if transaction else "r", **({"transaction": "t"} if transaction else {}))
        if transaction:
            client.say("COMMIT", receipt="r", transaction="t")
        world.fs.crash_at(nth)
        try:
            world.settle()
        except Crash:
            pass
        else:
            assert client.receipts() == ["r"]
            break
        world.fs._crash_at = None
        world.power_cut()
        found = [bodies(world, name) for name in names]
        assert found == [found[0]] * 4, nth
        kept.add(len(found[0]))
    else:
        raise AssertionError("the broker does not come to rest")
    assert kept == {1, 2}


def test_a_disk_that_fails_refuses_message_and_copies(world: World) -> None:
    client = world.connect()
    world.fs.fail("fdatasync")
    send(client, "/topic/orders.audited")
    world.settle()
    assert client.error() == "storage"
    world.tick(5)
    send(world.connect(), "/topic/orders.audited", "again")
    world.settle()
    assert bodies(world, ALL) == bodies(world, AUDIT) == ["again"]


def test_a_target_that_may_not_be_created_refuses_the_message(world: World) -> None:
    client = world.connect()
    send(client, "/topic/refused")
    world.settle()
    assert client.error() == "not-found"
    assert bodies(world, "/topic/refused") == []


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("{match: /topic/a}", "archive[0]: expected the key to:"),
        ("{to: /topic/a}", "archive[0]: expected the key match:"),
        ("{match: /topic/a, to: /topic/*}", "archive[0].to: expected the name of a destination"),
        ("{match: /topic/a, to: /temp-queue/a}", "archive[0].to: expected the name of a destination"),
        ('{match: /topic/a, to: "/topic/{1}"}', "archive[0].to: expected {name}, {date} between braces"),
        ('{match: /topic/a, to: "/topic/{day}"}', "archive[0].to: expected {name}, {date} between braces, got '{day}'"),
        ("{match: /topic/>.a, to: /topic/b}", "archive[0].match: "),
        ("{match: /topic/a, partition: b}", "archive[0].partition: unknown key"),
        ("/topic/a", "archive[0]: expected keys such as match:"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_with_its_line(rule: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Rules(load_text(f"archive: [{rule}]", "radiator.yaml", {}))
    assert f"radiator.yaml:1: {words}" in str(caught.value)


def test_the_explanation_of_a_name_has_its_copies() -> None:
    assert f"  archive: {ALL}, /topic/copies.a\n" in Rules(load_text(CONFIG)).explain("/topic/orders.a") + "\n"


def test_the_partition_that_a_client_chooses_is_that_of_its_destination_not_of_the_copy() -> None:
    world = World(
        """
destinations: [{match: /topic/orders, partitions: 4}, {match: /topic/copies, partitions: 2}]
archive: [{match: /topic/orders, to: /topic/copies}]
"""
    )
    client = world.connect()
    client.publish("/topic/orders", "x", partition="3", receipt="r")
    world.settle()
    assert client.receipts() == ["r"]
    reader = world.connect()
    reader.subscribe("/topic/copies", start_position="first")
    world.settle()
    assert reader.bodies() == ["x"]
