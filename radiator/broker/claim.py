"""A claim: which records of a log belong to a queue.

Queues, children of a ``fan_out`` and named subscriptions are all the same thing, consumers and named cursors; what
tells them apart is what of a log is theirs. It is decided once per batch, from the names that occur in it: ``whole``
is the fast way, and where that is false ``firsts`` gives for each of those names the first offset that is claimed.

Knows: names of destinations. Must not know: cursors, consumers.
Invariant: what is stored under ``owned`` names is of use to no one but the queues that own them, so that it may go
once all of them have settled it; other claims leave the log to its retention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection
    from collections.abc import Set as AbstractSet

    from radiator.storage.batch import RecordBatch

NEVER = 1 << 63  # an offset above all others


class Claim(Protocol):
    """What a queue asks."""

    @property
    def owned(self) -> AbstractSet[str]:
        """Names whose messages are kept for queues alone."""

    def has(self, name: str) -> bool:
        """Messages to this destination are claimed, or were from some offset on."""

    def all_of(self, names: Collection[str]) -> bool:
        """Nobody else stores under these names."""

    def whole(self, partition: str, batch: RecordBatch) -> bool:
        """True if every record of the batch is claimed. False says nothing."""

    def firsts(self, partition: str, batch: RecordBatch) -> list[int]:
        """For each of ``batch.names`` the first offset that is claimed, ``NEVER`` for the destinations of others."""

    def takes(self, partition: str, batch: RecordBatch, index: int) -> bool:
        """True if this record is claimed: where one is asked for."""


class Names:
    """The claim of a queue: what is sent to it, and to those whose messages it gets as well."""

    __slots__ = ("owned",)

    def __init__(self, name: str) -> None:
        self.owned: set[str] = {name}

    def has(self, name: str) -> bool:
        return name in self.owned

    def all_of(self, names: Collection[str]) -> bool:
        return self.owned.issuperset(names)

    def whole(self, partition: str, batch: RecordBatch) -> bool:
        names = batch.names
        return len(names) == 1 and names[0] in self.owned

    def firsts(self, partition: str, batch: RecordBatch) -> list[int]:
        owned = self.owned
        return [0 if name in owned else NEVER for name in batch.names]

    def takes(self, partition: str, batch: RecordBatch, index: int) -> bool:
        return batch.names[batch.destination_ids[index]] in self.owned
