"""The identity of a session's user, and the checks of their rights."""

from __future__ import annotations

from typing import Final, NamedTuple

from radiator.errors import ProtocolError
from radiator.routing.rights import NOTHING, Rights


class Identity(NamedTuple):
    """The user of a session.

    Attributes:
        user: The name of the user; empty for anonymous.
        rights: The rights of the user.
        source: The authentication method: anonymous, users, certificate, plugin or jwt; none before the login.
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

    def require(self, right: str, name: str) -> None:
        """Check that the user has ``right`` over the destination ``name``.

        Raises:
            ProtocolError: The user does not have it (denied).
        """
        if not self.rights.may(right, name):
            raise self.denied(right, f"over {name[:200]!r}")

    def require_some(self, right: str) -> None:
        """Check that the user has ``right`` over at least one destination.

        Raises:
            ProtocolError: The user does not have it (denied).
        """
        if not self.rights.has(right):
            raise self.denied(right, "over any destination")

    def require_all(self, right: str) -> None:
        """Check that the user has ``right`` over all destinations.

        Raises:
            ProtocolError: The user does not have it (denied).
        """
        if not self.rights.covers_all(right):
            raise self.denied(right, "over all destinations")

    def denied(self, right: str, what: str) -> ProtocolError:
        """Return the ERROR for a user who does not have ``right``."""
        who = f"user {self.user[:100]!r}" if self.user else "anonymous"
        detail = "The users file (auth.users_file in the YAML file) lists rights as patterns."
        return ProtocolError("denied", f"{who} has no {right} right {what}", detail)


UNKNOWN: Final = Identity("", NOTHING, "none")  # before the login
