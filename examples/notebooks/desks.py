"""Three desks that follow the flights, each with a durable subscription whose deliveries are recorded.

    python examples/notebooks/desks.py
    radiator report consumers --data demo-out/notebooks/year

publishes a year of flights, and the weather, as fast as the broker takes them, and kills one desk twelve times. Each
flight has exactly one final row for each desk: the program counts them. ``--data DIR`` is another folder.

    python examples/notebooks/desks.py ADDRESS NAME SECONDS

is a desk: it acknowledges each flight. The desk ``crew`` returns a cancelled flight once before it acknowledges it, and
``staffed`` kills it now and then. Shared by the notebook deliveries.py and the tests.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from prepare import PERIOD, departures, folders, publish, serving

from examples.flights.data import Period, weather, weather_rows
from radiator.client import Connection, connect
from radiator.columns.deliveries import read_deliveries
from radiator.columns.delivery_records import FINAL

DESKS = ("billing", "board", "crew")
VICTIM = "crew"
YEAR, KILLS = Period(tuple(range(1, 13))), 12
TOPICS, DELIVERIES = "/topic/flights.*", "/topic/radiator.deliveries"
IN_HAND_MAX = 100
WORK_SECONDS = 0.0005
SILENT_SECONDS_MAX = 60.0
RULES = """
version: 1
destinations:
  - {match: /topic/flights.*, partition: "flights-{1}", segment: {size: 1MiB}, record: deliveries}
  - {match: /topic/weather.*, partition: "weather-{1}", segment: {size: 1MiB}}
  - {match: /topic/radiator.deliveries, segment: {size: 1MiB}}
"""


def staffed(data: Path, kills: int = 3, period: Period = PERIOD, seconds: float = WORK_SECONDS) -> None:
    """Publish flights to three desks, kill one of them now and then, and wait until all have acknowledged everything.

    ``seconds``: what the crew needs for a flight, so that it always has some in hand.

    The files are written into another folder first, so that the final folder is always complete.
    """
    unfinished = data.with_name(data.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    flights = departures(period)
    with serving(unfinished, RULES) as address, connect(address) as watching, ExitStack() as ending:
        desks = {name: _start(address, name, seconds) for name in DESKS}
        ending.callback(lambda: [each.kill() or each.wait() for each in desks.values()])
        publisher = threading.Thread(target=lambda: _publish(address, flights, period), daemon=True)
        publisher.start()
        moments = [len(flights) * number // (kills + 1) for number in range(1, kills + 1)]
        done: Counter[str] = Counter()
        for name in _acknowledged(watching):
            done[name] += 1
            if moments and done[VICTIM] >= moments[0]:
                moments.pop(0)
                desks[VICTIM].kill()
                desks[VICTIM].wait()
                desks[VICTIM] = _start(address, VICTIM, seconds)
            if all(done[each] >= len(flights) for each in DESKS):
                break
        publisher.join()
    unfinished.rename(data)
    print(f"{len(flights):,} flights of {period} and what became of them are in {data}")


def _publish(address: str, flights: list[tuple[int, dict[str, object], dict[str, object]]], period: Period) -> None:
    hours = (weather(number, row) for number, row in enumerate(weather_rows(), 1) if period.has(row))
    with connect(address) as connection:
        connection.send_many((f"/topic/weather.{body['origin']}", json.dumps(body), headers) for body, headers in hours)
        publish(connection, flights)


def year(data: Path) -> None:
    """Fill ``data`` with the year, unless it exists, and count the final rows of each flight and desk."""
    if not data.exists():
        staffed(data, KILLS, YEAR, 0.0)
    names = ["subscription", "partition", "offset", "outcome"]
    rows = (row for batch in read_deliveries(str(data), names) for row in batch.to_pylist())
    final = Counter((row["subscription"], row["partition"], row["offset"]) for row in rows if row["outcome"] in FINAL)
    flights = len(departures(YEAR))
    if len(final) != flights * len(DESKS) or set(final.values()) != {1}:
        sys.exit(
            f"expected one final row for each of {flights:,} flights and {len(DESKS)} desks, got {final.total():,}"
        )
    print(f"each of {flights:,} flights has one final row for each of {len(DESKS)} desks")


def _acknowledged(connection: Connection) -> Iterator[str]:
    """Yield the desk of each acknowledgement, live from the log of deliveries."""
    rows = connection.subscribe(DELIVERIES, start_position="first")
    while (row := rows.fetch(SILENT_SECONDS_MAX)) is not None:
        if row.headers["outcome"] == "acked":
            yield row.headers["consumer"].partition("/")[0]
    raise TimeoutError(f"no delivery has ended for {SILENT_SECONDS_MAX:.0f} s")


def _start(address: str, name: str, seconds: float) -> subprocess.Popen[str]:
    """Start a desk, and return when it has subscribed."""
    desk = subprocess.Popen([sys.executable, __file__, address, name, str(seconds)], stdout=subprocess.PIPE, text=True)
    assert desk.stdout is not None
    desk.stdout.readline()
    return desk


def desk(address: str, name: str, seconds: str) -> None:
    """Acknowledge flights until the process is killed."""
    with connect(address, headers={"client-id": name}) as connection:
        flights = connection.subscribe(
            TOPICS, ack="client-individual", prefetch=IN_HAND_MAX, headers={"subscription-name": name}
        )
        print("subscribed", flush=True)
        for flight in flights:
            if name == VICTIM:
                time.sleep(float(seconds))
            cancelled = flight.json()["dep_delay"] is None
            if name == VICTIM and cancelled and int(flight.headers.get("delivery-count", 1)) == 1:
                flight.nack()
            else:
                flight.ack()


if __name__ == "__main__":
    if len(sys.argv) == 4 and not sys.argv[1].startswith("-"):
        desk(*sys.argv[1:])
    else:
        year(Path(folders("year").data))
