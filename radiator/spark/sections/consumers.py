"""Show consumers: time in the queue, time in hand, retries, throughput, poison messages, and how even they are."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from datetime import timedelta
from statistics import median

from radiator.columns.delivery_records import ACKED, DESTINATION, RETURNED
from radiator.spark import units
from radiator.spark.chart_style import Chart
from radiator.spark.charts import bars, ranges, stacked
from radiator.spark.delivery_totals import POISON_MIN, DeliveryTotals, ReceiveTimes
from radiator.spark.page import Field, Section, Table, Tile
from radiator.spark.sections.options import Options
from radiator.spark.sections.part import Answers, Part, Row, Rows

NOT_RECORDED = (
    f"The topic {DESTINATION} has no deliveries. To record them, write `record: deliveries` into the rule of a queue "
    "or of a topic."
)
SHOWN_MAX = 3  # findings of a kind with a line of their own
BARS_MAX, RANGES_MAX = 12, 15
DELIVERIES_MAX = 5  # of a message: more are counted together
EVEN_MIN = 0.8  # Jain's index: below it, the deliveries of a subscription are uneven
ENOUGH = 100  # deliveries: with fewer, shares say little
TIMED_MIN = 20  # acknowledgements: with fewer, percentiles say little
SLOW_TIMES = 5.0  # a consumer that needs this multiple of the median of the others is slow
RETRIED_MIN = 0.05  # share of messages
_WHY = {
    "nacked": "the consumer returned them",
    "timed_out": "the consumer had them too long",
    "requeued": "their consumer left",
}
_SUBSCRIPTIONS = (
    Field("subscription", "subscription"),
    Field("messages", "settled", "count"),
    Field("acked", "acked", "count"),
    Field("dead_lettered", "dead-lettered", "count"),
    Field("expired", "expired", "count"),
    Field("dropped", "dropped", "count", page_only=True),
    Field("purged", "purged", "count", page_only=True),
    Field("retried", "retried", "count"),
    Field("queue_p50_ms", "in queue p50", "duration"),
    Field("queue_p99_ms", "p99", "duration"),
    Field("consumers", "consumers", "count"),
    Field("evenness", "evenness", "share"),
)
_CONSUMERS = (
    Field("consumer", "consumer"),
    Field("subscription", "subscription"),
    Field("deliveries", "deliveries", "count"),
    Field("share", "share", "share"),
    Field("acked", "acked", "count"),
    Field("hand_p50_ms", "in hand p50", "duration"),
    Field("hand_p99_ms", "p99", "duration"),
    Field("rate", "acked", "rate"),
    Field("nacked", "nacked", "count"),
    Field("timed_out", "timed out", "count"),
    Field("requeued", "requeued", "count"),
    Field("first", "first", "moment", page_only=True),
    Field("last", "last", "moment", page_only=True),
)
_POISON = (
    Field("subscription", "subscription"),
    Field("partition", "partition"),
    Field("offset", "offset", "count"),
    Field("returned", "came back", "count"),
    Field("outcome", "outcome"),
    Field("consumers", "consumers", "count"),
    Field("last", "last", "moment"),
    Field("destination", "destination", page_only=True),
    Field("nacked", "nacked", "count", page_only=True),
    Field("timed_out", "timed out", "count", page_only=True),
    Field("requeued", "requeued", "count", page_only=True),
)
_RETRIES = (
    Field("subscription", "subscription"),
    Field("delivery", "deliveries", "count"),
    Field("outcome", "outcome"),
    Field("messages", "messages", "count"),
)
_ANSWERS = ("subscriptions", "consumers", "consumer_rates", "retries", "poison_messages")


def run(part: Part) -> Answers:
    """Read the log and return the answers of the section ``consumers``.

    Args:
        part: The part of the log.

    Raises:
        LostRecords: Records cannot be read, and the report fails on data loss.
    """
    if part.never_held(DESTINATION):
        return {name: [] for name in _ANSWERS}
    sent = ReceiveTimes()
    for batch in part.batches_of_messages(ReceiveTimes.COLUMNS):
        sent.add(batch)
    totals = DeliveryTotals(part.options, sent)
    for batch in part.batches_of_deliveries(DeliveryTotals.COLUMNS):
        totals.add(batch)
    return {name: part.limited(rows, name) for name, rows in totals.answers().items()}


def section(answers: Answers, options: Options) -> Section:
    """Return the section ``consumers`` of the page.

    Args:
        answers: The result of ``run``.
        options: The options of the report.
    """
    found, each = answers["subscriptions"], answers["consumers"]
    if not found:
        return Section("Consumers", summary=NOT_RECORDED, empty=True)
    poison = answers["poison_messages"]
    tables = [
        Table("Subscriptions", _SUBSCRIPTIONS, found),
        Table("Consumers", _CONSUMERS, each),
        *([Table("Messages that came back most often", _POISON, poison)] if poison else []),
        Table("Deliveries until a message was settled", _RETRIES, answers["retries"], folded=True),
    ]
    text = (
        "Deliveries that have ended: messages that wait or are in flight are not in it. In queue: from the receipt by "
        "the broker to the first delivery, of messages that are still stored. In hand: from the delivery to the "
        "acknowledgement. Half of the messages took p50 or less, 95% p95 or less, 99% p99 or less; the axes of these "
        "times are logarithmic. Evenness is Jain's index of the deliveries: 100% if all consumers had equally many."
    )
    return Section(
        "Consumers",
        text,
        tiles=_tiles(found, each, poison),
        summary=_summary(found, each),
        findings=[*_poisoned(poison), *_retried(found, each), *_slow(each), *_uneven(found, each)],
        charts=list(_charts(answers, options)),
        tables=tables,
    )


def _tiles(found: Rows, each: Rows, poison: Rows) -> list[Tile]:
    settled, retried = (sum(row[name] for row in found) for name in ("messages", "retried"))
    tiles = [
        Tile(units.count(settled), "messages settled"),
        Tile(units.count(len(each)), "consumers"),
        Tile(units.share(retried / settled if settled else None), "delivered more than once"),
    ]
    if poison:
        tiles.append(Tile(units.count(len(poison)), f"came back {POISON_MIN} times or more", "bad"))
    return tiles


# --- pictures ---------------------------------------------------------------------------------------------------------


def _charts(answers: Answers, options: Options) -> Iterator[Chart]:
    found, each = answers["subscriptions"], answers["consumers"]
    several = len(found) > 1
    named, rates = (
        [{**row, "name": _name(row, several)} for row in rows] for rows in (each, answers["consumer_rates"])
    )
    yield from _times(
        "queue",
        "Time in the queue",
        [row for row in found if row["timed"]],
        label="subscription",
        note="From the receipt by the broker to the first delivery, of messages that are still stored",
        slowest="subscriptions that waited longest",
    )
    yield from _times(
        "hand",
        "Time in hand",
        [row for row in named if row["acked"]],
        label="name",
        note="From the delivery to the acknowledgement",
        slowest="slowest consumers",
    )
    yield from _throughput(rates, named, options)
    if len(named) > 1:
        yield bars(
            "consumers-share",
            "Deliveries by consumer",
            sorted(named, key=lambda row: -row["deliveries"]),
            label="name",
            value="deliveries",
            limit=BARS_MAX,
            note="Deliveries that have ended, those that came back included"
            + _part(named, BARS_MAX, "consumers with the most"),
        )
    yield from _by_subscription(
        "consumers-returned",
        "Deliveries that came back",
        _returned(each),
        series="outcome",
        value="deliveries",
        note="nacked: returned by the consumer; timed out: held too long; requeued: the consumer left",
    )
    yield from _by_subscription(
        "consumers-retries",
        "Messages that were delivered more than once",
        _by_deliveries(answers["retries"]),
        series="deliveries",
        value="messages",
        note="Settled messages by their number of deliveries",
    )


def _times(what: str, title: str, rows: Rows, *, label: str, note: str, slowest: str) -> Iterator[Chart]:
    """Yield a chart of the percentiles of a time, the slowest first."""
    if rows:
        yield ranges(
            f"consumers-{what}",
            title,
            [
                {label: row[label], **{point: row[f"{what}_{point}_ms"] for point in ("p50", "p95", "p99")}}
                for row in sorted(rows, key=lambda row: -row[f"{what}_p95_ms"])
            ],
            label=label,
            points=("p50", "p95", "p99"),
            limit=RANGES_MAX,
            note=note + _part(rows, RANGES_MAX, slowest),
        )


def _throughput(rates: Rows, named: Rows, options: Options) -> Iterator[Chart]:
    if len({row["start"] for row in rates}) > 1:
        seconds, words = options.width(_span(named), of_clients=True)
        width = words.removeprefix("1 ")
        yield stacked(
            "consumers-throughput",
            "Throughput",
            rates,
            x="start",
            series="name",
            value="messages",
            order=[row["name"] for row in sorted(named, key=lambda row: -row["acked"])],
            width_seconds=seconds,
            label=f"messages per {width}",
            note=f"Acknowledged messages per {width} and consumer, UTC",
        )


def _by_subscription(
    name: str, title: str, counts: dict[str, dict[str, int]], *, series: str, value: str, note: str
) -> Iterator[Chart]:
    """Yield a chart of the counts of each subscription that has some, the most first."""
    most = sorted((each for each in counts if any(counts[each].values())), key=lambda each: -sum(counts[each].values()))
    if most:
        yield bars(
            name,
            title,
            [
                {"subscription": each, series: kind.replace("_", " "), value: count}
                for each in most
                for kind, count in counts[each].items()
            ],
            label="subscription",
            value=value,
            series=series,
            limit=BARS_MAX,
            note=note + _part(most, BARS_MAX, "subscriptions with the most"),
        )


def _returned(each: Rows) -> dict[str, dict[str, int]]:
    """Return the deliveries that came back, by subscription and outcome."""
    found: dict[str, dict[str, int]] = {}
    for row in each:
        counts = found.setdefault(row["subscription"], dict.fromkeys(RETURNED, 0))
        for outcome in RETURNED:
            counts[outcome] += row[outcome]
    return found


def _by_deliveries(rows: Rows) -> dict[str, dict[str, int]]:
    """Return the messages with several deliveries, by subscription and number of deliveries."""
    last = f"{DELIVERIES_MAX} or more"
    times = {each: str(each) if each < DELIVERIES_MAX else last for each in range(2, DELIVERIES_MAX + 1)}
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        delivery = row["delivery"] or 0
        if delivery > 1:
            counts = found.setdefault(row["subscription"], dict.fromkeys(times.values(), 0))
            counts[times[min(delivery, DELIVERIES_MAX)]] += row["messages"]
    return found


def _part(of: Sized, shown_max: int, what: str) -> str:
    """Return the end of a note: that a chart shows a part only, and which; empty if it shows all."""
    return f"; the {shown_max} {what}, of {len(of):,}" if len(of) > shown_max else ""


def _name(row: Row, several: bool) -> str:
    consumer = row["consumer"] or "no consumer"
    return f"{consumer} of {row['subscription']}" if several else consumer


def _span(each: Rows) -> timedelta:
    starts = [row["first"] for row in each if row["first"] is not None]
    ends = [row["last"] for row in each if row["last"] is not None]
    return max(timedelta(0), max(ends) - min(starts)) if starts and ends else timedelta(0)


# --- what is remarkable -----------------------------------------------------------------------------------------------


def _summary(found: Rows, each: Rows) -> str:
    settled, acked = (sum(row[name] for row in found) for name in ("messages", ACKED))
    part = "" if acked == settled else f", {units.percent(acked / settled)} of them acknowledged"
    by = f"{units.many(len(found), 'subscription')} with {units.many(len(each), 'consumer')}"
    said = [f"{units.many(settled, 'message')} settled by {by}{part}."]
    slow = max((row for row in found if row["timed"]), key=lambda row: row["queue_p50_ms"], default=None)
    if slow is not None:
        said.append(
            f"Half of the messages of {slow['subscription']} waited {units.duration(slow['queue_p50_ms'])} or longer."
        )
    return " ".join(said)


def _poisoned(poison: Rows) -> list[str]:
    lines = [
        f"message {row['offset']:,} of {row['partition']} came back {row['returned']:,} times to {row['subscription']}"
        + (f" and was {row['outcome'].replace('_', '-')}" if row["outcome"] else ", and is not settled")
        for row in poison
    ]
    return units.first(lines, SHOWN_MAX, f"and {{:,}} more came back {POISON_MIN} times or more")


def _retried(found: Rows, each: Rows) -> list[str]:
    lines, back = [], _returned(each)
    for row in found:
        share = row["retried"] / row["messages"] if row["messages"] else 0
        if share >= RETRIED_MIN:
            counts = back.get(row["subscription"], dict.fromkeys(RETURNED, 0))
            why = max(counts, key=lambda outcome: counts[outcome])
            because = f", most often because {_WHY[why]}" if counts[why] else ""
            said = f"{units.percent(share)} of the messages of {row['subscription']} were delivered more than once"
            lines.append(said + because)
    return units.first(lines, SHOWN_MAX, "and {:,} more subscriptions with retries")


def _slow(each: Rows) -> list[str]:
    lines = []
    for row in each:
        others = [
            one["hand_p50_ms"]
            for one in each
            if one is not row and one["subscription"] == row["subscription"] and one["acked"] >= TIMED_MIN
        ]
        if others and row["acked"] >= TIMED_MIN and row["hand_p50_ms"] > SLOW_TIMES * median(others):
            lines.append(
                f"{row['consumer']} is slow: it had half of its messages for {units.duration(row['hand_p50_ms'])} or "
                f"longer, the other consumers of {row['subscription']} for {units.duration(median(others))}"
            )
    return units.first(lines, SHOWN_MAX, "and {:,} more slow consumers")


def _uneven(found: Rows, each: Rows) -> list[str]:
    lines = []
    for row in found:
        of = [one for one in each if one["subscription"] == row["subscription"]]
        if row["consumers"] > 1 and row["evenness"] < EVEN_MIN and sum(one["deliveries"] for one in of) >= ENOUGH:
            most, least = (choose(of, key=lambda one: one["deliveries"]) for choose in (max, min))
            lines.append(
                f"{row['subscription']} is uneven: {most['consumer']} had {units.percent(most['share'])} of the "
                f"deliveries, {least['consumer']} {units.percent(least['share'])}"
            )
    return units.first(lines, SHOWN_MAX, "and {:,} more uneven subscriptions")
