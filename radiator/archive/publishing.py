"""Make complete files part of an archive, or leave nothing behind.

The order: an *intent* that contains the files; the files, published and synced; one commit; the removal of the intent.
A run that dies in between leaves an intent, and a later run removes the files of the intent that are in no commit
(``sweep``): a run with the same lock at once, others after a day. So an old intent is never committed.

Files that a merge has replaced stay for the retention of the table, so that queries that began before it, and those of
earlier versions, still find them. Then ``vacuum`` removes them, and commits how far it was.

If another archiver has committed meanwhile, each change is checked again: one that is still valid is committed behind
theirs, the others are dropped.

This module knows ``Files`` and the manifest. It does not know Parquet or segments. One thread. Invariants: a file
of the latest state is never removed; a commit contains only synced files.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from radiator.archive.files import Files
from radiator.archive.manifest import Anchor, Changes, Conflict, Lost, State, check_source, commit, load
from radiator.archive.paths import HALF_SUFFIX, INTENT_SUFFIX, NEW, intent_path, is_data_path, upload_path
from radiator.archive.retention import RETENTION_KEY, interval, retention_ms
from radiator.archive.split import SpooledFile
from radiator.archive.typed import evolved
from radiator.clock import NS_PER_MS, NS_PER_SECOND
from radiator.errors import StorageError

INTENT_SECONDS_MAX = 12 * 3600  # from an intent to its commit
LEFTOVER_SECONDS = 24 * 3600  # files of other runs are left alone for so long
TRIES = 100  # conflicts in a row: others commit faster than we do


def ignore(name: str) -> None:
    """Do nothing."""


@dataclass
class Change:
    """A part of a commit, which may be committed with others or without."""

    add: list[SpooledFile]
    remove: list[str] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)
    before: dict[str, int | None] = field(default_factory=dict)  # the ends that it builds on
    anchors: dict[str, Anchor] = field(default_factory=dict)

    def is_valid_after(self, state: State, ends: dict[str, int]) -> bool:
        """Return whether the change can follow a state; ``ends``: of the state and earlier changes."""
        return all(ends.get(name) == end for name, end in self.before.items()) and all(
            path in state.files for path in self.remove
        )


class Publisher:
    """Publishes files. ``owner``: of the lock; None: there is none."""

    def __init__(
        self, files: Files, source: str, owner: str | None, step: Callable[[str], None] = ignore,
        report: Callable[[str], None] = ignore,
    ) -> None:  # fmt: skip
        self.files, self._source, self._owner, self._step, self._report = files, source, owner, step, report
        self.state = self.load()
        files.settle()  # a commit of a run that died must stay before retention learns of it
        self._structs: list[pa.Field] = []

    def load(self) -> State:
        """Return the state. Raises StorageError."""
        state = load(self.files)
        check_source(self.files, state, self._source)
        return state

    def add_structs(self, structs: list[pa.Field]) -> None:
        """Set the struct columns of the files that are published from now on."""
        self._structs = structs

    def publish(self, changes: Sequence[Change]) -> list[Change]:
        """Publish changes, and return those that are in the archive now.

        Raises:
            OSError: A file cannot be written; a later run removes what is left.
            StorageError: The changes cannot be committed; a later run removes what is left.
        """
        started = time.monotonic(), time.time()
        token = secrets.token_hex(8)
        names = [placed.file.path for change in changes for placed in change.add]
        self._write_intent(token, names)
        for change in changes:
            for placed in change.add:
                self.files.publish(placed.spooled, placed.file.path)
                self._step("published")
        self.files.settle()
        self._step("settled")
        done = self._commit(list(changes), started)
        named = self.state.files.keys() | self.state.removed.keys()  # another run may have merged some since
        for path in [name for name in names if name not in named]:
            self.files.remove(path)
        self.files.remove(intent_path(token))
        self._step("ended")
        return done

    def _schema(self) -> pa.Schema | None:
        """Return the columns of the table with those of new files; None: as they are."""
        if not self._structs:
            return None
        schema, refused = evolved(self.state.table, self._structs)
        for text in refused.values():  # another archiver has added a column of another type since this run began
            raise StorageError(f"{self.files.uri}: {text}")
        return schema

    def _commit(self, changes: list[Change], started: tuple[float, float]) -> list[Change]:
        for _ in range(TRIES):
            chosen = self._valid(changes)
            if not chosen:
                return []
            # others go by the wall clock; the other one stands still while a machine sleeps, and is never set back
            if max(time.monotonic() - started[0], time.time() - started[1]) > INTENT_SECONDS_MAX:
                raise StorageError(f"{self.files.uri}: writing some files took more than 12 hours; they are dropped")
            schema = self._schema()
            self._step("commit")
            made = commit(
                self.files,
                self.state,
                Changes(
                    self._source,
                    schema=schema,
                    add=[placed.file for change in chosen for placed in change.add],
                    remove=[path for change in chosen for path in change.remove],
                    ends={name: end for change in chosen for name, end in change.ends.items()},
                    starts={name: start for change in chosen for name, start in change.starts.items()},
                    lost=[lost for change in chosen for lost in change.lost],
                    anchors={name: anchor for change in chosen for name, anchor in change.anchors.items()},
                ),
            )
            self._step("committed")
            if not isinstance(made, Conflict):
                self.state = made
                return chosen
            self.state = self.load()
        raise self._busy()

    def _valid(self, changes: list[Change]) -> list[Change]:
        ends, chosen = dict(self.state.ends), []
        for change in changes:
            if change.is_valid_after(self.state, ends):
                ends.update(change.ends)
                chosen.append(change)
        return chosen

    def set_retention(self, seconds: int) -> None:
        """Commit how long merged files stay, unless the table has it. If the archive is empty, it is its first commit.

        Raises:
            StorageError: Other runs commit all the time, or the commit cannot be read.
            OSError: The commit cannot be written.
        """
        wanted = {RETENTION_KEY: interval(seconds)}
        for _ in range(TRIES):
            known = {} if self.state.table is None else self.state.table.configuration
            if wanted.items() <= known.items() or self._committed(configuration=wanted):
                return
        raise self._busy()

    def vacuum(self) -> int:
        """Remove merged files whose retention is over, and return their number. Raises StorageError, OSError."""
        removed = 0
        for _ in range(TRIES):
            table = self.state.table
            if table is None or not self.state.removed:
                return removed
            try:
                until_ms = time.time_ns() // NS_PER_MS - retention_ms(table.configuration)
            except ValueError as error:
                raise StorageError(f"{self.files.uri}: {error}; no merged file was removed") from None
            expired = [path for path, replaced_ms in self.state.removed.items() if replaced_ms <= until_ms]
            if not expired:
                return removed
            for path in expired:
                removed += self.files.size(path) is not None
                self.files.remove(path)
                self._step("removed")
            if self._committed(vacuumed_ms=max(self.state.removed[path] for path in expired)):
                return removed
        raise self._busy()

    def _committed(self, **changes: Any) -> bool:
        """Commit changes of the table itself. Return False after a conflict, with the latest state loaded."""
        self._step("commit")
        made = commit(self.files, self.state, Changes(self._source, **changes))
        self._step("committed")
        self.state = self.load() if isinstance(made, Conflict) else made
        return not isinstance(made, Conflict)

    def _busy(self) -> StorageError:
        return StorageError(f"{self.files.uri}: other runs commit all the time; this run added nothing: try again")

    def _write_intent(self, token: str, add: Iterable[str]) -> None:
        intent = {"made_ns": time.time_ns(), "owner": self._owner, "pid": os.getpid(), "add": list(add)}
        self.files.create_new(intent_path(token), json.dumps(intent).encode())
        self._step("intended")

    def sweep(self, spool: str | None = None) -> int:
        """Remove what dead runs have left, and return the number of files.

        The state must have been loaded after the lock was taken.

        Args:
            spool: That of this run.
        """
        removed = 0
        old_ns = time.time_ns() - LEFTOVER_SECONDS * NS_PER_SECOND
        for entry in self.files.list(NEW):
            if entry.path.endswith(f"{INTENT_SUFFIX}{HALF_SUFFIX}"):
                self.files.remove(entry.path)
            if not entry.path.endswith(INTENT_SUFFIX):
                continue
            try:
                intent = json.loads(self.files.read(entry.path))
                ours = self._owner is not None and intent["owner"] == self._owner
                if not ours and intent["made_ns"] > old_ns:
                    continue
                if not all(map(is_data_path, intent["add"])):
                    raise ValueError("it names a file that is not a data file")
                named = self.state.files.keys() | self.state.removed.keys()
                gone = [path for path in intent["add"] if path not in named]
            except FileNotFoundError:
                continue
            except (ValueError, KeyError, TypeError):
                self._report(f"{self.files.named(entry.path)}: damaged; not changed")
                continue
            for path in gone:
                removed += self.files.size(path) is not None
                self.files.remove(path)
            for path in intent["add"]:
                self.files.remove(upload_path(path))
            self.files.remove(entry.path)
            self._step("swept")
        return removed + _sweep_spools(*self.files.spools(), old_ns, spool)


def _sweep_spools(directory: str, prefix: str, old_ns: int, own: str | None) -> int:
    """Remove what is in spools of others for more than a day.

    The same holds for other files beside them, if the directory belongs to the archive.
    """
    removed = 0
    with contextlib.suppress(FileNotFoundError):
        for entry in list(os.scandir(directory)):
            with contextlib.suppress(FileNotFoundError):
                if entry.path == own or entry.name.endswith(INTENT_SUFFIX) or not entry.name.startswith(prefix):
                    continue
                facts = entry.stat(follow_symlinks=False)
                if facts.st_mtime_ns > old_ns or (prefix and facts.st_uid != os.getuid()):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    removed += len(os.listdir(entry.path))
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    removed += 1
                    os.unlink(entry.path)
    return removed
