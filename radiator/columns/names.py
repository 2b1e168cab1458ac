"""Destinations by a small number, over all batches that one task reads: each dictionary of names is decoded once.

Knows: the encoding of a dictionary. Must not know: batches, columns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from radiator.columns.batches import Ints, Mask
from radiator.storage.format import split_names

REMEMBERED_MAX = 1 << 16  # names in dictionaries: a log of many destinations may have another one in each batch


class NameTable:
    def __init__(self) -> None:
        self.names: list[str] = []
        self._ids: dict[str, int] = {}
        self._at: dict[tuple[bytes, int], int] = {}  # an encoded dictionary, its count -> where its ids begin
        self._flat: list[int] = []
        self._made: Ints = np.empty(0, np.int64)
        self._wanted: list[bool] = []

    def forget(self) -> None:
        """Before a chunk, where dictionaries with too many names have gathered; places of earlier chunks mean nothing
        then. The names stay, as there are no more of them than the store has."""
        if len(self._flat) > REMEMBERED_MAX:
            self._at, self._flat, self._made = {}, [], np.empty(0, np.int64)

    def place(self, dictionary: bytes, count: int) -> int:
        """Where the ids of this dictionary's names begin in ``flat``. Raises DamagedBatch."""
        at = self._at.get((dictionary, count))
        if at is None:
            names = split_names(dictionary, count)
            at = self._at[dictionary, count] = len(self._flat)
            for name in names:
                self._flat.append(self._ids.setdefault(name, len(self.names)))
                if len(self._ids) > len(self.names):
                    self.names.append(name)
        return at

    @property
    def flat(self) -> Ints:
        if len(self._made) < len(self._flat):
            self._made = np.array(self._flat, np.int64)
        return self._made

    def wanted(self, wants: Callable[[str], bool]) -> Mask:
        """By id of a name; each name is asked once, so one NameTable goes with one condition."""
        self._wanted += [wants(name) for name in self.names[len(self._wanted) :]]
        return np.array(self._wanted, np.bool_)
