"""The broker as a whole: disks that fail, full outboxes, restarts, and who is told what."""

from __future__ import annotations

import errno

import pytest

from radiator import limits
from radiator.config import LimitsConfig
from radiator.stomp.encoder import encode
from tests.broker.harness import Client, World

Q, T = "/queue/a", "/topic/a"


# --- the disk fails ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["pwritev", "fdatasync", "open", "sync_dir"])
def test_a_message_that_the_disk_refuses_is_never_receipted_nor_delivered(world: World, verb: str) -> None:
    reader, client = world.connect(), world.connect()
    reader.subscribe(T, ack="auto")
    client.publish(T, "m", receipt="r")
    world.fs.fail(verb)
    world.settle()
    assert client.receipts() == []
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "storage"
    assert error.headers["receipt-id"] == "r"
    assert reader.messages() == []


def test_receipts_before_the_failure_are_kept_and_those_behind_it_are_not_sent(world: World) -> None:
    client = world.connect()
    client.publish(T, "1", receipt="1")
    world.commit()
    client.publish("/topic/b", "2", receipt="2")
    world.fs.fail("fdatasync")
    client.publish(T, "3", receipt="3")
    world.settle()
    assert client.receipts() == ["1"]
    assert client.error() == "storage"


def test_a_client_that_disconnects_gets_an_error_if_its_message_was_lost(world: World) -> None:
    client = world.connect()
    client.publish(T, "m", receipt="1")
    client.say("DISCONNECT", receipt="2")
    world.fs.fail("fdatasync")
    world.settle()
    assert client.receipts() == []
    assert client.error() == "storage"


def test_a_client_gets_one_error_only(world: World) -> None:
    client = world.connect()
    client.publish(T, "m", receipt="1")
    client.say("NONSENSE")
    world.fs.fail("fdatasync")
    world.settle()
    assert client.receipts() == []
    assert len(client.take("ERROR")) == 1


def test_what_a_client_held_goes_back_when_its_commit_fails(world: World) -> None:
    holder, other = world.connect(), world.connect()
    holder.publish(Q, "held")
    holder.subscribe(Q)
    world.settle()
    assert len(holder.messages()) == 1
    other.subscribe(Q)
    holder.publish(T, "m", receipt="r")
    world.fs.fail("fdatasync")
    world.settle()
    assert holder.error() == "storage"
    assert other.bodies() == ["held"]


def test_a_failed_log_refuses_and_the_others_go_on(world: World) -> None:
    client = world.connect()
    world.fs.fail("pwritev", under="/partitions/")
    client.publish(T, "in the journal", receipt="r")
    world.settle()
    assert client.receipts() == ["r"]
    client.publish(T, "again", receipt="r")
    world.settle()
    assert client.error() == "storage"
    client = world.connect()
    client.publish("/topic/b", "m", receipt="r")
    client.subscribe(T, ack="auto", start_position="first")
    world.settle()
    assert client.receipts() == ["r"] and client.bodies() == ["in the journal"]


def test_after_a_failed_sync_a_restart_recovers_what_was_promised(world: World) -> None:
    client = world.connect()
    client.publish(T, "1", receipt="r")
    world.settle()
    client.publish(T, "2", receipt="s")
    world.fs.fail("fdatasync")
    world.settle()
    assert client.receipts() == ["r"]
    world.power_cut()
    reader = world.connect()
    reader.subscribe(T, ack="auto", start_position="first")
    reader.publish(T, "3")
    world.settle()
    found = reader.bodies()
    assert found[0] == "1"
    assert found[-1] == "3"


def test_a_full_disk_refuses_with_the_reason_and_stored_messages_can_be_read(world: World) -> None:
    client = world.connect()
    client.publish(T, "1", receipt="1")
    world.settle()
    world.fs.capacity = sum(len(node.cache) for node in world.fs.nodes.values()) + 100
    client.publish(T, "x" * 100_000, receipt="2")
    world.settle()
    assert client.receipts() == ["1"]
    (error,) = client.take("ERROR")
    assert b"free space" in error.body
    reader = world.connect()
    reader.subscribe(T, ack="auto", start_position="first")
    world.settle()
    assert reader.bodies() == ["1"]


