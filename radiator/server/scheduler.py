"""Schedule the reading of connections: which one is read when, and for how long.

In a time slice a connection is read and its frames are processed. A round of the event loop is a poll, the slices that
follow it, and a turn of the driver. The length of a round is the time that other clients wait. So slices have a bounded
time in each round, which the connections of an origin share (a user; before the login and for anonymous clients an
address):

1. A connection that was not busy lately gets a slice as soon as bytes arrive, if its origin has used less than the time
   of a round. A slice ends after ``SLICE_NS``. So short work comes before long work.
2. A connection with more work than fits into a slice is busy. It waits in the queue of its origin, as do connections of
   an origin that has used its time.
3. At the end of each turn the queues are served for the time of a round by deficit round robin: each origin gets the
   same time, however many connections it has, and its connections take turns.

The time of a round is ``ROUND_NS``, or as long as turns take, up to ``ROUND_NS_MAX``. A turn that sends to many
connections costs about the same for one message as for a hundred, so shorter slices between such turns would reduce
throughput. A round is at most twice as long as its turn.

Uses the clock. Must not know sockets or frames.

Source: Shreedhar and Varghese, "Efficient Fair Queuing using Deficit Round Robin", 1995.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, Protocol

from radiator import clock, limits
from radiator.clock import NS_PER_MS

ROUND_NS: Final = 5 * NS_PER_MS  # time of an origin, and of all queues, in a round: at least
ROUND_NS_MAX: Final = 20 * NS_PER_MS  # the same at most, see ``begin_queued``
TURN_FADES: Final = 8  # the weight of a turn falls by an eighth with each later turn
SLICE_NS: Final = NS_PER_MS
BUSY_ROUNDS: Final = 32  # a busy connection counts as busy for so many more rounds
CROWD: Final = 4  # with more busy connections pieces are smaller, because a piece is parsed as a whole
CROWD_RECV_BYTES: Final = 8 * limits.KIB


class Schedulable(Protocol):
    """A connection."""

    @property
    def origin(self) -> str:
        """The origin with whose connections it shares time."""

    def run_slice(self) -> None:
        """Run a slice. The connection may enqueue itself again."""


class _OriginQueue:
    """The connections of one origin that wait, and the time that the origin may still use."""

    __slots__ = ("credit_ns", "waiting")

    def __init__(self) -> None:
        self.credit_ns = 0
        self.waiting: deque[Schedulable] = deque()


class ReadScheduler:
    """The scheduler of one driver.

    Attributes:
        recv_bytes: The number of bytes to read at once.
    """

    __slots__ = (
        "_began_ns", "_left", "_queues", "_longest_ns", "_origin", "_round", "_round_ns", "_round_until_ns", "_turn_ns",
        "_until_ns", "_used_ns", "_waiting", "recv_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self._origin = ""  # of the slice that began last
        self._began_ns = 0
        self._until_ns = 0
        self._longest_ns = 0  # slice of this round
        self._left = 0  # bytes
        self._round = 0
        self._used_ns: dict[str, int] = {}  # by origin: time used in this round
        self._queues: OrderedDict[str, _OriginQueue] = OrderedDict()  # no empty ones; the first is next
        self._waiting = 0  # in all queues
        self._turn_ns = 0  # the longest of the recent turns
        self._round_ns = ROUND_NS
        self._round_until_ns = 0
        self.recv_bytes = limits.RECV_BYTES

    # --- one slice ----------------------------------------------------------------------------------------------------

    def begin(self, origin: str, among: int = 1) -> None:
        """Begin a slice.

        Args:
            origin: The origin of the connection.
            among: The number of slices that are known to follow one another in this round.
        """
        self._origin = origin
        self._began_ns = now_ns = clock.monotonic_ns()
        self._until_ns = now_ns + (SLICE_NS if among == 1 else min(SLICE_NS, ROUND_NS // among))
        self._left = limits.RECV_VISIT_BYTES_MAX

    def try_begin(self, origin: str, busy_until: int) -> bool:
        """Begin a slice, unless the connection has to wait in the queue of its origin.

        Args:
            origin: The origin of the connection.
            busy_until: The value of ``busy_until`` when the connection was busy last; 0 if it never was.

        Returns:
            True if the slice has begun.
        """
        if self._round < busy_until or self._used_ns.get(origin, 0) >= self._round_ns:
            return False
        self._origin = origin  # from here on as in ``begin``
        self._began_ns = now_ns = clock.monotonic_ns()
        self._until_ns = now_ns + SLICE_NS
        self._left = limits.RECV_VISIT_BYTES_MAX
        return True

    def slice_over(self) -> bool:
        """Return True if this slice should end although there is more to do."""
        return clock.monotonic_ns() > self._until_ns

    def count(self, size: int) -> bool:
        """Count ``size`` processed bytes. Return True if this slice should end."""
        self._left -= size
        return self._left <= 0 or self.slice_over()

    def end(self) -> None:
        """End the slice that began last, and count its time for its origin."""
        took_ns = clock.monotonic_ns() - self._began_ns
        used_ns, origin = self._used_ns, self._origin
        used_ns[origin] = used_ns.get(origin, 0) + took_ns
        if took_ns > self._longest_ns:
            self._longest_ns = took_ns

    # --- a round ------------------------------------------------------------------------------------------------------

    @property
    def busy_until(self) -> int:
        """The round from which on a connection that is busy now no longer counts as busy."""
        return self._round + BUSY_ROUNDS

    def enqueue(self, connection: Schedulable) -> None:
        """Append a connection to the queue of its origin. It must not be in a queue already."""
        origin = connection.origin
        queue = self._queues.get(origin)
        if queue is None:
            queue = self._queues[origin] = _OriginQueue()
        queue.waiting.append(connection)
        self._waiting += 1

    def next_round(self) -> int:
        """End this round and begin a new one.

        Returns:
            The time of the longest slice of this round, in nanoseconds.
        """
        self._round += 1
        self._used_ns.clear()
        self.recv_bytes = limits.RECV_BYTES if self._waiting <= CROWD else CROWD_RECV_BYTES
        longest_ns, self._longest_ns = self._longest_ns, 0
        return longest_ns

    def begin_queued(self, turn_began_ns: int) -> None:
        """Begin the time of the queued connections.

        Args:
            turn_began_ns: The monotonic time at which the present turn of the driver began.
        """
        now_ns = clock.monotonic_ns()
        turn_ns, faded_ns = now_ns - turn_began_ns, self._turn_ns - self._turn_ns // TURN_FADES
        self._turn_ns = turn_ns if turn_ns > faded_ns else faded_ns
        self._round_ns = ROUND_NS if self._turn_ns <= ROUND_NS else min(self._turn_ns, ROUND_NS_MAX)
        self._round_until_ns = now_ns + self._round_ns

    @property
    def round_over(self) -> bool:
        """True if the time of the queued connections is used up in this round."""
        return clock.monotonic_ns() >= self._round_until_ns

    def run_queued(self) -> bool:
        """Run slices of queued connections until the time of this round is used up, but at least one.

        Returns:
            True if connections are left.
        """
        queues = self._queues
        if not queues:
            return False
        now_ns = clock.monotonic_ns()
        while queues:
            origin, queue = next(iter(queues.items()))
            if queue.credit_ns <= 0:
                queue.credit_ns += SLICE_NS
                queues.move_to_end(origin)
                continue
            waiting = queue.waiting
            while waiting and queue.credit_ns > 0:
                self._waiting -= 1
                waiting.popleft().run_slice()
                before_ns, now_ns = now_ns, clock.monotonic_ns()
                queue.credit_ns -= now_ns - before_ns
                if now_ns >= self._round_until_ns:
                    break
            if not waiting:
                del queues[origin]
            if now_ns >= self._round_until_ns:
                break
        return bool(queues)
