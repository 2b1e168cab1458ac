"""The account of the memory that clients can make the broker use (``limits.memory``).

Each kind of use is a share. The owner of the memory reports every change to its share, as a difference in bytes, so
that reading a total costs nothing. The account refuses nothing by itself: an owner asks its share whether more fits.

A share may grow while the whole account is below a part of ``limits.memory``. These parts differ, so that memory which
one kind of use fills up still leaves room for the kinds that help to empty it: messages in memory end first, then
transactions and subscriptions (a consumer needs them to take those messages), and unfinished frames last (an ACK is
one). Some shares also have a part that they may use whatever the others do.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MESSAGES: Final = "messages"  # of memory partitions
SUBSCRIPTIONS: Final = "subscriptions"  # selectors, patterns, destinations that were joined
TRANSACTIONS: Final = "transactions"  # frames held until COMMIT
FRAMES: Final = "frames"  # of users: parts of frames, and frames whose turn has not come
LOGINS: Final = "logins"  # the same of connections that are not logged in


class Part(NamedTuple):
    """What a share may use, as parts of ``limits.memory``."""

    most: float  # by this share alone
    together: float  # by all shares, while this one grows
    sure: float = 0.0  # by this share, whatever the others use


PARTS: Final[dict[str, Part]] = {
    MESSAGES: Part(3 / 4, 3 / 4),
    SUBSCRIPTIONS: Part(7 / 8, 7 / 8, sure=1 / 32),
    TRANSACTIONS: Part(7 / 8, 7 / 8, sure=1 / 32),
    FRAMES: Part(1, 1, sure=1 / 16),
    LOGINS: Part(1 / 16, 1, sure=1 / 32),
}


class MemoryAccount:
    """All shares together.

    Args:
        bytes_max: what all shares may use together, in bytes (``limits.memory``).
    """

    __slots__ = ("bytes", "bytes_max", "shares")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.shares = {name: MemoryShare(self, name) for name in PARTS}
        self.resize(bytes_max)

    def resize(self, bytes_max: int) -> None:
        """Set what all shares may use together, in bytes. Shares that use more may not grow."""
        self.bytes_max = bytes_max
        for share in self.shares.values():
            share.resize(bytes_max)

    @property
    def full(self) -> list[str]:
        """The names of the shares that may not grow now."""
        return [name for name, share in self.shares.items() if share.full]

    def figures(self) -> dict[str, int]:
        """Bytes by share, and ``total`` and ``limit``."""
        used = {name: share.bytes for name, share in self.shares.items()}
        return {**used, "total": self.bytes, "limit": self.bytes_max}


class MemoryShare:
    """One kind of use. ``bytes`` is what it uses now.

    Args:
        account: the account that it is a part of.
        name: one of the keys of ``PARTS``.

    Attributes:
        bytes_max: what this share may use, in bytes.
        together_bytes_max: what all shares may use together while this one grows, in bytes.
        sure_bytes: what this share may use whatever the others use, in bytes.
    """

    __slots__ = ("account", "bytes", "bytes_max", "name", "sure_bytes", "together_bytes_max")

    def __init__(self, account: MemoryAccount, name: str) -> None:
        self.account = account
        self.name = name
        self.bytes_max = self.together_bytes_max = self.sure_bytes = 0
        self.bytes = 0

    def resize(self, bytes_max: int) -> None:
        """Compute the limits of this share from ``limits.memory``."""
        part = PARTS[self.name]
        self.bytes_max = int(bytes_max * part.most)
        self.together_bytes_max = int(bytes_max * part.together)
        self.sure_bytes = int(bytes_max * part.sure)

    def add(self, change: int) -> None:
        """Count ``change`` bytes more, or fewer if it is negative."""
        self.bytes += change
        self.account.bytes += change
        assert self.bytes >= 0, (self.name, self.bytes, change)

    @property
    def full(self) -> bool:
        """Whether it uses more than it may."""
        return not self.fits(0)

    def fits(self, size: int) -> bool:
        """Whether it may grow by ``size`` bytes."""
        used = self.bytes + size
        if used > self.bytes_max:
            return False
        return used <= self.sure_bytes or self.account.bytes + size <= self.together_bytes_max

    def usage(self) -> str:
        """What is used and by what, for the detail of an ERROR or a line of the log."""
        shares = self.account.shares.values()
        parts = ", ".join(f"{share.name} {share.bytes}" for share in shares if share.bytes)
        limit = min(self.bytes_max, self.together_bytes_max)
        return (
            f"limits.memory in the YAML file is {self.account.bytes_max} bytes, of which {self.name} may use up to "
            f"{limit}; {self.account.bytes} are in use ({parts})"
        )
