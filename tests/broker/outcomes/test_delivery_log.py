"""``record: deliveries``: each delivery that has ended is a record, and each settled message has one final one."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from radiator import limits
from radiator.broker.admin import gauges, readiness
from radiator.config.load import load_text
from radiator.errors import ConfigError
from radiator.routing.rules import Rules
from radiator.stomp.frames import Frame
from tests.broker.admin.asking import done
from tests.broker.harness import Client, World
from tests.broker.recorded import check_exact, outcomes, rows
from tests.broker.reloading import reload
from tests.storage.faults import FaultyFileSystem
from tests.tiers import sampled

CONFIG = """
defaults: {record: deliveries}
destinations:
  - {match: /queue/limited, redeliver: {max: 2, delay: 0ms}}
  - {match: /queue/buried, redeliver: {max: 2, delay: 0ms}, dead_letter: /queue/dead, dead_letter_expired: true}
  - {match: /queue/slow, ack_timeout: 10s}
  - {match: /queue/short, max_messages: 2, on_full: drop_oldest}
  - {match: /queue/once, on_unacked: delete}
  - {match: /queue/many, partitions: 3}
  - {match: /queue/free, record: none}
  - {match: "/topic/a, /topic/b", partition: shared}
"""

PURGE = '{"do": "queues.purge", "name": "/queue/a"}'


def consumer(world: World, queue: str, *bodies: str, ack: str = "client-individual", **headers: object) -> Client:
    """A consumer with the client id ``worker`` that has got these messages of a queue."""
    client = world.connect(client_id="worker")
    client.subscribe(queue, ack=ack, prefetch_count=100, **headers)
    client.publish(queue, *bodies)
    world.settle()
    return client


def test_a_row_says_who_had_which_message_when_and_what_became_of_it() -> None:
    world = World(CONFIG)
    client = consumer(world, "/queue/a", "0", "1")
    started = world.now
    first, second = client.messages()
    world.tick(3)
    client.ack(first)
    client.nack(second)
    world.settle()
    (again,) = client.messages()
    client.say("BEGIN", transaction="t")
    client.ack(again, transaction="t")
    client.say("COMMIT", transaction="t")
    world.settle()
    found = {(row["message-offset"], row["outcome"]): row for row in rows(world)}
    assert set(found) == {("0", "acked"), ("1", "nacked"), ("1", "acked")}
    row = found["0", "acked"]
    assert abs(int(row.pop("delivered-at")) - started) < 1_000_000_000
    assert 3_000_000_000 <= int(row.pop("settled-at")) - started < 4_000_000_000
    assert row == {
        "message-destination": "/queue/a",
        "message-partition": "/queue/a",
        "message-offset": "0",
        "message-subscription": "/queue/a",
        "consumer": "worker/0",
        "delivery": "1",
        "outcome": "acked",
    }
    assert found["1", "acked"]["delivery"] == "2"
    assert found["1", "acked"]["transaction"] == "t"
    assert world.broker.stats.deliveries_recorded == 3
    check_exact(world)


def _ack(world: World, client: Client, message: Frame) -> None:
    client.ack(message)


def _drop(world: World, client: Client, message: Frame) -> None:
    client.drop()


def _unsubscribe(world: World, client: Client, message: Frame) -> None:
    client.say("UNSUBSCRIBE", id="0")


def _nack(world: World, client: Client, message: Frame) -> None:
    client.nack(message)


def _refuse(world: World, client: Client, message: Frame) -> None:
    client.nack(message, requeue="false")


def _wait(world: World, client: Client, message: Frame) -> None:
    world.tick(11)


def _nack_twice(world: World, client: Client, message: Frame) -> None:
    client.nack(message)
    world.settle()
    client.nack(*client.messages())


def _abort(world: World, client: Client, message: Frame) -> None:
    client.say("BEGIN", transaction="t")
    client.ack(message, transaction="t")
    client.say("ABORT", transaction="t")


def _overtake(world: World, client: Client, message: Frame) -> None:
    client.nack(message, delay="1h")
    client.publish("/queue/short", "1", "2", "3")


ENDS: list[tuple[str, Callable[[World, Client, Frame], None], list[str]]] = [
    ("/queue/a", _ack, ["acked"]),
    ("/queue/a", _drop, ["requeued"]),
    ("/queue/a", _unsubscribe, ["requeued"]),
    ("/queue/a", _nack, ["nacked"]),
    ("/queue/a", _refuse, ["dropped"]),
    ("/queue/a", _abort, []),
    ("/queue/slow", _wait, ["timed_out"]),
    ("/queue/limited", _nack_twice, ["nacked", "dropped"]),
    ("/queue/buried", _nack_twice, ["nacked", "dead_lettered"]),
    ("/queue/buried", _refuse, ["dead_lettered"]),
    ("/queue/once", _drop, ["dropped"]),
    ("/queue/short", _overtake, ["nacked", "dropped"]),
]


@pytest.mark.parametrize(("queue", "end", "expected"), sampled(ENDS, 4))
def test_each_end_of_a_delivery_has_its_outcome(
    queue: str, end: Callable[[World, Client, Frame], None], expected: list[str]
) -> None:
    world = World(CONFIG)
    client = consumer(world, queue, "0")
    (message,) = client.messages()
    end(world, client, message)
    world.settle()
    mine = [
        row["outcome"] for row in rows(world) if row["message-offset"] == "0" and row["message-subscription"] == queue
    ]
    assert mine == expected
    check_exact(world)
    world.kill()
    world.settle()
    check_exact(world)


@pytest.mark.parametrize("count", [1, 40])
def test_a_row_has_names_with_percent_signs_as_they_are(count: int) -> None:
    world = World("defaults: {record: deliveries}")
    client = world.connect(client_id="w%d%")
    client.subscribe("/queue/%b100%s", id="%(x)s", ack="client-individual", prefetch_count=100)
    client.publish("/queue/%b100%s", *["x"] * count)
    world.settle()
    client.say("BEGIN", transaction="%d")
    for message in client.messages():
        client.ack(message, transaction="%d")
    client.say("COMMIT", transaction="%d")
    world.settle()
    found = rows(world)
    assert [row["message-offset"] for row in found] == [str(offset) for offset in range(count)]
    for row in found:
        assert row["message-destination"] == row["message-subscription"] == "/queue/%b100%s"
        assert row["consumer"] == "w%d%/%(x)s"
        assert row["transaction"] == "%d"


def test_messages_that_are_delivered_again_out_of_a_run_have_rows_of_their_own() -> None:
    world = World("defaults: {record: deliveries}")
    first, second = world.connect(client_id="first"), world.connect(client_id="second")
    first.subscribe("/queue/a", ack="client-individual", prefetch_count=100)
    first.publish("/queue/a", *["x"] * 30)
    world.settle()
    messages = first.messages()
    second.subscribe("/queue/a", ack="client-individual", prefetch_count=100)
    for message in messages[5:25:2]:
        first.nack(message)
    world.settle()
    for message in (*messages[:5], *messages[6:25:2], *messages[25:]):
        first.ack(message)
    for client in (first, second):
        for message in client.messages():
            client.ack(message)
    world.settle()
    final = {int(row["message-offset"]): row for row in rows(world) if row["outcome"] == "acked"}
    assert sorted(final) == list(range(30))
    again = {offset for offset, row in final.items() if row["delivery"] == "2"}
    assert again == set(range(5, 25, 2))
    assert all(final[offset]["consumer"].startswith("first/") for offset in final.keys() - again)
    check_exact(world)


@pytest.mark.thorough
def test_messages_without_a_consumer_have_rows_without_one() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.publish("/queue/a", "0", message_ttl="1s")
    client.publish("/queue/a", "1")
    client.publish("/queue/short", "0", "1", "2")
    client.publish("/queue/buried", "0", message_ttl="1s")
    world.settle()
    world.tick(5)
    admin = world.connect()
    admin.say("SEND", PURGE, destination="/radiator/admin", reply_to="/temp-queue/answers")
    world.settle()
    found = {(row["message-subscription"], row["message-offset"]): row for row in rows(world)}
    assert {key: row["outcome"] for key, row in found.items()} == {
        ("/queue/a", "0"): "expired",
        ("/queue/a", "1"): "purged",
        ("/queue/short", "0"): "dropped",
        ("/queue/buried", "0"): "dead_lettered",
    }
    for row in found.values():
        assert row["delivery"] == "0"
        assert not {"consumer", "delivered-at"} & row.keys()
    check_exact(world)


@pytest.mark.thorough
def test_a_purge_of_many_messages_has_a_row_for_each() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.publish("/queue/a", *map(str, range(1_700)))
    client.say("SEND", PURGE, destination="/radiator/admin", reply_to="/temp-queue/answers")
    world.settle()
    assert [outcome for _, outcome in outcomes(world)] == ["purged"] * 1_700
    check_exact(world)


@pytest.mark.thorough
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_every_ack_mode_has_one_row_for_each_message(ack: str) -> None:
    world = World(CONFIG)
    client = consumer(world, "/queue/many", *map(str, range(20)), ack=ack)
    messages = client.messages()
    for message in messages[-1:] if ack == "client" else messages if ack == "client-individual" else ():
        client.ack(message)
    world.settle()
    assert len(messages) == 20
    assert {row["message-partition"] for row in rows(world)} == {"/queue/many-0", "/queue/many-1", "/queue/many-2"}
    assert {row["outcome"] for row in rows(world)} == {"acked"}
    check_exact(world)


@pytest.mark.thorough
def test_messages_that_were_not_written_to_the_socket_are_requeued() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.publish("/queue/a", "0", "1")
    client.subscribe("/queue/a", ack="auto")
    world.commit()
    world.pump()
    client.flush(80)
    client.drop()
    world.settle()
    assert [outcome for _, outcome in outcomes(world)] == ["requeued", "requeued"]
    check_exact(world)


@pytest.mark.thorough
def test_deliveries_of_durable_subscriptions_and_groups_are_recorded_under_their_names() -> None:
    world = World(CONFIG)
    client = world.connect(client_id="c")
    client.subscribe("/topic/a,/topic/b", id="d", durable="true", subscription_name="billing", prefetch_count=10)
    client.subscribe("/topic/a", id="g", group="workers", prefetch_count=10)
    world.settle()
    client.publish("/topic/a", "0")
    client.publish("/topic/b", "1")
    world.settle()
    for message in client.messages():
        client.ack(message)
    world.settle()
    found = {(row["message-subscription"], row["message-destination"], row["message-offset"]) for row in rows(world)}
    assert found == {("billing", "/topic/a", "0"), ("billing", "/topic/b", "1"), ("workers", "/topic/a", "0")}
    check = [row for row in rows(world) if row["message-subscription"] == "workers"]
    assert [row["consumer"] for row in check] == ["c/g"]


@pytest.mark.thorough
def test_a_reload_begins_and_ends_the_record() -> None:
    off = "destinations: [{match: /queue/a}]"
    on = "destinations: [{match: /queue/a, record: deliveries}]"
    world = World(off)
    client = consumer(world, "/queue/a", "0", "1", "2", "3")
    messages = client.messages()
    client.ack(messages[0])
    world.settle()
    assert rows(world) == []
    reload(world, on)
    world.settle()
    client.ack(messages[1])
    world.settle()
    (row,) = rows(world)
    assert (row["message-offset"], row["consumer"], row["delivery"]) == ("1", "worker/0", "1")
    assert "delivered-at" not in row
    client.ack(messages[2])
    reload(world, off)
    world.settle()
    client.ack(messages[3])
    world.settle()
    assert outcomes(world) == [("1", "acked"), ("2", "acked")]
    world.kill()
    reader = world.connect()
    reader.subscribe("/queue/a")
    world.settle()
    assert reader.bodies() == []


# --- the log ----------------------------------------------------------------------------------------------------------


def test_no_client_sends_to_the_log_of_deliveries() -> None:
    world = World()
    client = world.connect()
    client.publish("/topic/radiator.deliveries", "forged")
    assert client.error() == "bad-destination"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("destinations: [{match: a, store: memory, record: deliveries}]", "record"),
        (
            "{defaults: {record: deliveries}, destinations: [{match: /topic/>, store: memory, record: none}]}",
            "needs a topic in files",
        ),
        ("{defaults: {record: deliveries}, destinations: [{match: /topic/>, kind: queue}]}", "needs a topic in files"),
        ("archive: [{match: a, to: /topic/radiator.deliveries}]", "the broker alone writes"),
        ("destinations: [{match: a, dead_letter: /topic/radiator.deliveries}]", "the broker alone writes"),
    ],
)
def test_a_log_that_could_not_be_written_is_a_fault_of_the_configuration(config: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Rules(load_text(config))


@pytest.mark.thorough
def test_deliveries_of_the_log_itself_are_not_recorded() -> None:
    world = World("defaults: {record: deliveries}")
    client = world.connect(client_id="c")
    client.subscribe("/topic/radiator.deliveries", id="d", durable="true", subscription_name="audit", ack="auto")
    world.settle()
    other = consumer(world, "/queue/a", "0")
    other.ack(*other.messages())
    world.settle()
    (heard,) = client.messages()
    assert heard.headers["outcome"] == "acked"
    assert outcomes(world) == [("0", "acked")]


@pytest.mark.parametrize("restart", [False, True])
def test_no_row_is_settled_before_its_message_was_received_although_the_clock_goes_back(restart: bool) -> None:
    world = World(CONFIG)
    worker = consumer(world, "/queue/a", "0", "1")
    message, other = worker.messages()
    received = other.headers["receive-time"]
    world.step(-60)
    worker.ack(message)
    world.settle()
    if restart:
        world.restart()
        worker = consumer(world, "/queue/a")
        (other,) = worker.messages()
    worker.ack(other)
    world.settle()
    assert len(outcomes(world)) >= 2
    assert [row["settled-at"] for row in rows(world)] == [received] * len(rows(world))


@pytest.mark.parametrize("partition", ["{name}", pytest.param("all", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("durable", [False, True])
def test_a_subscription_gets_rows_only_if_it_names_radiators_own_topics(partition: str, durable: bool) -> None:
    rules = f"destinations: [{{match: /topic/>, partition: '{partition}'}}]"
    world = World(f"{{regex_subscriptions: true, defaults: {{record: deliveries}}, {rules}}}")
    wide = ["#", "/topic/#", "/topic/>", "/topic/*.*", "/topic/*/deliveries", "#.deliveries", "/topic/a,/topic/>"]
    own = ["/topic/radiator.#", "/topic/radiator.*", "/topic/radiator.deliveries", "/topic/a,/topic/radiator/>"]
    heard = {}

    def subscribe(destination: str, **headers: object) -> None:
        client = heard[destination, len(heard)] = world.connect(client_id=f"c{len(heard)}")
        if durable and "match" not in headers:
            headers |= {"durable": "true", "subscription_name": f"s{len(heard)}"}
        client.subscribe(destination, id="0", ack="auto", **headers)
        world.settle()

    for _ in range(2):  # before the topic exists, and afterwards
        for each in [*wide, *own]:
            subscribe(each)
        for each in [r".*", r"/topic/radiator\..*"]:
            subscribe(each, match="regex")
        for message in (worker := consumer(world, "/queue/a", *"0123")).messages():  # others get some of them
            worker.ack(message)
        world.settle()
    world.tick(1)
    for (destination, _), client in heard.items():
        rows_heard = [each for each in client.messages() if each.headers.get("outcome")]
        assert bool(rows_heard) == (destination in own or "radiator" in destination), destination


@pytest.mark.parametrize("names", ["/topic/radiator.deliveries", "/topic/radiator.>,/topic/a"])
@pytest.mark.parametrize("first", ["audit", pytest.param("rows", marks=pytest.mark.thorough)])
def test_no_rows_are_written_about_the_deliveries_of_rows_in_a_shared_log(names: str, first: str) -> None:
    world = World("{defaults: {record: deliveries}, destinations: [{match: /topic/>, partition: all}]}")
    client, other = world.connect(client_id="c"), world.connect(client_id="b")

    def audit() -> None:
        client.subscribe(names, id="d", durable="true", subscription_name="audit", ack="auto", start_position="first")
        world.settle()

    if first == "audit":
        audit()
    other.subscribe("/topic/a", id="d", durable="true", subscription_name="billing", ack="auto")
    world.settle()
    other.publish("/topic/a", "0", "1")
    world.settle()
    if first == "rows":
        audit()
    for _ in range(10):
        world.tick(1)
        world.settle()
    heard = [each.headers["message-subscription"] for each in client.messages() if "outcome" in each.headers]
    assert heard.count("billing") == 2
    assert [row["message-subscription"] for row in rows(world)] == heard, "those of /topic/a before there was a row"


@pytest.mark.thorough
def test_the_log_exists_although_clients_may_create_nothing() -> None:
    world = World("{defaults: {record: deliveries}, destinations: [{match: /topic/>, create: deny}]}")
    client = consumer(world, "/queue/a", "0")
    client.ack(*client.messages())
    world.settle()
    assert outcomes(world) == [("0", "acked")]


@pytest.mark.thorough
def test_queues_in_memory_have_no_rows() -> None:
    config = "{defaults: {record: deliveries}, destinations: [{match: /queue/memory, store: memory, record: none}]}"
    world = World(config)
    client = consumer(world, "/queue/memory", "0")
    client.ack(*client.messages())
    world.settle()
    assert rows(world) == []


@pytest.mark.thorough
def test_rows_may_share_the_log_of_their_messages() -> None:
    world = World("{defaults: {record: deliveries}, destinations: [{match: /topic/>, partition: all}]}")
    client = world.connect(client_id="c")
    client.subscribe("/topic/a", id="d", durable="true", subscription_name="billing", prefetch_count=10)
    world.settle()
    client.publish("/topic/a", "0", "1")
    world.settle()
    for message in client.messages():
        client.ack(message)
    world.settle()
    world.tick(20)
    assert outcomes(world) == [("0", "acked"), ("1", "acked")]


@pytest.mark.thorough
def test_retention_of_the_log_removes_old_rows_and_nothing_else() -> None:
    config = """
