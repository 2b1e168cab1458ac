"""The frames of Spring's STOMP broker relay, and what its sessions leave behind under conf/spring.yaml: nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from radiator.clock import NS_PER_SECOND
from radiator.routing.pattern import parse_list
from radiator.storage import layout
from tests.broker.harness import Client, World

CONF = Path(__file__).parents[2] / "conf" / "spring.yaml"
SYSTEM = b"CONNECT\naccept-version:1.1,1.2\nlogin:guest\npasscode:guest\nheart-beat:10000,10000\nhost:localhost\n\n\0"
CONNECT = b"CONNECT\naccept-version:1.2,1.1,1.0\nheart-beat:0,0\nlogin:guest\npasscode:guest\nhost:localhost\n\n\0"
IDLE_SECONDS = 600
DAY_SECONDS = 86_400


def spring(config: str | None = None) -> World:
    return World(CONF.read_text("utf-8").replace("${RADIATOR_DATA}", "/data") if config is None else config)


def connection(world: World, connect: bytes) -> Client:
    client = Client(world, "1.2")
    client.say_bytes(connect)
    client.flush()
    assert client.take("CONNECTED")
    return client


def session_of(world: World, system: Client, number: int) -> None:
    """One user session: it subscribes, gets a message, and goes; one in ten without DISCONNECT."""
    name = f"user{number:08x}"
    client = connection(world, CONNECT)
    for at, destination in enumerate((f"/queue/errors-{name}", f"/topic/greetings-{name}", "/topic/news")):
        client.say_bytes(f"SUBSCRIBE\nid:sub-{at}\ndestination:{destination}\n\n\0".encode())
    body = b'{"error":"no"}'
    head = f"SEND\ndestination:/queue/errors-{name}\ncontent-type:application/json\ncontent-length:{len(body)}\n\n"
    send = head.encode()
    system.say_bytes(send + body + b"\0")
    world.settle()
    (message,) = client.messages()
    assert message.body == body and message.headers["subscription"] == "sub-0"
    if number % 10:
        client.say_bytes(b"UNSUBSCRIBE\nid:sub-0\n\n\0DISCONNECT\nreceipt:bye\n\n\0")
        world.settle()
        assert client.receipts() == ["bye"]
    client.drop()
    if number % 10 == 5:
        system.say_bytes(send + body + b"\0")  # for a user who has just gone: the queue is created again
    world.settle()
    world.clients.remove(client)


def remains(world: World) -> tuple[object, ...]:
    """Everything of which there must not be more after the sessions."""
    broker, store = world.broker, world.store
    places = (f"{layout.partitions_path('/data')}/", f"{layout.removed_path('/data')}/", layout.removals_path("/data"))
    facts = store.facts()
    return (
        sorted(broker.destinations),
        len(broker.sessions),
        len(broker.idle),
        len(broker.timing),
        sorted(store.partitions),
        sorted(store.cursors.names()),
        sorted(store.definitions.entries),
        sorted({path.split("/")[3] for path in world.fs.nodes if path.startswith(places)}),
        facts["tail_bytes"],
        facts["memory_bytes"],
        broker.memory.bytes,
        broker.registry.names.find(parse_list("/>").patterns[0], 1_000_000)[0],
    )


def run(world: World, sessions: int) -> None:
    system = connection(world, SYSTEM)
    system.say_bytes(b"SUBSCRIBE\nid:sub-s\ndestination:/topic/simp-user-registry\n\n\0")
    session_of(world, system, 5)
    after_idle(world)
    before = remains(world)
    for number in range(sessions):
        session_of(world, system, number)
        if number % 100 == 99:
            for _ in range(2):  # 100 of 10,000 sessions a day
                world.tick(DAY_SECONDS / 200)
    assert world.broker.stats.connections == sessions + 2
    after_idle(world)
    assert remains(world) == before


def after_idle(world: World) -> None:
    for _ in range(2 * IDLE_SECONDS // 60):
        world.tick(60)


FILES = """
data_dir: /data
destinations:
  - {match_regex: "(/queue|/topic)/.+-user[^/]+", expire: {idle: 10m}}
"""


@pytest.mark.parametrize("config", [None, FILES], ids=["conf/spring.yaml", "in files"])
def test_sessions_leave_no_name_no_file_and_no_memory(config: str | None) -> None:
    run(spring(config), 20)


@pytest.mark.thorough
@pytest.mark.parametrize("config", [None, FILES], ids=["conf/spring.yaml", "in files"])
def test_a_thousand_sessions_leave_no_name_no_file_and_no_memory(config: str | None) -> None:
    run(spring(config), 1_000)


def test_the_system_connection_gets_the_heart_beats_that_it_asks_for() -> None:
    world = spring()
    client = Client(world, "1.2")
    client.say_bytes(SYSTEM)
    client.flush()
    (connected,) = client.take("CONNECTED")
    assert connected.headers["version"] == "1.2"


def test_queues_of_sessions_have_the_rule_of_sessions_and_others_have_not() -> None:
    policy_for = spring().broker.rules.policy_for
    for name in ("/queue/errors-user0a1b2c3d", "/topic/greetings-user3f0c-11"):
        assert policy_for(name).settings.idle_ns == IDLE_SECONDS * NS_PER_SECOND
    for name in ("/topic/simp-user-registry", "/topic/unresolved-user", "/queue/orders", "/topic/news"):
        assert policy_for(name).settings.idle_ns is None
