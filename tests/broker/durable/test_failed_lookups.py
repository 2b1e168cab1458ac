"""Named subscriptions when something fails or changes while their place is looked up: nothing that waits is lost."""

from __future__ import annotations

import errno
import gc
import json
from typing import Any

import pytest

from radiator.broker.clients.session import Session
from radiator.errors import StorageError
from radiator.storage.definitions import encode
from tests.broker.durable.test_subscriptions import T, U, again, durable
from tests.broker.harness import NOW, Client, World
from tests.broker.queues.test_queue import drain, fill

HOUR_NS = 3_600 * 10**9
SHARED = "destinations: [{match: '/topic/>', partition: shared}]"
LATER = 10 * 10**9


def fail_look_ups(world: World) -> int:
    """The disk fails every look-up that was asked for, once."""
    reads = world.broker.take_reads()
    for read in reads:
        read.run()
        read.job.error = StorageError("EIO, once")
        world.broker.read_done(read)
    return len(reads)


def order(world: World, **request: Any) -> Client:
    admin = world.connect()
    admin.subscribe("/temp-queue/r", "r", ack="auto")
    admin.say("SEND", json.dumps(request), destination="/radiator/admin", reply_to="/temp-queue/r")
    return admin


def answer(admin: Client) -> Any:
    (body,) = admin.bodies()
    return json.loads(body)


@pytest.fixture
def waiting(world: World) -> World:
    """A name for which two messages wait, and another topic with history."""
    durable(world).drop()
    fill(world, 2, T)
    fill(world, 2, U)
    world.now += LATER
    return world


def test_a_look_up_that_fails_deletes_no_name_that_was_there_before(waiting: World) -> None:
    client = waiting.connect()
    client.subscribe(f"{T},{U}", subscription_name="me", start_position=f"time:{NOW}", receipt="again")
    assert fail_look_ups(waiting) == 1
    waiting.settle()
    assert client.error() == "storage"
    assert len(again(waiting)) == 2


def test_what_failed_is_looked_up_again_and_then_the_name_begins_there(waiting: World) -> None:
    client = waiting.connect()
    client.subscribe(f"{T},{U}", subscription_name="me", start_position=f"time:{NOW}")
    fail_look_ups(waiting)
    waiting.settle()
    client = waiting.connect()
    client.subscribe(f"{T},{U}", subscription_name="me", ack="auto", receipt="sub")
    waiting.settle()
    assert client.receipts() == [], "it is not known yet where it begins"
    waiting.tick()
    assert client.receipts() == ["sub"]
    assert len(client.bodies()) == 4
    waiting.kill()
    assert again(waiting, f"{T},{U}") == []


@pytest.mark.parametrize("receipt", [True, False])
def test_a_name_that_could_not_be_made_is_not_there(waiting: World, receipt: bool) -> None:
    client = waiting.connect()
    headers = {"receipt": "sub"} if receipt else {}
    client.subscribe(U, subscription_name="new", start_position=f"time:{NOW}", **headers)
    fail_look_ups(waiting)
    waiting.settle()
    assert client.error() == "storage"
    assert "sub:new" not in waiting.broker.durable.by_key


def test_all_members_of_a_group_that_could_not_be_created_get_an_error(waiting: World) -> None:
    members = [waiting.connect() for _ in range(2)]
    for member in members:
        member.subscribe(U, group="g", start_position=f"time:{NOW}")
    fail_look_ups(waiting)
    waiting.settle()
    assert [member.error() for member in members] == ["storage", "storage"]
    assert "group:g" not in waiting.broker.durable.by_key


def test_an_order_whose_look_up_fails_says_so_and_is_carried_out_when_the_disk_is_well(waiting: World) -> None:
    admin = order(waiting, do="cursors.set", name="sub:me", position=f"time:{NOW}")
    fail_look_ups(waiting)
    waiting.settle()
    assert answer(admin)["error"]["code"] == "storage"
    waiting.tick()
    assert len(again(waiting)) == 2


