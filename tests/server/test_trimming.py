"""Memory that clients have given up goes back to the system, and not at every occasion."""

from __future__ import annotations

import platform
from collections.abc import Callable

import pytest

from radiator import malloc
from radiator.clock import MonoNs
from radiator.limits import MIB
from radiator.memory import FRAMES, MemoryAccount
from radiator.server.trimming import FREED_BYTES, PAUSE_NS, Trimming
from tests.running import BrokerProcess
from tests.server.test_memory import Watched, say
from tests.server.wire import Wire, rss_kib

StartBroker = Callable[..., BrokerProcess]


def test_memory_is_returned_once_after_much_of_it_has_been_free_for_a_while() -> None:
    account, jobs = MemoryAccount(256 * MIB), list[object]()
    share = account.shares[FRAMES]
    trimming = Trimming(account, jobs.append)
    now_ns = 0

    def look(pause_ns: int) -> int:
        nonlocal now_ns
        now_ns += pause_ns
        trimming.check(MonoNs(now_ns))
        return len(jobs)

    share.add(FREED_BYTES - 1)
    assert look(PAUSE_NS) == 0
    share.add(1 - FREED_BYTES)  # too little
    assert [look(PAUSE_NS) for _ in range(3)] == [0, 0, 0]
    share.add(2 * FREED_BYTES)
    assert look(1) == 0
    share.add(-FREED_BYTES)
    assert [look(1), look(1)] == [0, 0]
    assert look(PAUSE_NS - 1) == 0
    share.add(FREED_BYTES)  # it is needed again
    assert look(1) == 0
    share.add(-2 * FREED_BYTES)
    assert [look(1), look(1)] == [0, 0]
    assert look(PAUSE_NS) == 1
    assert [look(PAUSE_NS) for _ in range(3)] == [1, 1, 1]
    for _ in range(5):  # it is needed again and again, although never during a look
        share.add(FREED_BYTES)
        share.add(-FREED_BYTES)
        assert look(PAUSE_NS) == 1
    assert [look(PAUSE_NS) for _ in range(3)] == [1, 2, 2]


def test_a_c_library_without_these_functions_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert not malloc.trim()
    assert not malloc.keep_freed(MIB)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_after_a_flood_of_half_frames_the_process_is_small_again(start_broker: StartBroker) -> None:
    watched = Watched(start_broker, "memory: 64MiB")
    quiet = Wire(watched.broker).open()
    before = rss_kib(watched.broker)
    half = b"SEND\ndestination:/queue/a\ncontent-length:4000000\n\n" + b"x" * 3_000_000
    flood = [Wire(watched.broker).open() for _ in range(18)]
    for number, wire in enumerate(flood):
        wire.send(half)
        quiet.say("SEND", b"stays", destination="/queue/kept", receipt=str(number))
        quiet.hear("RECEIPT")
    watched.until("all of it has come", lambda now: now["total"] >= 18 * 2_900_000)
    held = rss_kib(watched.broker)
    assert held > before + 40 * 1024
    for wire in flood:
        wire.close()
    watched.until("all is given back", lambda now: now["total"] == 0)
    watched.until("the process is small", lambda _: rss_kib(watched.broker) < before + 20 * 1024)
    say(quiet, b"\n")
    quiet.barrier()
