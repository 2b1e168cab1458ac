"""Receipts: when a RECEIPT may be sent, and in which order.

A receipt is a promise about something that may still be on its way to the disk. Each session therefore keeps a
first-in-first-out line of *groups*; a group is a run of RECEIPTs that become true together (all sends that are stored
in one turn, to however many logs), and it leaves the line only when it is true and everything before it has left. So
receipts come in the order of the client's frames, and never before their effect (``docs/protocol.md``, "RECEIPT").
What was sent before without asking (``Silent``) is waited for as well: a client that sends a hundred messages and asks
for one receipt gets it when all of them are stored.

Invariants: a group waits for ``waiting`` things, its own turn and those of everything silent before it; a message that
could not be stored makes the group fail where its RECEIPT is; what leaves the line is bytes, ready to send. This module
knows no sockets, and of storage places and turns only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

from radiator.errors import ProtocolError
from radiator.stomp.encoder import SERVER_END, receipts_with_offsets
from radiator.storage.turn import Place, Turn


class ReceiptGroup:
    """RECEIPTs of one session that become true together."""

    __slots__ = ("failure", "failure_index", "final", "ids", "line", "offsets", "places", "suffixes", "turn", "waiting",
                 "weight_bytes")  # fmt: skip

    def __init__(self, line: ReceiptLine, waiting: int, turn: Turn | None = None) -> None:
        self.line = line
        self.turn = turn
        self.ids: list[bytes] = []
        self.offsets: list[int] = []  # of messages, if it is about those
        self.suffixes: list[bytes] = []  # how each RECEIPT of a message ends
        self.places: list[Place] = []  # where each of these messages is stored
        self.waiting = waiting
        self.weight_bytes = 0  # what its RECEIPTs hold in memory, roughly
        self.failure: ProtocolError | None = None
        self.failure_index = 0  # of the RECEIPT that it is the answer to
        self.final: bytes | None = None  # sent instead of RECEIPTs: an ERROR frame that must not overtake them

    def stored(self, turn: Turn) -> None:
        """The messages of its turn are stored, or some could not be."""
        places, self.places = self.places, []  # they hold the messages
        for index, place in enumerate(places if turn.failures else ()):
            if place in turn.failures:
                self.reported(turn.failures[place], index)
                return
        self.reported(None)

    def settle(self, failure: ProtocolError | None = None) -> None:
        """Note that something else than its turn has ended which the group waits for."""
        if failure is not None and not self.offsets:
            self.waiting = 1  # it has failed, whatever becomes of the others
        self.reported(failure)

    def reported(self, failure: ProtocolError | None, index: int = 0) -> None:
        """Something that it waits for has ended; ``failure`` is about its RECEIPTs from ``index`` on."""
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
    """Frames of one session without a receipt, which wait for one turn, or in one list of waiters. ``group``: of the
    first receipt behind them."""

    __slots__ = ("_line", "_turn", "group", "places")
    weight_bytes = 0

    def __init__(self, line: ReceiptLine, turn: Turn | None) -> None:
        self.group: ReceiptGroup | None = None
        self.places: dict[Place, None] = {}  # where its messages are stored
        self._line = line
        self._turn = turn

    def stored(self, turn: Turn) -> None:
        """The messages of its turn are stored, or some could not be."""
        failures = [turn.failures[place] for place in self.places if place in turn.failures]
        self.places.clear()
        self.settle(failures[0] if failures else None)

    def settle(self, failure: ProtocolError | None = None) -> None:
        """Note that the wait has ended, and tell the group behind it."""
        self._line.reported(self, self._turn, failure)
        self._turn = None
        if self.group is not None:
            self.group.reported(failure)


PLAIN_SUFFIX = b"\n\n" + SERVER_END
RECEIPT_OVERHEAD_BYTES = 100  # two list entries, two objects, a share of the group


def _nobody(*reported: object) -> None:
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
        self.quiet: Place | None = None  # that was noted last by silently()
        self._silent: dict[Turn, Silent] = {}
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

    def stored(self, receipt: bytes, offset: int, place: Place, suffix: bytes) -> int:
        """A RECEIPT of the message that is stored at ``place``; it ends with ``suffix``. Returns what it weighs in
        memory."""
        group = self._last
        if group is None or group.turn is not place.turn or self._fresh or self._failure:
            group = self._begin(place.turn)
        group.ids.append(receipt)
        group.offsets.append(offset)
        group.suffixes.append(suffix)
        group.places.append(place)
        weight = len(receipt) + RECEIPT_OVERHEAD_BYTES
        group.weight_bytes += weight
        self.held_bytes += weight
        return weight

    def stored_many(self, receipts: list[bytes], first: int, place: Place, suffix: bytes) -> int:
        """RECEIPTs of messages with consecutive offsets that are stored at one place.

        Args:
            receipts: their ids.
            first: the offset of the first message.
            place: where all the messages are stored.
            suffix: how each RECEIPT ends.

        Returns:
            What they weigh in memory together.
        """
        count, group = len(receipts), self._last
        if group is None or group.turn is not place.turn or self._fresh or self._failure:
            group = self._begin(place.turn)
        group.ids += receipts
        group.offsets += range(first, first + count)
        group.suffixes += [suffix] * count
        group.places += [place] * count
        weight = sum(map(len, receipts)) + count * RECEIPT_OVERHEAD_BYTES
        group.weight_bytes += weight
        self.held_bytes += weight
        return weight

    def _begin(self, turn: Turn) -> ReceiptGroup:
        """Return a new group, of RECEIPTs that wait for a turn."""
        group = ReceiptGroup(self, 1, turn)
        self._append(group)
        turn.waiters.append(group)
        self._last = group
        return group

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

    def silently(self, place: Place) -> None:
        """A message without a receipt is stored there."""
        self.quiet = place
        silent = self._silent.get(place.turn)
        if silent is None:
            silent = self._silent[place.turn] = self._note(place.turn.waiters, place.turn)
        silent.places[place] = None

    def silently_after(self, waited: list[list[Any]]) -> None:
        """A frame without a receipt has its effect once all these are told."""
        for waiters in waited:
            self._note(waiters, None)

    def _note(self, waiters: list[Any], turn: Turn | None) -> Silent:
        silent = Silent(self, turn)
        self._fresh[silent] = None
        waiters.append(silent)
        return silent

    def reported(self, silent: Silent, turn: Turn | None, failure: ProtocolError | None) -> None:
        """Nobody has to wait for this any more; if nobody does yet, a failure is for who asks next."""
        self._fresh.pop(silent, None)
        if silent.group is None and self._failure is None:
            self._failure = failure
        if turn is not None:
            self._silent.pop(turn, None)
            if self.quiet is not None and self.quiet.turn is turn:
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


class AllOf:
    """Waits for several writes or syncs, and then tells ``waiters``. Whoever makes one calls ``settle`` once nothing is
    added to it any more.

    Args:
        waiters: objects to settle when all of them have ended, with the first failure.
    """

    __slots__ = ("_failure", "_waiters", "_waiting")

    def __init__(self, waiters: Iterable[Any] = ()) -> None:
        self._waiting = 1
        self._waiters = waiters
        self._failure: ProtocolError | None = None

    def wait_for(self, places: Collection[list[Any]]) -> None:
        """More of them: the lists of those who wait for one each."""
        self._waiting += len(places)
        for place in places:
            place.append(self)

    def settle(self, failure: ProtocolError | None = None) -> None:
        """One of them has ended."""
        self._waiting -= 1
        self._failure = self._failure or failure
        if not self._waiting:
            for each in self._waiters:
                each.settle(self._failure)

    def under_way(self) -> bool:
        """True while a sync is. Raises ProtocolError if one has failed."""
        if self._failure is not None:
            raise self._failure
        return bool(self._waiting)
