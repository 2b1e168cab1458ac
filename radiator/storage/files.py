"""System calls on files: the only module that makes them.

A test double (``tests/storage/faults.py``) has the same methods; it drops unsynced bytes, tears writes, fails syncs and
fills up. The methods are as thin as possible: errors are plain OSErrors (``storage_error`` converts one to a
StorageError with path and remedy), writes may be short (``write_all`` is the loop), positions are always given.

After a directory is locked, every path below it is looked up from the opened directory. If the directory is moved, its
files are still found there, and no file is created under the old name.

This module knows descriptors and paths. It does not know the contents of files. The locked directories are its only
state, so every thread may use it; a descriptor belongs to the thread that opened it.
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
from radiator.storage import layout, syncfs

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
    """Return a StorageError for a failed system call.

    Args:
        path: The file.
        doing: What failed, as an infinitive: "write".
        error: The error.
        remedy: What an operator can do; None for the usual remedy of this errno.
    """
    remedy = remedy or REMEDIES.get(error.errno or 0, "see the system's log")
    return StorageError(f"{path}: cannot {doing}: {error.strerror or error}; {remedy}")


LOCK_TRIES = 3
AGAIN_BYTES = 1 << 20  # read and written at once
LOCK_AGAIN_SECONDS = 0.01  # ``is_locked`` has a lock for a much shorter time


class FileStat(NamedTuple):
    """The size, mode and type of a file."""

    size: int
    mode: int  # permission bits
    is_dir: bool
    is_file: bool


class DirectoryLock:
    """A directory that this process has locked (``FileSystem.lock``).

    Attributes:
        path: the name under which the directory was opened.
        fd: the opened directory, with the flock that keeps other processes out.
        file_fd: the file LOCK in it, with a flock of its own.
    """

    __slots__ = ("fd", "file_fd", "path")

    def __init__(self, path: str, fd: int, file_fd: int) -> None:
        self.path = path
        self.fd = fd
        self.file_fd = file_fd


class FileSystem:
    """The file system of the machine. Files are created with mode 0600, directories with 0700."""

    _locks: tuple[DirectoryLock, ...] = ()

    # Those of the hot paths are the C functions themselves.
    pread = staticmethod(os.pread)  # (fd, size, position) -> bytes, fewer at the end of the file
    preadv = staticmethod(os.preadv)  # (fd, buffers, position) -> bytes read into them, fewer at the end of the file
    pwritev = staticmethod(os.pwritev)  # (fd, pieces, position) -> bytes written, maybe fewer
    fdatasync = staticmethod(getattr(os, "fdatasync", os.fsync))
    close = staticmethod(os.close)

    def open(self, path: str, create: bool = False) -> int:
        """Open a file for reading and writing."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        name, at = self._at(path)
        return os.open(name, flags, layout.FILE_MODE, dir_fd=at)

    def open_read(self, path: str) -> int:
        """Open a file for reading."""
        name, at = self._at(path)
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=at)

    def _at(self, path: str) -> tuple[str, int | None]:
        """Return ``path`` as a name and the directory to look it up in: a locked one, or None for the whole path."""
        for lock in self._locks:
            root = lock.path
            if path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
                return path[len(root) + 1 :] or ".", lock.fd
        return path, None

    def _named(self, path: str) -> tuple[str, int | None]:
        """Return the same for changes to the name itself: the name of a locked directory is in its parent."""
        name, at = self._at(path)
        return (path, None) if name == "." else (name, at)

    def entropy(self, size: int) -> bytes:
        """Return random bytes that cannot be guessed."""
        return os.urandom(size)

    def size(self, fd: int) -> int:
        """Return the size of an open file, in bytes."""
        return os.fstat(fd).st_size

    def has_name(self, path: str) -> bool:
        """Return whether the name exists.

        Unlike ``stat`` this does not read the file's times: after a ``stat``, Linux 6.13 and later give the file an
        exact time with the next write, and the next sync writes the inode as well.
        """
        name, at = self._at(path)
        return os.access(name, os.F_OK, dir_fd=at)

    def truncate(self, fd: int, size: int) -> None:
        """Set the size of an open file."""
        os.ftruncate(fd, size)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory, replacing an existing file."""
        (old_name, old_at), (new_name, new_at) = self._named(old), self._named(new)
        os.replace(old_name, new_name, src_dir_fd=old_at, dst_dir_fd=new_at)

    def remove(self, path: str) -> None:
        """Remove a file."""
        name, at = self._named(path)
        os.unlink(name, dir_fd=at)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        name, at = self._named(path)
        os.rmdir(name, dir_fd=at)

    def link(self, old: str, new: str) -> None:
        """Make another name of a file."""
        (old_name, old_at), (new_name, new_at) = self._named(old), self._named(new)
        os.link(old_name, new_name, src_dir_fd=old_at, dst_dir_fd=new_at)

    def stamp(self, fd: int) -> tuple[int, int]:
        """Return (inode, time of the last write in nanoseconds), which change if the file is replaced or written."""
        status = os.fstat(fd)
        return status.st_ino, status.st_mtime_ns

    def free_bytes(self, path: str) -> int:
        """Return the free bytes for this user on the file system of ``path``."""
        _, at = self._at(path)
        room = os.statvfs(path if at is None else at)
        return room.f_bavail * room.f_frsize

    def pread_once(self, fd: int, size: int, position: int) -> bytes:
        """Read as ``pread`` does, without leaving new pages in the page cache. For large files that are read once."""
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
        """Drop synced pages of a file from the page cache; size 0 is to the end."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents. An existing directory is no error."""
        name, at = self._at(path)
        try:
            os.mkdir(name, layout.DIRECTORY_MODE, dir_fd=at)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=at).st_mode):
                raise
        except FileNotFoundError:
            self.mkdir(os.path.dirname(path))
            os.mkdir(name, layout.DIRECTORY_MODE, dir_fd=at)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; an empty list if it does not exist."""
        try:
            fd = self._open_dir(path)
        except FileNotFoundError:
            return []
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> bool:
        """Sync everything on the file system of a locked directory, other programs' files too.

        Returns:
            False if that is not possible, or not reliable, here: then nothing was done.

        Raises:
            OSError: Something there could not be written, since the last time or since the directory was locked.
        """
        _, at = self._at(path)
        if at is None or not syncfs.believed(os.fstat(at).st_dev):
            return False
        syncfs.sync(at)
        return True

    def device(self, path: str) -> int:
        """Return the number of the file system that a directory is on."""
        name, at = self._at(path)
        return os.stat(name, dir_fd=at).st_dev

    def sync_dir(self, path: str) -> None:
        """Sync a directory: names created, renamed and removed in it are on disk afterwards."""
        fd = self._open_dir(path)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _open_dir(self, path: str) -> int:
        name, at = self._at(path)
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)

    def ancestors(self, path: str) -> list[str]:
        """Return the directories above ``path`` that are on its file system, the nearest first."""
        found: list[str] = []
        path = os.path.realpath(path)
        device = os.stat(path).st_dev
        while (parent := os.path.dirname(path)) != path and os.stat(parent).st_dev == device:
            found.append(parent)
            path = parent
        return found

    def map(self, fd: int, size: int) -> memoryview:
        """Return a shared, writable view of the first ``size`` bytes of a file.

        The bytes must exist and be allocated (a hole on a full disk would be a SIGBUS). Stores survive the death of the
        process; they are not synced. Releasing the view unmaps it.
        """
        return memoryview(mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))

    def lock(self, directory: str) -> DirectoryLock:
        """Lock ``directory``, which must exist, and enter it (see the top of the file).

        The flock is on the directory itself, so removing or replacing a file in it sets no other process free. The
        file LOCK is locked as well: it has the pid for people and tools, and between several machines on NFS a flock
        excludes others only if it is on a file.

        Raises:
            BlockingIOError: another process has one of the two locks.
            OSError: the directory or LOCK cannot be opened, or the directory was replaced meanwhile.
        """
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        file_fd = -1
        try:
            _flock(fd)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            file_fd = os.open(layout.LOCK, flags, layout.FILE_MODE, dir_fd=fd)
            _flock(file_fd)
            os.ftruncate(file_fd, 0)
            os.pwrite(file_fd, b"%d\n" % os.getpid(), 0)
            lock = DirectoryLock(directory, fd, file_fd)
            if not self.in_place(lock):
                raise FileNotFoundError(errno.ENOENT, "replaced while it was being opened", directory)
        except OSError:
            os.close(fd)
            close_quietly(self, file_fd)
            raise
        self._locks = (*self._locks, lock)
        return lock

    def unlock(self, lock: DirectoryLock) -> None:
        """Give a locked directory back; paths below it are looked up by name again."""
        self._locks = tuple(each for each in self._locks if each is not lock)
        os.close(lock.file_fd)
        os.close(lock.fd)

    def in_place(self, lock: DirectoryLock) -> bool:
        """Return whether the name of a locked directory still leads to that directory."""
        try:
            return os.path.samestat(os.stat(lock.path), os.fstat(lock.fd))
        except OSError:
            return False

    def is_locked(self, directory: str) -> bool:
        """Return whether a process has locked a directory. This takes shared locks for a moment and writes nothing."""
        for path in (directory, layout.lock_path(directory)):
            try:
                fd = self.open_read(path)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(fd)
        return False

    def stat(self, path: str) -> FileStat | None:
        """Return the facts of a file; None if it does not exist. A symbolic link is neither file nor directory."""
        try:
            name, at = self._at(path)
            found = os.stat(name, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            return None
        mode = found.st_mode
        return FileStat(found.st_size, stat.S_IMODE(mode), stat.S_ISDIR(mode), stat.S_ISREG(mode))

    def chmod(self, path: str, mode: int) -> None:
        """Set the permission bits of a file."""
        name, at = self._at(path)
        os.chmod(name, mode, dir_fd=at)


def _flock(fd: int) -> None:
    """Lock ``fd`` for this process alone. Raises BlockingIOError if another process holds a lock for long."""
    for tries in range(LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if tries == LOCK_TRIES - 1:
                raise
            time.sleep(LOCK_AGAIN_SECONDS)


def write_all(fs: FileSystem, fd: int, pieces: Sequence[bytes | memoryview], position: int) -> int:
    """Write every byte and return their number; one system call unless the write is short."""
    size = sum(map(len, pieces))
    written = fs.pwritev(fd, pieces, position)
    while written < size:
        rest = memoryview(b"".join(pieces))[written:]
        more = fs.pwritev(fd, [rest], position + written)
        if more <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += more
    return written


def write_again(fs: FileSystem, fd: int, start: int, end: int) -> None:
    """Write the bytes of a file from ``start`` to ``end``, or its end, once more, so that the next sync writes them.

    A sync that has failed may leave pages that the kernel considers clean. Whoever finds them after a restart reads
    bytes that are not on the disk, and a sync alone would succeed and write nothing.

    Raises:
        OSError: The file cannot be read or written.
    """
    while data := read_fully(fs, fd, min(AGAIN_BYTES, end - start), start):
        start += write_all(fs, fd, [data], start)


def lock_holder(fs: FileSystem, directory: str) -> str:
    """Return the pid that a locked directory's file LOCK contains, or "unknown"."""
    return (read_file(fs, layout.lock_path(directory)) or b"").decode("ascii", "replace").strip() or "unknown"


