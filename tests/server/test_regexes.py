"""``match:regex`` over a real socket, in a broker with many names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.running import BrokerProcess
from tests.server.wire import Wire

pytest.importorskip("re2")


def test_a_search_over_many_names_ends_by_itself(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker("regex_subscriptions: true\ndefaults: {store: memory}\n")
    with Wire(broker).open() as sender, Wire(broker).open() as reader:
        for number in range(2_000):
            sender.say("SEND", destination=f"/topic/{number}")
        sender.barrier()
        reader.say("SUBSCRIBE", id="0", destination="/topic/1[0-9]*", match="regex", receipt="r")
        assert reader.hear("RECEIPT").headers["receipt-id"] == "r"
        for number in (999, 1_000, 2_001, 10_001):
            sender.say("SEND", destination=f"/topic/{number}", receipt=str(number))
            sender.hear("RECEIPT")
        heard = sorted(reader.hear("MESSAGE").headers["destination"] for _ in range(2))
        assert heard == ["/topic/1000", "/topic/10001"]