def test_on_a_full_disk_what_has_found_room_in_the_journal_is_delivered(world: World) -> None:
    client = world.connect()
    client.publish(T, "1", receipt="1")
    world.settle()
    world.fs.fill()
    client.publish(T, "x" * 10_000, receipt="2")
    world.settle()
    assert client.receipts() == ["1", "2"]
    client.publish(T, "x" * 10_000, receipt="3")
    client.flush()
    assert client.error() == "storage"
    reader = world.connect()
    reader.subscribe(T, ack="auto", start_position="first")
    world.settle()
    assert reader.bodies() == ["1", "x" * 10_000]


def test_an_ack_that_cannot_be_stored_is_an_error_for_clients_that_asked_for_a_receipt(world: World) -> None:
    client = world.connect()
    client.publish(Q, "1", "2")
    client.subscribe(Q)
    world.settle()
    client.ack(client.messages()[0], receipt="r")
    world.fs.fail("pwritev", 1, errno.EIO, times=9)
    world.settle()
    assert client.receipts() == [] and not client.session.closing, "it is tried once more"
    world.tick(2)
    assert client.receipts() == []
    assert client.error() == "storage"


def test_a_failed_journal_does_not_stop_deliveries(world: World) -> None:
    client = world.connect()
    client.publish(Q, *"123")
    client.subscribe(Q)
    world.settle()
    client.ack(client.messages()[0])
    world.fs.fail("pwritev", 1, errno.EIO)
    world.settle()
    assert client.bodies() == ["2"]


@pytest.mark.parametrize("nth", range(1, 8))
@pytest.mark.parametrize("destination", [Q, T])
def test_a_destination_whose_first_message_was_refused_keeps_its_log(world: World, destination: str, nth: int) -> None:
    """It is empty and nobody is subscribed, but its files exist, and its log is going to be tried again."""
    client = world.connect()
    client.subscribe(destination)
    client.publish(destination, "refused", receipt="1")
    world.fs.fail("pwritev", nth)
    world.settle()
    refused = bool(client.take("ERROR"))
    client.drop()
    for number in range(3):
        while True:
            client = world.connect()
            client.publish(destination, f"{number}", receipt="r")
            world.settle()
            if client.receipts() == ["r"]:
                break
            world.tick(3)
        client.drop()
        world.tick(3)
    world.power_cut()
    reader = world.connect()
    reader.subscribe(destination, ack="auto", start_position="first")
    world.settle()
    assert reader.bodies() == ([] if refused else ["refused"]) + ["0", "1", "2"]


@pytest.mark.parametrize("seed", range(12))
def test_a_snapshot_whose_name_was_not_synced_does_not_cost_the_journal_before_it(seed: int) -> None:
    """The journal fails, the snapshot in its place gets its name, and the directory's sync fails; then two crashes."""
    world = World()
    world.fs.random.seed(seed)
    client = world.connect()
    client.publish(Q, *"123")
    client.subscribe(Q, prefetch_count=3)
    world.settle()
    one, two, _ = client.messages()
    client.ack(one, receipt="r")
    world.settle()
    assert client.receipts() == ["r"]
    world.fs.fail("pwritev")
    client.ack(two)
    world.settle()
    world.fs.fail("sync_dir")
    world.tick(100)
    world.kill()
    world.power_cut()
    other = world.connect()
    other.subscribe(Q, prefetch_count=3)
    world.settle()
    assert "1" not in other.bodies()


# --- bounded ----------------------------------------------------------------------------------------------------------


