"""A queue: order, shares, windows, what comes back and where it takes its place, what the log has lost."""

from __future__ import annotations

import os

import pytest

from radiator import limits
from radiator.storage import layout
from radiator.storage.files import FileSystem
from tests.broker.harness import Client, World

Q = "/queue/a"


def fill(world: World, count: int, destination: str = Q) -> list[str]:
    """``count`` messages in the queue, each in a batch of its own."""
    sender = world.connect()
    bodies = [f"m{number}" for number in range(count)]
    for body in bodies:
        sender.publish(destination, body)
        world.settle()
    return bodies


def drain(client: Client) -> list[str]:
    """Acknowledge one after the other until nothing comes."""
    found: list[str] = []
    while True:
        client.world.settle()
        messages = client.messages()
        if not messages:
            return found
        for message in messages:
            found.append(message.body.decode())
            client.ack(message)


# --- order and the window ---------------------------------------------------------------------------------------------


def test_one_message_at_a_time_in_the_order_of_the_log(world: World) -> None:
    bodies = fill(world, 5)
    client = world.connect()
    client.subscribe(Q)
    for body in bodies:
        world.settle()
        (message,) = client.messages()
        assert message.body.decode() == body
        client.ack(message)
    world.settle()
    assert client.messages() == []


def test_messages_that_waited_and_messages_that_come_are_one_stream(world: World) -> None:
    fill(world, 3)
    client = world.connect()
    client.subscribe(Q, prefetch_count=2)
    world.settle()
    client.publish(Q, "new")
    assert drain(client) == ["m0", "m1", "m2", "new"]


@pytest.mark.parametrize("window", [2, 3, 7])
def test_the_prefetch_count_bounds_what_is_in_flight(world: World, window: int) -> None:
    fill(world, 10)
    client = world.connect()
    client.subscribe(Q, prefetch_count=window)
    world.settle()
    messages = client.messages()
    assert len(messages) == window
    client.ack(messages[0])
    world.settle()
    assert len(client.messages()) == 1


@pytest.mark.parametrize("header", ["prefetch-count", "activemq.prefetchSize", "credit"])
def test_every_name_of_the_prefetch_count_counts(world: World, header: str) -> None:
    fill(world, 5)
    client = world.connect()
    client.subscribe(Q, **{header: "3"})
    world.settle()
    assert len(client.messages()) == 3


def test_two_subscriptions_of_one_client_to_one_queue_share_its_window_of_one(world: World) -> None:
    fill(world, 4)
    client = world.connect()
    client.subscribe(Q, id="x")
    client.subscribe(Q, id="y")
    world.settle()
    assert len(client.messages()) == 1
    assert client.session.window.held == 1


