"""Report the state of the broker to the service manager that started it, and show that the event loop runs.

systemd passes the address of a datagram socket in ``NOTIFY_SOCKET``. With ``WatchdogSec=`` in the unit it also passes
``WATCHDOG_USEC``, and restarts a service that sends no ``WATCHDOG=1`` for so long. Without these variables, every
function does nothing.

Source: sd_notify(3) and sd_watchdog_enabled(3).
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gevent

from radiator import clock

log = logging.getLogger("radiator.server")

NS_PER_US = 1_000
US_PER_SECOND = 1_000_000


class Supervisor:
    """The service manager of this process, or none.

    Args:
        environ: The environment of the process.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) if address else None
        self._beat_seconds = _beat_seconds(environ)
        self._status = ""
        self._timer: Any = None

    def started(self, status: str) -> None:
        """Report that clients can connect, with a line for people, and show from now on that the event loop runs."""
        self._status = status
        self._send(f"READY=1\nSTATUS={status}")
        if self._socket is not None and self._beat_seconds:
            self._timer = gevent.get_hub().loop.timer(self._beat_seconds, self._beat_seconds)
            self._timer.start(self._send, "WATCHDOG=1")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Report that the configuration is read again inside ``with``."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={clock.monotonic_ns() // NS_PER_US}")
        try:
            yield
        finally:
            self._send(f"READY=1\nSTATUS={self._status}")

    def stopping(self, drain_seconds: float, stop_seconds: float) -> None:
        """Report that the broker stops. The service manager waits for as long as the drain and the stop may take.

        Args:
            drain_seconds: The period in which clients are disconnected first.
            stop_seconds: How long the stop takes at most.
        """
        status = f"Disconnecting clients for {drain_seconds:g} s" if drain_seconds else "Stopping"
        text = f"STOPPING=1\nSTATUS={status}"
        if drain_seconds:
            text += f"\nEXTEND_TIMEOUT_USEC={round((drain_seconds + stop_seconds) * US_PER_SECOND)}"
        self._send(text)

    def close(self) -> None:
        """Stop the watchdog, and close the socket."""
        if self._timer is not None:
            self._timer.close()
        if self._socket is not None:
            self._socket.close()

    def _send(self, text: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError as error:  # a full or removed socket of the service manager must not stop the broker
            log.debug("service manager: %s", error)


def _beat_seconds(environ: Mapping[str, str]) -> float:
    """Return half of the time within which the service manager expects a sign; 0 without a watchdog."""
    microseconds, process = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or (process and process != str(os.getpid())):
        return 0.0
    return int(microseconds) / 2_000_000
