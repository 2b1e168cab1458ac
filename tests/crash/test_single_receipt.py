"""One RECEIPT for all that was sent: a broker that is killed right behind it has lost nothing of that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.running import BrokerProcess
from tests.server.wire import Wire

MESSAGES = 400
QUEUES = [f"/queue/new.{number}" for number in range(20)]  # each begins a file, apart from the group commits


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["DISCONNECT", "the last message", "COMMIT"])
def test_one_receipt_covers_everything_before_it_after_a_kill(
    start_broker: Callable[..., BrokerProcess], how: str
) -> None:
    broker = start_broker()
    with Wire(broker) as wire:
        wire.open()
        wire.say("SEND", b"there", destination="/queue/old", receipt="0")
        wire.hear("RECEIPT")
        for number in range(MESSAGES):
            wire.say("SEND", b"%d" % number, destination=QUEUES[number % len(QUEUES)])
        if how == "DISCONNECT":
            wire.say("DISCONNECT", receipt="all")
        elif how == "COMMIT":
            wire.say("BEGIN", transaction="t")
            wire.say("COMMIT", transaction="t", receipt="all")
        else:
            wire.say("SEND", b"the last", destination="/queue/old", receipt="all")
        wire.hear("RECEIPT", receipt_id="all")
        broker.kill()
    broker.start()
    with Wire(broker) as wire:
        wire.open().say("SUBSCRIBE", destination="/queue/new.*", id="0", ack="auto")
        found = sorted(int(frame.body) for frame in wire.hear_many("MESSAGE", MESSAGES))
    assert found == list(range(MESSAGES))
