"""The ``dedup-id`` of a row: from query, epoch, partition and row, so that the broker knows a repeat.

A task that is run again, after a failure of its own or of the whole query, must say the same of the same row. Query,
epoch and partition are the same then. The row is told in one of two ways:

* ``row``: by a digest of what the message says, and which of those alike in its task it is. Rows may come in another
  order, as they do behind a shuffle. Where a content is another one each time (a random number), the row comes twice:
  nothing is lost. Rows that say which record of a log they are have that in the digest, and need no partition: an
  epoch that is planned anew, after a restart on another number of CPUs say, may give them to other tasks.
* ``number``: by its place in the task. Contents may change, but the order must not: a row that comes at the place of
  another is taken for it, and lost.

With ``dedup_by`` columns say which row it is, and epoch and partition are left out.

Knows: names and digests. Must not know: columns, brokers. What is counted per content is bounded by BLOCK_ROWS.
"""

from __future__ import annotations

BLOCK_ROWS = 262_144  # rows whose contents are told apart by counting: 30 MB; a broker remembers 100,000 by default


class Ids:
    """Of one task: the ``partition`` of the DataFrame, None where it does not matter. ``of`` is called once per row."""

    def __init__(self, query: str, epoch: str, partition: int | None, dedup: str, by_columns: bool) -> None:
        task = "" if partition is None else f"{partition}/"
        self._prefix = f"{query}/" if by_columns else f"{query}/{epoch}/{task}"
        self._dedup = dedup
        self._by_columns = by_columns
        self._row = 0
        self._block = ""
        self._alike: dict[bytes, int] = {}

    def of(self, digest: bytes) -> str | None:
        """None where the options say so."""
        if self._dedup == "none":
            return None
        row = self._row
        self._row += 1
        if self._dedup == "number":
            return f"{self._prefix}{row}"
        if self._by_columns:
            return f"{self._prefix}{digest.hex()}"
        if row and row % BLOCK_ROWS == 0:
            self._alike.clear()
            self._block = f".{row // BLOCK_ROWS}"
        alike = self._alike.get(digest, 0)
        self._alike[digest] = alike + 1
        return f"{self._prefix}{digest.hex()}{self._block}" + (f"-{alike}" if alike else "")
