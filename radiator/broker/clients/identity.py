"""Who a session belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from radiator.routing.rights import Rights


class Identity(NamedTuple):
    """Whom a session belongs to, and who says so; ``user`` is empty for anonymous."""

    user: str
    rights: Rights
    source: str  # anonymous, users, certificate, plugin
    hash: str = ""  # in the users file, that the passcode was verified by; empty if something else has vouched
