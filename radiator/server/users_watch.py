"""Hold the current users, and read their files again after a change.

The files are the users file and those of ``password_file:``. A change counts when two checks in a row find the same
files, because a file may be written in several steps. SIGHUP reads at once. If a file is not valid or empty, the users
stay as they are, the log reports it once, and each check tries again.

Invariants: ``table`` always is a table that could be read. One reading runs at a time, and every request leads to one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from radiator.clock import NS_PER_SECOND, MonoNs
from radiator.errors import ConfigError
from radiator.server import users

log = logging.getLogger("radiator.auth")

LOOK_EVERY_NS: Final = NS_PER_SECOND

Submit = Callable[[Callable[[], Any], Callable[[Any], None]], None]
Stamp = tuple[tuple[int, ...], ...]


class UsersWatch:
    """The current users.

    Args:
        path: The users file, or None.
        submit: Runs work on a thread of its own, because logins may occupy others.
        now_ns: The monotonic time.
        changed: Called when the users were read again.

    Raises:
        ConfigError: The users file cannot be read.
    """

    def __init__(self, path: str | None, submit: Submit | None, now_ns: MonoNs, changed: Callable[[], None]) -> None:
        self._path = path
        self._submit = submit
        self._changed = changed
        self._stamp, self.table = read(path, ())  # the stamp of the present users
        self._seen = self._stamp  # at the last check
        self._fault = ""  # the fault that was logged last
        self._looked_ns = now_ns
        self._looking = False
        self._asked = False  # read again after the present reading

    def tick(self, now_ns: MonoNs) -> None:
        """Check whether a file has changed, once in LOOK_EVERY_NS."""
        if now_ns - self._looked_ns >= LOOK_EVERY_NS:
            self._looked_ns = now_ns
            if not self._looking:
                self._start(self._stamp, self._seen)

    def reload(self) -> None:
        """Read the files again, changed or not."""
        if self._looking:
            self._asked = True
        else:
            self._start(None, None)

    def _start(self, known: Stamp | None, seen: Stamp | None) -> None:
        if self._path is not None and self._submit is not None:
            self._looking = True
            self._submit(partial(look, self._path, self.table.files, known, seen), self._looked)

    def _looked(self, found: tuple[Stamp, users.UserTable | Exception | None]) -> None:
        self._looking = False
        self._seen, table = found
        if isinstance(table, Exception):
            if str(table) != self._fault:
                log.error("the users are unchanged: %s", table)
            self._fault = str(table)
        elif table is not None:
            self.table, self._stamp, self._fault = table, self._seen, ""
            log.info("users were read again from %s: %d", self._path, len(table.rights))
            self._changed()
        if self._asked:
            self._asked = False
            self.reload()


def read(path: str | None, files: tuple[str, ...]) -> tuple[Stamp, users.UserTable]:
    """Return the users, and a stamp of their files that is not newer than the contents.

    Args:
        path: The users file, or None.
        files: The files of the last reading.

    Raises:
        ConfigError: A file cannot be read, or is not valid.
    """
    if path is None:
        return (), users.UserTable()
    from radiator.server import users_file

    stamp = stamp_of(files)
    table = users_file.load(path)
    if table.files != files:
        stamp = stamp_of(table.files)
        table = users_file.load(path)
    return stamp, table


def look(
    path: str, files: tuple[str, ...], known: Stamp | None, seen: Stamp | None
) -> tuple[Stamp, users.UserTable | Exception | None]:
    """Return a new stamp, and the users or the error if the files have changed. Runs on a thread.

    The users are None if the stamp equals ``known``, or differs from ``seen``, the stamp of the last check.
    """
    stamp = stamp_of(files)
    if known is not None and (stamp == known or stamp != seen):
        return stamp, None
    try:
        stamp, table = read(path, files)
    except Exception as error:
        return stamp, error
    if table.blank:
        return stamp, ConfigError(f"{path}: the file is empty; to have no users, write users:")
    return stamp, table


def stamp_of(files: tuple[str, ...]) -> Stamp:
    """Return a value that changes when a file is replaced, written, or gets other permissions."""
    found: list[tuple[int, ...]] = []
    for path in files:
        try:
            facts = os.stat(path)
            found.append((facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns))
        except OSError as error:
            found.append((error.errno or 0,))
    return tuple(found)
