"""Who has the next turn: topics under one window, clients whose frames are much work."""

from __future__ import annotations

import pytest

from radiator.broker.delivery import dispatch
from radiator.stomp.encoder import encode
from tests.broker.harness import World


@pytest.mark.parametrize("window", [1, 4])
@pytest.mark.parametrize("start", [None, "first"])
@pytest.mark.parametrize("calm_first", [False, True])
def test_under_one_window_a_busy_topic_leaves_another_its_turn(
    window: int, start: str | None, calm_first: bool
) -> None:
    world = World()
    client, producer = world.connect(max_in_flight=str(window)), world.connect()
    position = {} if start is None else {"start_position": start}

    def send() -> None:
        producer.publish("/topic/busy", *(str(number) for number in range(50)))
        producer.publish("/topic/calm", *("hello" for _ in range(5)))
        world.settle()

    if start is not None:
        send()
    for name in ("calm", "busy") if calm_first else ("busy", "calm"):
        client.subscribe(f"/topic/{name}", id=name, **position)
    if start is None:
        send()
    order: list[str] = []
    for _ in range(20):
        world.settle()
        for message in client.messages():
            order.append(message.headers["subscription"])
            producer.publish("/topic/busy", "more")
            client.ack(message)
    assert order[:20].count("calm") == 5, order


def test_a_long_list_of_names_is_a_visit_of_its_own() -> None:
    world = World("destinations: [{match: '/topic/>', store: memory}]")
    client = world.connect()
    for number in range(1_000):
        client.publish(f"/topic/{number}", "x")
    world.settle()
    headers = [("destination", "/radiator/admin"), ("reply-to", "/temp-queue/a")]
    client.say_bytes(3 * encode("SEND", headers, b'{"do": "destinations.ls"}', "1.2"))
    visits = 0
    for left in (3, 2, 1):
        assert len(client.rest) == left
        while len(client.rest) == left:
            client.go_on()
            visits += 1
    assert visits > 3


@pytest.mark.parametrize("kind", ["topic", "queue"])
def test_many_long_selectors_are_not_all_asked_in_one_go(kind: str) -> None:
    world = World()
    clients = [world.connect() for _ in range(30)]
    for number, client in enumerate(clients):
        selector = " OR ".join(f"kind LIKE '%{number}x{each}%'" for each in range(90)) + " OR kind = 'wanted'"
        client.subscribe(f"/{kind}/{number if kind == 'queue' else 'all'}", ack="auto", selector=selector)
    world.settle()
    producer = world.connect()
    for each in range(10):
        for number in range(30) if kind == "queue" else [0]:
            name = f"/queue/{number}" if kind == "queue" else "/topic/all"
            producer.publish(name, str(each), kind="wanted" if each == 9 else f"other {each}")
    while world.commit():
        pass
    served = []
    while world.broker.ready.busy:
        world.broker.ready.pump()
        served.append(sum(bool(client.session.outbox.pieces) for client in clients))
    assert all(after - before < 10 for before, after in zip([0, *served], served, strict=False))
    assert served[-1] == 30
    assert all(client.bodies() == ["9"] for client in clients)


@pytest.mark.parametrize(("destinations", "count"), [(2, 80), (1, 300)], ids=["each by itself", "a run"])
def test_frames_that_are_late_come_again(destinations: int, count: int) -> None:
    world = World()
    client = world.connect()
    world.broker.late = lambda: True
    headers = [[("destination", f"/topic/{n % destinations}"), ("receipt", str(n))] for n in range(count)]
    client.say_bytes(b"".join(encode("SEND", each) for each in headers))
    assert 0 < len(client.rest) < count
    world.broker.late = bool
    world.settle()
    assert client.receipts() == [str(number) for number in range(count)]


@pytest.mark.parametrize("consumers", [2, 8, 20])
def test_consumers_of_a_queue_that_acknowledge_in_one_turn_are_served_in_one_run(
    consumers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    producer = world.connect()
    clients = [world.connect() for _ in range(consumers)]
    for client in clients:
        client.subscribe("/queue/a")
    producer.publish("/queue/a", *map(str, range(6 * consumers)))
    world.settle()
    right, runs = dispatch.pump, 0

    def counted(*arguments: object) -> int:
        nonlocal runs
        runs += 1
        return right(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(dispatch, "pump", counted)
    seen: list[int] = []
    for _ in range(5):
        for client in clients:
            (message,) = client.messages()
            seen.append(int(message.body))
            client.ack(message)
        runs = 0
        world.pump()
        assert runs == 1
        assert [client.session.window.held for client in clients] == [1] * consumers
    assert sorted(seen) == list(range(5 * consumers))


def test_a_stored_message_of_a_queue_without_consumers_leaves_nothing_to_deliver() -> None:
    world = World()
    producer = world.connect()
    producer.publish("/queue/a", "1", receipt="r")
    world.commit()
    assert not world.broker.ready.busy
    consumer = world.connect()
    consumer.subscribe("/queue/a")
    world.settle()
    assert consumer.bodies() == ["1"]
