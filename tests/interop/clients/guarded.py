"""A socket of TLS that a reading and a writing thread may share: OpenSSL wants its connections used by one at a time.

Where a record of TLS itself (a session ticket, say) is read while another is written, what is written is garbage to the
peer. So a lock is held for each step, and nobody waits for the network with it. One thread may read, and one write.
"""

from __future__ import annotations

import select
import ssl
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
LOOK_SECONDS = 0.2  # whether the socket was closed meanwhile


class GuardedSocket(ssl.SSLSocket):
    _lock: threading.Lock

    def __new__(cls, *args: Any, **options: Any) -> GuardedSocket:
        made = super().__new__(cls, *args, **options)
        made._lock = threading.Lock()
        return made

    def recv(self, size: int = 1024, flags: int = 0) -> bytes:
        return self._in_turn(lambda: super(GuardedSocket, self).recv(size, flags))

    def send(self, data: Any, flags: int = 0) -> int:
        return self._in_turn(lambda: super(GuardedSocket, self).send(data, flags))

    def _in_turn(self, step: Callable[[], T]) -> T:
        while True:
            reads, writes = [], []
            with self._lock:
                self.setblocking(False)
                try:
                    return step()
                except ssl.SSLWantReadError:
                    reads.append(self)
                except ssl.SSLWantWriteError:
                    writes.append(self)
                finally:
                    self.setblocking(True)
            select.select(reads, writes, [], LOOK_SECONDS)


def guard() -> None:
    """From now on every context makes such sockets."""
    ssl.SSLContext.sslsocket_class = GuardedSocket
