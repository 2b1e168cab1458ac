"""The terms of a queue: what its rule says about messages that wait, are refused or are not answered.

Plain values out of a policy, so that a queue that no single rule owns (a named subscription over many topics) can have
terms too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from radiator.routing.policy import Policy


class Terms(NamedTuple):
    """``None`` means never or off."""

    ttl_ns: int | None = None

    @classmethod
    def of(cls, policy: Policy) -> Terms:
        return cls(ttl_ns=policy.message_ttl_ns)
