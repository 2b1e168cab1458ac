"""Brokers with a bug each, on purpose: the checkers must notice every one of them, or their silence means nothing.

Those that the simulation has to do itself, as they are bugs of the shell, are told by their names alone (``SHELL``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from radiator.broker.queues import dead_letters
from radiator.broker.queues.dead_letters import DeadLetters
from radiator.storage.partition import Partition

Make = Callable[[Any], Any]
SHELL = ["receipt before sync", "acks forgotten", "a window too wide", "no redo log", "ids forgotten"]
BUGS: dict[str, tuple[Any, str, Make]] = {}


def bug(owner: Any, name: str) -> Callable[[Make], Make]:
    """What is decorated gets what is right and returns what is wrong; its own name tells the bug."""

    def add(make: Make) -> Make:
        BUGS[make.__name__.replace("_", " ")] = (owner, name, make)
        return make

    return add


@contextmanager
def broken(name: str) -> Iterator[None]:
    """For a time; without a name, or with one of ``SHELL``, nothing is broken here."""
    if name not in BUGS:
        assert not name or name in SHELL, name
        yield
        return
    owner, attribute, make = BUGS[name]
    with patch.object(owner, attribute, make(getattr(owner, attribute))):
        yield


@bug(dead_letters, "MemoryPartition")
def a_dead_letter_and_its_ack_apart(right: Any) -> Any:
    return Partition


@bug(DeadLetters, "decided")
def a_dead_letter_twice(right: Any) -> Any:
    """Whoever has buried it does not know, and does it again."""

    def decided(self: Any, letter: Any, together: bool, holds: bool) -> None:
        if holds and letter.offset % 3 == 0 and letter.deliveries < 1_000:
            self.bury([letter._replace(deliveries=1_000)])
        else:
            right(self, letter, together, holds)

    return decided
