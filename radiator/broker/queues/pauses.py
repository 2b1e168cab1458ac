"""Which queues are paused: their stored list.

A paused queue delivers nothing. Everything else continues: messages are stored, limits apply, messages expire, and
messages in flight are settled or time out. ``Queue.paused`` stops the delivery; this module only stores which queues
are paused, so that a queue is paused again after a restart, and when it is created again.

The entries are in the file of the durable subscriptions (``storage.definitions``), by the name of the cursor with a
prefix. This module does not know destinations, rights or the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.logs.cursor_names import PAUSED

if TYPE_CHECKING:
    from radiator.broker.queues.queue import Queue
    from radiator.clock import WallNs
    from radiator.storage.definitions import Definitions


class Pauses:
    """The stored pauses of one broker.

    Args:
        definitions: The stored definitions.
    """

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    def names(self) -> list[str]:
        """Return the names of the cursors of all paused queues."""
        return [key.removeprefix(PAUSED) for key in self._definitions.entries if key.startswith(PAUSED)]

    def has(self, cursor: str) -> bool:
        """Return whether the queue with cursors of this name is paused."""
        return PAUSED + cursor in self._definitions.entries

    def apply(self, cursor: str, queue: Queue) -> None:
        """Pause a queue that was just created, if its pause is stored."""
        if self.has(cursor):
            queue.pause()

    def pause(self, cursor: str, now_ns: WallNs) -> None:
        """Store a pause from ``now_ns`` on."""
        if not self.has(cursor):
            self._definitions.put(PAUSED + cursor, {"since_ns": now_ns})

    def remove(self, cursor: str) -> None:
        """Remove a stored pause, if there is one."""
        if self.has(cursor):
            self._definitions.put(PAUSED + cursor, None)

    def is_stored(self, cursor: str) -> bool:
        """Return whether the last change for this queue is stored."""
        return self._definitions.is_stored(PAUSED + cursor)

    def wait(self, waiter: object) -> None:
        """Settle ``waiter`` once all changes up to now are stored, or could not be stored."""
        self._definitions.wait([waiter])
