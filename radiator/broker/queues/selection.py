"""Which messages a subscription with a selector wants: the grammar of ``routing.selector`` over stored records.

A verdict is found once for each batch and selector, whoever asks, and kept with the batch: a hundred subscribers with
the same selector cost one evaluation. Only the headers that a selector names are looked for in a stored block, and
producers repeat their blocks, so of equal ones in a run the first is evaluated.

Knows: the stored form of a record, which names mean what. Must not know: subscriptions, who waits for what.
Invariants: verdicts are a function of the record alone (not of its deliveries), so they are never found anew; the
verdicts kept with a batch are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Final

from radiator import limits
from radiator.broker.destinations.keys import header_value
from radiator.clock import NS_PER_MS
from radiator.errors import ProtocolError
from radiator.routing.selector import Row, compile_selector
from radiator.stomp.headers import unescape

if TYPE_CHECKING:
    from radiator.broker.wire import PartitionWire
    from radiator.storage.batch import RecordBatch

Values = list[str | None]
Column = Callable[["PartitionWire", "RecordBatch", range, list[bytes]], Values]

NO, YES, UNKNOWN = 0, 1, 2  # UNKNOWN: nobody has asked yet
VERDICTS: Final = "selectors"  # the key in ``RecordBatch.memo``; the others are versions of the protocol
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
        "redelivered",
        "delivery-count",
        "replayed",
        "gap",
        "subscription",
        "ack",
        "start-adjusted",
        "replay-end",
        "JMSRedelivered",
        "JMSDeliveryMode",
        "JMSXDeliveryCount",
    )
)


def selection_of(headers: Mapping[str, str]) -> Selection | None:
    """What the header ``selector`` of a SUBSCRIBE asks for; None if it takes everything. Raises ProtocolError."""
    text = headers.get("selector", "")
    return Selection(text) if text.strip() else None


def text_of(selection: Selection | None) -> str:
    """What tells selectors apart; empty for none."""
    return "" if selection is None else selection.text


class Selection:
    """A selector over records. Raises ProtocolError (bad-selector).

    ``run`` is how many records one turn may look at: fewer, the longer the selector.
    """

    __slots__ = ("_columns", "_of_block", "_test", "given", "run", "text")
    spent_chars = 0  # of all selectors: records looked at x characters; who hands out asks when to give way

    def __init__(self, text: str) -> None:
        selector = compile_selector(text)
        for name in selector.names:
            if name in OF_A_DELIVERY or name == "content-length":
                raise ProtocolError(
                    "bad-selector",
                    f"header selector: {name} cannot be asked for",
                    "A selector is about what a message carries, and not about a delivery of it or its length.",
                )
        self.given = text  # as the client wrote it
        self.text = selector.text
        self.run = max(1, limits.SELECTOR_RUN_CHARS // len(self.text))
        self._test = selector.test
        self._columns = [_column(name) for name in selector.names]
        self._of_block = all(JMS.get(name, name) not in FACTS for name in selector.names)

    def verdicts(self, wire: PartitionWire, batch: RecordBatch, start: int, stop: int) -> bytearray:
        """For each record of the batch YES, NO or, outside of these indexes, perhaps UNKNOWN."""
        if batch.memo is None:
            batch.memo = {}
        kept: dict[str, bytearray] = batch.memo.setdefault(VERDICTS, {})
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
        """The index, at most ``stop``, up to which no more than ``count`` records are wanted."""
        verdicts = self.verdicts(wire, batch, start, stop)
        found = start - 1
        for _ in range(count + 1):
            found = verdicts.find(YES, found + 1, stop)
            if found < 0:
                return stop
        return found

    def takes(self, wire: PartitionWire, batch: RecordBatch, index: int) -> bool:
        """True if this record is wanted."""
        return self.verdicts(wire, batch, index, index + 1)[index] == YES

    def _evaluate(self, wire: PartitionWire, batch: RecordBatch, start: int, stop: int) -> bytes:
        test, indexes, blocks = self._test, range(start, stop), batch.blocks[start:stop]
        if not self._of_block:
            Selection.spent_chars += len(blocks) * len(self.text)
            columns = [column(wire, batch, indexes, blocks) for column in self._columns]
            return bytes([test(row) is True for row in zip(*columns, strict=True)])
        different = list(dict.fromkeys(blocks))
        Selection.spent_chars += len(different) * len(self.text)
        columns = [column(wire, batch, indexes, different) for column in self._columns]
        rows: Iterable[Row] = zip(*columns, strict=True) if columns else repeat(())
        known = {block: test(row) is True for block, row in zip(different, rows, strict=False)}
        return bytes([known[block] for block in blocks])


# --- what a name is, for the records with these indexes and blocks ----------------------------------------------------


def _destination(wire: PartitionWire, batch: RecordBatch, indexes: range, blocks: list[bytes]) -> Values:
    return [batch.names[batch.destination_ids[index]] for index in indexes]


def _partition(wire: PartitionWire, batch: RecordBatch, indexes: range, blocks: list[bytes]) -> Values:
    return [wire.partition_name] * len(indexes)


def _offset(wire: PartitionWire, batch: RecordBatch, indexes: range, blocks: list[bytes]) -> Values:
    return [str(batch.offsets[index]) for index in indexes]


def _receive_time(wire: PartitionWire, batch: RecordBatch, indexes: range, blocks: list[bytes]) -> Values:
    return [str(batch.receive_ns[index]) for index in indexes]


def _timestamp(wire: PartitionWire, batch: RecordBatch, indexes: range, blocks: list[bytes]) -> Values:
    return [str(batch.receive_ns[index] // NS_PER_MS) for index in indexes]


def _message_id(wire: PartitionWire, batch: RecordBatch, indexes: range, blocks: list[bytes]) -> Values:
    prefix = wire.id_prefix.decode()
    return [f"{prefix}{batch.offsets[index]}" for index in indexes]


FACTS: Final[dict[str, Column]] = {
    "destination": _destination,
    "partition": _partition,
    "offset": _offset,
    "receive-time": _receive_time,
    "message-id": _message_id,
    "JMSTimestamp": _timestamp,
}


def _column(name: str) -> Column:
    """What a name of a selector stands for."""
    name = JMS.get(name, name)
    if name in FACTS:
        return FACTS[name]
    if name == "JMSPriority":
        return _header("priority", DEFAULT_PRIORITY)
    return _header(name, None)


def _header(name: str, default: str | None) -> Column:
    value_of = header_value(name)

    def column(wire: PartitionWire, batch: RecordBatch, indexes: range, blocks: list[bytes]) -> Values:
        return [default if value is None else _text(value) for value in map(value_of, blocks)]

    return column


def _text(value: bytes) -> str:
    text = value.decode()
    return unescape(text, "1.2") if "\\" in text else text
