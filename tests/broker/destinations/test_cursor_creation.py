"""A destination whose cursors cannot all be made is not half there; what was there before does not cost more."""

from __future__ import annotations

import pytest

from radiator import limits
from radiator.broker.destinations.cursor_starts import CursorStarts
from tests.broker.harness import World

PRIORITIES = "destinations: [{match: /queue/p, priority: true}]"
FAN_OUT = "destinations: [{match: /queue/parent, fan_out: [/queue/c1, /queue/c2, /queue/c3]}]"


@pytest.mark.parametrize(
    ("config", "send_to", "hear_from", "room"),
    [
        (PRIORITIES, "/queue/p", ["/queue/p"], 0),
        (FAN_OUT, "/queue/parent", ["/queue/c1", "/queue/c2", "/queue/c3"], 0),
        (FAN_OUT, "/queue/parent", ["/queue/c1", "/queue/c2", "/queue/c3"], 2),
    ],
)
def test_what_is_receipted_after_a_lack_of_cursors_is_delivered(
    config: str, send_to: str, hear_from: list[str], room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(config)
    consumer, sender = world.connect(), world.connect()
    for number, name in enumerate(hear_from):
        consumer.subscribe(name, id=str(number), ack="auto")
    world.settle()
    before = world.store.cursors.names()
    with monkeypatch.context() as patch:
        patch.setattr(limits, "CURSORS_MAX", world.store.cursors._next_slot + room)
        sender.say("SEND", "lost", destination=send_to, priority="9", receipt="1")
        world.settle()
        assert sender.error() == "storage"
        assert world.store.cursors.names() == before
    sender = world.connect()
    sender.say("SEND", "kept", destination=send_to, priority="9", receipt="2")
    world.settle()
    assert sender.receipts() == ["2"]
    assert consumer.bodies() == ["kept"] * len(hear_from)


def test_a_start_looks_at_no_queue_but_its_own_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client = world.connect()
    for number in range(5):
        client.publish(f"/queue/{number}", "x")
    world.settle()
    world.stop()
    asked = []
    honest = CursorStarts._places
    monkeypatch.setattr(CursorStarts, "_places", lambda *which: (asked.append(which), honest(*which))[1])
    world.start()
    assert len(world.broker.destinations) == 5
    assert asked == []
