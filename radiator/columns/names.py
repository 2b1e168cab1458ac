"""Number the destinations of all batches that one task reads, so that each dictionary of names is decoded once.

Uses the encoding of a dictionary. Must not import batches or columns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from radiator.columns.batches import Ints, Mask
from radiator.storage.format import split_encoded_names

CACHED_MAX = 1 << 16  # names in dictionaries: a log of many destinations may have a new dictionary in each batch


class NameTable:
    """The destinations that were decoded so far, numbered from 0.

    Attributes:
        names: The destination of each number.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._ids: dict[str, int] = {}
        self._encoded: dict[bytes, int] = {}  # the number of each name, as dictionaries have it
        self._at: dict[tuple[bytes, int], int] = {}  # an encoded dictionary, its count -> position in flat
        self._flat: list[int] = []
        self._made: Ints = np.empty(0, np.int64)
        self._wanted: list[bool] = []

    def forget(self) -> None:
        """Drop the cached dictionaries if they have become too many. Call it before a chunk.

        Positions in ``flat`` of earlier chunks are invalid afterwards. The names and their numbers stay.
        """
        if len(self._flat) > CACHED_MAX:
            self._at, self._flat, self._made = {}, [], np.empty(0, np.int64)

    def place(self, dictionary: bytes, count: int) -> int:
        """Return the position in ``flat`` of the numbers of a dictionary; decode the dictionary if it is new.

        Args:
            dictionary: The encoded dictionary of a batch.
            count: The number of names that the batch header declares.

        Raises:
            DamagedBatch: The dictionary does not fit its length.
        """
        at = self._at.get((dictionary, count))
        if at is None:
            names = split_encoded_names(dictionary, count)
            at = self._at[dictionary, count] = len(self._flat)
            known = self._encoded
            try:
                self._flat += list(map(known.__getitem__, names))
            except KeyError:
                self._flat += [self._number(name) for name in names]
        return at

    def _number(self, encoded: bytes) -> int:
        """Return the number of a name, which may be new."""
        number = self._encoded.get(encoded)
        if number is None:
            name = encoded.decode("utf-8", "replace")
            number = self._encoded[encoded] = self._ids.setdefault(name, len(self.names))
            if number == len(self.names):
                self.names.append(name)
        return number

    @property
    def flat(self) -> Ints:
        """The numbers of the names of all cached dictionaries, one dictionary after another."""
        if len(self._made) < len(self._flat):
            self._made = np.array(self._flat, np.int64)
        return self._made

    def wanted(self, wants: Callable[[str], bool]) -> Mask:
        """Return a mask by number of the destinations that match. Each destination is tested once per table.

        Args:
            wants: Returns True for a matching destination. It must be the same in every call.
        """
        self._wanted += [wants(name) for name in self.names[len(self._wanted) :]]
        return np.array(self._wanted, np.bool_)
