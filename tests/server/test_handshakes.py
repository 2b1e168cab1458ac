"""Handshakes that come all at once take turns, and leave the loop to others in between."""

from __future__ import annotations

import gevent

from radiator.server.handshakes import PER_ROUND, Handshakes


class Fake:
    def __init__(self, log: list[str]) -> None:
        self._log = log

    def continue_handshake(self) -> None:
        self._log.append("hands")


def test_a_crowd_waits_its_turn_and_others_come_in_between() -> None:
    loop = gevent.get_hub().loop
    handshakes, log = Handshakes(loop), list[str]()
    tick = loop.timer(0.0005, 0.0005)
    tick.start(lambda: log.append("others"))
    loop.update_now()
    fakes = [Fake(log) for _ in range(10 * PER_ROUND)]
    admitted = sum(handshakes.admits(fake) for fake in fakes)
    assert admitted == PER_ROUND
    while log.count("hands") < len(fakes) - admitted:
        gevent.sleep(0.001)
    tick.stop()
    assert "hands" * (2 * PER_ROUND + 1) not in "".join(log)
    assert handshakes.admits(Fake(log)), "the crowd is gone"
    handshakes.stop()
