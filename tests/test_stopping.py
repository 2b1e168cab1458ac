"""A wish to stop, as a signal handler expresses it: between any two instructions of the one who waits for it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from radiator.cli.signals import stop_on_signals
from radiator.stopping import Stopping

SECONDS_MAX = 30.0


def traced(work: Callable[[], object], on_instruction: Callable[[], object]) -> None:
    def trace(frame: FrameType, event: str, arg: object) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            on_instruction()
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)


def instructions_of_a_wait() -> int:
    """Until it waits."""
    stopping, seen, waiting = Stopping(), [], []

    def step() -> None:
        if not waiting:
            seen.append(None)

    def profile(frame: FrameType, event: str, arg: object) -> None:
        if event == "c_call" and getattr(arg, "__name__", "") == "get":
            waiting.append(None)

    sys.setprofile(profile)
    try:
        traced(lambda: stopping.wait(0), step)
    finally:
        sys.setprofile(None)
    assert waiting
    return len(seen)


@pytest.mark.parametrize("number", range(instructions_of_a_wait()))
def test_a_handler_may_set_it_between_any_two_instructions_of_a_wait(number: int) -> None:
    stopping, left, results = Stopping(), iter(range(number, -1, -1)), []

    def step() -> None:
        if next(left, None) == 0:
            stopping.set()

    thread = threading.Thread(
        target=lambda: traced(lambda: results.append(stopping.wait(SECONDS_MAX)), step), daemon=True
    )
    thread.start()
    thread.join(SECONDS_MAX / 2)  # it waits for a lock of its own, or has not noticed
    assert results == [True]


def test_every_waiting_thread_is_woken_and_none_waits_afterwards() -> None:
    stopping, results = Stopping(), []
    threads = [threading.Thread(target=lambda: results.append(stopping.wait(SECONDS_MAX))) for _ in range(3)]
    for each in threads:
        each.start()
    assert not stopping.is_set() and not stopping.wait(0)
    stopping.set()
    for each in threads:
        each.join()
    assert results == [True] * 3
    assert stopping.is_set() and stopping.wait()


def test_a_signal_ends_a_wait_and_the_second_one_is_an_interrupt_where_that_may_come_anywhere() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stopping = Stopping()
    with pytest.raises(KeyboardInterrupt), stop_on_signals(stopping):
        timer = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGTERM])
        timer.start()
        began = time.monotonic()
        assert stopping.wait(SECONDS_MAX) and time.monotonic() - began < SECONDS_MAX
        timer.join()
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    with stop_on_signals(stopping, breakable=False):
        signal.raise_signal(signal.SIGINT)
