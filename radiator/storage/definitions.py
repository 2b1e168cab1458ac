"""The definitions of durable subscriptions: one small file, and the changes since, in entries of the journal.

    event loop: put() -> take() -> DefinitionsJob, whose data is in the entry of its group
                -> written(): receipts may be sent

Only this file says which destinations a durable subscription covers, including those that do not exist yet. The file is
one line with a version and a crc, and JSON (``docs/storage-format.md``, "Subscriptions"). It is replaced as a whole: by
a checkpoint, at a start that finds changes, and at a clean stop. An entry of the journal has only what was put, as
JSON: an object with the new value of each key, null for a deleted one.

This module knows entries, which are plain values by a key. It does not know their contents. The event loop owns it.
Invariants: the file has all entries of one moment. A file that cannot be read is renamed to ``subscriptions.damaged``.
While that file exists, no cursor is deleted for want of an entry (``whole``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from radiator.checksum import crc32
from radiator.clock import MonoNs, Now
from radiator.errors import StorageError
from radiator.storage.files import FileSystem, read_file
from radiator.storage.jobs import Job
from radiator.timers import NEVER_NS

HEAD = b"radiator subscriptions 1 "
RETRY_EVERY_NS = 2_000_000_000
Entry = dict[str, Any]


def encode(entries: Mapping[str, Entry], start: bytes = HEAD) -> bytes:
    """Return the bytes of the file, which begin with ``start``."""
    body = json.dumps(entries, ensure_ascii=False).encode() + b"\n"  # with indent it is ten times as slow
    return b"%b%08x\n%b" % (start, crc32(body), body)


def decode(data: bytes, start: bytes = HEAD) -> dict[str, Entry]:
    """Return the entries of the file. Raises ValueError if it is damaged."""
    head, newline, body = data.partition(b"\n")
    if not newline or not head.startswith(start):
        raise ValueError(f"expected a first line {start.decode()}<crc>, got {head[:60]!r}")
    if head[len(start) :] != b"%08x" % crc32(body):
        raise ValueError("the crc in its first line does not match the rest")
    entries = json.loads(body)
    if not isinstance(entries, dict) or not all(isinstance(each, dict) for each in entries.values()):
        raise ValueError("expected an object of objects")
    return entries


def decode_changes(data: bytes) -> dict[str, Entry | None]:
    """Return the changes in an entry of the journal, by key; None: deleted. Raises ValueError if it is damaged."""
    changes = json.loads(data)
    if not isinstance(changes, dict) or not all(each is None or isinstance(each, dict) for each in changes.values()):
        raise ValueError("expected an object of objects")
    return changes


def apply(data: bytes, entries: dict[str, Entry]) -> None:
    """Apply the changes in an entry of the journal. Raises ValueError if it is damaged."""
    for key, entry in decode_changes(data).items():
        if entry is None:
            entries.pop(key, None)
        else:
            entries[key] = entry


class DefinitionsJob(Job):
    """The definitions that were put. The entry of the group has them (``GroupJob``, which sets ``error``)."""

    __slots__ = ("_keeper", "changes", "puts")
    what = "subscription"

    def __init__(self, component: Definitions, changes: dict[str, Entry | None], puts: int, waiters: list[Any]) -> None:
        super().__init__(needs_sync=True)
        self.waiters = waiters
        self.changes = changes
        self.puts = puts  # it has all changes put before
        self._keeper = component

    @property
    def data(self) -> bytes:
        """The bytes for the entry."""
        return json.dumps(self.changes, ensure_ascii=False).encode()

    @property
    def component(self) -> Definitions:
        """The definitions."""
        return self._keeper

    def done(self, now: Now) -> None:
        """Report the result to the definitions."""
        self._keeper.written(self, now.mono)


class Definitions:
    """The entries, and those that are not stored yet."""

    name = "subscriptions"  # as the operator's log has it

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs = fs
        self.path = path
        self.entries: dict[str, Entry] = {}
        self.stored: dict[str, Entry] = {}  # as the file and the journal have them; not changed by callers
        self.whole = True  # no entry may be missing: no damaged file is there
        self.waiters: list[Any] = []  # waiters for these changes; the next take() returns them
        self.failed: StorageError | None = None
        self._dirty = False
        self._puts = 0
        self._unwritten: dict[str, int] = {}  # by key not stored yet: the number of its last put
        self._updated: set[str] = set()  # keys with changes that may be stored later, with other changes
        self._changes = 0  # made to ``entries`` so far
        self._saved = 0  # of these the file has so many
        self._retry_due_ns: MonoNs | None = None

    def load(self, changes: Iterable[bytes] = ()) -> list[str]:
        """Read the file and apply the changes in the journal, before any other thread runs.

        Args:
            changes: The changes in the journal's entries since the file was written.

        Returns:
            The problems found, as texts.

        Raises:
            OSError: The file cannot be read.
        """
        notes = []
        kept = f"{self.path}.damaged"
        self.whole = not self.fs.has_name(kept)
        if not self.whole:
            notes.append(f"{kept}: still exists; cursors of unknown subscriptions are kept until it is removed")
        data = read_file(self.fs, self.path)
        if data is not None:
            try:
                self.entries = decode(data)
            except ValueError as error:
                self.whole = False
                self.fs.rename(self.path, kept)
                notes.append(
                    f"{kept}: could not be read ({error}); its subscriptions are unknown until they are created again"
                )
        for each in changes:
            if each:
                self._changes += 1
                try:
                    apply(each, self.entries)
                except ValueError:  # correct crc, wrong contents: not written by radiator
                    pass
        self.stored = dict(self.entries)
        return notes

    def put(self, key: str, entry: Entry | None) -> None:
        """Set the entry of a key; None deletes it. The entry must not be changed afterwards."""
        if entry is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = entry
        self._puts += 1
        self._unwritten[key] = self._puts
        self._changes += 1
        self._dirty = True

    def update(self, key: str, entry: Entry, soon: bool = False) -> None:
        """Set the entry of a key without a need to wait for it.

        Args:
            key: The key.
            entry: The entry, which must not be changed afterwards.
            soon: Store it with the next take(); otherwise with the next change that is put.
        """
        self.entries[key] = entry
        self._updated.add(key)
        self._changes += 1
        self._dirty |= soon

    def wait(self, waiters: list[Any]) -> None:
        """Call these once what was put until now is stored, or could not be."""
        self.waiters += waiters

    def is_stored(self, key: str) -> bool:
        """Return whether the last ``put`` for this key is stored."""
        return key not in self._unwritten

    @property
    def deadline_ns(self) -> MonoNs:
        """When take() has work to do without a change; NEVER_NS if nothing is planned."""
        return MonoNs(NEVER_NS) if self._retry_due_ns is None else self._retry_due_ns

    def take(self, now_ns: MonoNs, beside: bool) -> list[DefinitionsJob]:
        """Return what was put since the last call, or could not be stored, as a job, or an empty list.

        Args:
            now_ns: The present time.
            beside: Whether other changes are stored with it. These may be acks of a subscription, which are lost if
                a start knows no definition of it. So what could not be stored does not wait for its next attempt then.
        """
        due = beside or self._retry_due_ns is None or self._retry_due_ns <= now_ns
        if not (due and (self._dirty or self.waiters)):
            return []
        changes = {key: self.entries.get(key) for key in (*self._unwritten, *self._updated)}
        job = DefinitionsJob(self, changes, self._puts, self.waiters)
        self._updated, self._dirty, self.waiters, self._retry_due_ns = set(), False, [], None
        return [job]

    def written(self, job: DefinitionsJob, now_ns: MonoNs) -> None:
        """Take back a finished job. A failed one is repeated with the next, or after RETRY_EVERY_NS."""
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
        """Return all entries for the file, or None if it has them; and the number of changes so far."""
        return None if self._saved == self._changes else dict(self.entries), self._changes

    def saved(self, changes: int) -> None:
        """Note that the file has this number of changes."""
        self._saved = changes
