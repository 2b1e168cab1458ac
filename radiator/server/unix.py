"""Unix sockets to listen on: a file that only its owner may open, from its first moment; what a killed broker left
behind makes way, and nothing else does.

Invariants: no other mode than 0600 is ever seen at the path; a file that is not ours is not removed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket as std_socket
import stat
from typing import Any

from gevent import socket

from radiator.errors import ConfigError

log = logging.getLogger("radiator.server")

MODE = 0o600
PATH_BYTES_MAX = 107  # what the kernel has room for, with the NUL behind it


def bind(path: str, backlog: int) -> Any:
    """A listening socket at ``path``. Raises ConfigError."""
    check(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale_socket(path)
        private = _chmod(sock)
        mask = None if private else os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            if mask is not None:
                os.umask(mask)
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise ConfigError(f"listen: unix:{path}: cannot listen there: {error.strerror or error}") from None
    except ConfigError:
        sock.close()
        raise
    return sock


def check(path: str) -> None:
    """Whether there can be a socket of that name. Raises ConfigError."""
    size = len(os.fsencode(path))
    if size > PATH_BYTES_MAX:
        raise ConfigError(f"listen: unix:{path}: expected a path of at most {PATH_BYTES_MAX} bytes, got {size}")


def _chmod(sock: Any) -> bool:
    """Linux gives the file the mode of the socket, so that no umask, which all threads share, has to be changed."""
    try:
        os.fchmod(sock.fileno(), MODE)
    except OSError:
        return False
    return bool(stat.S_IMODE(os.fstat(sock.fileno()).st_mode) == MODE)


def _remove_stale_socket(path: str) -> None:
    directory = os.path.dirname(path) or "."
    os.makedirs(directory, mode=0o700, exist_ok=True)
    mode = os.stat(directory).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        log.warning("listen: unix:%s: everybody may put another socket there; chmod o-w %s", path, directory)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ConfigError(
                f"listen: unix:{path}: expected nothing or a socket there, found another file; move it away"
            )
        probe = std_socket.socket(std_socket.AF_UNIX)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        else:
            raise ConfigError(
                f"listen: unix:{path}: the socket is in use by another program; stop that one, or choose another path"
            )
        finally:
            probe.close()


def identity(path: str) -> tuple[int, int]:
    """Which file is there."""
    facts = os.lstat(path)
    return facts.st_dev, facts.st_ino


def remove(path: str, identified: tuple[int, int]) -> None:
    """Take our own file away; another's stays."""
    with contextlib.suppress(OSError):
        if identity(path) == identified:
            os.unlink(path)