def sync_ancestors(fs: FileSystem, path: str) -> None:
    """Sync the names of the directory ``path`` and of all directories above it, whoever has created them.

    Of directories further up, those that this user may not read are left out: it has created nothing there.

    Raises:
        OSError: one of the directories cannot be synced.
    """
    for number, directory in enumerate(fs.ancestors(path)):
        try:
            fs.sync_dir(directory)
        except PermissionError:
            if number == 0:
                raise


@contextlib.contextmanager
def suppress_no_room() -> Iterator[None]:
    """Ignore errors of a full disk, for work that can be done without."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise


def replace_file(fs: FileSystem, path: str, data: bytes, suffix: str = ".tmp", synced: bool = True) -> None:
    """Replace a small file in one step: write the new one beside its place and rename it.

    Args:
        fs: The file system.
        path: The file.
        data: Its new contents.
        suffix: Of the name of the new file until it is renamed.
        synced: Sync the file and its directory.

    Raises:
        OSError: With ``path`` as its ``filename``.
    """
    new = path + suffix
    try:
        with contextlib.suppress(FileNotFoundError):
            fs.remove(new)
        with opened(fs, fs.open(new, create=True)) as fd:
            write_all(fs, fd, [data], 0)
            if synced:
                fs.fdatasync(fd)
        fs.rename(new, path)
        if synced:
            fs.sync_dir(path.rpartition("/")[0])
    except OSError as error:
        error.filename = path
        raise


@contextlib.contextmanager
def opened(fs: FileSystem, fd: int) -> Iterator[int]:
    """Close the descriptor ``fd`` at the end of the block, whatever happens in it."""
    try:
        yield fd
    finally:
        fs.close(fd)


def read_file(fs: FileSystem, path: str) -> bytes | None:
    """Return the contents of a small file; None if it does not exist."""
    try:
        fd = fs.open_read(path)
    except FileNotFoundError:
        return None
    with opened(fs, fd):
        return read_fully(fs, fd, fs.size(fd), 0)


def read_fully(fs: FileSystem, fd: int, size: int, position: int) -> bytes:
    """Read ``size`` bytes, or all up to the end of the file."""
    data = fs.pread(fd, size, position)
    while len(data) < size:
        more = fs.pread(fd, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def close_quietly(fs: FileSystem, fd: int) -> None:
    """Close a descriptor, if it is one, and ignore errors."""
    if fd >= 0:
        with contextlib.suppress(OSError):
            fs.close(fd)
