"""Sorted lists of names that requests of the admin channel share for some seconds.

To filter and sort a hundred thousand names takes a third of a second of work. A page that refreshes itself, and all
pages of several operators, use one list for as long as ``get`` returns it.

Invariant: at most ``LISTS_MAX`` lists.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from radiator.clock import NS_PER_MS, NS_PER_SECOND, MonoNs

LISTS_MAX: Final = 8
VALID_NS: Final = 2 * NS_PER_SECOND
VALID_EACH_NS: Final = NS_PER_MS // 10  # more for each name: ten seconds for a hundred thousand


class Listings:
    """The lists of one broker."""

    __slots__ = ("_lists",)

    def __init__(self) -> None:
        self._lists: dict[Hashable, tuple[MonoNs, list[str]]] = {}

    def get(self, key: Hashable, now_ns: MonoNs) -> list[str] | None:
        """Return the list made for ``key`` if it is still valid."""
        until_ns, names = self._lists.get(key, (MonoNs(0), None))
        if names is None or now_ns >= until_ns:
            self._lists.pop(key, None)
            return None
        return names

    def put(self, key: Hashable, now_ns: MonoNs, examined: int, names: list[str]) -> None:
        """Store a list.

        Args:
            key: What the list was made for, with the rights of the user.
            now_ns: The present time.
            examined: The number of names that were examined.
            names: The list. It is not changed any more.
        """
        self._lists.pop(key, None)
        while len(self._lists) >= LISTS_MAX:
            del self._lists[next(iter(self._lists))]
        self._lists[key] = (MonoNs(now_ns + VALID_NS + examined * VALID_EACH_NS), names)
