"""The table of measurements. A cell is a name, a description, and the runs that produce its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from radiator.bench.target import PREFETCH, Target

Plan = Callable[[Target], list[dict[str, Any]]]


@dataclass(frozen=True)
class Cell:
    """A measurement with its parameters.

    Attributes of a run are the fields of its Spec. ``plan`` returns them for each run; the last run counts, and the
    runs before prepare it.
    """

    name: str
    group: str
    about: str
    plan: Plan
    fresh: bool = False


def _produce(size: int, window: int, connections: int, seconds: float) -> Plan:
    def plan(target: Target) -> list[dict[str, Any]]:
        headers = [("persistent", "true"), *target.send_headers]
        run = {"mode": "produce", "size": size, "window": window, "connections": connections, "seconds": seconds}
        return [{**run, "send_headers": headers}]

    return plan


def _fanout(subscribers: int, seconds: float) -> Plan:
    def plan(target: Target) -> list[dict[str, Any]]:
        return [{"mode": "fanout", "kind": "topic", "connections": subscribers, "window": 2000, "seconds": seconds}]

    return plan


def _fill(target: Target, count: int, size: int) -> dict[str, Any]:
    headers = [("persistent", "true"), *target.send_headers]
    return {"mode": "produce", "count": count, "size": size, "window": 1000, "connections": 1, "send_headers": headers}


def _drain(count: int, connections: int) -> Plan:
    def plan(target: Target) -> list[dict[str, Any]]:
        prefetch = [("prefetch-count", str(PREFETCH)), ("activemq.prefetchSize", str(PREFETCH))]
        run = {"mode": "drain", "count": count, "connections": connections}
        return [_fill(target, count, 100), {**run, "subscribe_headers": [*prefetch, *target.subscribe_headers]}]

    return plan


def _replay(count: int, size: int) -> Plan:
    def plan(target: Target) -> list[dict[str, Any]]:
        headers = [target.replay_header, *target.subscribe_headers]
        run = {"mode": "replay", "count": count, "size": size, "connections": 1, "subscribe_headers": headers}
        return [_fill(target, count, size), run]

    return plan


def _latency(rate: int, seconds: float) -> Plan:
    def plan(target: Target) -> list[dict[str, Any]]:
        run = {"mode": "latency", "rate": rate, "seconds": max(1.0, 2 * seconds)}
        headers = [("persistent", "true"), *target.send_headers]
        return [{**run, "send_headers": headers, "subscribe_headers": target.subscribe_headers}]

    return plan


def _idle(connections: int) -> Plan:
    def plan(target: Target) -> list[dict[str, Any]]:
        return [{"mode": "idle", "kind": "topic", "connections": connections}]

    return plan


def table(seconds: float) -> list[Cell]:
    """Return all cells. ``seconds`` is the length of a timed run; counts grow with it."""
    cells = [
        Cell(
            f"produce_{size}_w{window}_c{connections}",
            "durable produce",
            f"{size} B, {connections} connection{'s' * (connections > 1)} x window {window}, a receipt for every send",
            _produce(size, window, connections, seconds),
        )
        for size in (100, 1024)
        for window in (1, 64, 1000)
        for connections in (1, 8)
    ]
    for subscribers in (1, 10, 100):
        about = f"100 B to {subscribers} subscriber{'s' * (subscribers > 1)}; messages are deliveries"
        cells.append(Cell(f"fanout_100_1to{subscribers}", "fan-out", about, _fanout(subscribers, seconds)))
    count = max(1_000, int(50_000 * seconds))
    for connections in (1, 8):
        about = f"{count} x 100 B, prefetch {PREFETCH}, every message acknowledged by itself"
        cells.append(Cell(f"drain_100_c{connections}", "drain", about, _drain(count, connections)))
    for size, factor in ((100, 4), (1024, 2)):
        about = f"{count * factor} x {size} B from the start of the log"
        cells.append(Cell(f"replay_{size}", "replay", about, _replay(count * factor, size)))
    for rate in (1_000, 5_000):
        about = f"{rate} messages/s offered, from the intended send to delivery"
        cells.append(Cell(f"e2e{rate}_100", "latency", about, _latency(rate, seconds)))
    cells.append(Cell("idle_1000", "memory", "1000 idle subscribers; a message is a connection", _idle(1000), True))
    return cells


START = Cell("start", "start-up", "from the command to the first CONNECTED, fresh data directory", lambda target: [])
