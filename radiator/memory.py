"""Count the memory that clients can make the broker use (``limits.memory``).

Each kind of use has a share. The module that holds the memory adds every change to its share, as a difference in bytes,
so totals need no computation. The account refuses nothing: before it takes memory, the module calls ``fits``.

A share may grow while all shares together are below a part of ``limits.memory``. This part differs between shares, so
one full share leaves room for those that help to empty it. Messages in memory reach their limit first, then
transactions and subscriptions, which a consumer needs to take those messages, and last unfinished frames, because an
ACK is one. Some shares also have a part that they may use whatever the others use.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MESSAGES: Final = "messages"  # of memory partitions
SUBSCRIPTIONS: Final = "subscriptions"  # selectors, patterns, destinations that were joined
TRANSACTIONS: Final = "transactions"  # frames held until COMMIT
FRAMES: Final = "frames"  # of users: parts of frames, and frames whose turn has not come
LOGINS: Final = "logins"  # the same of connections that are not logged in


class Part(NamedTuple):
    """The limits of a share, as parts of ``limits.memory``.

    Attributes:
        most: The limit of this share.
        together: The limit of all shares together, above which this one may not grow.
        sure: The part that this share may use whatever the others use.
    """

    most: float
    together: float
    sure: float = 0.0


PARTS: Final[dict[str, Part]] = {
    MESSAGES: Part(3 / 4, 3 / 4),
    SUBSCRIPTIONS: Part(7 / 8, 7 / 8, sure=1 / 32),
    TRANSACTIONS: Part(7 / 8, 7 / 8, sure=1 / 32),
    FRAMES: Part(1, 1, sure=1 / 16),
    LOGINS: Part(1 / 16, 1, sure=1 / 32),
}


class MemoryAccount:
    """The account: all shares, and their sum.

    Args:
        bytes_max: The limit of all shares together, in bytes (``limits.memory``).

    Attributes:
        bytes: The sum of all shares, in bytes.
        shares: The shares, by name.
    """

    __slots__ = ("_peak_bytes", "bytes", "bytes_max", "shares")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = self._peak_bytes = 0
        self.shares = {name: MemoryShare(self, name) for name in PARTS}
        self.resize(bytes_max)

    def resize(self, bytes_max: int) -> None:
        """Set the limit of all shares together. A share that uses more than its new limit may not grow.

        Args:
            bytes_max: The limit, in bytes (``limits.memory``).
        """
        self.bytes_max = bytes_max
        for share in self.shares.values():
            share.resize(bytes_max)

    def add(self, change: int) -> None:
        """Add the change of a share."""
        self.bytes += change
        if self.bytes > self._peak_bytes:
            self._peak_bytes = self.bytes

    def take_peak(self) -> int:
        """Return the highest sum of all shares since the last call, in bytes."""
        peak, self._peak_bytes = self._peak_bytes, self.bytes
        return peak

    @property
    def full(self) -> list[str]:
        """The names of the shares that may not grow now."""
        return [name for name, share in self.shares.items() if share.full]

    def figures(self) -> dict[str, int]:
        """Return the bytes by share, their sum as ``total``, and ``limit``."""
        used = {name: share.bytes for name, share in self.shares.items()}
        return {**used, "total": self.bytes, "limit": self.bytes_max}


class MemoryShare:
    """The memory of one kind of use.

    Args:
        account: The account that the share belongs to.
        name: A key of ``PARTS``.

    Attributes:
        bytes: The bytes in use.
        bytes_max: The limit of this share, in bytes.
        together_bytes_max: The limit of all shares together, above which this one may not grow, in bytes.
        sure_bytes: The bytes that this share may use whatever the others use.
    """

    __slots__ = ("account", "bytes", "bytes_max", "name", "sure_bytes", "together_bytes_max")

    def __init__(self, account: MemoryAccount, name: str) -> None:
        self.account = account
        self.name = name
        self.bytes_max = self.together_bytes_max = self.sure_bytes = 0
        self.bytes = 0

    def resize(self, bytes_max: int) -> None:
        """Set the limits of this share to its parts of ``bytes_max``, which is ``limits.memory`` in bytes."""
        part = PARTS[self.name]
        self.bytes_max = int(bytes_max * part.most)
        self.together_bytes_max = int(bytes_max * part.together)
        self.sure_bytes = int(bytes_max * part.sure)

    def add(self, change: int) -> None:
        """Add ``change`` bytes, or remove some if it is negative."""
        self.bytes += change
        self.account.add(change)
        assert self.bytes >= 0, (self.name, self.bytes, change)

    @property
    def full(self) -> bool:
        """Whether this share uses more than it may."""
        return not self.fits(0)

    def fits(self, size: int) -> bool:
        """Return True if this share may grow by ``size`` bytes."""
        used = self.bytes + size
        if used > self.bytes_max:
            return False
        return used <= self.sure_bytes or self.account.bytes + size <= self.together_bytes_max

    def usage(self) -> str:
        """Return the limit and the memory in use by share, as text for an ERROR or a line of the log."""
        shares = self.account.shares.values()
        parts = ", ".join(f"{share.name} {share.bytes}" for share in shares if share.bytes)
        limit = min(self.bytes_max, self.together_bytes_max)
        return (
            f"limits.memory in the YAML file is {self.account.bytes_max} bytes, of which {self.name} may use up to "
            f"{limit}; {self.account.bytes} are in use ({parts})"
        )
