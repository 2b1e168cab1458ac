"""Listen on unix sockets that only the owner can open.

The file left by a killed broker is replaced, and no other file is.

Invariants: the file never has another mode than 0600. A file of another process is not removed.
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
PATH_BYTES_MAX = 107  # limit of the kernel, without the NUL at the end


def bind(path: str, backlog: int) -> Any:
    """Return a listening socket at ``path``.

    Raises:
        ConfigError: The path cannot be listened on.
    """
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
    """Check that ``path`` is short enough for a unix socket.

    Raises:
        ConfigError: It is too long.
    """
    size = len(os.fsencode(path))
    if size > PATH_BYTES_MAX:
        raise ConfigError(f"listen: unix:{path}: expected a path of at most {PATH_BYTES_MAX} bytes, got {size}")


def _chmod(sock: Any) -> bool:
    """Set the mode before ``bind``: Linux gives the file the mode of the socket, without a change of the umask."""
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
        log.warning("listen: unix:%s: every user can put another socket there; chmod o-w %s", path, directory)
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
    """Return the identity of the file at ``path``: device and inode."""
    facts = os.lstat(path)
    return facts.st_dev, facts.st_ino


def remove(path: str, identified: tuple[int, int]) -> None:
    """Remove the file at ``path`` if it has this identity."""
    with contextlib.suppress(OSError):
        if identity(path) == identified:
            os.unlink(path)
