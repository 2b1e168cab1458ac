"""Open files: raised where they may be, and where not, fewer connections rather than silence."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

import pytest

from radiator import limits
from radiator.server.descriptors import OTHERS, PER_LOG, raise_limit
from tests.running import BrokerProcess
from tests.server.wire import Wire

StartBroker = Callable[..., BrokerProcess]
NONE = resource.RLIM_INFINITY
ENOUGH = 10_000 + PER_LOG * limits.OPEN_LOGS_MAX + OTHERS


@pytest.mark.parametrize(
    ("soft", "hard", "raised_to", "connections", "logs"),
    [
        (NONE, NONE, None, 10_000, 4_096),
        (20_000, 20_000, None, 10_000, 4_096),
        (1_024, NONE, ENOUGH, 10_000, 4_096),
        (1_024, 1_048_576, ENOUGH, 10_000, 4_096),
        (1_024, 11_000, 11_000, 10_000, (11_000 - OTHERS - 10_000) // 2),
        (1_024, 4_096, 4_096, 4_096 - OTHERS - 512, 256),
        (256, 256, 256, 93, 45),
        (90, 90, 90, 9, 4),
        (20, 20, 20, 1, 1),
    ],
)
def test_what_the_system_allows_is_used_and_no_more_is_promised(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised_to: int | None, connections: int, logs: int
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: asked.append(limits))
    assert raise_limit(10_000) == (connections, logs)
    assert asked == ([] if raised_to is None else [(raised_to, hard)])
    if hard not in (NONE, 20):
        assert connections + PER_LOG * logs + OTHERS <= (raised_to or soft)


def test_few_connections_leave_the_rest_to_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1_024, 1_024))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: None)
    assert raise_limit(100) == (100, (1_024 - OTHERS - 100) // PER_LOG)


def test_a_system_that_refuses_to_raise_it_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(which: int, limits: tuple[int, int]) -> None:
        raise OSError("not permitted")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (1_024, NONE))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    room = raise_limit(10_000)
    assert room.connections + PER_LOG * room.logs + OTHERS <= 1_024


# --- a broker -----------------------------------------------------------------------------------------------------


def files_of(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def test_sends_to_many_partitions_need_no_more_files_than_there_may_be(start_broker: StartBroker) -> None:
    broker = start_broker()
    with Wire(broker).open() as wire:
        for number in range(10):
            wire.say("SEND", b"x", destination=f"/topic/{number}", receipt=f"r{number}")
            wire.hear("RECEIPT")
        most = files_of(broker) + 2
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (most, most))
        for number in range(60):
            wire.say("SEND", b"x", destination=f"/topic/{number}", receipt=f"s{number}")
            wire.hear("RECEIPT")
        assert files_of(broker) <= most
    assert broker.stop() == 0
    assert "ERROR" not in broker.text()


def test_while_there_are_no_descriptors_connections_wait_without_a_word(start_broker: StartBroker) -> None:
    broker = start_broker()
    wires = [Wire(broker).open() for _ in range(4)]
    wires[0].barrier()  # its log is open
    most = files_of(broker)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (most, most))
    waiting = [Wire(broker) for _ in range(3)]
    for wire in waiting:
        wire.say("CONNECT", **{"accept-version": "1.2", "host": "x"})
    while "connections wait" not in broker.text():
        wires[0].barrier()  # those who are connected are served
    for wire in wires[1:]:
        wire.close()
    for wire in waiting:
        wire.hear("CONNECTED")
    for wire in (*waiting, wires[0]):
        wire.close()
    assert broker.stop() == 0
    assert broker.text().count("connections wait until some end") == 1
    assert "Traceback" not in broker.text()
