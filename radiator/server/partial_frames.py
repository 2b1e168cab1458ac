"""The connections that hold frames which are not done with, and what becomes of them when memory is used up.

A connection holds bytes while a part of a frame has come, and while whole frames wait for their turn. It reports how
many. They are counted in ``limits.memory``: of users as ``frames``, of connections that are not logged in as
``logins``, which is a small share, so strangers cannot use up the memory of users.

    a login needs more and may not        its connection gets ERROR ``full``, unless it holds next to nothing
    the frame of a user needs more        its connection is not read, but for the one whose frame began first
    that one is not whole in FULL_SECONDS  the connections that sent no more, then those whose frames are older than
                                          that, then those that hold most, get ERROR ``full``, until there is room
    all use more than limit and slack     the connection that holds most gets ERROR ``full`` at once
    a part of a frame does not grow       after ``limits.frame_timeout`` its connection gets ERROR ``timeout``

So somebody can always go on, and waiting ends. Frames that come whole are not counted and wait for nothing.

Knows: transports, by the methods of ``Holder``. Must not know: frames, tunnels.
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

LOGIN_BYTES: Final = 2 * limits.KIB  # a connection may hold so much before it is logged in, whatever others hold
FULL_SECONDS: Final = 3.0  # long enough for a frame that is under way to come whole
ROOM: Final = 1 / 8  # of ``limits.memory``: how much is made free then
STALLED_NS: Final = clock.NS_PER_SECOND  # no more has come for so long: that frame is not under way
REFUSED_PER_CHECK: Final = 64  # connections: some 50 us each
SLACK: Final = 1 / 16  # of ``limits.memory``, on top of one frame


class Holder(Protocol):
    """A transport."""

    session: Session

    def could_read(self) -> bool:
        """Whether it could be read now, if there is memory."""

    def is_stalled(self) -> bool:
        """Whether it holds a part of a frame, could be read, and nothing more of that has come."""

    def refuse(self, error: ProtocolError) -> None:
        """Answer ERROR and close; what it holds is reported as given back."""


class Partial:
    """What one connection holds."""

    __slots__ = ("began_ns", "bytes", "grown_ns", "share")

    def __init__(self, share: MemoryShare, now_ns: MonoNs) -> None:
        self.share = share
        self.bytes = 0
        self.began_ns = now_ns  # when its first unfinished frame began
        self.grown_ns = now_ns  # when something of it came


class PartialFrames:
    """All of one broker. Times are monotonic.

    Args:
        watch: the account, and where refusals are counted.
        config: of it, the keys under ``limits:``.
        check_seconds: how often ``look`` is called, in seconds.
    """

    def __init__(self, watch: MemoryWatch, config: Config, check_seconds: float) -> None:
        self._watch = watch
        self._users = watch.account.shares[FRAMES]
        self._logins = watch.account.shares[LOGINS]
        self._timeout_seconds = config.limits.frame_timeout_seconds
        frame = config.limits.message + config.limits.headers + limits.RECV_BYTES
        self._bytes_max = watch.account.bytes_max + frame + int(watch.account.bytes_max * SLACK)
        self._checks_max = round(FULL_SECONDS / check_seconds)
        self._checks_full = 0  # looks that found memory used up and no progress, less the others
        self._buffered: dict[Holder, Partial] = {}  # whose frame began first comes first
        self._reader: Holder | None = None  # read although memory is used up
        self._progress = False  # its frame has come whole since the last look

    def report(self, holder: Holder, size: int, finished: bool) -> None:
        """A connection holds ``size`` bytes now; ``finished``: one or more frames of it have become whole."""
        if holder.session.closing:
            size = 0
        now_ns = clock.monotonic_ns()
        share = self._users if holder.session.connected else self._logins
        buffered = self._buffered.get(holder)
        if buffered is None:
            buffered = self._buffered[holder] = Partial(share, now_ns)
        elif finished:  # what it holds now began later than what the others hold
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
        """This connection is gone."""
        if holder in self._buffered:
            self.report(holder, 0, finished=True)

    def waits(self, holder: Holder) -> bool:
        """Whether a connection that could go on otherwise must not be read now."""
        buffered = self._buffered.get(holder)
        if buffered is None or buffered.share is not self._users or not self._users.full:
            return False
        if self._reader is None or not self._reader.could_read():
            self._reader = next(each for each, _ in self._of_users() if each is holder or each.could_read())
        return holder is not self._reader

    def check(self) -> None:
        """Called regularly: end the connections that have had their time."""
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
                buffered.grown_ns = now_ns  # it is not read: its time begins when it is
        for holder, buffered in stalled:
            detail = (
                f"{buffered.bytes} bytes of it are held, and no more came for {seconds:g} s (limits.frame_timeout in "
                "the YAML file)."
            )
            holder.refuse(ProtocolError("timeout", "the rest of a frame did not come", detail))

    def _refuse(self, holder: Holder, buffered: Partial) -> None:
        remedy = f"This connection holds {buffered.bytes} bytes that wait for the rest of a frame, or for their turn."
        holder.refuse(self._watch.refusal(buffered.share, "unfinished frames", remedy))
