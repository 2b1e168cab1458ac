"""What named subscriptions are subscribed to: one small file, replaced as a whole.

    hub: put() -> take() -> DefinitionsJob ...disk thread... -> done: waiters may be told

Their cursors alone would not do: which destinations a name is about, also those that are not there yet, is known by
nothing but this. The file is one line with a version and a crc, and JSON (``docs/storage-format.md``, "Subscriptions").

Knows: entries, which are plain values by a key. Must not know: what is in them.
Invariants: the file holds all entries of one moment, or of an earlier one; a file that cannot be read is kept aside,
and then nothing is deleted because it is not in there (``whole``). The hub's, but for ``DefinitionsJob.write``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from radiator.clock import MonoNs, Now
from radiator.errors import StorageError
from radiator.storage.files import FileSystem, read_file, replace_file, storage_error
from radiator.storage.jobs import Job
from radiator.timers import NEVER_NS

HEAD = b"radiator subscriptions 1 "
RETRY_EVERY_NS = 2_000_000_000
Entry = dict[str, Any]


def encode(entries: Mapping[str, Entry], start: bytes = HEAD) -> bytes:
    """The file; ``start`` is how it begins."""
    body = json.dumps(entries, ensure_ascii=False).encode() + b"\n"  # with indent it is ten times as slow
    return b"%b%08x\n%b" % (start, crc32(body), body)


def decode(data: bytes, start: bytes = HEAD) -> dict[str, Entry]:
    """What the file holds. Raises ValueError if it is not whole."""
    head, newline, body = data.partition(b"\n")
    if not newline or not head.startswith(start):
        raise ValueError(f"expected a first line {start.decode()}<crc>, got {head[:60]!r}")
    if head[len(start) :] != b"%08x" % crc32(body):
        raise ValueError("the crc of its first line is not that of the rest")
    entries = json.loads(body)
    if not isinstance(entries, dict) or not all(isinstance(each, dict) for each in entries.values()):
        raise ValueError("expected an object of objects")
    return entries


class DefinitionsJob(Job):
    """All entries as they are now. ``what`` is for messages."""

    __slots__ = ("_keeper", "entries", "puts")
    what = "subscription"

    def __init__(self, keeper: Definitions, entries: dict[str, Entry], puts: int, waiters: list[Any]) -> None:
        super().__init__()
        self.waiters = waiters
        self.entries = entries
        self.puts = puts  # it has what was put until then
        self._keeper = keeper

    @property
    def keeper(self) -> Definitions:
        return self._keeper

    @property
    def refusals(self) -> int:
        return len(self.waiters)

    def write(self) -> None:
        keeper = self._keeper
        try:
            replace_file(keeper.fs, keeper.path, encode(self.entries))
        except OSError as error:
            self.error = storage_error(keeper.path, "write the subscriptions", error)

    def done(self, now: Now) -> None:
        self._keeper.written(self, now.mono)


class Definitions:
    """The entries, and what of them is not in the file yet."""

    name = "subscriptions"  # as the operator's log has it

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs = fs
        self.path = path
        self.entries: dict[str, Entry] = {}
        self.stored: Mapping[str, Entry] = {}  # what the file says
        self.whole = True
        self.waiters: list[Any] = []  # who waits for what was put; the next take() takes them along
        self.failed: StorageError | None = None
        self._dirty = False
        self._puts = 0
        self._unwritten: dict[str, int] = {}  # the number of the last put of what the file has not yet
        self._deletes = False
        self._under_way = 0
        self._retry_due_ns: MonoNs | None = None

    def load(self) -> list[str]:
        """Reads the file; what was found wrong, in words. Before any other thread runs. Raises OSError."""
        data = read_file(self.fs, self.path)
        if data is None:
            return []
        try:
            self.entries = decode(data)
            self.stored = dict(self.entries)
        except ValueError as error:
            self.whole = False
            kept = f"{self.path}.damaged"
            self.fs.rename(self.path, kept)
            return [f"{kept}: could not be read ({error}); its subscriptions are unknown until they are made again"]
        return []

    def put(self, key: str, entry: Entry | None) -> None:
        """This is what the name is about from now on; None: it is gone. An entry is never changed after this."""
        if entry is None:
            self._deletes |= self.entries.pop(key, None) is not None
        else:
            self.entries[key] = entry
        self._puts += 1
        self._unwritten[key] = self._puts
        self._dirty = True

    def note(self, key: str, entry: Entry, soon: bool = False) -> None:
        """The same, but nobody has to wait for it; and it need not be written before something else is, or ``soon``."""
        self.entries[key] = entry
        self._dirty |= soon

    def written_down(self, key: str) -> bool:
        """Whether the file has what was put for this key."""
        return key not in self._unwritten

    @property
    def deadline_ns(self) -> MonoNs:
        """When take() has something to do of itself; NEVER_NS if nothing is planned."""
        return MonoNs(NEVER_NS) if self._retry_due_ns is None else self._retry_due_ns

    def take(self, now_ns: MonoNs) -> tuple[list[Job], list[Job]]:
        """What has to be done before the cursors of the same turn are written, and what after them: a name is deleted
        before its cursors, and made after them, so that a crash in between leaves no name without cursors."""
        retry = self._retry_due_ns is not None and self._retry_due_ns <= now_ns
        if not (self._dirty or self.waiters or retry) or (self._retry_due_ns is not None and not retry):
            return [], []
        job = DefinitionsJob(self, dict(self.entries), self._puts, self.waiters)
        first, self._dirty, self._deletes, self.waiters, self._retry_due_ns = self._deletes, False, False, [], None
        self._under_way += 1
        return ([job], []) if first else ([], [job])

    def written(self, job: DefinitionsJob, now_ns: MonoNs) -> None:
        """A job came back. One that failed is made up for by the next, tried now and then."""
        self._under_way -= 1
        self.failed = job.error
        if job.error is None:
            self.stored = job.entries
            self._unwritten = {key: number for key, number in self._unwritten.items() if number > job.puts}
        else:
            self._dirty = True
            self._retry_due_ns = MonoNs(now_ns + RETRY_EVERY_NS)