destinations:
  - {match: /queue/a, record: deliveries}
  - {match: /topic/radiator.deliveries, segment: {size: 64KiB}, retention: {count: 100}}
"""
    world = World(config)
    for _ in range(4):
        client = consumer(world, "/queue/a", *map(str, range(250)), ack="auto")
        client.messages()
        client.drop()
        world.tick(20)
    world.maintain()
    found = outcomes(world)
    assert 100 <= len(found) < 1_000
    assert found[-1] == ("999", "acked")
    world.kill()
    world.settle()
    client = consumer(world, "/queue/a", "new")
    assert client.bodies() == ["new"]


def test_messages_that_are_acknowledged_in_the_turn_that_removes_their_cursor_have_rows() -> None:
    world = World(CONFIG)
    client = world.connect(client_id="worker")
    client.subscribe("/queue/a", "0", auto_delete="true", prefetch_count=100)
    client.subscribe("/topic/a", "1", subscription_name="d", prefetch_count=100)
    client.publish("/queue/a", "0", "1")
    client.publish("/topic/a", "2", "3")
    world.settle()
    for message in client.messages():
        client.ack(message)
    client.say("UNSUBSCRIBE", id="0")
    client.say("UNSUBSCRIBE", id="1", subscription_name="d")
    world.settle()
    world.tick()
    assert sorted((row["message-subscription"], row["outcome"]) for row in rows(world)) == [
        *[("/queue/a", "acked")] * 2,
        *[("d", "acked")] * 2,
    ]


def test_the_log_stays_where_destinations_expire() -> None:
    world = World("defaults: {record: deliveries, expire: {idle: 10s}}")
    for count in (1, 2):
        client = consumer(world, "/queue/a", "x")
        client.ack(*client.messages())
        client.drop()
        for _ in range(15):
            world.tick()
        assert "/queue/a" not in world.broker.destinations
        assert outcomes(world) == [("0", "acked")] * count


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_messages_in_flight_that_retention_removes_have_no_rows_and_take_no_memory(command: str) -> None:
    rule = "segment: {size: 64KiB}, retention: {count: 10, force: true}, redeliver: {delay: 0ms}"
    world = World(f"defaults: {{record: deliveries}}\ndestinations: [{{match: /queue/r, {rule}}}]")
    client = world.connect()
    client.subscribe("/queue/r", prefetch_count=1000)
    for _ in range(3):
        client.publish("/queue/r", *["x" * 2_000] * 60)
        world.settle()
        world.tick(20)
    world.maintain()
    (source,) = world.broker.destinations["/queue/r"].queue.sources
    removed = source.cursor.floor
    assert removed > 0
    runs = [each[:2] for each in source.record._runs.within(0, 1000) if each[2]]
    known = {*source.record._single, *(offset for run in runs for offset in range(*run))}
    assert known == set(range(removed, 180))
    for message in client.messages()[:removed]:
        client.ack(message, command)
    world.settle()
    world.tick()
    assert rows(world) == []


# --- failures ---------------------------------------------------------------------------------------------------------


def failing(fs: FaultyFileSystem) -> tuple[World, Client, Frame, Frame]:
    """A broker that cannot write its log of deliveries any more, and a consumer with two messages, 1 and 2."""
    world = World(CONFIG, fs)
    client = consumer(world, "/queue/a", "0", "1", "2", "3")
    first, second, third, fourth = client.messages()
    client.ack(first, receipt="0")
    world.settle()
    for verb in ("open", "pwritev"):
        fs.fail(verb, under="partitions/deliveries", times=1_000_000, error=errno.ENOSPC)
    client.ack(second, receipt="1")  # the journal has its row; its log gets it later
    world.settle()
    assert client.receipts() == ["0", "1"]
    return world, client, third, fourth


def test_while_rows_cannot_be_stored_no_settlement_is_and_receipts_wait() -> None:
    fs = FaultyFileSystem()
    world, client, third, _ = failing(fs)
    client.ack(third, receipt="2")
    client.publish("/queue/b", "others go on", receipt="sent")
    world.tick(5)
    assert client.receipts() == []
    other = world.connect()
    other.publish("/queue/b", "others go on", receipt="sent")
    world.settle()
    assert other.receipts() == ["sent"]
    fs.heal()
    for _ in range(4):
        world.tick(3)
    assert client.receipts() == ["2", "sent"]
    assert outcomes(world) == [("0", "acked"), ("1", "acked"), ("2", "acked")]
    check_exact(world)


@pytest.mark.thorough
def test_a_commit_whose_rows_cannot_be_stored_is_refused() -> None:
    fs = FaultyFileSystem()
    world, client, third, _ = failing(fs)
    client.say("BEGIN", transaction="t")
    client.publish("/queue/b", "x", transaction="t")
    client.ack(third, transaction="t")
    client.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert client.error() == "storage"
    fs.heal()
    for _ in range(4):
        world.tick(3)
    assert ("2", "requeued") in outcomes(world)
    check_exact(world)


@pytest.mark.thorough
@pytest.mark.parametrize("death", ["kill", "power_cut"])
def test_a_death_while_rows_cannot_be_stored_delivers_those_messages_again(death: str) -> None:
    fs = FaultyFileSystem()
    world, client, third, _ = failing(fs)
    client.ack(third, receipt="2")
    world.tick(5)
    assert client.receipts() == []
    getattr(world, death)()
    world.settle()
    check_exact(world)
    again = consumer(world, "/queue/a")
    assert again.bodies() == ["2", "3"]


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row that waits takes all the memory that rows may take."""
    monkeypatch.setattr(limits, "DELIVERY_ROWS_BYTES_MAX", 1)


