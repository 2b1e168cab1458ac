"""Cursors that are made together: all of them, or none.

A destination whose cursors cannot all be made must not be half there: what is sent to it then would be receipted and
handed out to nobody. So its cursors are opened before anything else knows of it.

Knows: the store of cursors. Must not know: queues, logs.
Invariant: after an exception those that are new are gone, and those that were there before are as they were.
"""

from __future__ import annotations

from types import TracebackType

from radiator.config import SyncPolicy
from radiator.storage.cursor import Cursor
from radiator.storage.cursor_store import CursorStore


class CursorCreation:
    """``with Opening(store) as opening:`` and then ``opening.open`` for each."""

    __slots__ = ("_made", "_store")

    def __init__(self, store: CursorStore) -> None:
        self._store = store
        self._made: list[tuple[str, str]] = []

    def open(self, name: str, partition: str, start: int, sync: SyncPolicy) -> tuple[Cursor, bool]:
        """The cursor, and whether it is new. Raises StorageError."""
        new = self._store.get(name, partition) is None
        cursor = self._store.open(name, partition, start, sync)
        if new:
            self._made.append((name, partition))
        return cursor, new

    def __enter__(self) -> CursorCreation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            for name, partition in self._made:
                self._store.delete(name, partition)
