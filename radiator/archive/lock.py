"""One run at a time on a data directory: a flock on its directory ``partitions``, so nothing is written there.

It is for those of one machine. Two machines are kept apart by the commits, which is slower.

Knows: flock. Must not know: archives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from hashlib import blake2b

from radiator.errors import StorageError
from radiator.storage import layout


class Busy(StorageError):
    """Another run is at work."""


@contextlib.contextmanager
def locked(root: str) -> Iterator[str | None]:
    """Gives a name for whoever holds this lock; None if the file system has no locks. Raises Busy, OSError."""
    path = layout.partitions_path(root)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"{root}: another run is at work ({_holder(fd)}); nothing was done") from None
        except OSError:
            yield None
            return
        place = f"{socket.gethostname()}:{os.path.realpath(root)}"
        yield blake2b(place.encode(), digest_size=8).hexdigest()
    finally:
        os.close(fd)


def _holder(fd: int) -> str:
    """In words."""
    facts = os.fstat(fd)
    wanted = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    with contextlib.suppress(OSError), open("/proc/locks") as file:
        for line in file:
            fields = line.split()
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == wanted:
                return f"process {fields[4]}"
    return "a process that cannot be told"