def recover(world: World, fs: FaultyFileSystem) -> None:
    """The log of deliveries can be written again."""
    fs.heal()
    for _ in range(4):
        world.tick(3)


@pytest.mark.usefixtures("no_memory")
def test_queues_with_recorded_deliveries_deliver_nothing_while_rows_use_up_their_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fs = FaultyFileSystem()
    world, client, third, _ = failing(fs)
    sender = world.connect()
    sender.publish("/queue/a", "4")
    world.settle()
    assert client.bodies() == ["4"]  # no row waits yet
    client.nack(third)
    sender.publish("/queue/a", "5")
    sender.publish("/queue/free", "free")
    free = world.connect()
    free.subscribe("/queue/free")
    for _ in range(3):
        world.tick(3)
    assert client.bodies() == [] and free.bodies() == ["free"]
    operator = world.connect()
    (problem,) = [each for each in done(operator, "overview")["problems"] if each["kind"] == "deliveries_full"]
    assert (problem["severity"], problem["value"]) == ("error", 1)
    assert done(operator, "destinations.show", name="/queue/a")["held_by_record"] is True
    assert done(operator, "destinations.show", name="/queue/free")["held_by_record"] is False
    why = "1 rows wait to be stored"
    assert [why in each for each in readiness.held_back(world.broker)] == [True]
    now = gauges.now(world.broker)
    assert (now["deliveries_waiting"], now["stopped_by_deliveries"]) == (1, 1)
    assert [why in each.message for each in caplog.records if "deliver nothing" in each.message] == [True]
    recover(world, fs)
    assert sorted(client.bodies()) == ["2", "5"]
    assert readiness.held_back(world.broker) == []
    assert gauges.now(world.broker)["stopped_by_deliveries"] == 0
    assert any("rows are stored again" in each.message for each in caplog.records)
    check_exact(world)


