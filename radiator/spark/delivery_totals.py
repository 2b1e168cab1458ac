"""Add up deliveries in one pass: who received what, how fast, how often, and how evenly.

    totals = DeliveryTotals()
    for batch in read_deliveries("./data", DeliveryTotals.COLUMNS):
        totals.add(batch)
    totals.answers()["consumers"]

Each batch is grouped at once, so memory grows with the groups and not with the rows. It is 16 bytes for each message in
``ReceiveTimes``, and about 60 bytes for each delivery that is not the acknowledgement of a first one.

Counts are exact. Percentiles are values that occurred, rounded down to 20 significant bits: one part in 500,000. If
there are more than a million different values, they are rounded to fewer bits, 8 at least (0.8 %).

Must not import pyspark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from radiator.columns.batches import Ints, Mask
from radiator.columns.delivery_records import ACKED, FINAL, RETURNED
from radiator.spark.sections.options import Options
from radiator.spark.units import EPOCH

Row = dict[str, Any]

POISON_MIN: Final = 3  # deliveries that came back
BITS_MAX, BITS_MIN, VALUES_MAX = 20, 8, 1 << 20
POINTS: Final = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
_TEXTS: Final = ("subscription", "consumer", "destination", "partition", "outcome")
_NUMBERS: Final = ("offset", "delivery", "delivered_at", "settled_at")
_MESSAGE: Final = ("subscription", "destination", "partition", "offset")
_CONSUMER: Final = ("subscription", "consumer")
_US_PER_SECOND, _US_PER_MS = 1_000_000, 1000
_PENDING_MIN = 1 << 18  # rows, before they are joined to the groups
_EXTREMES: Final = {"delivery": "max", "delivered_at": "min", "settled_at": "max"}


class ReceiveTimes:
    """The receive times of messages by partition and offset.

    Attributes:
        COLUMNS: The columns of the log that are read.
    """

    COLUMNS: Final = ("partition", "offset", "receive_ns")

    def __init__(self) -> None:
        self._pending: dict[str, list[tuple[Ints, Ints]]] = {}
        self._found: dict[str, tuple[Ints, Ints]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add messages, in any order, but before the first call of ``of``.

        Args:
            batch: Records with ``COLUMNS``.
        """
        coded = batch.column("partition").dictionary_encode()
        offsets, times = batch.column("offset").to_numpy(), batch.column("receive_ns").to_numpy() // 1000
        names = coded.dictionary.to_pylist()
        for code, own in _places(coded.indices.to_numpy()):
            self._pending.setdefault(names[code], []).append((offsets[own], times[own]))

    def of(self, partition: str | None, offsets: Ints) -> tuple[Mask, Ints]:
        """Return which messages are known, and the receive times, in microseconds since the epoch, of the known ones.

        Args:
            partition: The partition.
            offsets: Offsets of that partition.
        """
        if partition in self._pending:
            stored, times = (np.concatenate(each) for each in zip(*self._pending.pop(partition), strict=True))
            order = np.argsort(stored, kind="stable")
            self._found[partition] = stored[order], times[order]
        if partition not in self._found:
            return np.zeros(len(offsets), np.bool_), np.empty(0, np.int64)
        stored, times = self._found[partition]
        at = np.minimum(np.searchsorted(stored, offsets), len(stored) - 1)
        known: Mask = stored[at] == offsets
        return known, times[at[known]]


def _places(codes: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each different code, and the places where it is."""
    order = np.argsort(codes, kind="stable")
    ends = np.flatnonzero(np.diff(codes[order])) + 1
    for places in np.split(order, ends) if len(codes) else ():
        yield int(codes[places[0]]), places


class _Names:
    """The different texts of a column, as numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str | None, int] = {}
        self._texts: list[str | None] = []

    def number(self, text: str | None) -> int:
        found = self._numbers.setdefault(text, len(self._texts))
        if found == len(self._texts):
            self._texts.append(text)
        return found

    def numbers(self, texts: Iterable[str | None]) -> list[int]:
        return [self.number(text) for text in texts]

    def text(self, number: int) -> str | None:
        return self._texts[number]

    def encode(self, column: pa.Array) -> Ints:
        coded = column.dictionary_encode()
        own = np.array(self.numbers([*coded.dictionary.to_pylist(), None]), np.int32)
        codes: Ints = own[coded.indices.fill_null(len(own) - 1).to_numpy(zero_copy_only=False)]
        return codes

    def ranks(self) -> Ints:
        """Return the place of each number in the order of the texts; null is the first."""
        places = np.empty(len(self._texts), np.int64)
        places[sorted(range(len(places)), key=lambda number: _order(self._texts[number]))] = np.arange(len(places))
        return places