def test_delivery_stops_at_a_full_outbox_and_goes_on_when_it_has_room() -> None:
    world = World(limits=LimitsConfig(outbox=5_000))
    client, sender = world.connect(), world.connect()
    client.subscribe(T, id="t", ack="auto")
    client.subscribe(Q, id="q", ack="auto")
    sender.publish(T, *["x" * 500] * 50)
    sender.publish(Q, *["y" * 500] * 50)
    for _ in range(20):
        world.commit()
        world.pump()
    assert client.session.outbox.unsent_bytes < 5_000 + 2_000
    world.settle()
    assert sorted(body[0] for body in client.bodies()) == ["x"] * 50 + ["y"] * 50


def test_a_stuck_client_does_not_hold_up_the_others() -> None:
    world = World(limits=LimitsConfig(outbox=5_000))
    stuck, client = world.connect(), world.connect()
    for each in (stuck, client):
        each.subscribe(T, id="t", ack="auto")
        each.subscribe(Q, id="q", ack="auto")
    client.publish(T, *["x" * 500] * 100)
    client.publish(Q, *["y" * 500] * 100)
    for _ in range(100):
        world.commit()
        world.pump()
        client.flush()
    bodies = client.bodies()
    assert bodies.count("x" * 500) == 100
    assert bodies.count("y" * 500) >= 80


def test_a_body_larger_than_the_outbox_is_delivered_alone() -> None:
    world = World(limits=LimitsConfig(outbox=1_000))
    client = world.connect()
    client.subscribe(T, ack="auto")
    client.publish(T, "x" * 50_000, "y" * 50_000)
    world.settle()
    assert [len(body) for body in client.bodies()] == [50_000, 50_000]


def test_what_is_not_committed_yet_is_counted_to_the_byte(world: World) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish(T, "x" * 1_000, transaction="t", some="header")
    client.say("COMMIT", transaction="t")
    client.publish(T, "x" * 1_000, some="header")
    client.publish(Q, "x" * 1_000)
    assert world.broker.pending_bytes > 3_000
    world.settle()
    assert world.broker.pending_bytes == 0


@pytest.mark.parametrize("verb", ["pwritev", "fdatasync"])
def test_a_failure_does_not_leave_bytes_pending(world: World, verb: str) -> None:
    """Above a limit of pending bytes nobody is read any more: a byte forgotten here would add up to a standstill."""
    client, other = world.connect(), world.connect()
    client.publish(T, *["x" * 1_000] * 5)
    world.take()
    other.publish(T, *["y" * 1_000] * 5)  # behind the batch that is going to fail
    world.fs.fail(verb)
    world.write()
    world.sync()
    world.completed()
    world.settle()
    assert world.broker.pending_bytes == 0


PENDING = """
destinations:
  - {match: '/*/own'}
  - {match: '/*/shared.*', partition: shared}
  - {match: '/*/spread', partitions: 3}
  - {match: '/*/memory', store: memory}
  - {match: '/*/quick', fsync: 50ms}
  - {match: '/*/never', fsync: never}
  - {match: /queue/dropping, max_messages: 2, on_full: drop_oldest}
"""
NAMES = ["own", "shared.a", "shared.b", "spread", "memory", "quick", "never"]


def send_in_every_way(world: World, receipts: bool) -> None:
    """Messages to all kinds of logs, alone and in transactions, some of clients that are gone at once."""
    for how in ("plain", "transaction", "gone", "temporary"):
        client = world.connect()
        headers = {"receipt": "r" * 100} if receipts else {}
        for kind in ("topic", "queue"):
            for name in [*NAMES, "dropping"] if kind == "queue" else NAMES:
                if how == "transaction":
                    client.say("BEGIN", transaction="t", **headers)
                    client.publish(f"/{kind}/{name}", "1", "22", "", transaction="t", some="header", **headers)
                    client.say("COMMIT", transaction="t", **headers)
                else:
                    client.publish(f"/{kind}/{name}", "1", "22", "", some="header", **headers)
                client.publish(f"/{kind}/{name}", "x" * 10_000, durability="fsync")
        if how == "temporary":
            client.publish("/temp-queue/mine", "1", "2", **headers)
            client.publish(f"/temp-queue/mine@{world.clients[0].session.id}", "nobody is there", **headers)
        if how in ("gone", "temporary"):
            client.drop()  # the queue that was its own is forgotten with messages that are not committed
        if how == "plain":
            world.take()  # the rest gathers behind what is on its way


