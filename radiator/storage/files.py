"""The seam between storage and the operating system: the only place that makes a system call on a file.

A test twin (``tests/storage/faults.py``) has the same verbs and drops unsynced bytes, tears writes, fails syncs and
fills up. Verbs are as thin as they can be: errors are plain OSError (``storage_error`` turns one into a StorageError
that names path and remedy), writes may be short (``write_all`` is the loop), positions are always given.

Knows: descriptors and paths. Must not know: what is in the files.
Stateless, so every thread may use it; a descriptor belongs to the thread that opened it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from radiator.errors import StorageError
from radiator.storage import layout

NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))  # a write that failed so has not harmed its file
NO_DESCRIPTORS = frozenset((errno.EMFILE, errno.ENFILE))
REMEDIES = {
    errno.ENOSPC: "free space on the file system of data_dir, or lower retention",
    errno.EDQUOT: "raise the quota of the broker's user, or lower retention",
    errno.EACCES: "make data_dir belong to the user that runs the broker",
    errno.EPERM: "make data_dir belong to the user that runs the broker",
    errno.EROFS: "mount the file system of data_dir writable",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files (fs.file-max)",
    errno.ENOENT: "the file was removed by something other than the broker",
    errno.EIO: "check the disk (dmesg, smartctl)",
}

READ_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


def storage_error(path: str, doing: str, error: OSError, remedy: str | None = None) -> StorageError:
    remedy = remedy or REMEDIES.get(error.errno or 0, "see the system's log")
    return StorageError(f"{path}: cannot {doing}: {error.strerror or error}; {remedy}")


LOCK_TRIES = 3
LOCK_AGAIN_SECONDS = 0.01  # whoever only asks for the holder is gone long before


class Facts(NamedTuple):
    """What a directory says of a name in it."""

    size: int
    mode: int  # permission bits
    is_dir: bool
    is_file: bool


class FileSystem:
    """The real one. Files are created 0600, directories 0700."""

    # Those of the hot paths are the C functions themselves.
    pread = staticmethod(os.pread)  # (fd, size, position) -> bytes, fewer at the end of the file
    preadv = staticmethod(os.preadv)  # (fd, buffers, position) -> bytes read into them, fewer at the end of the file
    pwritev = staticmethod(os.pwritev)  # (fd, pieces, position) -> bytes written, maybe fewer
    fdatasync = staticmethod(getattr(os, "fdatasync", os.fsync))
    close = staticmethod(os.close)

    def open(self, path: str, create: bool = False) -> int:
        """For reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), layout.FILE_MODE)

    def open_read(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def entropy(self, size: int) -> bytes:
        """Bytes that nobody can guess."""
        return os.urandom(size)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        """An empty directory."""
        os.rmdir(path)

    def link(self, old: str, new: str) -> None:
        """A second name of the same file."""
        os.link(old, new)

    def stamp(self, fd: int) -> tuple[int, int]:
        """(inode, time of the last write in nanoseconds): what differs if the file is another, or was written to."""
        status = os.fstat(fd)
        return status.st_ino, status.st_mtime_ns

    def free_bytes(self, path: str) -> int:
        """Room that is left for us on the file system of ``path``."""
        room = os.statvfs(path)
        return room.f_bavail * room.f_frsize

    def pread_once(self, fd: int, size: int, position: int) -> bytes:
        """``pread`` for whoever reads a large file once: what was not in the page cache before is not left there."""
        if not READ_NOWAIT:
            return os.pread(fd, size, position)
        buffer = bytearray(size)
        try:
            if os.preadv(fd, [buffer], position, READ_NOWAIT) == size:
                return bytes(buffer)
        except BlockingIOError:
            pass  # none of it is in the cache
        except OSError:
            return os.pread(fd, size, position)  # this file system cannot tell
        data = os.pread(fd, size, position)
        self.uncache(fd, position, len(data))
        return data

    def uncache(self, fd: int, position: int = 0, size: int = 0) -> None:
        """Synced pages of this file are no longer needed in the page cache; size 0 is to the end."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)

    def mkdir(self, path: str) -> None:
        """With parents; no error if it is there."""
        try:
            os.mkdir(path, layout.DIRECTORY_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        except FileNotFoundError:
            self.mkdir(os.path.dirname(path))
            os.mkdir(path, layout.DIRECTORY_MODE)

    def listdir(self, path: str) -> list[str]:
        """Sorted; empty if there is no such directory."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def sync_dir(self, path: str) -> None:
        """Names created, renamed and removed in this directory are on disk when this returns."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def map(self, fd: int, size: int) -> memoryview:
        """A shared, writable view of the first ``size`` bytes, which must exist and be allocated (a hole on a full disk
        would be a SIGBUS). Stores survive the death of the process; they are not synced. Unmapped when released."""
        return memoryview(mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))

    def lock(self, path: str) -> int:
        """Takes the lock file and writes our pid into it; BlockingIOError if another process has it."""
        fd = self.open(path, create=True)
        try:
            for tries in range(LOCK_TRIES):
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if tries == LOCK_TRIES - 1:
                        raise
                    time.sleep(LOCK_AGAIN_SECONDS)
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        except OSError:
            os.close(fd)
            raise
        return fd

    def held(self, path: str) -> bool:
        """Whether a process holds that lock file. To ask, it is shared for a moment; nothing is written."""
        try:
            fd = self.open_read(path)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def facts(self, path: str) -> Facts | None:
        """None if there is nothing of that name. A symbolic link is neither a file nor a directory."""
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return None
        mode = found.st_mode
        return Facts(found.st_size, stat.S_IMODE(mode), stat.S_ISDIR(mode), stat.S_ISREG(mode))

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(path, mode)


def write_all(fs: FileSystem, fd: int, pieces: Sequence[bytes | memoryview], position: int) -> int:
    """Writes every byte and returns how many; one system call unless the write comes back short."""
    size = sum(map(len, pieces))
    written = fs.pwritev(fd, pieces, position)
    while written < size:
        rest = memoryview(b"".join(pieces))[written:]
        more = fs.pwritev(fd, [rest], position + written)
        if more <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += more
    return written


def lock_holder(fs: FileSystem, path: str) -> str:
    """The pid that stands in a lock file, or a word for what cannot be told."""
    return (read_file(fs, path) or b"").decode("ascii", "replace").strip() or "unknown"


@contextlib.contextmanager
def suppress_no_room() -> Iterator[None]:
    """For what can be done without while the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise


def replace_file(fs: FileSystem, path: str, data: bytes, suffix: str = ".tmp", synced: bool = True) -> None:
    """A small file holds just this, in one step: it is written beside its place and renamed. Raises OSError."""
    new = path + suffix
    with contextlib.suppress(FileNotFoundError):
        fs.remove(new)
    fd = fs.open(new, create=True)
    try:
        write_all(fs, fd, [data], 0)
        if synced:
            fs.fdatasync(fd)
    finally:
        fs.close(fd)
    fs.rename(new, path)
    if synced:
        fs.sync_dir(path.rpartition("/")[0])


def read_file(fs: FileSystem, path: str) -> bytes | None:
    """The whole of a small file; None if there is none."""
    try:
        fd = fs.open_read(path)
    except FileNotFoundError:
        return None
    try:
        return read_fully(fs, fd, fs.size(fd), 0)
    finally:
        fs.close(fd)


def read_fully(fs: FileSystem, fd: int, size: int, position: int) -> bytes:
    """``size`` bytes, or all up to the end of the file."""
    data = fs.pread(fd, size, position)
    while len(data) < size:
        more = fs.pread(fd, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def close_quietly(fs: FileSystem, fd: int) -> None:
    if fd >= 0:
        with contextlib.suppress(OSError):
            fs.close(fd)