class _Groups:
    """Rows that are grouped by keys, with the sum of ``count``, and the extremes of other columns.

    Args:
        *keys: The columns to group by.
        extremes: The columns, keys of ``_EXTREMES``, whose least or largest value is wanted.
        shrink: Makes groups fewer if they are too many; else returns its argument.
    """

    def __init__(
        self, *keys: str, extremes: Sequence[str] = (), shrink: Callable[[pa.Table], pa.Table] = lambda table: table
    ) -> None:
        self._keys, self._shrink = keys, shrink
        self._joined = [("count", "sum"), *((name, _EXTREMES[name]) for name in extremes)]
        self._parts: list[pa.Table] = []
        self._pending = 0  # rows of all parts but the first

    def add(self, rows: pa.Table) -> None:
        self._parts.append(self._grouped(rows))
        self._pending += self._parts[-1].num_rows
        if self._pending > max(_PENDING_MIN, self._parts[0].num_rows):
            self.table()

    def _grouped(self, rows: pa.Table) -> pa.Table:
        found = rows.group_by([*self._keys], use_threads=False).aggregate(self._joined)
        return found.rename_columns([*self._keys, *(name for name, _ in self._joined)])

    def table(self) -> pa.Table | None:
        """Return the groups, or None if nothing was added."""
        if not self._parts:
            return None
        table = self._grouped(pa.concat_tables(self._parts))
        while (smaller := self._shrink(table)) is not table:
            table = self._grouped(smaller)
        self._parts, self._pending = [table], 0
        return table

    def rows(self) -> list[Row]:
        table = self.table()
        return [] if table is None else table.to_pylist()


class _Times:
    """The distribution of a time by keys: the count of each value, with as many significant bits as fit."""

    def __init__(self, *keys: str) -> None:
        self._keys, self._bits = keys, BITS_MAX
        self._groups = _Groups(*keys, "value", shrink=self._shrink)

    def add(self, rows: pa.Table, values: Ints) -> None:
        self._groups.add(rows.append_column("value", pa.array(_rounded(values, self._bits))))

    def _shrink(self, table: pa.Table) -> pa.Table:
        if table.num_rows <= VALUES_MAX or self._bits == BITS_MIN:
            return table
        self._bits -= 1
        return _replaced(table, "value", _rounded(table["value"].to_numpy(), self._bits))

    def percentiles(self) -> dict[tuple[int, ...], list[float]]:
        """Return the values of ``POINTS`` by keys, in milliseconds."""
        table = self._groups.table()
        if table is None or not table.num_rows:
            return {}
        keys, values = [table[name].to_numpy() for name in self._keys], table["value"].to_numpy()
        order = np.lexsort((values, *keys))
        keys, values, counts = [key[order] for key in keys], values[order], table["count"].to_numpy()[order]
        changes = np.flatnonzero(np.logical_or.reduce([np.diff(key) != 0 for key in keys])) + 1
        found = {}
        for start, stop in pairwise([0, *changes.tolist(), len(values)]):
            below = np.cumsum(counts[start:stop])
            places = np.searchsorted(below, [np.ceil(point * below[-1]) for _, point in POINTS])
            found[tuple(int(key[start]) for key in keys)] = [
                int(value) / _US_PER_MS for value in values[start:stop][places]
            ]
        return found


def _rounded(values: Ints, bits: int) -> Ints:
    """Return values rounded towards zero to a number of significant bits."""
    size = np.abs(values)
    shift = np.maximum(np.frexp(size.astype(np.float64))[1] - bits, 0)
    found: Ints = np.sign(values) * (size >> shift << shift)
    return found


def _replaced(table: pa.Table, name: str, values: Ints) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