@pytest.mark.parametrize("receipts", [False, True])
@pytest.mark.parametrize("verb", [None, "open", "pwritev", "fdatasync", "sync_dir", "all"])
def test_what_is_on_its_way_to_the_disk_is_counted_off_to_the_last_byte(verb: str | None, receipts: bool) -> None:
    """Were a byte forgotten, they would add up until nobody is read any more; were one too many, nothing would bound
    what gathers."""
    world = World(PENDING)
    for nth in (1, 3, 2):
        send_in_every_way(world, receipts)
        assert world.broker.pending_bytes > 100_000
        if verb == "all":
            world.fs.capacity = 0
        elif verb is not None:
            world.fs.fail(verb, nth)
        world.write()
        world.sync()
        world.completed()
        world.settle()
        assert world.broker.pending_bytes == 0
        for client in world.clients:
            assert client.session.receipts.held_bytes == 0
            client.drop()
        world.clients.clear()
        world.fs.heal()
        world.fs.capacity = None
        for _ in range(3):
            world.tick(3)
        assert world.broker.pending_bytes == 0


def test_receipts_that_wait_are_counted_with_what_they_wait_for(world: World) -> None:
    """Many small messages with long receipts weigh what the receipts weigh."""
    client = world.connect()
    client.publish(T, *[""] * 100, receipt="r" * 10_000)
    assert world.broker.pending_bytes > 1_000_000
    world.settle()
    assert world.broker.pending_bytes == 0
    assert len(client.receipts()) == 100


def test_destinations_are_limited() -> None:
    world = World("limits: {destinations: 3}")
    client = world.connect()
    client.publish("/topic/1", "x")
    client.publish("/topic/2", "x")
    client.publish("/topic/3", "x")
    assert not client.session.closing
    client.publish("/topic/4", "x")
    assert client.error() == "too-many"


# --- others have their turn -------------------------------------------------------------------------------------------


def crowded() -> World:
    """A thousand topics, in one log."""
    world = World("destinations: [{match: '/topic/t.*', partition: all}]")
    world.connect().publish("/topic/t.0", "m")
    sender = world.connect()
    for number in range(1_000):
        sender.publish(f"/topic/t.{number}", "m")
    world.settle()
    return world


def heavy(client: Client, frames: list[tuple[str, dict[str, str]]]) -> list[str]:
    """Frames in one chunk; the receipts that they should get, in their order."""
    data = b"".join(
        encode(command, [*headers.items(), ("receipt", str(number))])
        for number, (command, headers) in enumerate(frames)
    )
    client.say_bytes(data)
    return [str(number) for number in range(len(frames))]


BURSTS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "subscribe and leave": [
        (command, {"id": str(number), "destination": "#"})
        for number in range(20)
        for command in ("SUBSCRIBE", "UNSUBSCRIBE")
    ],
    "stay": [("SUBSCRIBE", {"id": str(number), "destination": "/topic/>"}) for number in range(20)],
    "lists": [
        ("SUBSCRIBE", {"id": str(number), "destination": ",".join(f"/topic/#.x{each}" for each in range(20))})
        for number in range(5)
    ],
    "between messages": [
        (command, {"id": str(number), "destination": "/topic/order" if command == "SEND" else "#"})
        for number in range(20)
        for command in ("SUBSCRIBE", "SEND", "UNSUBSCRIBE", "SEND")
    ],
}