@pytest.mark.thorough
@pytest.mark.usefixtures("no_memory")
def test_queues_settle_nothing_by_themselves_while_rows_use_up_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = FaultyFileSystem()
    world, client, third, _ = failing(fs)
    client.nack(third)
    world.settle()
    sender = world.connect()
    sender.publish("/queue/b", "0", message_ttl="1s")
    sender.publish("/queue/short", "0", "1", "2", "3")
    world.settle()
    admin = world.connect()
    admin.say("SEND", PURGE, destination="/radiator/admin", reply_to="/temp-queue/answers")
    for _ in range(3):
        world.tick(3)
    assert len(world.broker.recorder.blocks) == 1
    recover(world, fs)
    monkeypatch.setattr(limits, "DELIVERY_ROWS_BYTES_MAX", limits.MIB)
    sender.publish("/queue/short", "4")
    world.settle()
    found = [(row["message-subscription"], row["message-offset"], row["outcome"]) for row in rows(world)]
    assert found.count(("/queue/b", "0", "expired")) == 1
    assert [each for each in found if each[0] == "/queue/short"] == [
        ("/queue/short", str(offset), "dropped") for offset in range(3)
    ]
    check_exact(world)


@pytest.mark.thorough
@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("end", ["reload", "leave", "kill"])
def test_a_queue_that_rows_hold_back_may_be_reloaded_left_or_started_again(end: str) -> None:
    fs = FaultyFileSystem()
    world, client, third, _ = failing(fs)
    client.nack(third)
    world.tick(3)
    assert client.bodies() == []
    if end == "reload":
        reload(world, CONFIG.replace("{match: /queue/free, record: none}", "{match: /queue/a, record: none}"))
        world.settle()
        assert client.bodies() == ["2"]
        return
    if end == "leave":
        client.drop()
        world.settle()
        assert not world.broker.recorder.held
        recover(world, fs)
    else:
        fs.heal()
        world.kill()
    check_exact(world)
    assert consumer(world, "/queue/a").bodies() == ["2", "3"]
    check_exact(world)


