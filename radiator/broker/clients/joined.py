"""How many destinations are joined: subscriptions times the destinations that each takes part in.

A wildcard takes part in all that it matches, and each destination that it joins is memory, and work when it joins,
leaves and is sent a message. So they are counted, for each session and each durable name and for all of them together.

Knows: numbers. Must not know: subscriptions.
Invariant: ``of_all.count`` is the sum over all that were made by ``of_one`` and have not left.
"""

from __future__ import annotations

from radiator.errors import ProtocolError

JOINED_BYTES = 384  # of memory, for each destination that a subscription takes part in: measured


class JoinedOfAll:
    """The count of all sessions and names together.

    Args:
        most: How many there may be (``limits.joined_total``).
        own: How many each session or name may have even if there are more.
    """

    __slots__ = ("count", "most", "own")

    def __init__(self, most: int, own: int) -> None:
        self.most = most
        self.own = own
        self.count = 0

    def of_one(self, most: int) -> Joined:
        """The count of one more session or name, which may have ``most`` (``limits.joined``)."""
        return Joined(self, most)


class Joined:
    """The count of one session, or of one durable name."""

    __slots__ = ("_most", "_of_all", "count")

    def __init__(self, of_all: JoinedOfAll, most: int) -> None:
        self._of_all = of_all
        self._most = most
        self.count = 0

    def add(self) -> None:
        """One more destination is joined."""
        self.count += 1
        self._of_all.count += 1

    def remove(self, number: int) -> None:
        """``number`` destinations are left."""
        self.count -= number
        self._of_all.count -= number

    def check(self) -> None:
        """Raises ProtocolError (too-many) if no other destination may be joined."""
        of_all = self._of_all
        if self.count >= self._most:
            raise ProtocolError(
                "too-many",
                f"the subscriptions of this connection, or this durable name, take part in {self.count} destinations",
                f"limits.joined in the YAML file is {self._most}; expected narrower patterns, or fewer of them. A "
                "destination that several subscriptions match counts for each of them.",
            )
        if of_all.count >= of_all.most and self.count >= of_all.own:
            raise ProtocolError(
                "too-many",
                f"the subscriptions of all connections take part in {of_all.count} destinations",
                f"limits.joined_total in the YAML file is {of_all.most}; expected narrower patterns, or fewer of them. "
                f"Each connection may take part in {of_all.own} in any case (limits.subscriptions).",
            )