@pytest.mark.parametrize("burst", BURSTS)
def test_a_burst_that_is_much_work_lets_others_in_between_and_is_done_in_order(burst: str) -> None:
    world = crowded()
    client, other = world.connect(), world.connect()
    expected = heavy(client, BURSTS[burst])
    other.publish("/topic/other", "m", receipt="other")
    world.commit()
    other.flush()
    assert other.receipts() == ["other"]
    client.flush()
    first = client.receipts()
    assert len(first) < len(expected)
    visits = 0
    while client.rest:
        before = len(client.rest)
        client.go_on()
        assert len(client.rest) < before or client.session.command.at_once
        visits += 1
    assert visits > 1
    world.settle()
    assert [*first, *client.receipts()] == expected
    assert not client.take("ERROR")


def test_creating_destinations_is_much_work_too() -> None:
    world = World("destinations: [{match: '/topic/*', partition: all}]")
    client, other = world.connect(), world.connect()
    other.publish("/topic/other", "m")
    world.settle()
    expected = heavy(client, [("SEND", {"destination": f"/topic/{number}"}) for number in range(500)])
    other.publish("/topic/other", "m", receipt="other")
    world.commit()
    client.flush()
    first = client.receipts()
    assert 0 < len(first) < len(expected)
    assert other.receipts() == ["other"]
    world.settle()
    assert [*first, *client.receipts()] == expected


@pytest.mark.parametrize("patterns", ["none", "others", "all"])
def test_the_work_of_creating_a_destination_grows_with_the_matching_patterns_only(patterns: str) -> None:
    world = World("destinations: [{match: '/topic/*', partition: all}]")
    watcher, client = world.connect(), world.connect()
    for number in range(0 if patterns == "none" else 300):
        text = "/topic/*" if patterns == "all" else f"/topic/x{number}.*"
        watcher.subscribe(text, id=str(number), ack="auto")
    expected = heavy(client, [("SEND", {"destination": f"/topic/{number}"}) for number in range(20)])
    world.commit()
    client.flush()
    first = client.receipts()
    assert 0 < len(first) < 10 if patterns == "all" else len(first) == 20
    world.settle()
    assert [*first, *client.receipts()] == expected


def test_a_list_of_patterns_is_as_much_work_as_it_looks_at() -> None:
    """Twenty patterns of which each is told to match nothing by its first segments, among a thousand names."""
    world = crowded()
    client = world.connect()
    lists = [",".join(f"/topic/x{each}.{number}.*" for each in range(20)) for number in range(5)]
    heavy(client, [("SUBSCRIBE", {"id": str(index), "destination": text}) for index, text in enumerate(lists)])
    assert not client.rest
    assert world.broker.budget.spent < 1_000


def test_a_burst_that_is_cut_short_by_an_error_or_the_end_leaves_nothing_behind() -> None:
    world = crowded()
    for ending in ("error", "drop", "DISCONNECT"):
        client = world.connect()
        frames = list(BURSTS["stay"])
        if ending != "drop":
            frames.insert(10, ("NONSENSE" if ending == "error" else "DISCONNECT", {}))
        heavy(client, frames)
        assert client.rest
        if ending == "drop":
            client.drop()
        world.settle()
        assert not client.rest
        assert not client.session.subscriptions.by_id
        client.drop()
    for client in world.clients:
        client.drop()
    world.holds_nothing()


# --- life and death ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("death", ["restart", "kill", "power_cut"])
def test_offsets_go_on_where_they_were(world: World, death: str) -> None:
    for life in range(4):
        client = world.connect()
        client.publish(T, "a", "b", receipt="r")
        world.settle()
        assert [int(each.headers["offset"]) for each in client.take("RECEIPT")] == [2 * life, 2 * life + 1]
        getattr(world, death)()
    reader = world.connect()
    reader.subscribe(T, ack="auto", start_position="first")
    world.settle()
    assert reader.bodies() == ["a", "b"] * 4