def test_an_order_for_a_queue_whose_look_up_fails_says_so_and_changes_nothing(world: World) -> None:
    sent = fill(world, 3, "/queue/a")
    world.now += LATER
    admin = order(world, do="cursors.set", name="queue:/queue/a", position=f"time:{NOW}")
    fail_look_ups(world)
    world.settle()
    assert answer(admin)["error"]["code"] == "storage"
    consumer = world.connect()
    consumer.subscribe("/queue/a")
    world.settle()
    assert drain(consumer) == sent


def test_a_start_in_the_future_holds_for_the_topics_of_the_subscription(world: World) -> None:
    durable(world).drop()
    sent = fill(world, 2, T)
    client = durable(world, f"{T},{U}", start_position=f"time:{world.now + HOUR_NS}")
    sender = world.connect()
    sender.publish(U, "too early")
    world.settle()
    assert client.bodies() == sent
    client.drop()
    world.restart()
    world.now += HOUR_NS
    fill(world, 1, U)
    late = again(world, f"{T},{U}")
    assert "too early" not in late and len(late) == 3


def test_a_start_in_the_future_holds_for_topics_that_are_created_before_it(world: World) -> None:
    client = durable(world, "/topic/>", start_position=f"time:{world.now + HOUR_NS}", ack="auto")
    fill(world, 1, "/topic/new")
    assert client.bodies() == []
    world.now += HOUR_NS
    assert client.bodies() == []
    sent = fill(world, 1, "/topic/new")
    assert client.bodies() == sent


def test_a_name_that_is_deleted_while_it_is_looked_up_leaves_no_receipt_behind(waiting: World) -> None:
    client = waiting.connect()
    client.subscribe(U, subscription_name="x", start_position=f"time:{NOW}", receipt="sub")
    client.say("UNSUBSCRIBE", id="0", subscription_name="x", receipt="unsub")
    client.say("SEND", "x", destination="/queue/other", receipt="send")
    waiting.settle()
    assert client.receipts() == ["sub", "unsub", "send"]


def test_an_order_for_a_name_that_is_deleted_meanwhile_is_answered(waiting: World) -> None:
    admin = order(waiting, do="cursors.set", name="sub:me", position=f"time:{NOW}")
    remover = order(waiting, do="cursors.rm", name="sub:me")
    waiting.settle()
    assert answer(remover)["ok"]
    assert answer(admin)["error"]["code"] == "not-found"


def test_what_was_to_be_passed_over_is_passed_over_though_a_batch_behind_it_failed() -> None:
    world = World(SHARED)
    durable(world).drop()
    sender = world.connect()
    sender.publish(T, "a1")
    sender.publish(U, "old b")
    world.settle()
    client = durable(world, f"{T},{U}", prefetch_count="1")
    (message,) = client.messages()
    world.fs.fail("pwritev")
    sender.publish(T, "a2", receipt="1")
    world.settle()
    client.ack(message)
    world.tick(60)
    assert client.bodies() == []


def test_a_subscription_that_does_not_fit_on_the_disk_affects_no_earlier_one(world: World) -> None:
    durable(world, name="old").drop()
    world.fs.fail("pwritev", 1, errno.ENOSPC, under="/journal/")
    newcomer = world.connect()
    newcomer.subscribe(T, subscription_name="new", receipt="sub")
    world.settle()
    assert newcomer.error() == "storage"
    assert list(world.broker.durable.by_key) == ["sub:old"]
    world.tick(2.1)
    durable(world, name="old")


def test_a_name_keeps_no_connection_that_is_gone(world: World) -> None:
    for _ in range(3):
        durable(world).drop()
    gone = [client.session.id for client in world.clients]
    world.clients.clear()
    world.woken.clear()
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Session) and each.id in gone]


def test_the_file_of_names_is_two_lines_which_are_made_at_the_speed_of_c() -> None:
    assert encode({"sub:a": {"user": "é"}, "sub:b": {}}).count(b"\n") == 2
