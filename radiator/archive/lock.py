"""Allow one run at a time on a data directory: a flock on its directory ``partitions``, so nothing is written there.

It excludes runs of one machine. Runs of two machines are separated by the commits, which is slower.

The holder of the lock may remove what an earlier run left, and recognises it by the *owner* in it. Two runs that can be
active at once must never have one owner: so it is made of the directory, by device and inode, and of the system, by the
id of its boot. Names are not enough: containers may have the same ones.

This module knows flock. It does not know archives.
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
    """Another run is active."""


@contextlib.contextmanager
def locked(root: str) -> Iterator[str | None]:
    """Yield the owner: a name for all holders of this lock since the machine was started.

    It is None if the file system has no locks, or the machine has no boot id.

    Raises:
        Busy: Another run has the lock.
        OSError: The directory cannot be opened.
    """
    path = layout.partitions_path(root)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"{root}: another run is active ({_holder(fd)}); nothing was done") from None
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
    """Describe the process that has the lock."""
    facts = os.fstat(fd)
    wanted = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    with contextlib.suppress(OSError), open("/proc/locks") as file:
        for line in file:
            fields = line.split()
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == wanted:
                return f"process {fields[4]}"
    return "an unknown process"
