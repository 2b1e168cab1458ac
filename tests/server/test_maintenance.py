"""A real broker gives space back while it serves: holes around a straggler, the last of each key, compressed files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from radiator.cli.main import run
from radiator.storage.layout import partition_path
from radiator.storage.reader import batches, list_partitions
from tests.running import BrokerProcess
from tests.server.wire import Wire

stomp = pytest.importorskip("stomp")
StartBroker = Callable[..., BrokerProcess]
Q, TABLE, PACKED = "/queue/work", "/topic/table", "/topic/packed"
CONFIG = f"""
defaults: {{segment: {{size: 64KiB}}, fsync: 50ms, prefetch: 50}}
destinations:
  - {{match: {TABLE}, compact_by: 'header:key'}}
  - {{match: {PACKED}, compress: zstd}}
"""
WAIT_SECONDS = 300.0  # far more than it takes: the machine may be busy


def size(broker: BrokerProcess, name: str) -> int:
    return sum(path.stat().st_size for path in Path(partition_path(str(broker.data), name)).glob("*.rlog"))


def wait_for(what: Callable[[], bool], broker: BrokerProcess) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not what():
        assert time.monotonic() < end and broker.running, broker.text()
        time.sleep(0.05)


class Listener(stomp.ConnectionListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.ended = False

    def on_message(self, frame: Any) -> None:
        if "replay-end" in frame.headers:
            self.ended = True
        else:
            assert "gap" not in frame.headers
            self.bodies.append(frame.body)


@pytest.mark.thorough
def test_space_is_reclaimed_in_the_background_without_effect_on_clients(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG)
    with Wire(broker) as wire, Wire(broker) as slow, Wire(broker) as busy:
        for each in (wire, slow, busy):
            each.open()
        for number in range(2_000):
            body = b"m%d " % number + b"x" * 300
            wire.say("SEND", body, destination=Q)
            wire.say("SEND", body, destination=TABLE, key=f"k{number % 10}")
            wire.say("SEND", body, destination=PACKED)
            if number % 50 == 0:  # on a busy machine all of it would be one commit, so one segment, which is not sealed
                wire.say("SEND", b"", destination="/queue/else", receipt="stored")
                wire.hear("RECEIPT")
        wire.say("SEND", b"last", destination=Q, receipt="sent")
        wire.hear("RECEIPT")
        sent_bytes = 2_000 * 300  # to each of the three, and somewhat more
        slow.say("SUBSCRIBE", destination=Q, id="0", ack="client-individual", prefetch_count=1)
        straggler = slow.hear("MESSAGE")
        busy.say("SUBSCRIBE", destination=Q, id="0", ack="client-individual")
        for _ in range(2_000):
            busy.say("ACK", id=busy.hear("MESSAGE").headers["ack"])
        wait_for(lambda: all(size(broker, name) < sent_bytes / 2 for name in (Q, TABLE, PACKED)), broker)
        slow.say("NACK", id=straggler.headers["ack"])
        busy.close()
        again = slow.hear("MESSAGE")
        assert again.body == straggler.body and again.headers["offset"] == "0"
        assert again.headers["redelivered"] == "true"

    assert broker.stop() == 0, broker.text()
    broker.start()  # so that nothing comes from memory, where all of it still was
    found: list[tuple[int, str, bytes]] = []
    with Wire(broker) as reader:
        reader.open()
        reader.say("SUBSCRIBE", destination=TABLE, id="0", start_position="first", stop_position="end")
        while "replay-end" not in (message := reader.hear("MESSAGE")).headers:
            assert "gap" not in message.headers
            found.append((int(message.headers["offset"]), message.headers["key"], message.body.split()[0]))
    assert len(found) < 1_000
    assert all(body == b"m%d" % offset for offset, _, body in found), "an offset has changed"
    assert {key: body for _, key, body in found} == {f"k{n % 10}": b"m%d" % n for n in range(1_990, 2_000)}

    listener = Listener()
    stock = stomp.Connection12([("127.0.0.1", broker.port)])
    stock.set_listener("", listener)
    stock.connect(wait=True)
    stock.subscribe(PACKED, id="1", headers={"start-position": "first", "stop-position": "end"})
    wait_for(lambda: listener.ended, broker)
    stock.disconnect()
    assert [body.split()[0] for body in listener.bodies] == [f"m{number}" for number in range(2_000)]

    assert broker.stop() == 0 and "Traceback" not in broker.text() and "ERROR" not in broker.text(), broker.text()
    (packed,) = [each for each in list_partitions(str(broker.data)) if each.name == PACKED]
    gaps: list[tuple[int, int]] = []
    assert sum(len(batch) for batch in batches(packed, on_gap=lambda *gap: gaps.append(gap))) == 2_000 and not gaps
    assert not list(broker.data.rglob("*.new"))


def test_the_command_runs_maintenance_now_and_prints_what_was_done(
    start_broker: StartBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker(CONFIG)
    with Wire(broker) as wire:
        wire.open()
        for number in range(300):
            wire.say("SEND", b"x" * 1_000, destination=TABLE, key="k", receipt=str(number))
            if number % 20 == 0:
                wire.hear("RECEIPT", receipt_id=str(number))
        wire.hear("RECEIPT", receipt_id="299")
    assert run(["maintain", "--compact", "--match", TABLE, "--url", broker.address]) == 0
    assert run(["maintain", "--checkpoint", "--json", "--url", broker.address]) == 0
    compacted, checkpointed = capfd.readouterr().out.splitlines()
    assert int(compacted.removesuffix(" segments rewritten")) > 0
    assert checkpointed == '{"done":{"checkpoint":1},"failed":0}'
    assert size(broker, TABLE) < 150_000
