"""Run the cells on the targets, interleaved, so that noise affects all targets alike."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from radiator.bench.cells import PREFETCH, START, Cell
from radiator.bench.target import OwnBroker, Target

RUN_TIMEOUT_SECONDS = 180.0
START_ROUNDS = 3
PREFETCHES = [("prefetch-count", str(PREFETCH)), ("activemq.prefetchSize", str(PREFETCH))]


@dataclass
class Row:
    """One cell on one target: the median of all rounds."""

    cell: str
    group: str
    about: str
    target: str
    rounds: int
    figures: dict[str, float | None]
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the row for ``--json``."""
        base = {"cell": self.cell, "group": self.group, "about": self.about, "target": self.target}
        return {**base, "rounds": self.rounds, "error": self.error or None, **self.figures}


class Bench:
    """The runs of one ``radiator bench``.

    Args:
        targets: The brokers to measure.
        rounds: The number of rounds per cell.
        note: Called with the cell and the target before each run.
    """

    def __init__(self, targets: list[Target], rounds: int, note: Callable[[str, str], None]) -> None:
        self._targets = targets
        self._rounds = rounds
        self._note = note
        self._serial = 0

    def rows(self, cells: list[Cell]) -> Iterator[Row]:
        """Yield every cell on every target, each row as soon as it is measured."""
        for cell in cells:
            results: dict[str, list[dict[str, Any]]] = {target.name: [] for target in self._targets}
            for _ in range(self._rounds):
                for target in self._targets:
                    if not target.skips(cell.name):
                        self._note(cell.name, target.name)
                        results[target.name].append(self._measure_fresh(cell, target))
            for target in self._targets:
                if results[target.name]:
                    yield _row(cell, target.name, results[target.name])

    def _measure_fresh(self, cell: Cell, target: Target) -> dict[str, Any]:
        if not cell.fresh or target.renew is None:
            return self._measure(cell, target)
        with target.renew() as broker:
            return self._measure(cell, broker.target())

    def _measure(self, cell: Cell, target: Target) -> dict[str, Any]:
        self._serial += 1
        answer: dict[str, Any] = {}
        for run in cell.runs:
            more = {**run, **_headers(run["mode"], target)}
            destination = f"/{more.pop('kind', 'queue')}/bench.{os.getpid()}.{self._serial}"
            base = {"host": target.host, "port": target.port, "vhost": target.vhost, "pids": target.pids}
            login = {"login": target.login, "passcode": target.passcode}
            answer = generate({**base, **login, "destination": destination, **more})
            if answer.get("error"):
                break
        return answer


def _headers(mode: str, target: Target) -> dict[str, list[tuple[str, str]]]:
    """Return the headers of SEND and SUBSCRIBE that a run needs at this broker. Fan-out is measured without any."""
    first = {"drain": PREFETCHES, "replay": [target.replay_header], "latency": []}.get(mode)
    return {
        "send_headers": [("persistent", "true"), *target.send_headers] if mode in ("produce", "latency") else [],
        "subscribe_headers": [] if first is None else [*first, *target.subscribe_headers],
    }


def generate(spec: dict[str, Any]) -> dict[str, Any]:
    """Run the load generator once in a process of its own, and return its result."""
    command = [sys.executable, "-m", "radiator.bench.modes"]
    try:
        done = subprocess.run(
            command, input=json.dumps(spec), capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"the run did not end within {RUN_TIMEOUT_SECONDS:g} s"}
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"error": (done.stderr or done.stdout or f"exit code {done.returncode}").strip()[-500:]}
    return answer


def _row(cell: Cell, target: str, results: list[dict[str, Any]]) -> Row:
    good = [result for result in results if not result.get("error")]
    error = next((str(result["error"]) for result in results if result.get("error")), "")
    figures: dict[str, float | None] = {}
    for name in good[0] if good else ():
        values = [result[name] for result in good if result[name] is not None]
        figures[name] = statistics.median(values) if values else None
    return Row(cell.name, cell.group, cell.about, target, len(good), figures, error)


def start_up(parent: str, config: str | None, note: Callable[[str, str], None]) -> Row:
    """Measure how long a new radiator takes from the command line to CONNECTED."""
    times = []
    for _ in range(START_ROUNDS):
        note(START.name, "radiator")
        with OwnBroker(parent, config) as broker:
            times.append(broker.start_seconds)
    figures: dict[str, float | None] = {"start_seconds": statistics.median(times)}
    return Row(START.name, START.group, START.about, "radiator", START_ROUNDS, figures)
