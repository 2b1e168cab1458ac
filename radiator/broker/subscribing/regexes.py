"""SUBSCRIBE with ``match:regex``: whether it is allowed.

No index finds the names that an expression matches, so it is tried on every name (``searching``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator import limits
from radiator.errors import ProtocolError
from radiator.routing.regex import RegexSet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from radiator.broker.clients.session import Session
    from radiator.broker.services import Services


def asked_for(broker: Services, session: Session, headers: Mapping[str, str], text: str) -> RegexSet | None:
    """Return the regular expression of a SUBSCRIBE.

    Args:
        broker: The services of the broker.
        session: The session.
        headers: The headers of the SUBSCRIBE.
        text: The header ``destination``.

    Returns:
        None if the destination is a list of names and patterns.

    Raises:
        ProtocolError: The expression is bad or not allowed, or there are too many.
    """
    match = headers.get("match")
    if match is None:
        return None
    if match != "regex":
        raise ProtocolError(
            "bad-header",
            f"header match: expected regex, or no such header, got {match[:100]!r}",
            "Without it a destination is a name, or a pattern with *, > and #.",
        )
    if not broker.config.regex_subscriptions:
        raise ProtocolError(
            "denied",
            "regular expressions on SUBSCRIBE are switched off",
            "regex_subscriptions: true in the YAML file allows them; *, > and # need no key.",
        )
    if len(broker.creation.tried) >= limits.REGEX_SUBSCRIPTIONS_MAX:
        raise ProtocolError(
            "too-many",
            "too many subscriptions with regular expressions",
            f"The limit is {limits.REGEX_SUBSCRIPTIONS_MAX} in the whole broker (REGEX_SUBSCRIPTIONS_MAX).",
        )
    return RegexSet(text)
