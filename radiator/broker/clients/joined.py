"""Limits on joined destinations: subscriptions times the destinations that each of them matches.

A wildcard joins all destinations that it matches. Each of them costs memory, and work at join, leave and send. So they
are counted for each session, for each durable subscription, and in total.

The module knows numbers, but not subscriptions.
Invariant: ``JoinedOfAll.count`` is the sum over all ``Joined`` objects.
"""

from __future__ import annotations

from radiator.errors import ProtocolError

JOINED_BYTES = 384  # memory for each joined destination, measured


class JoinedOfAll:
    """The joined destinations of all sessions and durable subscriptions.

    Args:
        most: The limit (``limits.joined_total``).
        own: How many a session or durable subscription may have even above the limit.
    """

    __slots__ = ("count", "most", "own")

    def __init__(self, most: int, own: int) -> None:
        self.most = most
        self.own = own
        self.count = 0

    def limit(self, most: int, own: int) -> None:
        """Set the limits. What has been joined stays joined."""
        self.most, self.own = most, own

    def of_one(self, most: int) -> Joined:
        """Return a counter for a session or durable subscription, with the limit ``most`` (``limits.joined``)."""
        return Joined(self, most)


class Joined:
    """The joined destinations of one session or durable subscription.

    Args:
        of_all: The total.
        most: The limit.
    """

    __slots__ = ("_most", "_of_all", "count")

    def __init__(self, of_all: JoinedOfAll, most: int) -> None:
        self._of_all = of_all
        self._most = most
        self.count = 0

    def add(self) -> None:
        """Count one more destination."""
        self.count += 1
        self._of_all.count += 1

    def remove(self, number: int) -> None:
        """Count ``number`` destinations less."""
        self.count -= number
        self._of_all.count -= number

    def check(self) -> None:
        """Check that another destination may be joined.

        Raises:
            ProtocolError: A limit is reached (too-many).
        """
        of_all = self._of_all
        if self.count >= self._most:
            raise ProtocolError(
                "too-many",
                f"this connection, or this durable subscription, matches {self.count} destinations",
                f"limits.joined in the YAML file is {self._most}. Use narrower patterns, or fewer. A destination that "
                "several subscriptions match counts once for each.",
            )
        if of_all.count >= of_all.most and self.count >= of_all.own:
            raise ProtocolError(
                "too-many",
                f"the subscriptions of all connections match {of_all.count} destinations",
                f"limits.joined_total in the YAML file is {of_all.most}. Use narrower patterns, or fewer. "
                f"Each connection may match {of_all.own} in any case (limits.subscriptions).",
            )
