"""Headers with a boolean value.

The letter case does not matter: Python writes ``True`` and SQL writes ``TRUE``. Any other value is refused. A consumer
that sends ``browser:yes`` and becomes an ordinary consumer would take messages from the queue.
"""

from __future__ import annotations

from collections.abc import Mapping

from radiator.errors import ProtocolError

WORDS = {"true": True, "false": False}


def flag(headers: Mapping[str, str], name: str) -> bool | None:
    """Return the value of a boolean header.

    Args:
        headers: The headers of a frame.
        name: The name of the header.

    Returns:
        The value, or None if the frame does not have the header.

    Raises:
        ProtocolError: The value is neither true nor false (bad-header).
    """
    text = headers.get(name)
    if text is None:
        return None
    said = WORDS.get(text.lower())
    if said is None:
        raise ProtocolError(
            "bad-header",
            f"header {name}: expected true or false, got {text[:100]!r}",
            "Case does not matter; for the default, leave the header out.",
        )
    return said
