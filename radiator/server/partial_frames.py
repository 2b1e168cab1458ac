"""Count the bytes of unfinished frames, and end connections when memory is used up.

A connection holds bytes while part of a frame has arrived, and while whole frames wait for their turn. It reports how
many. They count in ``limits.memory``: for users as ``frames``, before the login as ``logins``. The latter is a small
share, so strangers cannot use up the memory of users.

    a login needs more and may not        the connection gets ERROR ``full``, unless it holds almost nothing
    a frame of a user needs more          connections are not read, except the one whose frame began first
    that frame takes FULL_SECONDS         until there is room, these get ERROR ``full``: connections that sent no more,
                                          then those with older frames, then those that hold most
    the limit plus slack is exceeded      the connection that holds most gets ERROR ``full`` at once
    part of a frame does not grow         after ``limits.frame_timeout`` the connection gets ERROR ``timeout``

So one connection can always continue, and waiting ends. Frames that arrive whole are not counted and do not wait.

Uses transports through the methods of ``Holder``. Must not know frames or tunnels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from radiator import clock, limits
from radiator.clock import MonoNs
from radiator.errors import ProtocolError
from radiator.memory import FRAMES, LOGINS

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session
    from radiator.broker.memory_watch import MemoryWatch
    from radiator.config import Config
    from radiator.memory import MemoryShare

LOGIN_BYTES: Final = 2 * limits.KIB  # before its login a connection may always hold so much
FULL_SECONDS: Final = 3.0  # enough time for a frame to arrive
ROOM: Final = 1 / 8  # of ``limits.memory``: how much is freed then
STALLED_NS: Final = clock.NS_PER_SECOND  # without new bytes, until a frame counts as stalled
REFUSED_PER_CHECK: Final = 64  # connections: some 50 us each
SLACK: Final = 1 / 16  # of ``limits.memory``, on top of one frame


class Holder(Protocol):
    """A transport."""

    session: Session

    def could_read(self) -> bool:
        """Return True if the transport could be read now, if there is memory."""

    def is_stalled(self) -> bool:
        """Return True if the transport holds part of a frame, could be read, and nothing more has arrived."""

    def refuse(self, error: ProtocolError) -> None:
        """Answer ERROR and close. The transport then reports that it holds nothing."""


class Partial:
    """The bytes that one connection holds.

    Attributes:
        share: The part of the memory account that they count in.
        bytes: How many they are.
        began_ns: When its first unfinished frame began.
        grown_ns: When bytes of it arrived last.
    """

    __slots__ = ("began_ns", "bytes", "grown_ns", "share")

    def __init__(self, share: MemoryShare, now_ns: MonoNs) -> None:
        self.share = share
        self.bytes = 0
        self.began_ns = now_ns  # when its first unfinished frame began
        self.grown_ns = now_ns  # when bytes arrived last


class PartialFrames:
    """The unfinished frames of all connections of a broker. Times are monotonic.

    Args:
        watch: The memory account, which also counts refusals.
        config: The configuration, for its limits.
        check_seconds: The interval at which ``check`` is called, in seconds.
    """

    def __init__(self, watch: MemoryWatch, config: Config, check_seconds: float) -> None:
        self._watch = watch
        self._users = watch.account.shares[FRAMES]
        self._logins = watch.account.shares[LOGINS]
        self.use(config)
        self._checks_max = round(FULL_SECONDS / check_seconds)
        self._checks_full = 0  # checks with full memory and no progress, minus the others
        self._buffered: dict[Holder, Partial] = {}  # in the order in which their frames began
        self._reader: Holder | None = None  # the one that is read although memory is full
        self._progress = False  # a frame has become whole since the last check

    def use(self, config: Config) -> None:
        """Use the limits of this configuration from now on."""
        self._timeout_seconds = config.limits.frame_timeout_seconds
        frame = config.limits.message + config.limits.headers + limits.RECV_BYTES
        self._bytes_max = config.limits.memory + frame + int(config.limits.memory * SLACK)

    def report(self, holder: Holder, size: int, finished: bool) -> None:
        """Set the number of bytes that a connection holds.

        Args:
            holder: The transport of the connection.
            size: The number of bytes.
            finished: True if a frame of it has become whole since the last report.
        """
        if holder.session.closing:
            size = 0
        now_ns = clock.monotonic_ns()
        share = self._users if holder.session.connected else self._logins
        buffered = self._buffered.get(holder)
        if buffered is None:
            buffered = self._buffered[holder] = Partial(share, now_ns)
        elif finished:  # its present frame began last
            del self._buffered[holder]
            self._buffered[holder] = buffered
            buffered.began_ns = now_ns
            if holder is self._reader:
                self._reader = None
                self._progress = True
        if buffered.share is not share:
            buffered.share.add(-buffered.bytes)
            buffered.share, buffered.bytes = share, 0
        share.add(size - buffered.bytes)
        buffered.bytes = size
        buffered.grown_ns = now_ns
        if not size:
            del self._buffered[holder]
            if holder is self._reader:
                self._reader = None
                self._progress |= not holder.session.closing
        elif share is self._logins:
            if size > LOGIN_BYTES and share.full:
                self._refuse(holder, buffered)
        elif share.full:
            self._watch.met(share)
            if share.account.bytes > self._bytes_max:
                largest = max(self._of_users(), key=lambda each: each[1].bytes)
                self._refuse(*largest)

    def forget(self, holder: Holder) -> None:
        """Remove a connection that has ended."""
        if holder in self._buffered:
            self.report(holder, 0, finished=True)

    def waits(self, holder: Holder) -> bool:
        """Return True if a connection that could be read otherwise must not be read now."""
        buffered = self._buffered.get(holder)
        if buffered is None or buffered.share is not self._users or not self._users.full:
            return False
        if self._reader is None or not self._reader.could_read():
            self._reader = next(each for each, _ in self._of_users() if each is holder or each.could_read())
        return holder is not self._reader

    def check(self) -> None:
        """End the connections that have exceeded their time."""
        stuck = self._users.full and not self._progress
        self._progress = False
        self._checks_full = min(self._checks_max, max(0, self._checks_full + (1 if stuck else -1)))
        if stuck and self._checks_full == self._checks_max:
            self._make_room()
        if self._timeout_seconds is not None:
            self._end_stalled(self._timeout_seconds)

    def _of_users(self) -> Iterator[tuple[Holder, Partial]]:
        return (each for each in self._buffered.items() if each[1].share is self._users)

    def _make_room(self) -> None:
        now_ns = clock.monotonic_ns()
        old_ns = now_ns - int(FULL_SECONDS * clock.NS_PER_SECOND)
        room = int(self._users.account.bytes_max * ROOM)

        def rank(each: tuple[Holder, Partial]) -> tuple[bool, bool, int]:
            holder, buffered = each
            stalled = buffered.grown_ns < now_ns - STALLED_NS and holder.is_stalled()
            return stalled, buffered.began_ns < old_ns, buffered.bytes

        for holder, buffered in sorted(self._of_users(), key=rank, reverse=True)[:REFUSED_PER_CHECK]:
            if self._users.fits(room):
                return
            self._refuse(holder, buffered)

    def _end_stalled(self, seconds: float) -> None:
        now_ns = clock.monotonic_ns()
        before_ns = now_ns - int(seconds * clock.NS_PER_SECOND)
        stalled: list[tuple[Holder, Partial]] = []
        for holder, buffered in self._buffered.items():
            if buffered.began_ns > before_ns or len(stalled) >= REFUSED_PER_CHECK:
                break
            if buffered.grown_ns > before_ns:
                continue
            if holder.is_stalled():
                stalled.append((holder, buffered))
            else:
                buffered.grown_ns = now_ns  # its time starts when it is read again
        for holder, buffered in stalled:
            detail = (
                f"{buffered.bytes} bytes of it are buffered, and no more came for {seconds:g} s (limits.frame_timeout "
                "in the YAML file)."
            )
            holder.refuse(ProtocolError("timeout", "the rest of a frame did not arrive", detail))

    def _refuse(self, holder: Holder, buffered: Partial) -> None:
        remedy = f"This connection holds {buffered.bytes} bytes of incomplete or waiting frames."
        holder.refuse(self._watch.refusal(buffered.share, "unfinished frames", remedy))
