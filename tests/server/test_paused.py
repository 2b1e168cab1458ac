"""Pause and resume with a real broker: the commands, the wire, and SIGKILL."""

from __future__ import annotations

from pathlib import Path

from radiator.cli.main import run
from tests.running import BrokerProcess
from tests.server.wire import Wire


def test_a_queue_paused_by_the_command_stays_paused_over_sigkill(tmp_path: Path, capfd: object) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        with Wire(broker) as wire:
            wire.open().say("SEND", b"1", destination="/queue/a", receipt="r")
            wire.hear("RECEIPT", receipt_id="r")
        assert run(["pause", "/queue/a", "--url", broker.address]) == 0
        broker.kill()
        broker.start()
        with Wire(broker) as wire:
            wire.open().say("SUBSCRIBE", destination="/queue/a", id="0", ack="auto", receipt="s")
            wire.hear("RECEIPT", receipt_id="s")
            wire.say("SEND", b"2", destination="/topic/t", receipt="later")
            wire.hear("RECEIPT", receipt_id="later")
            assert [frame.command for frame in wire.inbox] == []
            assert run(["ls", "--url", broker.address]) == 0
            assert run(["resume", "/queue/a", "--url", broker.address]) == 0
            assert wire.hear("MESSAGE").body == b"1"
        assert run(["pause", "/topic/t", "--url", broker.address]) != 0
    finally:
        broker.kill()
    printed = capfd.readouterr().out  # type: ignore[attr-defined]
    assert "/queue/a is paused\n" in printed
    assert "queue (paused)" in printed
    assert "/queue/a delivers\n" in printed
