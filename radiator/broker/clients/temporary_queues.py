"""The names of a session's temporary queues, and the secret that lets other sessions send to them.

A queue has three spellings:

    /temp-queue/NAME                    in the frames of its connection
    /temp-queue/NAME@SESSION            its name in the broker: in MESSAGE, lists and logs. It gives no access
    /temp-queue/NAME@SESSION~SECRET     its address, in ``reply-to`` of a message: it allows to SEND to the queue

Invariant: no name contains a secret.
"""

from __future__ import annotations

from hmac import compare_digest


class TemporaryQueues:
    """The temporary queues of one session.

    Args:
        session_id: The id of the session.
        secret: A random string in the addresses of the queues, and nowhere else.

    Attributes:
        names: The broker's names of the queues that exist.
    """

    __slots__ = ("_secret", "_session_id", "names")

    def __init__(self, session_id: str, secret: str) -> None:
        self._session_id = session_id
        self._secret = secret
        self.names: dict[str, None] = {}

    def name_of(self, name: str) -> str:
        """Return the broker's name of the queue that this session means by ``name``, which has no secret."""
        return name if "@" in name else f"{name}@{self._session_id}"

    def owns(self, name: str) -> bool:
        """Return True if the broker's name of a queue is one of this session."""
        return owner_of(name) == self._session_id

    def address_of(self, name: str) -> str:
        """Return the address of a queue of this session."""
        return f"{name}~{self._secret}"

    def is_secret(self, text: str) -> bool:
        """Return True if ``text`` is the secret of the addresses. The time that it takes does not depend on it."""
        return compare_digest(self._secret.encode(), text.encode())


def owner_of(name: str) -> str:
    """Return the id of the session that owns a temporary queue, by the broker's name of the queue."""
    return name.rpartition("@")[2]
