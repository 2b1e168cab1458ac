"""Headers that say yes or no.

``True`` is how Python writes it, ``TRUE`` how SQL does: clients send what their language makes of a boolean. Whatever
else comes is refused: a consumer that meant to look at a queue and is taken for one that takes from it loses messages.
"""

from __future__ import annotations

from collections.abc import Mapping

from radiator.errors import ProtocolError

WORDS = {"true": True, "false": False}


def flag(headers: Mapping[str, str], name: str) -> bool | None:
    """What the header of this name says; None if it is not there. Raises ProtocolError (bad-header)."""
    text = headers.get(name)
    if text is None:
        return None
    said = WORDS.get(text.lower())
    if said is None:
        raise ProtocolError(
            "bad-header",
            f"header {name}: expected true or false, got {text[:100]!r}",
            "Capital or small letters mean the same; to say nothing, leave the header out.",
        )
    return said
