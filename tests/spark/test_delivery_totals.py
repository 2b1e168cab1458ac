"""The totals of deliveries are those of a plain loop over the rows, in any order and in bounded memory."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from radiator.columns.deliveries import arrow_schema
from radiator.columns.delivery_records import FINAL, RETURNED
from radiator.columns.schema import arrow_schema as columns_of_log
from radiator.spark import delivery_totals
from radiator.spark.delivery_totals import DeliveryTotals, ReceiveTimes
from radiator.spark.sections.options import Options
from radiator.spark.units import EPOCH

Row = dict[str, Any]
START_US = 1_700_000_000_000_000


def moment(us: int | None) -> datetime | None:
    return None if us is None else EPOCH + timedelta(microseconds=us)


def some_rows(chance: random.Random, count: int) -> list[Row]:
    """Messages with up to six deliveries to four consumers or nobody; some values are missing, as clients may send."""
    rows: list[Row] = []
    for offset in range(count):
        for subscription in ("billing", "crew", "é"):
            now = START_US + offset * 40_000
            for delivery in range(1, chance.choice([2, 2, 2, 2, 3, 7])):
                now += chance.randrange(1_000_000)
                end = now + int(chance.lognormvariate(9, 2))
                outcome = chance.choice([*FINAL, *RETURNED, "acked", "acked", "acked", "unknown", None])
                row = {
                    "subscription": subscription,
                    "consumer": chance.choice(["ann/0", "bob/0", "carl/0", "dora/0", None]),
                    "destination": f"/topic/{offset % 3}",
                    "partition": chance.choice(["a", "b", None]) if offset % 7 == 0 else "a",
                    "outcome": outcome,
                    "offset": None if chance.random() < 0.01 else offset,
                    "delivery": chance.choice([None, delivery, delivery, delivery, delivery]),
                    "delivered_at": None if chance.random() < 0.01 else moment(now),
                    "settled_at": None if chance.random() < 0.01 else moment(end),
                }
                rows.append(row)
                now = end
                if outcome in FINAL:
                    break
    chance.shuffle(rows)
    return rows


def batches(rows: Iterable[Row], size: int = 500) -> Iterator[pa.RecordBatch]:
    yield from pa.Table.from_pylist([*rows], arrow_schema(DeliveryTotals.COLUMNS)).to_batches(size)


def sent_at(offset: int) -> int:
    return START_US + offset * 40_000


def sent(chance: random.Random, count: int) -> ReceiveTimes:
    """The messages of `a` with an even offset, and all of `b`, in any order."""
    rows = [{"partition": "a", "offset": offset} for offset in range(0, count, 2)]
    rows += [{"partition": "b", "offset": offset} for offset in range(count)]
    chance.shuffle(rows)
    found = ReceiveTimes()
    schema = columns_of_log(ReceiveTimes.COLUMNS)
    table = pa.Table.from_pylist([{**row, "receive_ns": sent_at(row["offset"]) * 1000} for row in rows], schema)
    for batch in table.to_batches(max_chunksize=300):
        found.add(batch)
    return found


def totals(rows: Iterable[Row], times: ReceiveTimes | None = None, **options: Any) -> dict[str, list[Row]]:
    found = DeliveryTotals(Options(**options), times)
    for batch in batches(rows):
        found.add(batch)
    return found.answers()


def percentile(values: Iterable[int], point: float) -> float:
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * point) - 1] / 1000


def us(between: timedelta) -> int:
    return round(between / timedelta(microseconds=1))


@pytest.mark.parametrize("seed", range(3))
def test_totals_are_those_of_a_loop_over_the_rows(seed: int) -> None:
    chance = random.Random(seed)
    rows, count = some_rows(chance, 400), 400
    answers = totals(rows, sent(chance, count), every=7)
    by_subscription: dict[str, list[Row]] = defaultdict(list)
    by_consumer: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_subscription[row["subscription"]].append(row)
        if row["consumer"] is not None:
            by_consumer[row["subscription"], row["consumer"]].append(row)

    assert {(row["subscription"], row["consumer"]) for row in answers["consumers"]} == set(by_consumer)
    for found in answers["consumers"]:
        of = by_consumer[found["subscription"], found["consumer"]]
        assert found["deliveries"] == len(of)
        assert {name: found[name] for name in RETURNED} == {
            name: sum(row["outcome"] == name for row in of) for name in RETURNED
        }
        assert found["first"] == min(row["delivered_at"] for row in of if row["delivered_at"])
        assert found["last"] == max(row["settled_at"] for row in of if row["settled_at"])
        acked = [row for row in of if row["outcome"] == "acked"]
        hand = [
            us(row["settled_at"] - row["delivered_at"]) for row in acked if row["settled_at"] and row["delivered_at"]
        ]
        for name, point in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            exact = percentile(hand, point)
            assert exact * (1 - 2**-19) <= found[f"hand_{name}_ms"] <= exact
        assert found["rate"] == pytest.approx(len(acked) / (found["last"] - found["first"]).total_seconds())

    assert [row["subscription"] for row in answers["subscriptions"]] == sorted(
        by_subscription, key=lambda name: (-sum(row["outcome"] in FINAL for row in by_subscription[name]), name)
    )
    for found in answers["subscriptions"]:
        of = by_subscription[found["subscription"]]
        final = [row for row in of if row["outcome"] in FINAL]
        assert found["messages"] == len(final) == sum(found[name] for name in FINAL)
        assert found["retried"] == sum((row["delivery"] or 0) > 1 for row in final)
        assert found["deliveries_max"] == max(row["delivery"] for row in of if row["delivery"])
        first = [
            row
            for row in of
            if row["delivery"] == 1 and row["offset"] is not None
            if row["partition"] == "b" or (row["partition"] == "a" and row["offset"] % 2 == 0)
        ]
        assert found["timed"] == len(first)
        waited = [us(row["delivered_at"] - EPOCH) - sent_at(row["offset"]) for row in first if row["delivered_at"]]
        assert found["queue_p95_ms"] == pytest.approx(percentile(waited, 0.95), rel=2**-19)

    rates = Counter[tuple[datetime | None, str, str | None]]()
    for row in rows:
        if row["outcome"] == "acked" and row["settled_at"]:
            start = us(row["settled_at"] - EPOCH) // 7_000_000 * 7_000_000
            rates[moment(start), row["subscription"], row["consumer"]] += 1
    assert {
        (row["start"], row["subscription"], row["consumer"]): row["messages"] for row in answers["consumer_rates"]
    } == rates
    assert len(answers["consumer_rates"]) == len(rates)

    retries = Counter((row["subscription"], row["delivery"], row["outcome"]) for row in rows if row["outcome"] in FINAL)
    assert {(row["subscription"], row["delivery"], row["outcome"]): row["messages"] for row in answers["retries"]} == (
        retries
    )

    returned = Counter(
        (row["subscription"], row["destination"], row["partition"], row["offset"])
        for row in rows
        if row["outcome"] in RETURNED
    )
    worst = sorted(
        (key for key, times in returned.items() if times >= 3),
        key=lambda key: (-returned[key], *((part is not None, part) for part in key)),
    )[:10]
    message = ("subscription", "destination", "partition", "offset")
    assert [tuple(row[name] for name in message) for row in answers["poison_messages"]] == worst
    for found in answers["poison_messages"]:
        of = [row for row in rows if all(row[name] == found[name] for name in message)]
        assert found["returned"] == sum(row["outcome"] in RETURNED for row in of)
        assert found["consumers"] == len({row["consumer"] for row in of} - {None})
        assert found["last"] == max(row["settled_at"] for row in of if row["settled_at"])
        outcomes = {row["outcome"] for row in of} - {*RETURNED, None}
        assert found["outcome"] == max(outcomes, default=None)


def test_the_order_of_rows_and_the_size_of_batches_change_nothing() -> None:
    chance = random.Random(7)
    rows = some_rows(chance, 300)
    times = sent(chance, 300)
    expected = totals(rows, times)
    again = DeliveryTotals(sent=times)
    for batch in batches(reversed(rows), 7):
        again.add(batch)
    assert again.answers() == expected


def test_rows_without_a_subscription_are_left_out() -> None:
    rows = some_rows(random.Random(1), 20)
    assert totals([*rows, {**rows[0], "subscription": None}]) == totals(rows)


def test_no_rows_are_no_answers() -> None:
    assert not any(totals([]).values())


def spread(count: int, chance: random.Random) -> list[Row]:
    """Deliveries over a day to one consumer, all of which have taken a different time."""
    rows = []
    for offset in range(count):
        delivered = START_US + offset * 86_400_000_000 // count
        row = {"subscription": "s", "consumer": "c", "destination": "/topic/a", "partition": "a", "offset": offset}
        times = {"delivered_at": moment(delivered), "settled_at": moment(delivered + 1_000_000 + 997 * offset)}
        rows.append({**row, **times, "outcome": "acked", "delivery": 1})
    chance.shuffle(rows)
    return rows


def test_values_and_buckets_are_fewer_than_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more values than VALUES_MAX they are rounded further, and buckets are as wide as the time so far allows."""
    monkeypatch.setattr(delivery_totals, "VALUES_MAX", 100)
    monkeypatch.setattr(delivery_totals, "_PENDING_MIN", 1000)
    rows = spread(20_000, random.Random(3))
    found = DeliveryTotals()
    for batch in batches(rows):
        found.add(batch)
    assert found._hand._groups.table().num_rows <= 1000  # type: ignore[union-attr]
    assert found._rates.table().num_rows <= 150  # type: ignore[union-attr]
    answers = found.answers()
    (consumer,) = answers["consumers"]
    exact = percentile((us(row["settled_at"] - row["delivered_at"]) for row in rows), 0.5)
    assert exact * (1 - 2**-7) <= consumer["hand_p50_ms"] <= exact
    assert sum(row["messages"] for row in answers["consumer_rates"]) == consumer["acked"] == 20_000
    width, _ = Options().width(consumer["last"] - consumer["first"], of_clients=True)
    assert all(us(row["start"] - EPOCH) % (width * 1_000_000) == 0 for row in answers["consumer_rates"])


@pytest.mark.parametrize("every", [None, 7, 90, 3600])
def test_the_common_width_divides_every_later_width(every: int | None) -> None:
    options = Options(every=every)
    spans = [timedelta(seconds=1.7**power) for power in range(42)]
    for place, span in enumerate(spans):
        common = options.common_width(span)
        assert [later for later in spans[place:] if options.width(later, of_clients=True)[0] % common] == []
