"""Windows: how many unacknowledged messages a subscription may hold, from SUBSCRIBE and the rules.

A number in the header takes precedence, up to ``limits.in_flight``. 0, which elsewhere means no limit, means
``limits.in_flight`` if the rule of each queue says ``prefetch: none``. Otherwise 0 is an ERROR: a client with an
unexpected limit may wait for messages that do not come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from radiator.broker.clients.session import AUTO
from radiator.errors import ProtocolError
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from radiator.broker.destinations.destination import Destination

PREFETCH_HEADERS = ("prefetch-count", "activemq.prefetchSize", "credit")


def count(text: str, header: str, most: int, least: int = 1) -> int:
    """Return a window size from the value of a header.

    Args:
        text: The value.
        header: The name of the header, for the error.
        most: The highest value allowed.
        least: The lowest value allowed.

    Raises:
        ProtocolError: The value is not a number in this range (bad-header).
    """
    if not (text.isascii() and text.isdigit()) or len(text) > 12 or not least <= int(text) <= most:
        raise ProtocolError(
            "bad-header",
            f"header {header}: expected a number from {least} to {most}, got {text[:100]!r}",
            f"limits.in_flight in the YAML file is {most}.",
        )
    return int(text)


def asked_window(headers: Mapping[str, str], most: int) -> int | None:
    """Return the window that a SUBSCRIBE requests: 0 means no limit, None that the header is missing.

    Raises:
        ProtocolError: The header is malformed (bad-header).
    """
    return next((count(headers[each], each, most, 0) for each in PREFETCH_HEADERS if each in headers), None)


def without_limit(destinations: list[Destination], group: bool | None, ack: str, most: int) -> int:
    """Return the window of a client that requests 0. The arguments are those of ``window_of``.

    Raises:
        ProtocolError: A rule sets a limit (bad-header).
    """
    for each in destinations if ack != AUTO else ():
        shared = group if group is not None else each.queue is not None
        if shared and each.policy.settings.prefetch is not None and not each.name.startswith(TEMPORARY):
            raise ProtocolError(
                "bad-header",
                f"header prefetch-count: 0, which means no limit, is not allowed for {each.name[:200]!r}",
                f"Expected a number from 1 to {most} (limits.in_flight), or prefetch: none in the rule of the "
                f"destination in the YAML file, where prefetch is {each.policy.settings.prefetch}.",
            )
    return most


def window_of(
    group: bool | None, prefetch: int | None, ack: str, destinations: list[Destination], most: int
) -> int | None:
    """Return the window of a subscription; None if it shares the session's window.

    A durable subscription has its own window, as a topic has. Members of a consumer group share work, as the consumers
    of a queue do.

    Args:
        group: True for a member of a consumer group, False for a durable subscription, None for any other.
        prefetch: The window that the client requests, or None.
        ack: The ack mode.
        destinations: The destinations that the subscription matches.
        most: ``limits.in_flight``.
    """
    if group is False:
        return prefetch or most
    window = prefetch
    if window is None and ack != AUTO:
        shared = [each.policy.settings.prefetch for each in destinations if group is not None or each.queue is not None]
        window = max((most if each is None else each for each in shared), default=1)
    return None if window == 1 else window  # a window of one: share the session's window, which is one by default
