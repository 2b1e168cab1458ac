"""SIGKILL of a real broker under load, several times over the same data: what clients were told is true afterwards.

A killed process loses nothing that was written, so the promises are the same under every fsync policy. Power cuts,
which they differ in, are simulated (``tests/simulation``).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.load import QUEUE, TOPIC, Consumer, Producer, Records, drain, replay
from tests.running import BrokerProcess

StartBroker = Callable[..., BrokerProcess]
ROUNDS = 3


@pytest.mark.parametrize("policy", ["always", "50ms", "never"])
def test_what_clients_were_told_survives_kills_under_load(start_broker: StartBroker, policy: str) -> None:
    broker = start_broker(f"defaults: {{fsync: {policy}, segment: {{size: 256KiB}}}}")
    records = Records()
    for number in range(ROUNDS):
        clients = [Producer(broker, records, f"p{number}.{each}") for each in range(2)]
        clients += [Consumer(broker, records, f"c{number}.{each}") for each in range(2)]
        records.wait_for(stored=1_500, acked=200)
        broker.kill()
        for client in clients:
            client.result()
        broker.start()
        for destination in (TOPIC, QUEUE):
            check_log(replay(broker, destination), records.stored[destination])
    check_queue(drain(broker), records)
    assert broker.stop() == 0, broker.text()
    assert "Traceback" not in broker.text()


def check_log(found: dict[int, bytes], stored: dict[int, bytes]) -> None:
    assert list(found) == list(range(len(found))), "offsets are not dense"
    for offset, body in stored.items():
        assert found.get(offset) == body, f"offset {offset} was receipted"
    stored.update(found)  # it has been seen: from now on it must stay
    last: dict[bytes, int] = {}
    for body in found.values():
        producer, number = body.split(b":")[:2]
        assert last.get(producer, -1) < int(number), f"{body[:40]!r} is out of order"
        last[producer] = int(number)


def check_queue(drained: list[tuple[bytes, bool]], records: Records) -> None:
    bodies = [body for body, _ in drained]
    assert len(bodies) == len(set(bodies)), "a message came twice"
    assert not set(bodies) & records.acked, "a settled message came back"
    missing = set(records.stored[QUEUE].values()) - set(bodies) - records.ack_sent
    assert not missing, f"{len(missing)} messages were never settled, and are gone"
    unmarked = [body for body, redelivered in drained if body in records.heard and not redelivered]
    assert not unmarked, f"{len(unmarked)} messages were in a consumer's hands before, and are not marked"


def test_a_kill_while_it_starts_does_no_harm(start_broker: StartBroker) -> None:
    """Recovery itself is interrupted, again and again, at whatever point it has come to."""
    broker = start_broker()
    records = Records()
    producer = Producer(broker, records, "p")
    records.wait_for(stored=500, acked=0)
    broker.kill()
    producer.result()
    for _ in range(4):
        broker.spawn()
        while (broker.data / "LOCK").read_text().strip() != str(broker.pid):
            assert broker.running
        broker.kill()
    broker.start()
    for destination in (TOPIC, QUEUE):
        check_log(replay(broker, destination), records.stored[destination])