def test_a_pattern_and_a_name_of_one_client_share_its_window_of_one(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/*", id="x")
    client.subscribe(Q, id="y")
    fill(world, 4)
    assert len(client.messages()) == 1


def test_max_in_flight_binds_all_subscriptions_of_a_client(world: World) -> None:
    fill(world, 10)
    fill(world, 10, "/queue/b")
    client = world.connect(max_in_flight="3")
    client.subscribe(Q, id="x", prefetch_count=10)
    client.subscribe(Q, id="y", prefetch_count=10)
    client.subscribe("/queue/b", id="z", prefetch_count=2)
    world.settle()
    messages = client.messages()
    assert len(messages) == 3
    for _ in range(20):
        client.ack(messages.pop(0))
        world.settle()
        messages += client.messages()
        assert len(messages) <= 3
        if not messages:
            break
    assert not messages


def test_a_window_of_one_is_served_in_turn_from_all_queues(world: World) -> None:
    for name in "abc":
        fill(world, 3, f"/queue/{name}")
    client = world.connect()
    for name in "abc":
        client.subscribe(f"/queue/{name}", id=name)
    served = []
    for _ in range(9):
        world.settle()
        (message,) = client.messages()
        served.append(message.headers["destination"][-1])
        client.ack(message)
    assert served == list("abcabcabc")


@pytest.mark.parametrize("window", [1, 2])
def test_the_queue_that_was_served_while_it_was_alone_comes_behind_those_that_join_later(
    world: World, window: int
) -> None:
    names = "abc"
    for name in names:
        fill(world, 6, f"/queue/{name}")
    client = world.connect(max_in_flight=str(window))
    held, served = [], []
    for name in names:
        client.subscribe(f"/queue/{name}", id=name)
        world.settle()
        held += client.messages()
    assert [each.headers["destination"][-1] for each in held] == ["a"] * window
    for _ in range(9):
        message = held.pop(0)
        served.append(message.headers["destination"][-1])
        client.ack(message)
        world.settle()
        held += client.messages()
    assert served == list("a" * window + "bcabcabcabc")[:9]


def test_a_queue_whose_consumer_is_gone_leaves_the_turns_of_the_others_as_they_were(world: World) -> None:
    for name in "abc":
        fill(world, 6, f"/queue/{name}")
    client = world.connect()
    for name in "abc":
        client.subscribe(f"/queue/{name}", id=name)
    served = []
    for number in range(6):
        world.settle()
        (message,) = client.messages()
        served.append(message.headers["destination"][-1])
        if number == 2:
            client.say("UNSUBSCRIBE", id="a")
        client.ack(message)
    assert served == list("abcbcb")


def test_a_queue_that_is_always_full_does_not_starve_the_others(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/busy", id="busy")
    client.subscribe("/queue/calm", id="calm")
    producer = world.connect()
    producer.publish("/queue/busy", *["x"] * 10)
    world.settle()
    producer.publish("/queue/calm", "y")
    world.settle()
    seen = []
    for _ in range(3):
        producer.publish("/queue/busy", *["x"] * 10)  # its commits come with every ack
        world.settle()
        (message,) = client.messages()
        seen.append(message.body.decode())
        client.ack(message)
        world.settle()
    assert "y" in seen


def test_the_rules_prefetch_widens_the_window() -> None:
    world = World("destinations: [{match: /queue/a, prefetch: 4}]")
    fill(world, 10)
    client = world.connect()
    client.subscribe(Q)
    world.settle()
    assert len(client.messages()) == 4


def test_the_subscription_has_the_last_word_over_the_rule() -> None:
    world = World("destinations: [{match: /queue/a, prefetch: 4}]")
    fill(world, 10)
    client = world.connect()
    client.subscribe(Q, prefetch_count=1)
    world.settle()
    assert len(client.messages()) == 1


def test_nothing_is_shown_before_it_is_committed(world: World) -> None:
    client = world.connect()
    client.subscribe(Q)
    world.settle()
    client.publish(Q, "m")
    world.take()
    world.write()
    world.pump()
    world.flush()
    assert client.messages() == []
    world.sync()
    world.pump()
    world.flush()
    assert client.messages() == []
    world.completed()
    world.pump()
    assert client.bodies() == ["m"]


# --- consumers side by side -------------------------------------------------------------------------------------------


def test_consumers_take_turns(world: World) -> None:
    clients = [world.connect() for _ in range(3)]
    for client in clients:
        client.subscribe(Q, prefetch_count=10)
    world.settle()
    clients[0].publish(Q, *"012345678")
    world.settle()
    assert sorted(client.bodies() for client in clients) == [list("036"), list("147"), list("258")]


def test_every_message_goes_to_one_consumer_only(world: World) -> None:
    clients = [world.connect() for _ in range(3)]
    for client in clients:
        client.subscribe(Q)
    bodies = fill(world, 12)
    found: list[str] = []
    for _ in range(12):
        world.settle()
        for client in clients:
            for message in client.messages():
                found.append(message.body.decode())
                client.ack(message)
    assert sorted(found) == sorted(bodies)


def test_a_consumer_without_credit_does_not_hold_up_the_others(world: World) -> None:
    stuck, busy = world.connect(), world.connect()
    stuck.subscribe(Q)
    busy.subscribe(Q)
    fill(world, 6)
    assert len(stuck.messages()) == 1
    assert len(drain(busy)) == 5


def test_auto_acked_messages_flow_freely_and_are_settled_when_written(world: World) -> None:
    client = world.connect()
    client.subscribe(Q, ack="auto")
    fill(world, 5)
    assert client.bodies() == [f"m{number}" for number in range(5)]
    client.drop()
    other = world.connect()
    other.subscribe(Q)
    world.settle()
    assert other.messages() == []


def test_auto_acked_messages_that_were_not_written_go_to_the_next_consumer(world: World) -> None:
    fill(world, 3)
    client = world.connect()
    client.subscribe(Q, ack="auto")
    world.pump()
    client.flush(10)  # the head of the first message, then the connection breaks
    client.drop()
    other = world.connect()
    other.subscribe(Q)
    found = drain(other)
    assert found == ["m0", "m1", "m2"]


# --- what comes back --------------------------------------------------------------------------------------------------


def test_a_refused_message_takes_its_original_place(world: World) -> None:
    fill(world, 4)
    client = world.connect()
    client.subscribe(Q, prefetch_count=2)
    world.settle()
    first, second = client.messages()
    client.nack(first)
    client.ack(second)
    assert drain(client) == ["m0", "m2", "m3"]


def test_a_refused_message_is_marked_and_counted(world: World) -> None:
    fill(world, 1)
    client = world.connect()
    client.subscribe(Q)
    world.settle()
    for count in range(2, 6):
        (message,) = client.messages()
        client.nack(message, delay=0)
        world.settle()
        assert client.inbox[-1].headers["redelivered"] == "true"
        assert client.inbox[-1].headers["delivery-count"] == str(count)


def test_a_first_delivery_is_not_marked(world: World) -> None:
    fill(world, 1)
    client = world.connect()
    client.subscribe(Q)
    world.settle()
    (message,) = client.messages()
    assert "redelivered" not in message.headers
    assert message.headers["delivery-count"] == "1"


@pytest.mark.parametrize("ending", ["drop", "unsubscribe", "disconnect", "error"])
def test_what_a_lost_consumer_held_goes_back_at_once_in_its_place(world: World, ending: str) -> None:
    fill(world, 5)
    lost = world.connect()
    lost.subscribe(Q, prefetch_count=3)
    world.settle()
    held = lost.messages()
    other = world.connect()
    other.subscribe(Q, prefetch_count=10)
    world.settle()
    assert other.bodies() == ["m3", "m4"]
    lost.ack(held[1])
    if ending == "drop":
        lost.drop()
    elif ending == "unsubscribe":
        lost.say("UNSUBSCRIBE", id="0")
    elif ending == "disconnect":
        lost.say("DISCONNECT")
    else:
        lost.say("ACK", id="nonsense")
    world.settle()
    back = other.messages()
    assert [(each.body.decode(), each.headers["redelivered"]) for each in back] == [("m0", "true"), ("m2", "true")]


def test_returned_messages_come_before_fresh_ones_in_the_order_of_the_log(world: World) -> None:
    fill(world, 8)
    one, two = world.connect(), world.connect()
    one.subscribe(Q, prefetch_count=2)
    world.settle()
    two.subscribe(Q, prefetch_count=2)
    world.settle()
    assert (one.bodies(), two.bodies()) == (["m0", "m1"], ["m2", "m3"])
    two.drop()
    one.drop()
    last = world.connect()
    last.subscribe(Q)
    assert drain(last) == [f"m{number}" for number in range(8)]


def test_a_nack_offers_the_message_to_another_consumer_first(world: World) -> None:
    fill(world, 1)
    refuser, willing = world.connect(), world.connect()
    refuser.subscribe(Q)
    world.settle()
    willing.subscribe(Q)
    world.settle()
    (message,) = refuser.messages()
    refuser.nack(message)
    world.settle()
    assert willing.bodies() == ["m0"]
    assert refuser.messages() == []


def test_the_delivery_count_survives_a_restart(world: World) -> None:
    fill(world, 1)
    client = world.connect()
    client.subscribe(Q)
    world.settle()
    for _ in range(3):
        client.nack(client.messages()[0])
        world.settle()
    world.restart()
    client = world.connect()
    client.subscribe(Q)
    world.settle()
    (message,) = client.messages()
    assert message.headers["delivery-count"] == "5"


def test_after_a_kill_what_may_have_been_delivered_is_marked(world: World) -> None:
    fill(world, 4)
    client = world.connect()
    client.subscribe(Q, prefetch_count=2)
    world.settle()
    world.kill()
    client = world.connect()
    client.subscribe(Q, prefetch_count=10)
    world.settle()
    marks = [(each.body.decode(), each.headers.get("redelivered")) for each in client.messages()]
    assert marks == [("m0", "true"), ("m1", "true"), ("m2", None), ("m3", None)]


def test_what_was_acked_stays_acked_over_a_restart(world: World) -> None:
    fill(world, 6)
    client = world.connect()
    client.subscribe(Q, prefetch_count=6)
    world.settle()
    messages = client.messages()
    for place in (0, 2, 5):
        client.ack(messages[place], receipt=f"r{place}")
    world.settle()
    assert client.receipts() == ["r0", "r2", "r5"]
    world.power_cut()
    client = world.connect()
    client.subscribe(Q)
    assert drain(client) == ["m1", "m3", "m4"]


def test_a_message_given_back_twice_is_in_the_queue_once(world: World) -> None:
    fill(world, 2)
    client = world.connect()
    client.subscribe(Q)
    world.settle()
    (message,) = client.messages()
    client.nack(message)
    client.nack(message)  # late: it went back already
    assert drain(client) == ["m0", "m1"]
    assert world.broker.stats.late_acks == 1


def test_an_ack_that_comes_after_the_message_went_back_changes_nothing(world: World) -> None:
    fill(world, 1)
    client = world.connect()
    client.subscribe(Q)
    world.settle()
    (message,) = client.messages()
    client.say("UNSUBSCRIBE", id="0")
    client.ack(message, receipt="late")
    world.settle()
    assert client.receipts() == ["late"]
    client.subscribe(Q, id="1")
    assert drain(client) == ["m0"]


# --- partitions -------------------------------------------------------------------------------------------------------


def test_queues_that_share_a_log_see_their_own_messages_only() -> None:
    world = World("destinations: [{match: '/queue/*', partition: shared}]")
    sender = world.connect()
    for number in range(6):
        sender.publish(f"/queue/{'ab'[number % 2]}", f"{number}")
    world.settle()
    for name, expected in (("a", ["0", "2", "4"]), ("b", ["1", "3", "5"])):
        client = world.connect()
        client.subscribe(f"/queue/{name}")
        assert drain(client) == expected
    world.restart()
    for name in "ab":
        client = world.connect()
        client.subscribe(f"/queue/{name}")
        assert drain(client) == []


def test_a_queue_in_a_log_full_of_others_is_found(world: World) -> None:
    world = World("destinations: [{match: '/queue/*', partition: shared}]")
    sender = world.connect()
    client = world.connect()
    client.subscribe("/queue/b")
    for _ in range(50):
        sender.publish("/queue/a", *["x"] * 20)
        world.settle()
    sender.publish("/queue/b", "found")
    world.settle()
    assert client.bodies() == ["found"]


def test_a_queue_over_several_partitions_keeps_the_order_of_each_key() -> None:
    world = World("destinations: [{match: '/queue/a', partitions: 3, partition_by: 'header:key'}]")
    sender = world.connect()
    for number in range(30):
        sender.publish(Q, f"{number % 5}:{number}", key=f"k{number % 5}")
    world.settle()
    client = world.connect()
    client.subscribe(Q)
    found = drain(client)
    assert len(found) == 30
    for key in range(5):
        mine = [int(body.split(":")[1]) for body in found if body.startswith(f"{key}:")]
        assert mine == sorted(mine)


def test_a_queue_in_memory_works_alike_and_is_gone_after_a_restart() -> None:
    world = World("destinations: [{match: '/queue/a', store: memory}]")
    bodies = fill(world, 5)
    client = world.connect()
    client.subscribe(Q)
    world.settle()
    client.nack(client.messages()[0])
    assert drain(client) == bodies
    fill(world, 2)
    world.restart()
    client = world.connect()
    client.subscribe(Q)
    assert drain(client) == []


# --- far behind, damaged, gone ----------------------------------------------------------------------------------------


def test_a_backlog_is_read_from_the_files_when_memory_has_forgotten_it() -> None:
    world = World(tail_bytes_max=1)
    bodies = fill(world, 40)
    assert world.store.partitions[Q].read(0) is None
    client = world.connect()
    client.subscribe(Q, prefetch_count=3)
    assert drain(client) == bodies


def test_a_failed_read_is_retried_and_affects_no_other_queue() -> None:
    world = World(tail_bytes_max=1)
    fill(world, 5)
    fill(world, 2, "/queue/b")
    client = world.connect()
    client.subscribe(Q)
    world.fs.fail("pread")
    world.settle()
    assert client.messages() == []
    assert world.broker.stats.read_errors == 1
    other = world.connect()
    other.subscribe("/queue/b")
    assert drain(other) == ["m0", "m1"]
    world.tick()
    assert drain(client) == [f"m{number}" for number in range(5)]


def small_segments(tmp_path: str) -> World:
    """A queue of several segments on the real file system."""
    config = "destinations: [{match: '/queue/a', segment: {size: 64KiB}}]"
    world = World(config, FileSystem(), tmp_path, tail_bytes_max=1)
    sender = world.connect()
    for number in range(12):
        sender.publish(Q, f"m{number}".ljust(30_000))
        world.settle()
    return world


def test_messages_whose_segment_is_gone_are_counted_and_the_rest_comes_at_once(tmp_path: object) -> None:
    world = small_segments(str(tmp_path))
    client = world.connect()
    client.subscribe(Q, prefetch_count=5)
    world.settle()
    world.stop()
    directory = layout.partition_path(str(tmp_path), Q)
    segments = sorted(name for name in os.listdir(directory) if name.endswith(".rlog"))
    assert len(segments) > 3
    os.remove(f"{directory}/{segments[0]}")
    world.start()
    first = int(segments[1].split(".")[0])
    client = world.connect()
    client.subscribe(Q)
    assert [body.strip() for body in drain(client)] == [f"m{number}" for number in range(first, 12)]
    assert world.broker.stats.lost_to_retention == first


def test_damage_in_the_middle_costs_what_was_damaged_and_nothing_else(tmp_path: object) -> None:
    world = small_segments(str(tmp_path))
    world.stop()
    path = layout.segment_path(layout.partition_path(str(tmp_path), Q), 0)
    with open(path, "r+b") as file:
        file.seek(30_300)  # in the second of the messages
        file.write(b"DAMAGE")
    world.start()
    client = world.connect()
    client.subscribe(Q)
    assert [body.strip() for body in drain(client)] == ["m0", *(f"m{number}" for number in range(2, 12))]
    assert world.broker.stats.lost_to_retention == 1


@pytest.mark.parametrize("policy", ["never", "1h"])
def test_a_log_that_lost_its_end_in_a_power_cut_does_not_swallow_new_messages(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cursor may be ahead of the log then: what is sent next gets offsets that were acknowledged before."""
    monkeypatch.setattr(limits, "JOURNAL_PASSED_BYTES_MIN", 1)  # else the ack's sync is the messages', too
    lost = 0
    for seed in range(20):
        world = World(f"defaults: {{fsync: {policy}}}")
        world.fs.random.seed(seed)
        fill(world, 10)
        client = world.connect()
        client.subscribe(Q, prefetch_count=4)
        assert len(drain(client)) == 10
        world.tick(0.1)  # the cursor is synced
        world.power_cut()
        lost += world.store.partitions[Q].next_offset < 10 if Q in world.store.partitions else 1
        sender = world.connect()
        sender.publish(Q, *[f"new{number}" for number in range(12)])
        world.settle()
        client = world.connect()
        client.subscribe(Q)
        assert [body for body in drain(client) if body.startswith("new")] == [f"new{number}" for number in range(12)]
    assert lost, "no seed lost anything: the test says nothing"


# --- limits of a queue ------------------------------------------------------------------------------------------------


def test_a_full_queue_refuses_and_names_the_key() -> None:
    world = World("destinations: [{match: '/queue/a', max_messages: 3}]")
    fill(world, 3)
    sender = world.connect()
    sender.publish(Q, "4", receipt="r")
    world.settle()
    (error,) = sender.take("ERROR")
    assert error.headers["error-code"] == "full"
    assert error.headers["receipt-id"] == "r"
    assert b"max_messages" in error.body
    client = world.connect()
    client.subscribe(Q)
    world.settle()
    client.ack(client.messages()[0])  # one place is free
    world.settle()
    client.drop()
    for expected in (["5"], []):
        sender = world.connect()
        sender.publish(Q, "5", receipt="5")
        world.settle()
        assert sender.receipts() == expected
    client = world.connect()
    client.subscribe(Q)
    assert drain(client) == ["m1", "m2", "5"]


def test_a_full_queue_may_drop_the_newest_and_counts_it() -> None:
    world = World("destinations: [{match: '/queue/a', max_messages: 2, on_full: drop_newest}]")
    fill(world, 5)
    assert world.broker.stats.dropped_newest == 3
    client = world.connect()
    client.subscribe(Q)
    assert drain(client) == ["m0", "m1"]


def test_a_full_queue_in_a_transaction_drops_what_it_counts() -> None:
    world = World("destinations: [{match: '/queue/a', max_messages: 2, on_full: drop_newest}]")
    fill(world, 2)
    sender = world.connect()
    sender.say("BEGIN", transaction="t")
    sender.publish(Q, "x", transaction="t")
    sender.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert sender.receipts() == ["c"]
    assert world.broker.stats.dropped_newest == 1
    client = world.connect()
    client.subscribe(Q)
    assert drain(client) == ["m0", "m1"]


def test_the_bytes_of_a_queue_are_limited() -> None:
    world = World("destinations: [{match: '/queue/a', max_bytes: 10KiB}]")
    sender = world.connect()
    for number in range(30):
        sender.publish(Q, f"{number}".ljust(1_000))
        world.settle()
        if sender.session.closing:
            break
    assert sender.error() == "full"
    assert 5 <= number <= 12


def test_a_rule_may_make_every_consumer_exclusive() -> None:
    world = World("destinations:\n  - {match: /queue/a, exclusive: true, prefetch: 10}\n")
    first, second = world.connect(), world.connect()
    for client in (first, second):
        client.subscribe("/queue/a")
    world.connect().publish("/queue/a", "1", "2")
    world.settle()
    assert (first.bodies(), second.bodies()) == (["1", "2"], [])
    first.drop()
    world.settle()
    assert second.bodies() == ["1", "2"]


def test_an_exclusive_consumer_that_joins_begins_when_the_others_hold_nothing(world: World) -> None:
    first, alone = world.connect(), world.connect()
    first.subscribe("/queue/a")
    first.publish("/queue/a", "1", "2", "3")
    world.settle()
    (held,) = first.messages()
    alone.subscribe("/queue/a", exclusive="true")
    world.settle()
    assert alone.bodies() == []
    first.ack(held)
    world.settle()
    assert (first.bodies(), alone.bodies()) == ([], ["2"])