@pytest.mark.thorough
@pytest.mark.parametrize(("batches", "least"), [(1, 30_000), (2, limits.BATCH_RECORDS_MAX)])
def test_all_rows_that_fit_into_memory_are_stored_when_the_log_can_be_written(
    batches: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DELIVERY_ROWS_BYTES_MAX", batches * limits.DELIVERY_ROWS_BYTES_MAX)
    fs = FaultyFileSystem()
    world, *_ = failing(fs)
    sender = world.connect()
    settled = 0
    while not world.broker.recorder.full:
        reader = world.connect(client_id="worker")
        sender.publish("/queue/a", *["x"] * 5_000)
        reader.subscribe("/queue/a", ack="auto")
        for _ in range(10):
            world.settle()
        settled += len(reader.messages())
        reader.drop()
    assert least < len(world.broker.recorder.blocks) <= settled < least + 30_000
    recover(world, fs)
    world.settle()
    check_exact(world)
    world.kill()
    world.settle()
    check_exact(world)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("queue", "headers", "outcome"),
    [
        ("/queue/a", {}, "nacked"),
        ("/queue/a", {"requeue": "false"}, "dropped"),
        ("/queue/buried", {"requeue": "false"}, "dead_lettered"),
    ],
)
def test_the_row_of_a_nack_in_a_commit_has_its_transaction(queue: str, headers: dict[str, str], outcome: str) -> None:
    world = World(CONFIG)
    client = consumer(world, queue, "0")
    (message,) = client.messages()
    client.say("BEGIN", transaction="t")
    client.ack(message, "NACK", transaction="t", **headers)
    client.say("COMMIT", transaction="t")
    world.settle()
    assert [(row["outcome"], row.get("transaction")) for row in rows(world)] == [(outcome, "t")]
    check_exact(world)


