"""Shared by the notebooks: two weeks of flights from New York in a log, and a folder for pictures.

``prepared()`` reads ``--data`` and ``--out`` from the command line (in Jupyter: their defaults) and returns both
folders. If the first one has no log yet, it starts a broker there and publishes the flights as an airport's systems
would: in the order of departure, a cancelled flight when it should have left, each with its scheduled departure as
the ``event-time``. So a late flight is late in the log. The broker is stopped again; Spark reads its files.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the package and the demo's data, also where radiator is not installed

from examples.flights.data import Period, flight, flight_rows  # noqa: E402
from radiator.client import ClientError, Connection, connect  # noqa: E402

PERIOD = Period((7,), 14)  # July 2013, with the tenth
NS_PER_MINUTE = 60_000_000_000
FLIGHT = "flight STRING, carrier STRING, tailnum STRING, dest STRING, dep_delay INT, distance INT"
RULES = """
version: 1
destinations:
  - {match: /topic/flights.*, partition: "flights-{1}", segment: {size: 1MiB}}
"""


class Folders(NamedTuple):
    data: str  # the broker's data directory: what Spark reads
    out: Path  # pictures


def prepared() -> Folders:
    found = folders("data")
    if not Path(found.data).exists():
        fill(Path(found.data))
    return found


def folders(name: str) -> Folders:
    """Return the folders of the command line; ``name``: of the broker's data, unless it is given."""
    parser = argparse.ArgumentParser(description="A notebook as a program.")
    parser.add_argument("--data", type=Path, default=ROOT / "demo-out" / "notebooks" / name, help="of the broker")
    parser.add_argument("--out", type=Path, default=ROOT / "demo-out" / "notebooks", help="for pictures")
    options, _ = parser.parse_known_args()  # a notebook's kernel has arguments of its own
    options.out.mkdir(parents=True, exist_ok=True)
    return Folders(str(options.data), options.out)


def fill(data: Path) -> None:
    """Publish the flights to a broker, into another folder first, so that the final folder is always complete."""
    unfinished = data.with_name(data.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # of an interrupted run: its flights would be stored twice
    with broker(unfinished) as connection:
        count = publish(connection, departures())
    unfinished.rename(data)
    print(f"{count:,} flights of {PERIOD} are in {data}")


def publish(connection: Connection, flights: list[tuple[int, dict[str, Any], dict[str, Any]]]) -> int:
    """Send flights and return their number."""
    messages = ((f"/topic/flights.{body['origin']}", json.dumps(body), headers) for _, body, headers in flights)
    return len(connection.send_many(messages))


def departures(period: Period = PERIOD) -> list[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Return (time of publishing, body, headers) of each flight, in that order."""
    told = []
    for number, row in enumerate(flight_rows(), 1):
        if period.has(row):
            body, headers = flight(number, row)
            scheduled_ns = int(datetime.fromisoformat(body["scheduled"]).timestamp()) * 1_000_000_000
            left_ns = scheduled_ns + (body["dep_delay"] or 0) * NS_PER_MINUTE
            named = {"partition-key": body["tailnum"]} if body["tailnum"] else {}
            times = {"event-time": scheduled_ns, "producer-id": f"tower-{body['origin']}", "sequence": number}
            told.append((left_ns, body, {**headers, **named, **times}))
    return sorted(told, key=lambda each: each[0])


@contextlib.contextmanager
def broker(data: Path) -> Iterator[Connection]:
    """Run a broker over ``data`` during the block, and yield a connection to it."""
    with serving(data) as address, connect(address) as connection:
        yield connection


@contextlib.contextmanager
def serving(data: Path, config: str = RULES) -> Iterator[str]:
    """Run a broker over ``data`` during the block, and yield its address."""
    with tempfile.TemporaryDirectory(prefix="radiator-") as scratch:
        address, rules = f"unix:{scratch}/socket", Path(scratch, "radiator.yaml")
        rules.write_text(config)
        command = ["-m", "radiator", "serve", "--config", str(rules), "--listen", address, "--data", str(data)]
        with Path(scratch, "broker.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *command], stdout=log, stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            )  # fmt: skip
        try:
            _connected(address, process).close()
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _connected(address: str, process: subprocess.Popen[bytes]) -> Connection:
    deadline = time.monotonic() + 30
    while True:
        try:
            return connect(address)
        except (ClientError, OSError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
