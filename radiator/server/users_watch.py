"""The users in force, and when the files that they stand in are read again.

Every file that was read counts: the users file and those of ``password_file:``. A change counts once it has been the
same for two looks, since a file may be written in several moments; SIGHUP is believed at once. With a fault in it, or
nothing at all, the users stay as they were; the log says so once, and the files are tried again until they are good.

Invariants: ``table`` is always one that could be read; one reading at a time, and none that was asked for is left out.
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
    """``submit`` runs work on a thread of its own: logins may be waiting on others. Raises ConfigError."""

    def __init__(self, path: str | None, submit: Submit | None, now_ns: MonoNs, changed: Callable[[], None]) -> None:
        self._path = path
        self._submit = submit
        self._changed = changed
        self._stamp, self.table = read(path, ())  # the stamp of what is in force
        self._seen = self._stamp  # at the last look
        self._fault = ""  # that was told
        self._looked_ns = now_ns
        self._looking = False
        self._asked = False  # SIGHUP came meanwhile

    def tick(self, now_ns: MonoNs) -> None:
        """Look now and then whether a file has changed."""
        if now_ns - self._looked_ns >= LOOK_EVERY_NS:
            self._looked_ns = now_ns
            if not self._looking:
                self._start(self._stamp, self._seen)

    def reload(self) -> None:
        """Read the files anew, changed or not."""
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
                log.error("the users stay as they were: %s", table)
            self._fault = str(table)
        elif table is not None:
            self.table, self._stamp, self._fault = table, self._seen, ""
            log.info("users are read anew from %s: %d", self._path, len(table.rights))
            self._changed()
        if self._asked:
            self._asked = False
            self.reload()


def read(path: str | None, files: tuple[str, ...]) -> tuple[Stamp, users.UserTable]:
    """The users, and a stamp of their files that is not younger than what was read. ``files`` are those of last time.
    Raises ConfigError."""
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
    """On a thread: the users, or what is wrong with them; None if the files are as ``known``, or not as ``seen``."""
    stamp = stamp_of(files)
    if known is not None and (stamp == known or stamp != seen):
        return stamp, None
    try:
        stamp, table = read(path, files)
        if table.blank:
            raise ConfigError(f"{path}: the file is empty; to have no users, let it say users:")
    except Exception as error:
        return stamp, error
    return stamp, table


def stamp_of(files: tuple[str, ...]) -> Stamp:
    """What tells another file, other contents or other permissions."""
    found: list[tuple[int, ...]] = []
    for path in files:
        try:
            facts = os.stat(path)
            found.append((facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns))
        except OSError as error:
            found.append((error.errno or 0,))
    return tuple(found)
