"""A stop has an end, whatever still waits for the disk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from radiator.storage.reader import count_records, list_partitions
from tests.running import BrokerProcess
from tests.server.wire import Wire

NEW_DESTINATIONS = 2_000  # each a directory of its own: at least 40 s of this disk


@pytest.mark.thorough
def test_unreceipted_messages_do_not_delay_a_stop(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.program = ["tests.server.hurried_broker"]
    broker.start()
    with Wire(broker) as wire, Wire(broker) as idle:
        idle.open()
        wire.open().say("SEND", b"kept", destination="/queue/first", receipt="r")
        wire.hear("RECEIPT", receipt_id="r")
        for number in range(NEW_DESTINATIONS):
            wire.say("SEND", b"x", destination=f"/topic/new.{number}")
        with Wire(broker) as other:  # a receipt of its own would come behind all that
            other.open().say("SEND", b"kept too", destination="/queue/first", receipt="s")
            other.hear("RECEIPT", receipt_id="s")
        wire.say("SEND", b"x", destination="/topic/last", receipt="too late")
        assert broker.stop() == 0, broker.text()
        assert idle.hear("ERROR").headers["error-code"] == "shutting-down"
        while wire.more():
            pass
        assert not [frame for frame in wire.inbox if frame.command == "RECEIPT"]
    (given_up,) = re.findall(r"stop: (\d+) messages to new destinations were not stored", broker.text())
    topics = [each for each in list_partitions(str(broker.data)) if each.name.startswith("/topic/")]
    stored = sum(count_records(segment) for topic in topics for segment in topic.segments)
    assert 0 < int(given_up) <= NEW_DESTINATIONS + 1 - stored, stored  # less, where the broker had not read them all
    broker.program = ["radiator"]
    broker.start()
    with Wire(broker) as wire:
        wire.open().say("SUBSCRIBE", destination="/queue/first", id="0", ack="auto")
        assert [wire.hear("MESSAGE").body for _ in range(2)] == [b"kept", b"kept too"]
    assert broker.stop() == 0, broker.text()


def test_the_exit_does_not_search_everything_that_there_was(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, "destinations: [{match: '/topic/>', store: memory}]")
    broker.program = ["tests.server.counting_broker"]
    broker.start()
    with Wire(broker) as wire:
        wire.open()
        for number in range(NEW_DESTINATIONS):
            wire.say("SEND", b"x", destination=f"/topic/new.{number}")
        wire.barrier()
    assert broker.stop() == 0, broker.text()
    (searched,) = re.findall(r"to be searched: (\d+)", broker.text())
    assert int(searched) < NEW_DESTINATIONS  # with them it would be ten times that
