"""Which connection is visited when, and for how long.

A visit reads a connection and acts on its frames. A round of the loop is a poll, the visits that it brings, and a turn
of the driver. How long an honest client waits is how long a round takes, so each round has a bounded time for visits,
and the connections of one origin (a user; before the login and for anonymous clients an address) share it:

1. A connection that was not busy lately is visited at once when its bytes come, as long as its origin has used less
   than the time of a round. A visit ends after ``SLICE_NS``. So short visits come before long work.
2. A connection that had more to do than fits into a visit is busy. It stands in the line of its origin, as do those of
   an origin that has used its time.
3. At the end of each turn the lines are served for the time of a round by deficit round robin (Shreedhar and Varghese,
   1995): each origin has the same time, however many connections it has, and its connections take turns.

The time of a round is ``ROUND_NS``, or as long as turns take, up to ``ROUND_NS_MAX``. A turn that sends to many
connections costs about the same for one message as for a hundred, so shorter visits between such turns would cost
throughput; a round is no more than twice as long as its turn for it.

Knows: the clock, and of a connection only what ``Schedulable`` says. Must not know: sockets, frames.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, Protocol

from radiator import clock, limits
from radiator.clock import NS_PER_MS

ROUND_NS: Final = 5 * NS_PER_MS  # of visits of an origin, and of those in queue, in a round: at least
ROUND_NS_MAX: Final = 20 * NS_PER_MS  # the same, where turns take as long: see ``begin_queued``
TURN_FADES: Final = 8  # a turn counts an eighth less with each that follows
SLICE_NS: Final = NS_PER_MS
BUSY_ROUNDS: Final = 32  # a connection that was busy counts as busy for so many rounds more
CROWD: Final = 4  # more that are busy at once are read in smaller pieces, as a piece is parsed as a whole
CROWD_RECV_BYTES: Final = 8 * limits.KIB


class Schedulable(Protocol):
    """A connection."""

    @property
    def origin(self) -> str:
        """With whose connections it shares time."""

    def run_slice(self) -> None:
        """Its turn has come: it is visited, and may stand in line again."""


class _OriginQueue:
    """Those of one origin that wait."""

    __slots__ = ("credit_ns", "waiting")

    def __init__(self) -> None:
        self.credit_ns = 0
        self.waiting: deque[Schedulable] = deque()


class ReadScheduler:
    """Those of one driver."""

    __slots__ = (
        "_began_ns", "_left", "_queues", "_longest_ns", "_origin", "_round", "_round_ns", "_round_until_ns", "_turn_ns",
        "_until_ns", "_used_ns", "_waiting", "recv_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self._origin = ""  # of the visit that began last
        self._began_ns = 0
        self._until_ns = 0
        self._longest_ns = 0  # visit of this round
        self._left = 0  # bytes
        self._round = 0
        self._used_ns: dict[str, int] = {}  # by origin: time of visits in this round
        self._queues: OrderedDict[str, _OriginQueue] = OrderedDict()  # none of them empty; the first is next
        self._waiting = 0  # in all queues
        self._turn_ns = 0  # how long turns take: the longest lately
        self._round_ns = ROUND_NS
        self._round_until_ns = 0
        self.recv_bytes = limits.RECV_BYTES

    # --- one visit ----------------------------------------------------------------------------------------------------

    def begin(self, origin: str, among: int = 1) -> None:
        """A visit begins.

        Args:
            origin: Of the connection.
            among: How many visits are known to follow one another in this round.
        """
        self._origin = origin
        self._began_ns = now_ns = clock.monotonic_ns()
        self._until_ns = now_ns + (SLICE_NS if among == 1 else min(SLICE_NS, ROUND_NS // among))
        self._left = limits.RECV_VISIT_BYTES_MAX

    def try_begin(self, origin: str, busy_until: int) -> bool:
        """Begin a visit, unless the connection has to stand in queue.

        Args:
            origin: Of the connection.
            busy_until: What ``busy_until`` was when it was busy last; 0 if it never was.

        Returns:
            Whether the visit has begun.
        """
        if self._round < busy_until or self._used_ns.get(origin, 0) >= self._round_ns:
            return False
        self._origin = origin  # from here on as in ``begin``
        self._began_ns = now_ns = clock.monotonic_ns()
        self._until_ns = now_ns + SLICE_NS
        self._left = limits.RECV_VISIT_BYTES_MAX
        return True

    def slice_over(self) -> bool:
        """True once this visit should end, with more to do."""
        return clock.monotonic_ns() > self._until_ns

    def count(self, size: int) -> bool:
        """Count ``size`` bytes that were read and acted upon. True once this visit should end."""
        self._left -= size
        return self._left <= 0 or self.slice_over()

    def end(self) -> None:
        """The visit that began last has ended: its time counts as used by its origin."""
        took_ns = clock.monotonic_ns() - self._began_ns
        used_ns, origin = self._used_ns, self._origin
        used_ns[origin] = used_ns.get(origin, 0) + took_ns
        if took_ns > self._longest_ns:
            self._longest_ns = took_ns

    # --- a round ------------------------------------------------------------------------------------------------------

    @property
    def busy_until(self) -> int:
        """The round from which on a connection that is busy now counts as calm again."""
        return self._round + BUSY_ROUNDS

    def enqueue(self, connection: Schedulable) -> None:
        """Let a connection be visited when it is its turn. The caller sees to it that it stands in line once."""
        origin = connection.origin
        queue = self._queues.get(origin)
        if queue is None:
            queue = self._queues[origin] = _OriginQueue()
        queue.waiting.append(connection)
        self._waiting += 1

    def next_round(self) -> int:
        """End this round, and begin a new one with new time for every origin.

        Returns:
            How long the longest visit of this round took, in nanoseconds.
        """
        self._round += 1
        self._used_ns.clear()
        self.recv_bytes = limits.RECV_BYTES if self._waiting <= CROWD else CROWD_RECV_BYTES
        longest_ns, self._longest_ns = self._longest_ns, 0
        return longest_ns

    def begin_queued(self, turn_began_ns: int) -> None:
        """From now on the time for those who wait counts.

        Args:
            turn_began_ns: When the turn began that has just done everything else, by the monotonic clock.
        """
        now_ns = clock.monotonic_ns()
        turn_ns, faded_ns = now_ns - turn_began_ns, self._turn_ns - self._turn_ns // TURN_FADES
        self._turn_ns = turn_ns if turn_ns > faded_ns else faded_ns
        self._round_ns = ROUND_NS if self._turn_ns <= ROUND_NS else min(self._turn_ns, ROUND_NS_MAX)
        self._round_until_ns = now_ns + self._round_ns

    @property
    def round_over(self) -> bool:
        """Whether the time for those who wait is used up in this round."""
        return clock.monotonic_ns() >= self._round_until_ns

    def run_queued(self) -> bool:
        """Visit those in line until the time of this round is over, but one of them in any case.

        Returns:
            True if there are more.
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
