"""The identity of a session's user."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from radiator.routing.rights import Rights


class Identity(NamedTuple):
    """The user of a session.

    Attributes:
        user: The name of the user; empty for anonymous.
        rights: The rights of the user.
        source: The authentication method: anonymous, users, certificate, plugin or jwt.
        expires_ns: The trusted wall time at which the session ends, because its token expires; 0: it has no token.
        roles: The roles in the token.
        hash: The hash in the users file that verified the passcode; empty for other methods.
    """

    user: str
    rights: Rights
    source: str
    hash: str = ""
    expires_ns: int = 0
    roles: tuple[str, ...] = ()
