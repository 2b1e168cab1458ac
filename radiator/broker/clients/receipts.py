"""Receipts: when a RECEIPT may be sent, and in which order.

The effect of a RECEIPT may still be on its way to the disk. Each session therefore has a first-in-first-out line of
*groups*. A group is a run of RECEIPTs with the same condition (all messages of one turn are stored, in any number of
logs). A group leaves the line when its condition is true and all groups before it have left. So receipts have the
order of the client's frames and never precede their effect (``docs/protocol.md``, "RECEIPT"). A RECEIPT also waits for
earlier frames without a receipt (``Silent``): a client that sends a hundred messages and requests one receipt gets it
when all of them are stored.

The module does not know sockets. Of storage it knows places and turns.
Invariants: a group waits for ``waiting`` events, its own turn and those of the silent frames before it. If a message
could not be stored, the group fails at the position of its RECEIPT.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

from radiator.errors import ProtocolError
from radiator.stomp.encoder import SERVER_END, receipts_with_offsets
from radiator.storage.turn import Place, Turn


class ReceiptGroup:
    """RECEIPTs of one session that become true together.

    Args:
        line: The line of the session.
        waiting: The number of events to wait for.
        turn: The turn of the messages; None if the RECEIPTs are not about messages.

    Attributes:
        offsets: The offset of each message; empty if the RECEIPTs are not about messages.
        suffixes: The end of each RECEIPT of a message.
        places: The place of each message in storage.
        weight_bytes: The approximate memory of the RECEIPTs.
        failure_index: The index of the RECEIPT that ``failure`` answers.
        final: An ERROR frame that is sent instead of RECEIPTs, in its place in the line.
        done: Called in place of RECEIPTs, with None or the failure.
    """

    __slots__ = ("done", "failure", "failure_index", "final", "ids", "line", "offsets", "places", "suffixes", "turn",
                 "waiting", "weight_bytes")  # fmt: skip

    def __init__(self, line: ReceiptLine, waiting: int, turn: Turn | None = None) -> None:
        self.line = line
        self.turn = turn
        self.ids: list[bytes] = []
        self.offsets: list[int] = []
        self.suffixes: list[bytes] = []
        self.places: list[Place] = []
        self.waiting = waiting
        self.weight_bytes = 0
        self.failure: ProtocolError | None = None
        self.failure_index = 0
        self.final: bytes | None = None
        self.done: Callable[[ProtocolError | None], None] | None = None

    def stored(self, turn: Turn) -> None:
        """Handle the end of the turn: the messages are stored, or some could not be."""
        places, self.places = self.places, []  # the places refer to the messages: free them
        for index, place in enumerate(places if turn.failures else ()):
            if place in turn.failures:
                self.reported(turn.failures[place], index)
                return
        self.reported(None)

    def settle(self, failure: ProtocolError | None = None) -> None:
        """Handle the end of an event other than the turn."""
        if failure is not None and not self.offsets:
            self.waiting = 1  # the group fails at once
        self.reported(failure)

    def reported(self, failure: ProtocolError | None, index: int = 0) -> None:
        """Count down one event; ``failure`` concerns the RECEIPTs from ``index`` on."""
        self.waiting -= 1
        if failure is not None and (self.failure is None or index < self.failure_index):
            self.failure, self.failure_index = failure, index
        if self.waiting <= 0:
            self.line.drain()

    def encode(self) -> bytes:
        """Return the RECEIPT frames, or the final frame, as bytes. With a failure, only the RECEIPTs before it."""
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
    """Frames of one session without a receipt that wait for one turn, or in one waiter list.

    Args:
        line: The line of the session.
        turn: The turn of the messages, or None.

    Attributes:
        group: The group of the next RECEIPT, once there is one.
        places: The places of the messages in storage.
    """

    __slots__ = ("_line", "_turn", "group", "places")
    weight_bytes = 0

    def __init__(self, line: ReceiptLine, turn: Turn | None) -> None:
        self.group: ReceiptGroup | None = None
        self.places: dict[Place, None] = {}
        self._line = line
        self._turn = turn

    def stored(self, turn: Turn) -> None:
        """Handle the end of the turn: the messages are stored, or some could not be."""
        failures = [turn.failures[place] for place in self.places if place in turn.failures]
        self.places.clear()
        self.settle(failures[0] if failures else None)

    def settle(self, failure: ProtocolError | None = None) -> None:
        """Handle the end of the wait and report it to the next group."""
        self._line.reported(self, self._turn, failure)
        self._turn = None
        if self.group is not None:
            self.group.reported(failure)


PLAIN_SUFFIX = b"\n\n" + SERVER_END
RECEIPT_OVERHEAD_BYTES = 100  # two list entries, two objects, part of the group


def _ignore(*reported: object) -> None:
    pass


class ReceiptLine:
    """The line of receipt groups of one session.

    Args:
        out: Called with bytes to send.
        fail: Called with the failure of a commit, and the receipt id that it answers.

    Attributes:
        held_bytes: The approximate memory of receipts that were not sent yet.
        quiet: The place that ``silently`` has noted last.
    """

    __slots__ = ("_fail", "_failure", "_fresh", "_groups", "_last", "_out", "_silent", "held_bytes", "quiet")

    def __init__(self, out: Any, fail: Any) -> None:
        self._out = out
        self._fail = fail
        self._groups: deque[ReceiptGroup] = deque()
        self._last: ReceiptGroup | None = None
        self.held_bytes = 0
        self.quiet: Place | None = None
        self._silent: dict[Turn, Silent] = {}
        self._fresh: dict[Silent, None] = {}  # those without a later RECEIPT
        self._failure: ProtocolError | None = None  # the failure of a silent frame, for the next RECEIPT

    @property
    def empty(self) -> bool:
        """True if every requested receipt was sent."""
        return not self._groups

    def now(self, receipt: bytes) -> None:
        """Add a RECEIPT whose effect is complete. It is sent when those before it are."""
        if not (self._groups or self._fresh or self._failure):
            self._out(b"RECEIPT\nreceipt-id:%b%b" % (receipt, PLAIN_SUFFIX))
            return
        self._plain(receipt, 0)
        self.drain()

    def final(self, frame: bytes) -> None:
        """Add the last frame (ERROR). It is sent after all receipts before it."""
        group = ReceiptGroup(self, 0)
        group.final = frame
        self._groups.append(group)
        self._last = None
        self.drain()

    def then(self, done: Callable[[ProtocolError | None], None]) -> None:
        """Call a function when all frames before are stored, or with the failure of one; also if the client is gone."""
        group = ReceiptGroup(self, 0)
        group.done = done
        self._append(group)
        self.drain()

    def stored(self, receipt: bytes, offset: int, place: Place, suffix: bytes) -> int:
        """Add the RECEIPT of a message.

        Args:
            receipt: The receipt id.
            offset: The offset of the message.
            place: The place of the message in storage.
            suffix: The end of the RECEIPT.

        Returns:
            The approximate memory of the RECEIPT in bytes.
        """
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
        """Add the RECEIPTs of messages with consecutive offsets at one place.

        Args:
            receipts: The receipt ids.
            first: The offset of the first message.
            place: The place of all messages in storage.
            suffix: The end of each RECEIPT.

        Returns:
            The approximate memory of the RECEIPTs in bytes.
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
        """Return a new group of RECEIPTs that wait for a turn."""
        group = ReceiptGroup(self, 1, turn)
        self._append(group)
        turn.waiters.append(group)
        self._last = group
        return group

    def after(self, receipt: bytes, waited: list[list[Any]]) -> None:
        """Add a RECEIPT that waits for several events, each given by its waiter list."""
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
        """Note a message without a receipt."""
        self.quiet = place
        silent = self._silent.get(place.turn)
        if silent is None:
            silent = self._silent[place.turn] = self._note(place.turn.waiters, place.turn)
        silent.places[place] = None

    def silently_after(self, waited: list[list[Any]]) -> None:
        """Note a frame without a receipt whose effect is complete after these events, each given by its waiter list."""
        for waiters in waited:
            self._note(waiters, None)

    def _note(self, waiters: list[Any], turn: Turn | None) -> Silent:
        silent = Silent(self, turn)
        self._fresh[silent] = None
        waiters.append(silent)
        return silent

    def reported(self, silent: Silent, turn: Turn | None, failure: ProtocolError | None) -> None:
        """Handle the end of a silent frame's wait. If no RECEIPT follows it yet, a failure goes to the next one."""
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
        """Discard all results: the connection is gone."""
        self._out = self._fail = _ignore
        self._silent.clear()
        self._fresh.clear()
        self.quiet = None

    def drain(self) -> None:
        """Send the groups at the head of the line whose condition is true."""
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
                for each in (group, *groups):
                    if each.done is not None:
                        each.done(group.failure)
                groups.clear()
                self.held_bytes = 0
                self._last = None
                self._fail(group.failure, receipt)
                return
            if group.done is None:
                self._out(group.encode())
            else:
                group.done(None)


class AllOf:
    """Waits for several writes or syncs and then settles ``waiters``.

    The creator calls ``settle`` once after the last call of ``wait_for``.

    Args:
        waiters: Objects to settle with the first failure when all events have ended.
    """

    __slots__ = ("_failure", "_waiters", "_waiting")

    def __init__(self, waiters: Iterable[Any] = ()) -> None:
        self._waiting = 1
        self._waiters = waiters
        self._failure: ProtocolError | None = None

    def wait_for(self, places: Collection[list[Any]]) -> None:
        """Wait for more events, each given by its waiter list."""
        self._waiting += len(places)
        for place in places:
            place.append(self)

    def settle(self, failure: ProtocolError | None = None) -> None:
        """Handle the end of one event."""
        self._waiting -= 1
        self._failure = self._failure or failure
        if not self._waiting:
            for each in self._waiters:
                each.settle(self._failure)

    def under_way(self) -> bool:
        """Return True while an event has not ended.

        Raises:
            ProtocolError: An event has failed.
        """
        if self._failure is not None:
            raise self._failure
        return bool(self._waiting)
