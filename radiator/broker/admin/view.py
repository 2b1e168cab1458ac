"""Limit answers to the destinations for which a user has the right ``monitor``.

A user whose right covers all destinations sees everything. For others, names of further destinations do not occur in
any answer: a subscription is shown with the permitted part of its destinations, or not at all.

This module knows rights and subscriptions. It changes nothing.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from radiator.broker.durable.subscription import DurableSubscription

if TYPE_CHECKING:
    from collections.abc import Iterator

    from radiator.broker.clients.session import Session, Subscription
    from radiator.routing.rights import Rights

JOINED_EXAMINED_MAX: Final = 1_000  # destinations of the wildcard subscriptions of one session
JOINED_SHOWN_MAX: Final = 20
NAMES_A_UNIT: Final = 3
PATTERN_UNITS: Final = 3  # to compare a name with one list of patterns


class View:
    """What one user may see.

    Args:
        rights: The rights of the user.

    Attributes:
        everything: True if the right covers all destinations.
    """

    __slots__ = ("_rights", "everything")

    def __init__(self, rights: Rights) -> None:
        self._rights = rights
        self.everything = rights.covers_all("monitor")

    def shows(self, destination: str) -> bool:
        """Return True if the user may see the destination."""
        return self.everything or self._rights.may("monitor", destination)

    def subscriptions_of(self, session: Session) -> Iterator[tuple[Subscription, str]]:
        """Yield the subscriptions of a session that the user may see, each with its destinations as text.

        Of a wildcard that is not permitted as a whole, the permitted destinations are shown. They are searched among
        the first ``JOINED_EXAMINED_MAX`` of a session.
        """
        left = JOINED_EXAMINED_MAX
        for subscription in list(session.subscriptions.by_id.values()):
            text = subscription.asked.text
            if self.everything:
                yield subscription, text
                continue
            parts = [part for part in text.split(",") if self.shows(part)]
            if not parts:
                joined = list(islice(subscription.destinations, left))
                left -= len(joined)
                parts = [each.name for each in joined if self.shows(each.name)][:JOINED_SHOWN_MAX]
            if parts:
                yield subscription, ",".join(parts)

    def shows_session(self, session: Session) -> bool:
        """Return True if the user may see a session: everything, or a subscription of it."""
        return self.everything or any(True for _ in self.subscriptions_of(session))

    def shows_whole(self, subscription: Subscription | DurableSubscription) -> bool:
        """Return True if the user may see everything that a subscription is subscribed to, and has joined."""
        if self.everything:
            return True
        named = subscription.patterns if isinstance(subscription, DurableSubscription) else subscription.asked
        if len(subscription.destinations) > JOINED_EXAMINED_MAX or not all(map(self.shows, named.text.split(","))):
            return False
        return all(self.shows(each.name) for each in subscription.destinations)

    def name_units(self) -> int:
        """Return what it costs to decide about one destination, in units of the budget."""
        return PATTERN_UNITS * self._rights.pattern_count("monitor")

    def session_units(self, session: Session) -> int:
        """Return what it costs to decide about one session, in units of the budget."""
        if self.everything:
            return 0
        subscriptions = session.subscriptions.by_id
        names = sum(1 + len(each.destinations) for each in subscriptions.values())
        return min(names, len(subscriptions) + JOINED_EXAMINED_MAX) * (1 + self.name_units()) // NAMES_A_UNIT
