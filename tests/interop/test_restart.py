"""Clients of other makes find a broker again that was killed and started anew; what it had given them comes again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.clients import CLIENTS, Client
from tests.interop.runs import Case, Place, must_be_here
from tests.interop.scenarios import BEAT_MS
from tests.tiers import sampled


@pytest.mark.parametrize("client", sampled(CLIENTS, 2), ids=lambda client: str(client.name))
def test_a_client_comes_back_to_a_broker_that_was_killed(client: Client, tmp_path: Path) -> None:
    must_be_here(client, client.transports[0])
    case = Case(client, client.transports[0], "1.2")
    place = Place(tmp_path, [case])
    place.broker.start()
    driver, tap = place.driver(case), place.tap(case)
    stage = place.stage(case, "restart", driver, tap)
    try:
        one = stage.open(heart_beat=(BEAT_MS, BEAT_MS) if stage.beats else (0, 0))
        one.send(stage.queue, "job")
        one.subscribe(stage.queue, "client")
        assert one.receive().body == b"job"
        place.broker.kill()
        place.broker.start()
        one.do("back", seconds=20.0)
        message = one.receive()
        assert (message.body, message.headers["redelivered"]) == (b"job", "true"), tap.dump()
        one.ack(message)
        stage.settled(one)
    finally:
        driver.kill()
        tap.close()
        place.broker.kill()
