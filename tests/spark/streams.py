"""A query over a stream without a JVM: what Spark does with a ``StreamReader``, in the same order, in this process.

``Query.trigger`` is one micro-batch: ask, write the offsets to the checkpoint, plan, read, commit. ``again`` is a
process that begins with the checkpoint of the one before. Everything that Spark hands on passes through JSON or pickle
here too. What is assumed of Spark here, ``test_stream.py`` looks up in Spark itself.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

from radiator.spark.options import Use, parse
from radiator.spark.schema import select
from radiator.spark.stream import StreamReader

Rows = dict[str, list[int]]  # offsets by partition


class Query:
    def __init__(self, root: str, checkpoint: list[str] | None = None, committed: int = 0, **options: object) -> None:
        self.root, self.options = root, options
        given = {"path": root, **{name: str(value) for name, value in options.items()}}
        self._schema = select(["partition", "offset"])
        self._parsed = parse(given, Use.STREAM)
        self.reader = StreamReader(self._parsed, self._schema)
        self.checkpoint = checkpoint if checkpoint is not None else []  # offsets of each batch, as Spark writes them
        self.committed = committed  # batches whose end the sink has seen
        self.tasks = 0  # of the last batch

    def again(self, **options: object) -> Query:
        return Query(self.root, self.checkpoint, self.committed, **{**self.options, **options})

    def trigger(self, commit: bool = True) -> Rows | None:
        """The rows of the next batch; None if there was nothing to do. Without ``commit`` it ends before its end."""
        if len(self.checkpoint) == self.committed and not self.plan():
            return None
        start = json.loads(self.checkpoint[self.committed - 1]) if self.committed else self._initial()
        end = json.loads(self.checkpoint[self.committed])
        found = self._read(start, end)
        self.committed += commit
        return found

    def plan(self) -> bool:
        """Writes the next batch to the checkpoint, as far as there is one."""
        start = json.loads(self.checkpoint[-1]) if self.checkpoint else self._initial()
        end = json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        if self.checkpoint and end == self.checkpoint[-1]:
            return False
        self.checkpoint.append(end)
        return True

    def available_now(self) -> list[Rows]:
        self.reader.prepareForTriggerAvailableNow()
        found = []
        while (rows := self.trigger()) is not None:
            found.append(rows)
        return found

    def _initial(self) -> Any:
        return json.loads(json.dumps(self.reader.initialOffset()))

    def _read(self, start: Any, end: Any) -> Rows:
        splits = pickle.loads(pickle.dumps(list(self.reader.partitions(start, end))))
        self.tasks = len(splits)
        copy = pickle.loads(pickle.dumps(StreamReader(self._parsed, self._schema)))
        found: Rows = {}
        for split in splits:
            for batch in copy.read(split):
                for row in batch.to_pylist():
                    found.setdefault(row["partition"], []).append(row["offset"])
        return found


def joined(batches: list[Rows]) -> Rows:
    found: Rows = {}
    for batch in batches:
        for name, offsets in batch.items():
            found.setdefault(name, []).extend(offsets)
    return found
