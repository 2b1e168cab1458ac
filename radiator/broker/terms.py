"""The terms of a queue: what its rule says about messages that wait, are refused or are not answered.

Plain values out of a policy, so that a queue that no single rule owns (a named subscription over many topics) can have
terms too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from radiator.config.model import OnFull
    from radiator.routing.policy import Policy


class Terms(NamedTuple):
    """``None`` means never or off."""

    ttl_ns: int | None = None
    max_messages: int | None = None
    max_bytes: int | None = None
    on_full: OnFull = "reject"
    block_timeout_ns: int | None = None
    line: int = 0  # of the rule, in the configuration

    @classmethod
    def of(cls, policy: Policy) -> Terms:
        return cls(
            ttl_ns=policy.message_ttl_ns,
            max_messages=policy.max_messages,
            max_bytes=policy.max_bytes,
            on_full=policy.on_full,
            block_timeout_ns=policy.rule.block_timeout_ns,
            line=policy.rule.line,
        )
