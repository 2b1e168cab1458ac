"""What a task's Python worker does once in its life.

Spark keeps the workers from task to task and runs Python's collector behind each of them. With pyspark, pyarrow and
numpy in memory that is a walk over objects which stay for ever. A task that does nothing cost 35 ms of CPU on a busy
machine, and this walk is held to be most of it (by reading pyspark's daemon, not by measuring). So they are taken out
of its sight; what a task makes is collected as before.

Knows: the collector. Must not know: what is read.
"""

from __future__ import annotations

import gc

_done = False


def settle() -> None:
    """Again does nothing."""
    global _done
    if not _done:
        _done = True
        gc.freeze()
