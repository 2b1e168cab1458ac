"""A file system in memory with the verbs of ``radiator.storage.files``, and the ways in which a real one lets us down.

It keeps two truths. *The cache* is what a running process sees: names and bytes. *The disk* is what a power cut leaves:
bytes that a sync has covered, names that a ``sync_dir`` has covered, and of the rest whatever the disk happened to
have written already, chosen by ``random``: any subset of the unsynced writes, in any order, each of them cut anywhere.

    kill()          SIGKILL: descriptors and the lock are gone, every written byte (also in a mapping) is still there
    power_cut()     the cache is gone; bytes in a mapping that nobody synced too
    fail(verb, n)   the n-th call of that verb from now on raises an OSError, of those on paths that contain ``under``;
                    fdatasync then forgets what it should have written, as Linux does. With ``fatal`` the process ends
                    at that moment: it raises ``Crash``
    evict(path)     the cache gives up clean pages: what is read then is what the disk has
    crash_at(n)     the n-th verb from now on, whichever it is, is never reached: it raises ``Crash``
    capacity        bytes that all files may have together: beyond it writes come back short, then ENOSPC
    fill(n, under)  such a capacity, ``n`` bytes from now, of the files whose paths contain ``under``: a quota
    short_writes    every write of more than one byte is cut in two

``calls`` counts verbs, so that tests can count system calls.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from random import Random
from typing import Any

from radiator.storage import layout
from radiator.storage.files import DirectoryLock, FileStat


class Crash(BaseException):
    """The process ends here; no handler of errors runs."""


class FatalFault(Crash):
    """A call fails, and the process ends before it learns of it."""


class Node:
    """A file: what the cache holds, what the disk holds, and the writes in between."""

    def __init__(self) -> None:
        self.cache = bytearray()
        self.disk: bytes | bytearray = b""  # a first write is kept as it is: those of megabytes are rarely changed
        self.pending: list[tuple[int, bytes]] = []  # (position, bytes); (-1 - size, b"") is a truncation
        self.writes = 0
        self.unheard = False  # the kernel could not write it, and the next sync of the file will say so


def _apply_all(disk: bytes | bytearray, pending: list[tuple[int, bytes]]) -> bytes | bytearray:
    """Return what the disk holds after these writes."""
    if not disk and [position for position, _ in pending] == [0]:
        return pending[0][1]
    if pending and isinstance(disk, bytes):
        disk = bytearray(disk)
    for position, piece in pending:
        _apply(disk, position, piece)
    return disk


def _apply(data: bytearray, position: int, piece: bytes) -> None:
    if position < 0:
        _truncate(data, -1 - position)
        return
    if position > len(data):
        data += bytes(position - len(data))
    if position == len(data):
        data += piece  # half the time of a slice, and each start writes megabytes
    else:
        data[position : position + len(piece)] = piece


def _truncate(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    elif size > len(data):
        data += bytes(size - len(data))


def _parent(path: str) -> str:
    """Return the directory of a path, five times as fast as os.path.dirname: each call asks for all paths."""
    return path.rpartition("/")[0] or "/"


def _moved(path: str, old: str, new: str) -> str:
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path


class FaultyFileSystem:
    """See the top of the file. Not thread-safe; drive the jobs by hand."""

    def __init__(self, random: Random | None = None) -> None:
        self.random = random or Random(0)
        self.nodes: dict[str, Node] = {}
        self.dirs: set[str] = {"/"}
        self.disk_names: dict[str, Node] = {}  # names that a sync_dir has covered
        self.disk_dirs: set[str] = {"/"}
        self.moves: list[tuple[str, str]] = []  # directories renamed, not yet synced
        self.descriptors: dict[int, tuple[str, Node]] = {}
        self.locked: set[str] = set()
        self.calls: Counter[str] = Counter()
        self.capacity: int | None = None
        self._capacity_under = ""
        self.descriptors_max: int | None = None  # then there are none: a mapping counts as none here
        self.short_writes = False
        self._next = 3
        self._dead = self._next  # descriptors up to it were of processes that are gone
        self._faults: dict[str, tuple[int, int, str, int]] = {}  # by verb: calls until then, error, where, how often
        self._fatal: set[str] = set()  # verbs whose fault ends the process
        self._crash_at: int | None = None
        self._reached = False  # one of the faults

    # --- faults -------------------------------------------------------------------------------------------------------

    def fail(
        self, verb: str, nth: int = 1, error: int = errno.EIO, under: str = "", times: int = 1, fatal: bool = False
    ) -> None:
        """The ``nth`` call of ``verb`` from now on, on a path with ``under`` in it, fails, and so do those that follow
        it, if it is to be several ``times``."""
        self._faults[verb] = (nth, error, under, times)
        (self._fatal.add if fatal else self._fatal.discard)(verb)

    def crash_at(self, nth: int) -> None:
        self._crash_at = self.calls.total() + nth

    def evict(self, path: str) -> None:
        """Pages that are clean are forgotten; what is still to be written stays."""
        node = self.nodes[path]
        node.cache = bytearray(node.disk)
        for position, piece in node.pending:
            _apply(node.cache, position, piece)

    def fill(self, room: int = 0, under: str = "") -> None:
        """The disk is full, but for so many bytes, for files with ``under`` in their paths; ``capacity = None`` empties
        it."""
        self._capacity_under = under
        self.capacity = self._used() + room

    @property
    def harmless(self) -> bool:
        """Whether none of the calls that were to fail has been reached."""
        return not self._reached

    def heal(self) -> None:
        """What was going to fail no longer does."""
        self._faults.clear()
        self._fatal.clear()
        self._crash_at = None

    def kill(self) -> None:
        """The process is gone, the machine is not. What no sync has told makes a start fail; this is about the next."""
        for node in self.nodes.values():
            node.unheard = False
        self.descriptors.clear()
        self._dead = self._next
        self.locked.clear()
        self.heal()

    def power_cut(self) -> None:
        """Only what was synced is sure; of the rest, chance decides."""
        random = self.random
        self.kill()
        for node in {id(node): node for node in [*self.nodes.values(), *self.disk_names.values()]}.values():
            kept = []
            for position, piece in node.pending:
                if random.random() < 0.5:
                    continue
                start = random.randrange(len(piece) + 1) if random.random() < 0.3 else 0
                stop = random.randrange(start, len(piece) + 1) if random.random() < 0.3 else len(piece)
                kept.append((position + start if position >= 0 else position, piece[start:stop]))
            node.disk = _apply_all(node.disk, kept)
            node.pending.clear()
            node.cache = bytearray(node.disk)
        while self.moves and random.random() < 0.5:
            self._settle(*self.moves.pop(0))
        for old, new in reversed(self.moves):
            self.nodes = {_moved(path, new, old): node for path, node in self.nodes.items()}
        self.moves.clear()
        names = dict(self.disk_names)
        for path, node in self.nodes.items():
            if path not in names and random.random() < 0.5 and _parent(path) in self.disk_dirs:
                names[path] = node  # created, not synced, and yet there
            elif path in names and names[path] is not node and random.random() < 0.5:
                names[path] = node  # a rename took its place, was not synced, and yet it is there
        for path in list(names):
            if path not in self.nodes and random.random() < 0.5:
                del names[path]  # removed, not synced, and yet gone
        self.nodes = {path: node for path, node in names.items() if _parent(path) in self.disk_dirs}
        self.disk_names = dict(self.nodes)
        self.dirs = set(self.disk_dirs)

    def _settle(self, old: str, new: str) -> None:
        """A renamed directory is on the disk under its new name."""
        self.disk_names = {_moved(path, old, new): node for path, node in self.disk_names.items()}
        self.disk_dirs = {_moved(path, old, new) for path in self.disk_dirs}

    def _call(self, verb: str, path: str) -> None:
        self.calls[verb] += 1
        if self._crash_at is not None and self.calls.total() >= self._crash_at:
            raise Crash
        nth, error, under, times = self._faults.get(verb, (0, 0, "", 0))
        if not nth or under not in path:
            return
        if nth > 1:
            self._faults[verb] = (nth - 1, error, under, times)
            return
        self._reached = True
        if times > 1:
            self._faults[verb] = (1, error, under, times - 1)
        else:
            del self._faults[verb]
        raise FatalFault if verb in self._fatal else OSError(error, os.strerror(error))

    # --- the verbs ----------------------------------------------------------------------------------------------------

    def open(self, path: str, create: bool = False) -> int:
        self._call("open", path)
        node = self.nodes.get(path)
        if node is None:
            if not create or _parent(path) not in self.dirs:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = self.nodes[path] = Node()
        return self._descriptor(path, node)

    def open_read(self, path: str) -> int:
        self._call("open_read", path)
        if path not in self.nodes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._descriptor(path, self.nodes[path])

    def _descriptor(self, path: str, node: Node) -> int:
        if self.descriptors_max is not None and len(self.descriptors) >= self.descriptors_max:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        self._next += 1
        self.descriptors[self._next] = (path, node)
        return self._next

    def close(self, fd: int) -> None:
        if fd <= self._dead:  # a generator of a process that was killed is finalised only now
            return
        del self.descriptors[fd]

    def entropy(self, size: int) -> bytes:
        return b"\x5a" * size

    def size(self, fd: int) -> int:
        return len(self.descriptors[fd][1].cache)

    def has_name(self, path: str) -> bool:
        return path in self.nodes or path in self.dirs

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self._call("pread", self.descriptors[fd][0])
        return bytes(memoryview(self.descriptors[fd][1].cache)[position : position + size])

    def pwritev(self, fd: int, pieces: Any, position: int) -> int:
        path, node = self.descriptors[fd]
        self._call("pwritev", path)
        data = b"".join(pieces)
        if self.short_writes and len(data) > 1:
            data = data[: len(data) // 2]
        if self.capacity is not None and self._capacity_under in path:
            room = max(0, self.capacity - self._used()) + max(0, len(node.cache) - position)
            if room <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[:room]
        _apply(node.cache, position, data)
        node.pending.append((position, data))
        node.writes += 1
        return len(data)

    def fdatasync(self, fd: int) -> None:
        node = self.descriptors[fd][1]
        try:
            self._call("fdatasync", self.descriptors[fd][0])
        except (OSError, FatalFault):
            node.pending.clear()  # the kernel marks the pages clean: a later sync would say all is well
            raise
        if node.unheard:
            node.unheard = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._write_back(node)

    def _write_back(self, node: Node) -> None:
        node.disk = _apply_all(node.disk, node.pending)
        node.pending.clear()

    def sync_all(self, path: str) -> bool:
        """If it is to fail, some files could not be written; the others are."""
        error: BaseException | None = None
        try:
            self._call("sync_all", path)
        except (OSError, FatalFault) as failure:
            error = failure
        for node in self.nodes.values():
            if error is not None and node.pending and self.random.random() < 0.5:
                node.pending.clear()
                node.unheard = True
            self._write_back(node)
        if error is not None:
            raise error
        self.disk_names, self.disk_dirs, self.moves = dict(self.nodes), set(self.dirs), []
        return True

    def device(self, path: str) -> int:
        return 1

    def truncate(self, fd: int, size: int) -> None:
        self._call("truncate", self.descriptors[fd][0])
        node = self.descriptors[fd][1]
        _truncate(node.cache, size)
        node.pending.append((-1 - size, b""))

    def rename(self, old: str, new: str) -> None:
        self._call("rename", new)
        if old in self.dirs:
            self._move(old, new)
        elif old not in self.nodes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        else:
            self.nodes[new] = self.nodes.pop(old)

    def _move(self, old: str, new: str) -> None:
        """A directory: the disk follows with the ``sync_dir`` of its parent."""
        self.nodes = {_moved(path, old, new): node for path, node in self.nodes.items()}
        self.dirs = {_moved(path, old, new) for path in self.dirs}
        self.moves.append((old, new))

    def link(self, old: str, new: str) -> None:
        self._call("link", new)
        if new in self.nodes:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        self.nodes[new] = self.nodes[old]

    def rmdir(self, path: str) -> None:
        self._call("rmdir", path)
        assert not self.listdir(path)
        self.dirs.remove(path)

    def stamp(self, fd: int) -> tuple[int, int]:
        node = self.descriptors[fd][1]
        return id(node), node.writes

    def free_bytes(self, path: str) -> int:
        return (1 << 60) if self.capacity is None else self.capacity - self._used()

    def pread_once(self, fd: int, size: int, position: int) -> bytes:
        return self.pread(fd, size, position)

    def uncache(self, fd: int, position: int = 0, size: int = 0) -> None:
        assert not self.descriptors[fd][1].pending or not position, "only what is synced can leave the cache"

    def _used(self) -> int:
        limited = {id(node): node for path, node in self.nodes.items() if self._capacity_under in path}
        return sum(len(node.cache) for node in limited.values())

    def remove(self, path: str) -> None:
        self._call("remove", path)
        if path in self.dirs:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if path not in self.nodes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        del self.nodes[path]

    def mkdir(self, path: str) -> None:
        self._call("mkdir", path)
        while path not in self.dirs:
            self.dirs.add(path)
            path = _parent(path)

    def listdir(self, path: str) -> list[str]:
        entries = {each for each in [*self.nodes, *self.dirs] if each != path and _parent(each) == path}
        return sorted(os.path.basename(each) for each in entries)

    def sync_dir(self, path: str) -> None:
        self._call("sync_dir", path)
        for old, new in self.moves:
            if _parent(new) == path:
                self._settle(old, new)
        self.moves = [move for move in self.moves if _parent(move[1]) != path]
        for each in [each for each in self.disk_names if _parent(each) == path and each not in self.nodes]:
            del self.disk_names[each]
        for each, node in self.nodes.items():
            if _parent(each) == path:
                self.disk_names[each] = node
        self.disk_dirs |= {each for each in self.dirs if _parent(each) == path}

    def map(self, fd: int, size: int) -> Any:
        return memoryview(self.descriptors[fd][1].cache)[:size]

    def ancestors(self, path: str) -> list[str]:
        found = []
        while path != "/":
            path = _parent(path)
            found.append(path)
        return found

    def lock(self, directory: str) -> DirectoryLock:
        if directory in self.locked:
            raise BlockingIOError(errno.EAGAIN, "locked")
        file_fd = self.open(layout.lock_path(directory), create=True)
        self.locked.add(directory)
        self.nodes[layout.lock_path(directory)].cache[:] = b"4711\n"
        return DirectoryLock(directory, -1, file_fd)

    def unlock(self, lock: DirectoryLock) -> None:
        self.close(lock.file_fd)
        self.locked.discard(lock.path)

    def in_place(self, lock: DirectoryLock) -> bool:
        return lock.path in self.locked and lock.path in self.dirs

    def is_locked(self, directory: str) -> bool:
        return directory in self.locked

    def stat(self, path: str) -> FileStat | None:
        if path in self.dirs:
            return FileStat(0, layout.DIRECTORY_MODE, True, False)
        node = self.nodes.get(path)
        return FileStat(len(node.cache), layout.FILE_MODE, False, True) if node is not None else None

    def chmod(self, path: str, mode: int) -> None:
        self._call("chmod", path)
