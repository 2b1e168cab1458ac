"""What came in a tunnel is looked at in portions, as many as the time of a visit allows; then others have a turn."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from radiator import clock
from radiator.broker.clients.identity import UNKNOWN
from radiator.server.handshakes import PER_ROUND, Handshakes
from radiator.server.scheduler import ROUND_NS, SLICE_NS, ReadScheduler
from radiator.server.tunnelled import TunnelledTransport

PORTION_NS = SLICE_NS // 10


class Flooded:
    """A tunnel that has more of nothing for ever."""

    ready = has_backlog = True
    ended = False
    refusal = None
    buffered_bytes = 0

    def __init__(self, now: SimpleNamespace) -> None:
        self.now = now
        self.portions = 0

    def receive(self, data: bytes) -> bytes:
        self.portions += 1
        self.now.ns += PORTION_NS
        return b""

    def outgoing(self) -> bytes:
        return b""

    control = outgoing


class Quiet:
    """A session that says and holds nothing."""

    choked = undecided = closing = False
    origin = ""
    identity = UNKNOWN
    connected = True


@pytest.mark.parametrize("crowd", [1, 5, 2 * PER_ROUND])
def test_a_flood_of_tiny_frames_is_worked_on_for_a_visit_and_a_crowd_shares_the_round(
    monkeypatch: pytest.MonkeyPatch, crowd: int
) -> None:
    now = SimpleNamespace(ns=0)
    monkeypatch.setattr(clock, "monotonic_ns", lambda: now.ns)
    handshakes = Handshakes(gevent.get_hub().loop)
    driver: Any = SimpleNamespace(
        has_room=True, stopping=False, transports={}, paused={}, wake=lambda: None,
        connection_closed=lambda transport: None, scheduler=ReadScheduler(), handshakes=handshakes,
    )  # fmt: skip
    tunnels, transports, others = [], [], []
    for _ in range(crowd):
        session: Any = Quiet()
        ours, other = socket.socketpair()
        ours.setblocking(False)
        tunnel = Flooded(now)
        transport = TunnelledTransport(ours, session, SimpleNamespace(), driver, 60.0, tunnel)  # type: ignore[arg-type]
        transport.pause()
        transport.resume()
        tunnels.append(tunnel)
        transports.append(transport)
        others.append(other)
    while not now.ns:
        gevent.sleep(0)  # one turn of the loop: a timer may be late, and then a second round has begun
    had = [tunnel.portions for tunnel in tunnels if tunnel.portions]
    assert len(had) == min(crowd, PER_ROUND)
    assert set(had) == {min(SLICE_NS, ROUND_NS // len(had)) // PORTION_NS + 1}
    for transport, other in zip(transports, others, strict=True):
        transport.close()
        other.close()
    handshakes.stop()
