r"""The wire form of stored messages: built once per batch, shared by all subscribers.

A MESSAGE frame is ``prefix + tail``. The prefix differs per subscription and the tail per message, so the bytes of a
whole run for one subscriber are one ``prefix.join(tails)``::

    MESSAGE                                  \
    subscription:0                            | prefix (ack:auto)
    message-id:                              /
               %2Ftopic%2Fa@17               \
    destination:/topic/a                      |
    partition:/topic/a                        | tail, one per message, shared
    receive-time:1732082400000000000          |
    offset:17, content-length:5, the stored   |
    header block, a blank line, body, NUL, LF /

Under the client ack modes the prefix ends in ``ack:TAG-`` and each tail is preceded by the delivery number and
``message-id:``. ``ack`` is then the subscription's tag and the number, and either id is accepted back.

A header of a record is a line of ``PartitionWire._build``, with its value for selectors and tools in
``RECORD_HEADERS``. A header of a delivery is a line of the prefix. ``stomp.spec.MESSAGE_HEADERS`` has both.

The stored header block is in STOMP 1.2 wire form. Tails are built a second time only for a peer with version 1.0 or
1.1, and only where that version escapes a header differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from radiator.stomp.headers import block_for, escape, needs_conversion

if TYPE_CHECKING:
    from radiator.storage.batch import RecordBatch


TAIL_BYTES = 150  # approximate size of a MESSAGE frame without its stored headers and its body


class Record(Protocol):
    """The values of a record that its headers show."""

    @property
    def destination(self) -> str:
        """The destination that the message was sent to."""

    @property
    def partition(self) -> str:
        """The name of the partition."""

    @property
    def offset(self) -> int:
        """The offset in the partition."""

    @property
    def message_id(self) -> str:
        """The message id."""

    @property
    def receive_ns(self) -> int:
        """When the broker received the message."""


# The values of the headers that MESSAGE has for its record, beside the stored ones.
RECORD_HEADERS: Final[Mapping[str, Callable[[Record], str]]] = {
    "destination": lambda record: record.destination,
    "message-id": lambda record: record.message_id,
    "partition": lambda record: record.partition,
    "offset": lambda record: str(record.offset),
    "receive-time": lambda record: str(record.receive_ns),
}


class StoredRecord(NamedTuple):
    """A record of a batch, as ``RECORD_HEADERS`` needs it.

    Attributes:
        batch: The batch.
        at: The index of the record in the batch.
        partition: The name of its partition; empty if it is unknown.
        id_prefix: What its message id has before the offset; empty if the partition is unknown.
    """

    batch: RecordBatch
    at: int
    partition: str
    id_prefix: str

    @property
    def destination(self) -> str:
        """The destination that the message was sent to."""
        return self.batch.names[self.batch.destination_ids[self.at]]

    @property
    def offset(self) -> int:
        """The offset in the partition."""
        return self.batch.offsets[self.at]

    @property
    def message_id(self) -> str:
        """The message id; empty if the partition is unknown."""
        return f"{self.id_prefix}{self.offset}" if self.id_prefix else ""

    @property
    def receive_ns(self) -> int:
        """When the broker received the message."""
        return self.batch.receive_ns[self.at]


class Whole:
    """Encoder of whole batches under ``ack:auto``, which caches its last result.

    A batch goes to the subscribers of a topic one after another, so those with the same subscription id share bytes.
    """

    __slots__ = ("_data", "_prefix", "_tails")

    def __init__(self) -> None:
        self._prefix = self._data = b""
        self._tails: list[bytes] | None = None

    def frames(self, prefix_bytes: bytes, tails: list[bytes]) -> bytes:
        """Return the frames for one subscriber.

        Args:
            prefix_bytes: The prefix of the subscription.
            tails: The tails of the whole batch, from ``PartitionWire.tails``.
        """
        if tails is not self._tails or prefix_bytes != self._prefix:
            self._prefix, self._tails = prefix_bytes, tails
            self._data = frames(prefix_bytes, tails, None)
        return self._data


class PartitionWire:
    """The parts of the wire form that all messages of one partition share.

    Args:
        partition_name: The name of the partition.
        encoded_name: The same in the form that message ids use.
        whole: The encoder of whole batches.
    """

    __slots__ = ("_middles", "id_prefix", "partition_name", "whole")

    def __init__(self, partition_name: str, encoded_name: str, whole: Whole) -> None:
        self.whole = whole
        self.id_prefix = encoded_name.encode() + b"@"
        self.partition_name = partition_name
        self._middles: dict[tuple[str, str], bytes] = {}

    def middle(self, destination: str, version: str) -> bytes:
        """Return the lines between the message id and the receive time."""
        key = (destination, version)
        middle = self._middles.get(key)
        if middle is None:
            if len(self._middles) >= 4096:
                self._middles.clear()
            middle = self._middles[key] = b"\ndestination:%b\npartition:%b\nreceive-time:" % (
                escape(destination, version).encode(),
                escape(self.partition_name, version).encode(),
            )
        return middle

    def tails(self, batch: RecordBatch, version: str) -> list[bytes]:
        """Return the tails of a whole batch, cached in ``batch.memo`` for as long as the batch lives."""
        memo: dict[str, list[bytes]] | None = batch.memo
        if memo is None:
            memo = batch.memos()
        tails = memo.get(version)
        if tails is None:
            if version != "1.2" and not _differs(batch, version):
                tails = self.tails(batch, "1.2")
            else:
                tails = self._build(batch, version)
            memo[version] = tails
        return tails

    def _build(self, batch: RecordBatch, version: str) -> list[bytes]:
        prefix = self.id_prefix
        blocks = batch.blocks
        if version != "1.2":
            blocks = [block_for(block, version) for block in blocks]
        middles = [self.middle(name, version) for name in batch.names]
        of_records = middles * len(blocks) if len(middles) == 1 else [middles[each] for each in batch.destination_ids]
        return [  # content-length is the last of the broker's lines: what follows is the stored block
            b"%b%d%b%d\noffset:%d\ncontent-length:%d%b\n\n%b\0\n"
            % (prefix, offset, middle, time, offset, len(body), b"\n" + block if block else b"", body)
            for offset, time, middle, block, body in zip(
                batch.offsets, batch.receive_ns, of_records, blocks, batch.bodies, strict=True
            )
        ]


def _differs(batch: RecordBatch, version: str) -> bool:
    return any(needs_conversion(block, version) for block in batch.blocks) or any(
        not _plain(name) for name in batch.names
    )


def _plain(name: str) -> bool:
    return not any(character in name for character in "\\:\r\n")


def prefix(subscription_id: str, version: str, extra: bytes, ack_tag: str | None) -> bytes:
    """Return the prefix of a subscription's messages.

    Args:
        subscription_id: The id of the subscription.
        version: The STOMP version of the peer.
        extra: Further header lines, each of which ends in a line feed.
        ack_tag: The tag of the subscription, for ack ids; None under ``ack:auto``.
    """
    head = b"MESSAGE\nsubscription:%b\n%b" % (escape(subscription_id, version).encode(), extra)
    if ack_tag is None:
        return head + b"message-id:"
    return b"%back:%b-" % (head, ack_tag.encode())


def frames(prefix_bytes: bytes, tails: list[bytes], first: int | None) -> bytes:
    """Return the bytes of a run of messages; ``first`` is the number of the first delivery, None under ``ack:auto``."""
    if first is None:
        return prefix_bytes + prefix_bytes.join(tails)
    return b"".join([b"%b%d\nmessage-id:%b" % (prefix_bytes, each, tail) for each, tail in enumerate(tails, first)])


def fits(batch: RecordBatch, bytes_max: int) -> bool:
    """Return True if all of a batch fits into about ``bytes_max``."""
    return batch.size_bytes + len(batch.blocks) * TAIL_BYTES <= bytes_max


def run_length(batch: RecordBatch, start: int, stop: int, bytes_max: int) -> int:
    """Return how many records from ``start`` fit into about ``bytes_max``; at least one."""
    count = stop - start
    average = batch.size_bytes // len(batch.blocks) + TAIL_BYTES
    if count * average > bytes_max:
        count = max(1, bytes_max // average)
    while count > 1 and sum(map(len, batch.bodies[start : start + count])) > 2 * bytes_max:
        count //= 2
    return count
