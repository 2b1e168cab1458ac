"""What named subscriptions are subscribed to: one small file, and what the journal's entries say since.

    hub: put() -> take() -> DefinitionsJob, whose data stands in the entry of its group
         -> written(): waiters may be told

Their cursors alone would not do: which destinations a name is about, also those that are not there yet, is known by
nothing but this. The file is one line with a version and a crc, and JSON (``docs/storage-format.md``, "Subscriptions").
It is replaced as a whole: by a checkpoint, at a start that finds something to add, and at a clean stop. An entry of the
journal has only what was put, as JSON: an object with the new value of each key, null for one that is gone.

Knows: entries, which are plain values by a key. Must not know: what is in them.
Invariants: the file holds all entries of one moment, or of an earlier one. A file that cannot be read is renamed to
``subscriptions.damaged``. As long as that is there, no cursor is deleted because no entry has its name (``whole``). The
hub's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

from radiator.clock import MonoNs, Now
from radiator.errors import StorageError
from radiator.storage.files import FileSystem, read_file
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


def decode_changes(data: bytes) -> dict[str, Entry | None]:
    """What an entry of the journal says, by key; None: it is gone. Raises ValueError if it is nonsense."""
    changes = json.loads(data)
    if not isinstance(changes, dict) or not all(each is None or isinstance(each, dict) for each in changes.values()):
        raise ValueError("expected an object of objects")
    return changes


def apply(data: bytes, entries: dict[str, Entry]) -> None:
    """Apply what an entry of the journal says. Raises ValueError if it is nonsense."""
    for key, entry in decode_changes(data).items():
        if entry is None:
            entries.pop(key, None)
        else:
            entries[key] = entry


class DefinitionsJob(Job):
    """What was put. The group's entry in the journal has it (``GroupJob``, which sets ``error``)."""

    __slots__ = ("_keeper", "changes", "puts")
    what = "subscription"

    def __init__(self, component: Definitions, changes: dict[str, Entry | None], puts: int, waiters: list[Any]) -> None:
        super().__init__(needs_sync=True)
        self.waiters = waiters
        self.changes = changes
        self.puts = puts  # it has what was put until then
        self._keeper = component

    @property
    def data(self) -> bytes:
        """For the entry."""
        return json.dumps(self.changes, ensure_ascii=False).encode()

    @property
    def component(self) -> Definitions:
        return self._keeper

    @property
    def refused_count(self) -> int:
        return len(self.waiters)

    def done(self, now: Now) -> None:
        self._keeper.written(self, now.mono)


class Definitions:
    """The entries, and what of them is not stored yet."""

    name = "subscriptions"  # as the operator's log has it

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs = fs
        self.path = path
        self.entries: dict[str, Entry] = {}
        self.stored: dict[str, Entry] = {}  # as the file and the journal have them; not changed by callers
        self.whole = True  # no entry may be missing: no damaged file is there
        self.waiters: list[Any] = []  # who waits for what was put; the next take() takes them along
        self.failed: StorageError | None = None
        self._dirty = False
        self._puts = 0
        self._unwritten: dict[str, int] = {}  # the number of the last put of what is not stored yet
        self._updated: set[str] = set()  # keys of what need not be stored before something else is
        self._changes = 0  # made to ``entries`` so far
        self._saved = 0  # of these the file has so many
        self._retry_due_ns: MonoNs | None = None

    def load(self, changes: Iterable[bytes] = ()) -> list[str]:
        """Read the file, and what the journal's entries have ``told`` since, before any other thread runs.

        Returns:
            What was found wrong, in words.

        Raises:
            OSError: The file cannot be read.
        """
        notes = []
        kept = f"{self.path}.damaged"
        self.whole = not self.fs.has_name(kept)
        if not self.whole:
            notes.append(f"{kept}: is still there; cursors of unknown subscriptions are kept until it is removed")
        data = read_file(self.fs, self.path)
        if data is not None:
            try:
                self.entries = decode(data)
            except ValueError as error:
                self.whole = False
                self.fs.rename(self.path, kept)
                notes.append(
                    f"{kept}: could not be read ({error}); its subscriptions are unknown until they are made again"
                )
        for each in changes:
            if each:
                self._changes += 1
                try:
                    apply(each, self.entries)
                except ValueError:  # a crc that holds over nonsense: not ours
                    pass
        self.stored = dict(self.entries)
        return notes

    def put(self, key: str, entry: Entry | None) -> None:
        """This is what the name is about from now on; None: it is gone. An entry is never changed after this."""
        if entry is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = entry
        self._puts += 1
        self._unwritten[key] = self._puts
        self._changes += 1
        self._dirty = True

    def update(self, key: str, entry: Entry, soon: bool = False) -> None:
        """The same, but nobody has to wait for it; and it need not be stored before something else is, or ``soon``."""
        self.entries[key] = entry
        self._updated.add(key)
        self._changes += 1
        self._dirty |= soon

    def wait(self, waiters: list[Any]) -> None:
        """Call these once what was put until now is stored, or could not be."""
        self.waiters += waiters

    def is_stored(self, key: str) -> bool:
        """Whether what was put for this key is stored."""
        return key not in self._unwritten

    @property
    def deadline_ns(self) -> MonoNs:
        """When take() has something to do of itself; NEVER_NS if nothing is planned."""
        return MonoNs(NEVER_NS) if self._retry_due_ns is None else self._retry_due_ns

    def take(self, now_ns: MonoNs) -> list[DefinitionsJob]:
        """What was put since, as a job; none if there is nothing to do."""
        retry = self._retry_due_ns is not None and self._retry_due_ns <= now_ns
        if not (self._dirty or self.waiters or retry) or (self._retry_due_ns is not None and not retry):
            return []
        changes = {key: self.entries.get(key) for key in (*self._unwritten, *self._updated)}
        job = DefinitionsJob(self, changes, self._puts, self.waiters)
        self._updated, self._dirty, self.waiters, self._retry_due_ns = set(), False, [], None
        return [job]

    def written(self, job: DefinitionsJob, now_ns: MonoNs) -> None:
        """A job came back. One that failed is made up for by the next, tried now and then."""
        self.failed = job.error
        if job.error is not None:
            self._updated |= job.changes.keys()
            self._dirty = True
            self._retry_due_ns = MonoNs(now_ns + RETRY_EVERY_NS)
            return
        for key, entry in job.changes.items():
            if entry is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = entry
        self._unwritten = {key: number for key, number in self._unwritten.items() if number > job.puts}

    # --- the file -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Entry] | None, int]:
        """All entries as they are now, for the file, or None if it has them; and how many changes made them so."""
        return None if self._saved == self._changes else dict(self.entries), self._changes

    def saved(self, changes: int) -> None:
        """The file has what so many changes have made."""
        self._saved = changes
