"""One run at a time on a data directory: a flock on its directory ``partitions``, so nothing is written there.

It is for those of one machine. Two machines are kept apart by the commits, which is slower.

Whoever has the lock may remove what the one before left, and knows it by the *owner* that it wrote down. Two who can be
at work at once must never have one owner: so it is made of the directory itself, by device and inode, and of the system
that has the lock, by the id of its boot. Names alone would not do: containers may have the same ones.

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

BOOT = "/proc/sys/kernel/random/boot_id"


class Busy(StorageError):
    """Another run is at work."""


@contextlib.contextmanager
def locked(root: str) -> Iterator[str | None]:
    """Gives a name for whoever holds this lock, since the machine was started; None if the file system has no locks, or
    the machine does not say when it was. Raises Busy, OSError."""
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
        yield _owner(fd, root)
    finally:
        os.close(fd)


def _owner(fd: int, root: str) -> str | None:
    try:
        with open(BOOT) as file:
            boot = file.read().strip()
    except OSError:
        return None
    facts = os.fstat(fd)
    place = f"{boot}:{facts.st_dev}:{facts.st_ino}:{socket.gethostname()}:{os.path.realpath(root)}"
    return blake2b(place.encode(), digest_size=8).hexdigest()


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
