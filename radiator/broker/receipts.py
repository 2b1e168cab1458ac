"""Receipts: when a RECEIPT may be sent, and in which order.

A receipt is a promise about something that may still be on its way to the disk. Each session therefore keeps a
first-in-first-out line of *groups*; a group is a run of RECEIPTs that become true together (all sends that are written
in one turn, however many batches they went into), and it leaves the line only when it is true and everything before it
has left. So receipts come in the order of the client's frames, and never before their effect (``docs/protocol.md``,
"RECEIPT"). What was sent before without asking (``Silent``) is waited for as well: a client that sends a hundred
messages and asks for one receipt gets it when all of them are stored.

Invariants: a group waits for ``waiting`` commits, its own and those of everything silent before it; a commit that
failed makes the group fail where its first message was; what leaves the line is bytes, ready to send. This module knows
neither sockets nor storage: a batch is anything with a list ``waiters`` and a ``turn``, which is the same object for
batches that are written together.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from radiator.errors import ProtocolError
from radiator.stomp.encoder import SERVER_END, receipts_with_offsets


class Share:
    """The RECEIPTs of one group whose messages are in one batch. The batch tells it when it is stored."""

    __slots__ = ("_index", "batch", "group", "weight_bytes")

    def __init__(self, group: ReceiptGroup, index: int, batch: Any) -> None:
        self.group = group
        self._index = index  # of its first RECEIPT in the group
        self.batch = batch
        self.weight_bytes = 0  # what its RECEIPTs hold in memory, roughly

    def settle(self, failure: ProtocolError | None = None) -> None:
        """The batch is stored, or is not."""
        group = self.group
        self.batch = None  # which holds this: a cycle would keep every message until the collector comes
        if group.share is self:
            group.share = None
        group.told(failure, self._index)


class ReceiptGroup:
    """RECEIPTs of one session that become true together."""

    __slots__ = ("failure", "failure_index", "final", "ids", "line", "offsets", "share", "suffixes", "turn", "waiting",
                 "weight_bytes")  # fmt: skip
    batch = None

    def __init__(self, line: ReceiptLine, waiting: int, turn: object = None) -> None:
        self.line = line
        self.turn = turn
        self.ids: list[bytes] = []
        self.offsets: list[int] = []  # of messages, if it is about those
        self.suffixes: list[bytes] = []  # how each RECEIPT of a message ends
        self.share: Share | None = None  # the latest
        self.waiting = waiting
        self.weight_bytes = 0
        self.failure: ProtocolError | None = None
        self.failure_index = 0  # of the RECEIPT that it is the answer to
        self.final: bytes | None = None  # sent instead of RECEIPTs: an ERROR frame that must not overtake them

    def share_in(self, batch: Any) -> Share:
        """Wait for one more batch: that of the RECEIPTs that are added from now on."""
        share = self.share = Share(self, len(self.ids), batch)
        batch.waiters.append(share)
        self.waiting += 1
        return share

    def settle(self, failure: ProtocolError | None = None) -> None:
        """One of the commits that this group waits for has ended."""
        if failure is not None and not self.offsets:
            self.waiting = 1  # it has failed, whatever becomes of the others
        self.told(failure, 0)

    def told(self, failure: ProtocolError | None, index: int = 0) -> None:
        """The same, of one that its RECEIPTs from ``index`` on are about, or are behind."""
        self.waiting -= 1
        if failure is not None and (self.failure is None or index < self.failure_index):
            self.failure, self.failure_index = failure, index
        if self.waiting <= 0:
            self.line.drain()

    def encode(self) -> bytes:
        """The RECEIPT frames (or the final frame) as bytes; those before the failure, if there is one."""
        if self.final is not None:
            return self.final
        ids, offsets, suffixes = self.ids, self.offsets, self.suffixes
        if self.failure is not None:
            before = slice(self.failure_index)
            ids, offsets, suffixes = ids[before], offsets[before], suffixes[before]
        if self.offsets:
            return receipts_with_offsets(ids, offsets, suffixes)
        return b"".join([b"RECEIPT\nreceipt-id:%b%b" % (receipt, PLAIN_SUFFIX) for receipt in ids])


class Silent:
    """Frames of one session without a receipt that hang on one list of waiters, until that is told; ``group``: the
    first receipt behind them."""

    __slots__ = ("_key", "_line", "batch", "group")

    def __init__(self, line: ReceiptLine, key: Any) -> None:
        self.batch = None  # as of a receipt that is about no message
        self.group: ReceiptGroup | None = None
        self._line = line
        self._key = key

    def settle(self, failure: ProtocolError | None = None) -> None:
        """It is stored, or is not: then who asks behind it is told."""
        self._line.told(self, self._key, failure)
        self._key = None
        if self.group is not None:
            self.group.told(failure)


PLAIN_SUFFIX = b"\n\n" + SERVER_END
RECEIPT_OVERHEAD_BYTES = 100  # two list entries, two objects, a share of the group


def _nobody(*told: object) -> None:
    pass


class ReceiptLine:
    """The line of groups of one session. ``out`` is called with bytes to send, ``fail`` with a commit's failure."""

    __slots__ = ("_fail", "_failure", "_fresh", "_groups", "_last", "_out", "_silent", "held_bytes", "quiet")

    def __init__(self, out: Any, fail: Any) -> None:
        self._out = out
        self._fail = fail
        self._groups: deque[ReceiptGroup] = deque()
        self._last: ReceiptGroup | None = None
        self.held_bytes = 0  # of receipts asked for and not handed out
        self.quiet: Any = None  # the batch that was noted last by silently()
        self._silent: dict[Any, Silent] = {}  # by batch
        self._fresh: dict[Silent, None] = {}  # those behind which nobody has asked yet
        self._failure: ProtocolError | None = None  # of one of those

    @property
    def empty(self) -> bool:
        """True when every receipt asked for so far has been handed out."""
        return not self._groups

    def now(self, receipt: bytes) -> None:
        """A RECEIPT whose effect is done already: sent as soon as those before it are out."""
        if not (self._groups or self._fresh or self._failure):
            self._out(b"RECEIPT\nreceipt-id:%b%b" % (receipt, PLAIN_SUFFIX))
            return
        self._plain(receipt, 0)
        self.drain()

    def final(self, frame: bytes) -> None:
        """A frame that ends the conversation (ERROR): sent after all receipts before it."""
        group = ReceiptGroup(self, 0)
        group.final = frame
        self._groups.append(group)
        self._last = None
        self.drain()

    def stored(self, receipt: bytes, offset: int, batch: Any, suffix: bytes) -> int:
        """A RECEIPT that waits for ``batch``; it ends with ``suffix``. Returns what it weighs in memory."""
        share = self._share_in(batch)
        group = share.group
        group.ids.append(receipt)
        group.offsets.append(offset)
        group.suffixes.append(suffix)
        weight = len(receipt) + RECEIPT_OVERHEAD_BYTES
        share.weight_bytes += weight
        group.weight_bytes += weight
        self.held_bytes += weight
        return weight

    def stored_many(self, receipts: list[bytes], first: int, batch: Any, suffix: bytes) -> int:
        """RECEIPTs of messages with consecutive offsets that wait for one batch.

        Args:
            receipts: their ids.
            first: the offset of the first message.
            batch: the batch that all the messages are in.
            suffix: how each RECEIPT ends.

        Returns:
            What they weigh in memory together.
        """
        share, count = self._share_in(batch), len(receipts)
        group = share.group
        group.ids += receipts
        group.offsets += range(first, first + count)
        group.suffixes += [suffix] * count
        weight = sum(map(len, receipts)) + count * RECEIPT_OVERHEAD_BYTES
        share.weight_bytes += weight
        group.weight_bytes += weight
        self.held_bytes += weight
        return weight

    def _share_in(self, batch: Any) -> Share:
        """Return the share in a batch that its next RECEIPT belongs to, and begin a group or a share where needed."""
        group = self._last
        if group is None or group.turn is not batch.turn or self._fresh or self._failure:
            group = ReceiptGroup(self, 0, batch.turn)
            self._append(group)
            self._last = group
        share = group.share
        if share is None or share.batch is not batch:
            share = group.share_in(batch)
        return share

    def after(self, receipt: bytes, waited: list[list[Any]]) -> None:
        """A RECEIPT that waits for several things, each given by its list of waiters."""
        if not waited:
            self.now(receipt)
            return
        group = self._plain(receipt, len(waited))
        for waiters in waited:
            waiters.append(group)

    def _plain(self, receipt: bytes, waiting: int) -> ReceiptGroup:
        group = ReceiptGroup(self, waiting)
        group.ids.append(receipt)
        group.weight_bytes = len(receipt) + RECEIPT_OVERHEAD_BYTES
        self.held_bytes += group.weight_bytes
        self._append(group)
        return group

    def silently(self, batch: Any) -> None:
        """A message without a receipt is in this batch."""
        self.quiet = batch
        if batch not in self._silent:
            self._silent[batch] = self._note(batch.waiters, batch)

    def silently_after(self, waited: list[list[Any]]) -> None:
        """A frame without a receipt has its effect once all these are told."""
        for waiters in waited:
            self._note(waiters, None)

    def _note(self, waiters: list[Any], key: Any) -> Silent:
        silent = Silent(self, key)
        self._fresh[silent] = None
        waiters.append(silent)
        return silent

    def told(self, silent: Silent, key: Any, failure: ProtocolError | None) -> None:
        """Nobody has to wait for this any more; if nobody does yet, a failure is for who asks next."""
        self._fresh.pop(silent, None)
        if silent.group is None and self._failure is None:
            self._failure = failure
        if key is not None:
            self._silent.pop(key, None)
            if key is self.quiet:
                self.quiet = None

    def _append(self, group: ReceiptGroup) -> None:
        if self._fresh:
            for silent in self._fresh:
                silent.group = group
            group.waiting += len(self._fresh)
            self._fresh.clear()
        group.failure, self._failure = self._failure, None
        self._groups.append(group)
        self._last = None

    def close(self) -> None:
        """Nobody is there to be told any more."""
        self._out = self._fail = _nobody
        self._silent.clear()
        self._fresh.clear()
        self.quiet = None

    def drain(self) -> None:
        """Hand out every group at the head of the line that has become true."""
        groups = self._groups
        while groups and groups[0].waiting <= 0:
            group = groups.popleft()
            self.held_bytes -= group.weight_bytes
            if group is self._last:
                self._last = None
            if group.failure is not None:
                receipt = group.ids[group.failure_index] if group.ids else None
                if group.failure_index:
                    self._out(group.encode())
                groups.clear()
                self.held_bytes = 0
                self._last = None
                self._fail(group.failure, receipt)
                return
            self._out(group.encode())
