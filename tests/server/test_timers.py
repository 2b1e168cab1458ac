"""A broker that runs delivers what is due by itself: no message, tick or ACK has to come first."""

from __future__ import annotations

import time

from radiator.client import connect
from tests.running import BrokerProcess


def test_a_delayed_message_comes_by_itself_and_never_early(broker: BrokerProcess) -> None:
    with connect(broker.address) as client:
        subscription = client.subscribe("/queue/time", ack="client-individual")
        for delay_ms in (0, 1, 40, 300):
            client.send("/queue/time", b"x", {"delay": str(delay_ms)})
            message = subscription.fetch(timeout=30)
            assert message is not None
            assert time.time() * 1000 >= int(message.headers.get("deliver-at", 0))
            message.ack()
