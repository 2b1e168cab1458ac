"""What the client raises. Every class is a ``ClientError``; which one it is says what the caller can do about it.

    BadAddress      the address is no address: correct it (also a ValueError)
    ConnectFailed   no broker answered there: start it, or correct host and port
    TimedOut        an answer did not come in the time allowed; the connection is still good
    Disconnected    the connection is gone, by whoever's doing; what was unacknowledged goes back to its queue
    ServerError     the broker answered ERROR and closed: ``code`` is a word of ``radiator.errors.ERROR_CODES`` (of
                    other brokers: empty), ``message`` a line for people, ``detail`` the rest

An error is raised in every thread that waits on the connection, each time as an object of its own (``again``), since
a traceback belongs to one thread.
"""

from __future__ import annotations

from radiator.errors import ClientError

__all__ = ["BadAddress", "ClientError", "ConnectFailed", "Disconnected", "ServerError", "TimedOut", "again"]


class BadAddress(ClientError, ValueError):
    """The address of the broker cannot be read."""


class ConnectFailed(ClientError):
    """No connection to a STOMP broker came about."""


class BadTls(ConnectFailed):
    """Nor will one: a file of TLS is not there, or a certificate is not trusted."""


class TimedOut(ClientError, TimeoutError):
    """No answer in the time allowed."""


class Disconnected(ClientError):
    """The connection is gone."""


class ServerError(ClientError):
    """The broker answered ERROR."""

    def __init__(self, code: str, message: str, detail: str = "", receipt: str | None = None) -> None:
        super().__init__(code, message, detail, receipt)
        self.code = code
        self.message = message
        self.detail = detail
        self.receipt = receipt

    def __str__(self) -> str:
        head = f"{self.message} ({self.code})" if self.code else self.message
        detail = self.detail.strip()
        return f"{head}: {detail}" if detail and detail != self.message else head


def again(error: ClientError) -> ClientError:
    """The same error as a fresh object, to be raised in another thread."""
    return type(error)(*error.args)
