"""What a task's Python worker does once in its life.

Spark keeps the workers from task to task and runs Python's collector behind each of them. With pyspark, pyarrow and
numpy in memory that is a walk over some hundred thousand objects which stay for ever: 15 to 40 ms of each task,
measured, as much as reading 8 MiB of log. So they are taken out of its sight; what a task makes is collected as before.

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