def test_acks_without_a_receipt_survive_a_clean_stop(world: World) -> None:
    client = world.connect()
    client.publish(Q, *"12345")
    client.subscribe(Q, prefetch_count=5)
    world.settle()
    for message in client.messages():
        client.ack(message)
    world.restart()
    other = world.connect()
    other.subscribe(Q)
    world.settle()
    assert other.messages() == []


def test_a_segment_rolls_by_size_and_nothing_shows() -> None:
    world = World("defaults: {segment: {size: 64KiB}}", tail_bytes_max=1)
    client = world.connect()
    for number in range(30):
        client.publish(T, f"{number}".ljust(10_000))
        world.settle()
    assert len(world.store.partitions[T].segments) > 3
    client.subscribe(T, ack="auto", start_position="first")
    world.settle()
    assert [int(body) for body in client.bodies()] == list(range(30))


def test_retention_never_takes_what_a_queue_has_not_settled() -> None:
    world = World("defaults: {segment: {size: 64KiB}, retention: {count: 2}}")
    client = world.connect()
    client.subscribe(Q)
    for number in range(40):
        client.publish(Q, f"{number}".ljust(10_000))
        world.settle()
        world.tick(11)
    partition = world.store.partitions[Q]
    assert partition.log_start_offset == 0
    found = []
    while messages := client.messages():
        for message in messages:
            found.append(int(message.body))
            client.ack(message)
        world.settle()
        world.tick(11)
    assert found == list(range(40))
    world.tick(11)
    assert partition.log_start_offset > 30
    assert world.broker.stats.lost_to_retention == 0


def test_the_same_input_gives_the_same_bytes() -> None:
    """Nothing in the core depends on hashes, addresses or the clock."""

    def run() -> list[bytes]:
        world = World()
        clients = [world.connect() for _ in range(4)]
        for number, client in enumerate(clients):
            client.subscribe("/queue/*", prefetch_count=2)
            client.subscribe("/topic/#", id="t", ack="auto")
            for name in (Q, T, "/queue/b", "/topic/b"):
                client.publish(name, f"{number}", receipt=name)
        world.settle()
        clients[0].drop()
        world.settle()
        return [client.raw for client in clients]

    assert run() == run()


# --- counted ----------------------------------------------------------------------------------------------------------


def test_what_happened_is_counted(world: World) -> None:
    client = world.connect()
    client.publish(Q, "123", "4567")
    client.subscribe(Q, prefetch_count=2)
    world.settle()
    one, two = client.messages()
    client.ack(one)
    client.nack(two)
    client.ack(one)
    client.say("NONSENSE")
    world.settle()
    client.drop()
    stats = world.broker.stats.as_dict()
    expected = {
        "connections": 1,
        "messages_in": 2,
        "body_bytes_in": 7,
        "acks": 1,
        "nacks": 1,
        "late_acks": 1,
        "refused": 1,
        "read_errors": 0,
        "lost_to_retention": 0,
        "lost_to_failures": 0,
        "damaged_ranges": 0,
    }
    assert {key: stats[key] for key in expected} == expected
    assert stats["commits"] >= 1
    assert stats["returned"] >= 1


def test_a_turn_without_work_costs_nothing(world: World) -> None:
    clients = [world.connect() for _ in range(5)]
    for client in clients:
        client.subscribe("/topic/#", id="t")
        client.subscribe(Q, id="q")
        client.publish(T, "m")
    world.settle()
    assert not world.broker.ready.busy
    assert world.broker.take(world.time) == []
    assert world.broker.take_reads() == []


def test_the_limits_that_the_core_relies_on_hold() -> None:
    assert limits.TRANSACTION_BYTES_MAX <= limits.BATCH_BYTES_MAX
    assert limits.FRAME_BODY_BYTES_MAX < limits.BATCH_BYTES_MAX
