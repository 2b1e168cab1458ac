"""Creation of several cursors: all of them, or none.

A destination with only some of its cursors would accept messages and deliver them to no consumer. So its cursors are
opened before the destination is registered.

The module knows the store of cursors, but not queues or logs.
Invariant: after an exception the new cursors are deleted, and the others are unchanged.
"""

from __future__ import annotations

from types import TracebackType

from radiator.config import SyncPolicy
from radiator.storage.cursor import Cursor
from radiator.storage.cursor_store import CursorStore


class CursorCreation:
    """A context manager that deletes the cursors it has created if its block raises.

    Args:
        store: The cursors.
    """

    __slots__ = ("_made", "_store")

    def __init__(self, store: CursorStore) -> None:
        self._store = store
        self._made: list[tuple[str, str]] = []

    def open(self, name: str, partition: str, start: int, sync: SyncPolicy) -> tuple[Cursor, bool]:
        """Open a cursor, or create it.

        Args:
            name: The name of the cursor.
            partition: The name of the partition.
            start: The first unsettled offset of a new cursor.
            sync: The sync policy of the cursor.

        Returns:
            The cursor, and True if it is new.

        Raises:
            StorageError: The cursor could not be created.
        """
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