class DeliveryTotals:
    """The sums of deliveries. Add all of them, then call ``answers``.

    Args:
        options: The options of a report: ``every`` and ``limit``.
        sent: The receive times of the messages. Without them no time in the queue is known.

    Attributes:
        COLUMNS: The columns of the table of deliveries that are read.
    """

    COLUMNS: Final = (*_TEXTS, *_NUMBERS)

    def __init__(self, options: Options | None = None, sent: ReceiveTimes | None = None) -> None:
        self._options, self._sent = options or Options(), sent or ReceiveTimes()
        self._names = {name: _Names() for name in _TEXTS}
        outcomes = self._names["outcome"]
        self._final, self._returned = outcomes.numbers(FINAL), outcomes.numbers(RETURNED)
        self._acked = outcomes.number(ACKED)
        self._nobody = self._names["consumer"].number(None)
        self._groups = _Groups(*_CONSUMER, "outcome", "settled_with", extremes=[*_EXTREMES])
        self._hand, self._queue, self._timed = _Times(*_CONSUMER), _Times("subscription"), _Groups("subscription")
        self._rates = _Groups("start", *_CONSUMER, shrink=self._wider)
        self._width = 1  # of the buckets of ``_rates`` in seconds; it divides the width that ``answers`` uses
        self._span_us: tuple[int, int] | None = None  # from the first delivery to the last settlement
        self._unusual = _Groups(*_MESSAGE, "consumer", "outcome", extremes=["delivered_at", "settled_at"])

    def add(self, batch: pa.RecordBatch) -> None:
        """Add deliveries, in any order. Rows without a subscription are left out.

        Args:
            batch: Rows of the table of deliveries, with ``COLUMNS``.
        """
        batch = batch.filter(pc.is_valid(batch.column("subscription")))
        if not batch.num_rows:
            return
        numbers = {name: batch.column(name).cast(pa.int64()) for name in _NUMBERS}
        names = {name: each.encode(batch.column(name)) for name, each in self._names.items()}
        (delivered, was_delivered), (settled, was_settled), (delivery, _) = (
            (numbers[name].fill_null(-1).to_numpy(), numbers[name].is_valid().to_numpy(zero_copy_only=False))
            for name in ("delivered_at", "settled_at", "delivery")
        )
        rows = pa.table({**names, **numbers, "count": np.ones(batch.num_rows, np.int64)})
        acked = names["outcome"] == self._acked
        by_anybody = names["consumer"] != self._nobody
        self._extend(delivered[by_anybody & was_delivered], settled[by_anybody & was_settled])

        is_final = pa.array(np.isin(names["outcome"], self._final))
        settled_with = pc.if_else(is_final, numbers["delivery"], pa.scalar(None, pa.int64()))
        self._groups.add(rows.append_column("settled_with", settled_with))

        held = acked & was_delivered & was_settled
        self._hand.add(rows.filter(pa.array(held)), (settled - delivered)[held])

        in_time = acked & was_settled
        starts = settled[in_time] // _US_PER_SECOND // self._width * self._width
        self._rates.add(rows.filter(pa.array(in_time)).append_column("start", pa.array(starts)))

        # A message that came back is not acknowledged at its first delivery, and not settled without one.
        unusual = np.isin(names["outcome"], self._returned) | ((delivery != 0) & ~(acked & (delivery == 1)))
        self._unusual.add(rows.filter(pa.array(unusual)))

        self._wait(rows.filter(pa.array((delivery == 1) & numbers["offset"].is_valid().to_numpy(zero_copy_only=False))))

    def _extend(self, delivered: Ints, settled: Ints) -> None:
        if len(delivered) and len(settled):
            first, last = int(delivered.min()), int(settled.max())
            low, high = self._span_us or (first, last)
            self._span_us = min(low, first), max(high, last)

    @property
    def _span(self) -> timedelta:
        low, high = self._span_us or (0, 0)
        return timedelta(microseconds=max(high - low, 0))

    def _wider(self, table: pa.Table) -> pa.Table:
        width = self._options.common_width(self._span)
        if width == self._width:
            return table
        self._width = width
        return _replaced(table, "start", table["start"].to_numpy() // width * width)

    def _wait(self, first: pa.Table) -> None:
        """Add the times in the queue of first deliveries."""
        offsets, delivered = first["offset"].to_numpy(), first["delivered_at"].fill_null(0).to_numpy()
        known, waited = np.zeros(len(offsets), np.bool_), np.zeros(len(offsets), np.int64)
        for code, places in _places(first["partition"].to_numpy()):
            found, received = self._sent.of(self._names["partition"].text(code), offsets[places])
            own = places[found]
            known[own], waited[own] = True, delivered[own] - received
        self._timed.add(first.filter(pa.array(known)))
        timed = known & first["delivered_at"].is_valid().to_numpy()
        self._queue.add(first.filter(pa.array(timed)), waited[timed])

    # --- answers ------------------------------------------------------------------------------------------------------

    def answers(self) -> dict[str, list[Row]]:
        """Return the rows of each answer.

        Returns:
            ``subscriptions``, one row each, the most settled messages first: subscription, messages (settled ones),
            acked, expired, dead_lettered, dropped, purged, retried (settled messages that were delivered more than
            once), deliveries_max, consumers, evenness (Jain's index of the deliveries of its consumers, from 1/n to 1),
            queue_p50_ms, queue_p95_ms, queue_p99_ms (from receipt to the first delivery), timed (first deliveries whose
            message is known).

            ``consumers``, one row for each subscription and consumer, the most deliveries first: subscription,
            consumer, deliveries, share (of the deliveries of the subscription), acked, nacked, timed_out, requeued,
            hand_p50_ms, hand_p95_ms, hand_p99_ms (from delivery to acknowledgement), first, last (times), rate
            (acknowledged messages per second from the first delivery to the last settlement).

            ``consumer_rates``: acknowledged messages (messages) by start (of the time bucket), subscription, consumer.

            ``retries``: settled messages (messages) by subscription, delivery, outcome.

            ``poison_messages``, those that came back three times or more, the most often first: subscription,
            destination, partition, offset, returned, nacked, timed_out, requeued, consumers (how many had it), first,
            last (times), outcome (the final one; None if the message is not settled).
        """
        groups = [self._named(row) for row in self._groups.rows()]
        consumers = self._consumers(groups)
        return {
            "subscriptions": self._subscriptions(groups, consumers),
            "consumers": consumers,
            "consumer_rates": self._consumer_rates(),
            "retries": _retries(groups),
            "poison_messages": self._poison_messages(),
        }

    def _named(self, row: Row) -> Row:
        """Return a row with texts for their numbers."""
        return {name: self._names[name].text(value) if name in self._names else value for name, value in row.items()}

    def _consumers(self, groups: Iterable[Row]) -> list[Row]:
        hand, found = self._hand.percentiles(), []
        totals: Counter[str] = Counter()
        by_consumer: dict[tuple[str, str], list[Row]] = {}
        for row in groups:
            if row["consumer"] is not None:
                by_consumer.setdefault((row["subscription"], row["consumer"]), []).append(row)
                totals[row["subscription"]] += row["count"]
        for (subscription, consumer), rows in by_consumer.items():
            numbers = self._names["subscription"].number(subscription), self._names["consumer"].number(consumer)
            counts = _by_outcome(rows)
            deliveries = counts.total()
            first, last = _least(rows, "delivered_at"), _largest(rows, "settled_at")
            seconds = 0.0 if first is None or last is None else (last - first) / _US_PER_SECOND
            found.append(
                {
                    "subscription": subscription,
                    "consumer": consumer,
                    "deliveries": deliveries,
                    "share": deliveries / totals[subscription],
                    **{name: counts[name] for name in (ACKED, *RETURNED)},
                    **_points("hand", hand.get(numbers)),
                    "first": _moment(first),
                    "last": _moment(last),
                    "rate": counts[ACKED] / seconds if seconds > 0 else None,
                }
            )
        return sorted(found, key=lambda row: (row["subscription"], -row["deliveries"], row["consumer"]))

    def _subscriptions(self, groups: Iterable[Row], consumers: Iterable[Row]) -> list[Row]:
        queue, found = self._queue.percentiles(), []
        timed = {row["subscription"]: row["count"] for row in self._timed.rows()}
        had: dict[str, list[int]] = {}
        for row in consumers:
            had.setdefault(row["subscription"], []).append(row["deliveries"])
        by_subscription: dict[str, list[Row]] = {}
        for row in groups:
            by_subscription.setdefault(row["subscription"], []).append(row)
        for subscription, rows in by_subscription.items():
            number, each = self._names["subscription"].number(subscription), had.get(subscription, [])
            counts = _by_outcome(rows)
            found.append(
                {
                    "subscription": subscription,
                    "messages": sum(counts[name] for name in FINAL),
                    **{name: counts[name] for name in FINAL},
                    "retried": sum(row["count"] for row in rows if (row["settled_with"] or 0) > 1),
                    "deliveries_max": _largest(rows, "delivery"),
                    "consumers": len(each),
                    "evenness": sum(each) ** 2 / (len(each) * sum(one * one for one in each)) if each else None,
                    **_points("queue", queue.get((number,))),
                    "timed": timed.get(number),
                }
            )
        return sorted(found, key=lambda row: (-row["messages"], row["subscription"]))

    def _consumer_rates(self) -> list[Row]:
        every, _ = self._options.width(self._span, of_clients=True)
        counts: Counter[tuple[int, int, int]] = Counter()
        for row in self._rates.rows():
            counts[row["start"] // every * every, row["subscription"], row["consumer"]] += row["count"]
        found = [
            self._named({"start": start, "subscription": subscription, "consumer": consumer, "messages": count})
            for (start, subscription, consumer), count in counts.items()
        ]
        found.sort(key=lambda row: (row["start"], row["subscription"], _order(row["consumer"])))
        return [{**row, "start": _moment(row["start"] * _US_PER_SECOND)} for row in found]

    def _poison_messages(self) -> list[Row]:
        table = self._unusual.table()
        if table is None:
            return []
        came_back = table.filter(pc.is_in(table["outcome"], pa.array(self._returned)))
        worst = came_back.group_by([*_MESSAGE]).aggregate([("count", "sum")])
        worst = worst.filter(pc.greater_equal(worst["count_sum"], POISON_MIN))
        ranks = [self._names[name].ranks()[worst[name].to_numpy()] for name in _MESSAGE[:-1]]
        order = [-worst["count_sum"].to_numpy(), *ranks, worst["offset"].fill_null(-1).to_numpy()]
        first = np.lexsort(order[::-1])[: self._options.limit]
        return [self._poison_message(table, row) for row in worst.take(pa.array(first)).to_pylist()]

    def _poison_message(self, table: pa.Table, message: Row) -> Row:
        for name in _MESSAGE:
            same = pc.is_null(table[name]) if message[name] is None else pc.equal(table[name], message[name])
            table = table.filter(same)
        rows = [self._named(row) for row in table.to_pylist()]
        counts = _by_outcome(rows)
        others = [row["outcome"] for row in rows if row["outcome"] not in (*RETURNED, None)]
        return {
            **{name: rows[0][name] for name in _MESSAGE},
            "returned": message["count_sum"],
            **{name: counts[name] for name in RETURNED},
            "consumers": len({row["consumer"] for row in rows} - {None}),
            "first": _moment(_least(rows, "delivered_at")),
            "last": _moment(_largest(rows, "settled_at")),
            "outcome": max(others, default=None),
        }


def _retries(groups: Iterable[Row]) -> list[Row]:
    counts: Counter[tuple[str, int | None, str]] = Counter()
    for row in groups:
        if row["outcome"] in FINAL:
            counts[row["subscription"], row["settled_with"], row["outcome"]] += row["count"]
    found = [
        {"subscription": subscription, "delivery": delivery, "outcome": outcome, "messages": count}
        for (subscription, delivery, outcome), count in counts.items()
    ]
    return sorted(found, key=lambda row: (row["subscription"], _order(row["delivery"]), row["outcome"]))


def _by_outcome(rows: Iterable[Row]) -> Counter[str | None]:
    counts: Counter[str | None] = Counter()
    for row in rows:
        counts[row["outcome"]] += row["count"]
    return counts


def _order(value: Any) -> tuple[bool, Any]:
    """Return a key that sorts None before all values."""
    return value is not None, value


def _least(rows: Iterable[Row], name: str) -> int | None:
    return min((row[name] for row in rows if row[name] is not None), default=None)


def _largest(rows: Iterable[Row], name: str) -> int | None:
    return max((row[name] for row in rows if row[name] is not None), default=None)


def _moment(us: int | None) -> datetime | None:
    return None if us is None else EPOCH + timedelta(microseconds=us)


def _points(of: str, values: Sequence[float] | None) -> dict[str, float | None]:
    return {f"{of}_{name}_ms": None if values is None else values[place] for place, (name, _) in enumerate(POINTS)}
