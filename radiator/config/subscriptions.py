"""An entry of ``subscriptions:``: a durable subscription or group that exists before its first subscriber.

Destination, selector and position are text here, and are checked in the broker (``durable.declared``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from radiator.config.keys import keys_of, setting
from radiator.config.values import or_none, text


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSubscription:
    """A durable subscription or group of the configuration."""

    line: int = 0  # of the file
    name: str | None = setting("name", text("the name of a durable subscription"), "")
    """The name of a durable subscription."""
    group: str | None = setting("group", text("the name of a consumer group"), "")
    """The name of a consumer group."""
    destination: str = setting("destination", text("topics such as /topic/orders.>"), "")
    """The topics, as in SUBSCRIBE."""
    selector: str | None = setting("selector", or_none(text("a selector such as size > 3")), "none")
    """Messages that it excludes are not delivered."""
    start: str = setting("start", text("a position such as next, first, last:10 or ago:1h", r"[a-z]+(:.+)?"), "next")
    """Where a new subscription begins in topics that exist."""
    user: str = setting("user", or_none(text("a login"), ""), "none")
    """The user who owns it; none: clients without a login."""

    @property
    def title(self) -> str:
        """The name with its kind, as that of its cursors."""
        return f"group:{self.group}" if self.group is not None else f"sub:{self.name}"

    def __str__(self) -> str:
        found = [self.title, self.destination]
        found += [f"selector {self.selector}"] if self.selector is not None else []
        return ", ".join([*found, f"start {self.start}", f"user {self.user or 'none'}"])


SUBSCRIPTION: Final = keys_of(DeclaredSubscription)
