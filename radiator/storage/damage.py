"""What a cold read found instead of records.

This module knows the place of the damage and the lost offsets. It does not know readers.
"""

from __future__ import annotations

from typing import NamedTuple


class Damage(NamedTuple):
    """The offsets up to, not including, ``end_offset`` that no batch covers, and their place in the file."""

    path: str
    first_byte: int | None  # None: the file is gone
    end_byte: int
    first_offset: int
    end_offset: int

    @property
    def lost(self) -> int:
        """The number of lost offsets."""
        return self.end_offset - self.first_offset

    def __str__(self) -> str:
        lost = f"offsets {self.first_offset} to {self.end_offset - 1} are lost"
        if self.first_byte is None:
            return f"{self.path} does not exist: {lost}"
        if self.first_byte >= self.end_byte:
            return f"{self.path}: no batch has them at byte {self.first_byte}: {lost}"
        return f"{self.path}: bytes {self.first_byte} to {self.end_byte - 1} are damaged: {lost}"