VERBS = ["open", "pwritev", "fdatasync", "sync_dir"]


class Story:
    """Random clients of a broker whose queues have recorded deliveries, and whose broker dies and whose disk fails."""

    QUEUES = ("a", "limited", "buried", "slow", "short", "once", "many", "dead")

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.fs = FaultyFileSystem(Random(seed))
        self.world = World(CONFIG, self.fs, journal_file_bytes=64 * 1024)
        self.held: list[tuple[Client, Frame]] = []
        self.transactions = 0

    def run(self, steps: int) -> None:
        actions = [
            *[self.send] * 4,
            *[self.consume] * 2,
            *[self.answer] * 6,
            self.commit,
            self.leave,
            self.pass_time,
            self.purge,
            self.partial_turn,
            self.fail,
        ]
        for number in range(steps):
            self.random.choice(actions)()
            if number % 3 == 0:
                self.world.settle()
            if self.random.random() < 0.04:
                self.die()
        self.heal()
        self.world.settle()
        for _ in range(20):
            self.world.tick(5)
        check_exact(self.world)

    def client(self) -> Client:
        alive = [each for each in self.world.clients if not each.session.closing]
        if not alive or (len(alive) < 4 and self.random.random() < 0.3):
            return self.world.connect(client_id=f"c{self.random.randrange(4)}" if self.random.random() < 0.5 else "x")
        return self.random.choice(alive)

    def queue(self) -> str:
        return f"/queue/{self.random.choice(self.QUEUES)}"

    def send(self) -> None:
        headers = {"message_ttl": "20s"} if self.random.random() < 0.2 else {}
        self.client().publish(self.queue(), *map(str, range(self.random.randrange(1, 5))), **headers)

    def consume(self) -> None:
        client = self.client()
        number = str(len(client.session.subscriptions.by_id))
        if number in client.session.subscriptions.by_id or int(number) > 5:
            return
        headers = {"exclusive": "true"} if self.random.random() < 0.1 else {}
        if self.random.random() < 0.2:
            headers["selector"] = "kind = 'x' or true"
        ack = self.random.choice(["auto", "client", "client-individual", "client-individual"])
        client.subscribe(self.queue(), id=number, ack=ack, prefetch_count=self.random.choice([1, 3, 10]), **headers)

    def hear(self) -> None:
        alive = [each for each in self.world.clients if not each.session.closing]
        for client in alive:
            self.held += [(client, each) for each in client.messages() if "ack" in each.headers]
        self.held = [(client, each) for client, each in self.held if client in alive]

    def answer(self) -> None:
        self.hear()
        if not self.held:
            return
        client, message = self.held.pop(self.random.randrange(len(self.held)))
        command = self.random.choice(["ACK", "ACK", "ACK", "NACK"])
        headers = {"requeue": "false"} if command == "NACK" and self.random.random() < 0.3 else {}
        receipt = "r" if self.random.random() < 0.3 else None
        client.ack(message, command, receipt=receipt, **headers)

    def commit(self) -> None:
        self.hear()
        if not self.held:
            return
        client = self.held[-1][0]
        own = [each for each in self.held if each[0] is client][:3]
        self.transactions += 1
        name = f"t{self.transactions}"
        client.say("BEGIN", transaction=name)
        for each in own:
            self.held.remove(each)
            client.ack(each[1], self.random.choice(["ACK", "ACK", "NACK"]), transaction=name)
        for _ in range(self.random.randrange(3)):
            client.publish(self.queue(), "in a transaction", transaction=name)
        client.say(self.random.choice(["COMMIT", "COMMIT", "ABORT"]), transaction=name)

    def leave(self) -> None:
        client = self.client()
        if client.session.subscriptions.by_id and self.random.random() < 0.5:
            client.say("UNSUBSCRIBE", id=next(iter(client.session.subscriptions.by_id)))
        else:
            client.drop()

    def pass_time(self) -> None:
        self.world.now += self.random.randrange(12) * 1_000_000_000
        self.world.broker.tick(self.world.time)

    def purge(self) -> None:
        if self.random.random() < 0.3:
            client = self.client()
            client.say(
                "SEND",
                PURGE.replace("/queue/a", self.queue()),
                destination="/radiator/admin",
                reply_to="/temp-queue/answers",
            )

    def partial_turn(self) -> None:
        """Some steps of a turn, so that a death finds the rest undone."""
        world, done = self.world, self.random.randrange(4)
        world.take()
        if done > 0:
            world.write()
        if done > 1:
            world.sync()
        if done > 2:
            world.completed()
        else:
            self.die()

    def fail(self) -> None:
        if self.random.random() < 0.3:
            if self.random.random() < 0.4:
                self.fs.fill()
            else:
                self.fs.fail(self.random.choice(VERBS), self.random.randrange(1, 6), errno.EIO)
        else:
            self.heal()

    def heal(self) -> None:
        self.fs.capacity = None
        self.fs.heal()

    def die(self) -> None:
        self.held.clear()
        self.heal()
        if self.random.random() < 0.6:
            self.world.kill()
        else:
            self.world.power_cut()
        check = self.world
        check.settle()
        check_exact(check)


@pytest.mark.parametrize("seed", sampled(range(24), 1))
def test_every_settled_message_has_one_final_row_whatever_dies_or_fails(seed: int) -> None:
    Story(seed).run(120)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(24))
def test_the_same_holds_while_rows_often_use_up_their_memory(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DELIVERY_ROWS_BYTES_MAX", (1, 500, 1_000, 3_000)[seed % 4])
    story = Story(seed)
    story.run(120)
    recorder = story.world.broker.recorder
    assert not recorder.full and not recorder.held
