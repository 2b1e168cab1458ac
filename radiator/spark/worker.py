"""What Python workers do once in their lives, those of tasks and those that plan.

Spark keeps the workers from task to task and runs Python's collector behind each of them. With pyspark, pyarrow and
numpy in memory that is a walk over objects which stay for ever: measured, 20 to 30 ms before each next task. So they
are taken out of its sight, once as the first task begins and again as the second does, since the first has brought in
a third of them. What later tasks make is collected as before.

Columns are made and freed in pieces of some MiB. glibc gives such pieces back to the kernel and asks for them anew,
zeroed page by page: a tenth of the CPU time of ``tags``. Here it keeps up to 64 MiB.

A query that has enough (``show``, ``limit``) closes the pipe from its workers, and one that is planned may do so before
the planning process has said its last word. Spark's daemon ends the worker then, which is right, and prints a traceback
on the terminal, below a query that went well. This one is kept back: the other end is the JVM, and what goes wrong
there it tells itself.

Knows: the collector, malloc, pyspark's daemon. Must not know: what is read.
"""

from __future__ import annotations

import gc
import sys
import traceback
from types import SimpleNamespace

from radiator import malloc
from radiator.limits import MIB

KEPT_BYTES = 64 * MIB
_FREEZES = 2
_tasks = 0


def settle() -> None:
    """At the start of each task."""
    global _tasks
    if _tasks < _FREEZES:
        _tasks += 1
        gc.freeze()
        quiet()
        malloc.keep_freed(KEPT_BYTES)  # the half of it is the most that a threshold of mmap may be


def quiet() -> None:
    """In a process that Spark's daemon has forked: the daemon is the main module there, and prints its last words."""
    daemon = sys.modules["__main__"]
    if hasattr(daemon, "manager") and getattr(daemon, "traceback", None) is traceback:
        daemon.traceback = SimpleNamespace(print_exc=_print_exc, format_exc=traceback.format_exc)  # type: ignore[attr-defined]


def _print_exc() -> None:
    if not isinstance(sys.exception(), BrokenPipeError):
        traceback.print_exc()
