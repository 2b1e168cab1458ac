"""The table of measurements. A cell is a name, a description, and the runs that produce its figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PREFETCH = 1000
Run = dict[str, Any]  # fields of a Spec; ``radiator.bench.run`` adds the broker, the destination and the headers


@dataclass(frozen=True)
class Cell:
    """A measurement with its runs. The last run counts; the runs before prepare it."""

    name: str
    group: str
    about: str
    runs: tuple[Run, ...]
    fresh: bool = False


def table(seconds: float) -> list[Cell]:
    """Return all cells. ``seconds`` is the length of a timed run; counts grow with it."""
    cells = [
        Cell(
            f"produce_{size}_w{window}_c{connections}",
            "durable produce",
            f"{size} B, {connections} connection{'s' * (connections > 1)} x window {window}, a receipt for every send",
            ({"mode": "produce", "size": size, "window": window, "connections": connections, "seconds": seconds},),
        )
        for size in (100, 1024)
        for window in (1, 64, 1000)
        for connections in (1, 8)
    ]
    for subscribers in (1, 10, 100):
        about = f"100 B to {subscribers} subscriber{'s' * (subscribers > 1)}; messages are deliveries"
        run = {"mode": "fanout", "kind": "topic", "connections": subscribers, "window": 2000, "seconds": seconds}
        cells.append(Cell(f"fanout_100_1to{subscribers}", "fan-out", about, (run,)))
    count = max(1_000, int(50_000 * seconds))
    for connections in (1, 8):
        about = f"{count} x 100 B, prefetch {PREFETCH}, every message acknowledged by itself"
        run = {"mode": "drain", "count": count, "connections": connections}
        cells.append(Cell(f"drain_100_c{connections}", "drain", about, (_fill(count, 100), run)))
    for size, factor in ((100, 4), (1024, 2)):
        about = f"{count * factor} x {size} B from the start of the log"
        run = {"mode": "replay", "count": count * factor, "size": size}
        cells.append(Cell(f"replay_{size}", "replay", about, (_fill(count * factor, size), run)))
    for rate in (1_000, 5_000):
        about = f"{rate} messages/s offered, from the intended send to delivery"
        run = {"mode": "latency", "rate": rate, "seconds": max(1.0, 2 * seconds)}
        cells.append(Cell(f"e2e{rate}_100", "latency", about, (run,)))
    run = {"mode": "idle", "kind": "topic", "connections": 1000}
    cells.append(Cell("idle_1000", "memory", "1000 idle subscribers; a message is a connection", (run,), True))
    return cells


def _fill(count: int, size: int) -> Run:
    return {"mode": "produce", "count": count, "size": size, "window": 1000}


START = Cell("start", "start-up", "from the command to the first CONNECTED, fresh data directory", ())
