"""Who has the next turn: topics under one window, clients whose frames are much work."""

from __future__ import annotations

import pytest

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
    assert len(client.rest) == 2
    client.go_on()
    assert len(client.rest) == 1
