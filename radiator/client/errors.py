"""Define the exceptions of the client.

Every class is a ``ClientError``. The class says what the caller can do:

    BadAddress      the text is not an address: correct it (also a ValueError)
    ConnectFailed   no broker answered at the address: start the broker, or correct host and port
    BadTls          a TLS file or a certificate is not accepted: correct it, retrying is useless
    TimedOut        an answer did not come within the time limit; the connection is still usable
    Disconnected    the connection has ended; unacknowledged messages return to their queues
    StaleDelivery   the message came on a connection that was lost: it is delivered again (also a Disconnected)
    ServerError     the broker answered ERROR and closed the connection

Every thread that waits on a connection gets an exception object of its own (``copy_error``), because a traceback
belongs to one thread.
"""

from __future__ import annotations

from radiator.errors import ClientError

__all__ = [
    "BadAddress",
    "ClientError",
    "ConnectFailed",
    "Disconnected",
    "ServerError",
    "StaleDelivery",
    "TimedOut",
    "copy_error",
]


class BadAddress(ClientError, ValueError):
    """The address of the broker cannot be parsed."""


class ConnectFailed(ClientError):
    """No connection to a STOMP broker could be opened."""


class BadTls(ConnectFailed):
    """A TLS file cannot be read, or a certificate is not trusted. Another attempt would fail too."""


class TimedOut(ClientError, TimeoutError):
    """No answer came within the time limit. The connection is still usable."""


class Disconnected(ClientError):
    """The connection has ended."""


class StaleDelivery(Disconnected):
    """The message was delivered on a connection that was lost since, so it cannot be acknowledged.

    The client has connected again and can be used. The broker delivers the message again, as ``redelivered``.
    """


class ServerError(ClientError):
    """The broker answered with an ERROR frame and closed the connection.

    Attributes:
        code: The ``error-code`` header, a key of ``radiator.errors.ERROR_CODES``. Empty for other brokers.
        message: The ``message`` header: one line of text.
        detail: The body of the ERROR frame.
        receipt: The ``receipt-id`` header: the receipt of the frame that was refused, or None.
        next_offset: Of ``conflict``, the end of the log: the value of ``expected-offset`` that would have matched. None
            otherwise.

    Source: STOMP 1.2, "ERROR".
    """

    def __init__(
        self, code: str, message: str, detail: str = "", receipt: str | None = None, next_offset: int | None = None
    ) -> None:
        super().__init__(code, message, detail, receipt, next_offset)
        self.code = code
        self.message = message
        self.detail = detail
        self.receipt = receipt
        self.next_offset = next_offset

    def __str__(self) -> str:
        head = f"{self.message} ({self.code})" if self.code else self.message
        detail = self.detail.strip()
        return f"{head}: {detail}" if detail and detail != self.message else head


def reason(error: OSError) -> str:
    """Return the reason of an error of a socket as text, without ``[Errno 111]``.

    The text of the error is used, not its number: the numbers of ``ssl.SSLError`` and ``socket.gaierror`` are not those
    of the operating system.

    Args:
        error: The error.
    """
    return error.strerror or str(error)


def copy_error(error: ClientError) -> ClientError:
    """Return a new exception with the same class and arguments, to be raised in another thread.

    Args:
        error: The exception that ended the connection.
    """
    return type(error)(*error.args)
