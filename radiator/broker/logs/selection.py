"""Selectors of subscriptions over stored records: the grammar of ``routing.selector`` applied to batches.

The result is computed once per batch and selector and cached with the batch: a hundred subscribers with the same
selector cost one evaluation. Only the headers that a selector names are searched in a stored block. Producers repeat
their blocks, so equal blocks in a run are evaluated once. Different selectors over the same records share the values
of headers (``ColumnCache``). A selector that needs ``name = 'text'`` is evaluated only for records with that value.

The module knows the stored form of a record, but not subscriptions or queues.
Invariants: a result depends on the record alone, not on its deliveries, so a cached result stays valid. The number of
results cached with a batch is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice, repeat
from typing import TYPE_CHECKING, Final

from radiator import limits
from radiator.broker.logs.header_values import header_value
from radiator.broker.logs.wire import RECORD_HEADERS, Record, StoredRecord
from radiator.clock import NS_PER_MS
from radiator.errors import ProtocolError
from radiator.routing.selector import Row, compile_selector
from radiator.stomp.headers import unescape
from radiator.stomp.spec import MESSAGE_HEADERS

if TYPE_CHECKING:
    from radiator.broker.logs.wire import PartitionWire
    from radiator.storage.batch import RecordBatch

Values = list[str | None]
Column = Callable[["PartitionWire", "RecordBatch", range, list[bytes]], Values]

NO, YES, UNKNOWN = 0, 1, 2  # UNKNOWN: not evaluated yet
VERDICTS: Final = "selectors"  # a key in RecordBatch.memo; the other keys are protocol versions
EVALUATION_CHARS: Final = 16  # the overhead of an evaluation, in characters of a selector
LOOKUP_CHARS: Final = 16  # the cost of finding a value in a record, in characters of a selector
DEFAULT_PRIORITY: Final = "4"
JMS: Final = {
    "JMSMessageID": "message-id",
    "JMSDestination": "destination",
    "JMSCorrelationID": "correlation-id",
    "JMSReplyTo": "reply-to",
    "JMSType": "type",
    "JMSExpiration": "expires",
}
OF_A_DELIVERY: Final = frozenset(
    (
        *(name for name, of in MESSAGE_HEADERS.items() if of == "delivery"),
        "JMSRedelivered",
        "JMSDeliveryMode",
        "JMSXDeliveryCount",
    )
)


def text_of(selection: Selection | None) -> str:
    """Return the canonical text of a selector, for comparison; empty for None."""
    return "" if selection is None else selection.text


class Selection:
    """A selector over records.

    Args:
        text: The selector as the client wrote it.

    Attributes:
        given: The selector as the client wrote it.
        text: Its canonical form.
        key: A name and the text that a record must have there, or None. Names with the same meaning are equal.
        is_key: True if the selector has no other condition than its key.
        run: How many records one turn may examine: the longer the selector, the fewer.

    Raises:
        ProtocolError: The selector is malformed, or uses a header that belongs to a delivery (bad-selector).
    """

    __slots__ = ("_key", "_names", "_of_block", "_test", "given", "is_key", "key", "run", "text")
    _cache: ColumnCache | None = None  # values of the last run of records
    spent_chars = 0  # of all selectors: records x characters; delivery compares it with its budget

    def __init__(self, text: str) -> None:
        selector = compile_selector(text)
        for name in selector.names:
            if name in OF_A_DELIVERY or name == "content-length":
                raise ProtocolError(
                    "bad-selector",
                    f"header selector: {name} cannot be used in a selector",
                    "A selector reads what the message was sent with, not its delivery and not its length.",
                )
        self.given = text
        self.text = selector.text
        self.run = max(1, limits.SELECTOR_RUN_CHARS // len(self.text))
        self._test = selector.test
        self._names = selector.names
        self._key = selector.key
        self.key = None if self._key is None else (JMS.get(self._key[0], self._key[0]), self._key[1])
        self.is_key = selector.is_key
        self._of_block = all(map(_is_of_block, selector.names))

    def verdicts(self, wire: PartitionWire, batch: RecordBatch, start: int, stop: int) -> bytearray:
        """Return a result for each record: YES or NO from ``start`` to ``stop``, elsewhere possibly UNKNOWN."""
        kept: dict[str, bytearray] = batch.memos().setdefault(VERDICTS, {})
        verdicts = kept.get(self.text)
        if verdicts is None:
            if len(kept) >= limits.SELECTORS_PER_BATCH_MAX:
                del kept[next(iter(kept))]
            verdicts = kept[self.text] = bytearray([UNKNOWN]) * len(batch)
        first = verdicts.find(UNKNOWN, start, stop)
        if first >= 0:
            verdicts[first:stop] = self._evaluate(wire, batch, first, stop)
        return verdicts

    def cut(self, wire: PartitionWire, batch: RecordBatch, start: int, stop: int, count: int) -> int:
        """Return the highest index, at most ``stop``, up to which no more than ``count`` records match."""
        verdicts = self.verdicts(wire, batch, start, stop)
        found = start - 1
        for _ in range(count + 1):
            found = verdicts.find(YES, found + 1, stop)
            if found < 0:
                return stop
        return found

    def takes(self, wire: PartitionWire, batch: RecordBatch, index: int) -> bool:
        """Return True if record ``index`` matches."""
        return self.verdicts(wire, batch, index, index + 1)[index] == YES

    def _evaluate(self, wire: PartitionWire, batch: RecordBatch, start: int, stop: int) -> bytes:
        cache = _cached(wire, batch, start, stop)
        columns = [cache.column(name, self._of_block) for name in self._names]
        rows: Iterable[Row] = zip(*columns, strict=True) if columns else repeat(())
        size = len(cache.different) if self._of_block else stop - start
        test = self._test
        Selection.spent_chars += EVALUATION_CHARS
        if self._key is None:
            Selection.spent_chars += size * len(self.text)
            verdicts = bytes([test(row) is True for row in islice(rows, size)])
        else:
            having = cache.having(self._key[0], self._of_block).get(self._key[1], ())
            Selection.spent_chars += len(having) * len(self.text) + 1
            found = bytearray(size)
            for place in having:
                found[place] = test([column[place] for column in columns]) is True
            verdicts = bytes(found)
        return cache.spread(verdicts) if self._of_block else verdicts

    @property
    def names(self) -> tuple[str, ...]:
        """The names whose values ``holds`` takes, in that order."""
        return tuple(JMS.get(name, name) for name in self._names)

    def holds(self, row: Row) -> bool:
        """Return True if a record with these values matches. The result is not cached: use it for single records."""
        Selection.spent_chars += len(self.text) + EVALUATION_CHARS
        return self._test(row) is True


def values(wire: PartitionWire, batch: RecordBatch, start: int, stop: int, name: str) -> Values:
    """Return the values that the records from ``start`` to ``stop`` have for a name of a selector."""
    cache = Selection._cache
    if cache is None or not cache.covers(batch, start, stop):
        cache = Selection._cache = ColumnCache(wire, batch, start, stop)
    of_block = _is_of_block(name)
    Selection.spent_chars += (stop - start) * (1 if cache.knows(name, of_block) else LOOKUP_CHARS)
    column = cache.column(name, of_block)
    return cache.part(cache.of_records(column) if of_block else column, start, stop)


def _cached(wire: PartitionWire, batch: RecordBatch, start: int, stop: int) -> ColumnCache:
    cache = Selection._cache
    if cache is None or not cache.at(batch, start, stop):
        cache = Selection._cache = ColumnCache(wire, batch, start, stop)
    return cache


class ColumnCache:
    """Cache of the values that selectors found in the last run of records.

    Equal header blocks are examined once. A value that is not in the header block (offset, receive time) is found for
    each record.
    """

    __slots__ = ("_batch", "_columns", "_having", "_places", "_start", "_stop", "_wire", "different")

    def __init__(self, wire: PartitionWire, batch: RecordBatch, start: int, stop: int) -> None:
        self._wire = wire
        self._batch = batch
        self._start = start
        self._stop = stop
        self.different: dict[bytes, int] = {}
        self._places = [self.different.setdefault(block, len(self.different)) for block in batch.blocks[start:stop]]
        self._columns: dict[tuple[str, bool], Values] = {}
        self._having: dict[tuple[str, bool], dict[str | None, list[int]]] = {}

    def at(self, batch: RecordBatch, start: int, stop: int) -> bool:
        """Return True if the cache is for exactly these records."""
        return self._batch is batch and self._start == start and self._stop == stop

    def covers(self, batch: RecordBatch, start: int, stop: int) -> bool:
        """Return True if the cache includes these records."""
        return self._batch is batch and self._start <= start and stop <= self._stop

    def knows(self, name: str, of_block: bool) -> bool:
        """Return True if the values of ``name`` are cached."""
        return (name, of_block) in self._columns

    def part(self, values: Values, start: int, stop: int) -> Values:
        """Return the part of ``values`` for the records from ``start`` to ``stop``."""
        if self._start == start and self._stop == stop:
            return values
        return values[start - self._start : stop - self._start]

    def column(self, name: str, of_block: bool) -> Values:
        """Return the values of ``name``: for each distinct block (``of_block``), or for each record."""
        column = self._columns.get((name, of_block))
        if column is None:
            if len(self._columns) >= limits.SELECTORS_PER_BATCH_MAX:
                self._columns.clear()
                self._having.clear()
            blocks = list(self.different) if of_block else self._batch.blocks[self._start : self._stop]
            column = _column(name)(self._wire, self._batch, range(self._start, self._stop), blocks)
            self._columns[name, of_block] = column
        return column

    def having(self, name: str, of_block: bool) -> dict[str | None, list[int]]:
        """Return the positions at which ``name`` has each of its values."""
        having = self._having.get((name, of_block))
        if having is None:
            having = {}
            for place, value in enumerate(self.column(name, of_block)):
                having.setdefault(value, []).append(place)
            self._having[name, of_block] = having
        return having

    def of_records(self, column: Values) -> Values:
        """Expand values of distinct blocks to values of records."""
        return column if len(column) == len(self._places) else [column[place] for place in self._places]

    def spread(self, verdicts: bytes) -> bytes:
        """Expand results of distinct blocks to results of records."""
        if len(verdicts) == len(self._places):
            return verdicts
        if YES not in verdicts:
            return bytes(len(self._places))
        return bytes([verdicts[place] for place in self._places])


# --- values of a name, for the records with these indexes and blocks --------------------------------------------------


def _timestamp(wire: PartitionWire, batch: RecordBatch, indexes: range, blocks: list[bytes]) -> Values:
    return [str(batch.receive_ns[index] // NS_PER_MS) for index in indexes]


def _is_of_block(name: str) -> bool:
    """Return whether the values of a name of a selector depend on the stored header block alone."""
    return name != "JMSTimestamp" and JMS.get(name, name) not in RECORD_HEADERS


def _column(name: str) -> Column:
    """Return the function that finds the values of a name of a selector."""
    name = JMS.get(name, name)
    if name in RECORD_HEADERS:
        return _record_header(RECORD_HEADERS[name])
    if name == "JMSTimestamp":
        return _timestamp
    if name == "JMSPriority":
        return _header("priority", DEFAULT_PRIORITY)
    return _header(name, None)


def _record_header(value_of: Callable[[Record], str]) -> Column:
    def column(wire: PartitionWire, batch: RecordBatch, indexes: range, blocks: list[bytes]) -> Values:
        partition, id_prefix = wire.partition_name, wire.id_prefix.decode()
        return [value_of(StoredRecord(batch, index, partition, id_prefix)) for index in indexes]

    return column


def _header(name: str, default: str | None) -> Column:
    value_of = header_value(name)

    def column(wire: PartitionWire, batch: RecordBatch, indexes: range, blocks: list[bytes]) -> Values:
        return [default if value is None else _text(value) for value in map(value_of, blocks)]

    return column


def _text(value: bytes) -> str:
    text = value.decode()
    return unescape(text, "1.2") if "\\" in text else text
