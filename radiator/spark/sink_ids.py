"""The ``dedup-id`` of a row: from query, epoch, partition and row, so that the broker knows a repeat.

A task that is run again, after a failure of its own or of the whole query, must say the same of the same row. Query,
epoch and partition are the same then. The row is told in one of two ways:

* ``row``: by a digest of what the message says, and which of those alike in its task it is. Rows may come in another
  order, as they do behind a shuffle. Where a content is another one each time (a random number), the row comes twice:
  nothing is lost. A row that says which record of a log it is (it is ``placed``) has that in the digest, and needs no
  partition: an epoch that is planned anew may give it to another task.
* ``number``: by its place in the task. Contents may change, but the order must not: a row that comes at the place of
  another is taken for it, and lost.

With ``dedup_by`` columns say which row it is, and epoch and partition are left out.

Knows: names and digests. Must not know: columns, brokers. An id depends on nothing but these and on how many rows of
the task said the same; what is remembered for that is bounded, and a task with more rows is an error.
"""

from __future__ import annotations

from array import array

from radiator.errors import ConfigError

CONTENTS_MAX = 10_000_000  # of one task: 128 MiB are remembered of them, 192 MiB for a moment while that grows
REPEATED_MAX = 1_000_000  # contents of one task that come more than once: each has a count, 100 MB in all
_SLOTS = 1 << 12
_EPOCH, _ROW = "(batch|[0-9]+)/", "[0-9a-f]{24}(-[0-9]+)?"
_QUERY = "[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}/"  # that nobody has named
# What ids look like that are made here: so it is known what Spark has written. Not known are ids of a query that has a
# name, with dedup_by or by number: they might be anybody's.
SHAPE = f"^(.+/{_EPOCH}([0-9]+/)?{_ROW}|{_QUERY}({_ROW}|{_EPOCH}[0-9]+/[0-9]+))$"


class Seen:
    """A set of digests, 8 bytes of each: that two of ten million share these has a chance of 1 in 300,000."""

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * _SLOTS))
        self._room = _SLOTS * 2 // 3
        self._count = 0

    def add(self, digest: bytes) -> bool:
        """False if it was there already. Raises ConfigError for one too many."""
        tag = int.from_bytes(digest[:8], "little") or 1  # 0 is a slot that is free
        slots, mask = self._slots, len(self._slots) - 1
        place = tag & mask
        while (there := slots[place]) != 0:
            if there == tag:
                return False
            place = (place + 1) & mask
        if self._count >= CONTENTS_MAX:
            raise ConfigError(_too_many(f"{CONTENTS_MAX:,} rows of different content"))
        slots[place] = tag
        self._count += 1
        if self._count >= self._room:
            self._grow()
        return True

    def _grow(self) -> None:
        old = self._slots
        slots = array("Q", bytes(16 * len(old)))
        mask = len(slots) - 1
        for tag in old:
            if tag:
                place = tag & mask
                while slots[place]:
                    place = (place + 1) & mask
                slots[place] = tag
        self._slots, self._room = slots, len(slots) * 2 // 3


class Ids:
    """Of one task: the ``partition`` of the DataFrame. ``of`` is called once per row."""

    def __init__(self, query: str, epoch: str, partition: int, dedup: str, by_columns: bool) -> None:
        self._query = f"{query}/"
        self._epoch = f"{query}/{epoch}/"
        self._task = f"{query}/{epoch}/{partition}/"
        self._dedup = dedup
        self._by_columns = by_columns
        self._row = 0
        self._seen = Seen()
        self._repeated: dict[bytes, int] = {}

    def of(self, digest: bytes, placed: bool = False) -> str | None:
        """None where the options say so. Raises ConfigError if the task has too many rows to tell repeats."""
        if self._dedup == "none":
            return None
        if self._dedup == "number":
            self._row += 1
            return f"{self._task}{self._row - 1}"
        if self._by_columns:
            return f"{self._query}{digest.hex()}"
        found = f"{self._epoch if placed else self._task}{digest.hex()}"
        if self._seen.add(digest):
            return found
        alike = self._repeated.get(digest, 0) + 1
        if alike == 1 and len(self._repeated) >= REPEATED_MAX:
            raise ConfigError(_too_many(f"{REPEATED_MAX:,} contents that come more than once"))
        self._repeated[digest] = alike
        return f"{found}-{alike}"


def _too_many(what: str) -> str:
    return (
        f"one task has more than {what}, too many to tell repeats by what rows say: repartition() into more tasks, "
        "name columns that say which row it is with dedup_by, or set dedup to number or none"
    )
