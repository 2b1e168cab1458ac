"""Build the ``dedup-id`` of a row from query, epoch, partition and row, so that the broker recognises a repeat.

A task that runs again, after a failure of its own or of the whole query, must give the same row the same id. Query,
epoch and partition are the same then. The row is identified in one of two ways:

* ``row``: by a digest of the message, and a number for equal messages in the task. Rows may come in another order, as
  they do after a shuffle. If a content differs in each attempt (a random number), the row is stored twice, and nothing
  is lost. A row that names the record of a log it comes from (``placed``) has that in the digest and needs no
  partition, because an epoch that is planned again may give it to another task.
* ``number``: by its position in the task. Contents may differ, the order may not: a row at the position of another one
  counts as its repeat and is lost.

With ``dedup_by`` the given columns identify the row, and epoch and partition are left out.

Must not import columns or the client. An id depends only on these values and on the number of equal rows in the task.
The memory for that is bounded; a task with more rows is an error.
"""

from __future__ import annotations

from array import array

from radiator.errors import ConfigError

CONTENTS_MAX = 10_000_000  # different rows per task: 128 MiB of memory, 192 MiB while the set grows
REPEATED_MAX = 1_000_000  # repeated contents per task: each has a count, 100 MB in all
_SLOTS = 1 << 12
_EPOCH, _ROW = "(batch|[0-9]+)/", "[0-9a-f]{24}(-[0-9]+)?"
_QUERY = "[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}/"  # of a query without a name
# A pattern for the ids of this module, to recognise messages that Spark has written. Ids of a named query with dedup_by
# or by number are not recognised, because other programs may have such ids too.
SHAPE = f"^(.+/{_EPOCH}([0-9]+/)?{_ROW}|{_QUERY}({_ROW}|{_EPOCH}[0-9]+/[0-9]+))$"


class Seen:
    """A set of digests of which 8 bytes are stored.

    The chance that two of ten million digests are equal in these bytes is 1 in 300,000.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * _SLOTS))
        self._room = _SLOTS * 2 // 3
        self._count = 0

    def add(self, digest: bytes) -> bool:
        """Add a digest and return True, or return False if the set contains it.

        Args:
            digest: The digest; its first 8 bytes count.

        Raises:
            ConfigError: The set has CONTENTS_MAX digests.
        """
        tag = int.from_bytes(digest[:8], "little") or 1  # 0 is a free slot
        slots, mask = self._slots, len(self._slots) - 1
        place = tag & mask
        while (stored := slots[place]) != 0:
            if stored == tag:
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
    """The ids of one task. ``of`` is called once per row.

    Args:
        query: The name or the id of the query.
        epoch: The number of the epoch, or ``batch``.
        partition: The number of the task: the partition of the DataFrame.
        dedup: ``row``, ``number`` or ``none``.
        by_columns: True with the option ``dedup_by``.
    """

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
        """Return the id of the next row, or None with ``dedup`` none.

        Args:
            digest: The digest of the row.
            placed: True if the digest contains the record of a log that the row comes from.

        Raises:
            ConfigError: The task has too many rows to recognise repeats.
        """
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
        f"one task has more than {what}, too many to recognise repeats by content: repartition() into more tasks, "
        "name columns that identify a row with dedup_by, or set dedup to number or none"
    )
