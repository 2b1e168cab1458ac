"""Set up Python workers of Spark, those of tasks and those that plan, once per process.

Garbage collection: Spark reuses the workers and runs Python's collector after each task. With pyspark, pyarrow and
numpy in memory, that is a walk over permanent objects: measured, 20 to 30 ms before each next task. So these objects
are frozen when the first task starts, and again at the second, because the first has imported a third of them. Objects
of later tasks are collected as before. The processes that plan do the same for each query.

Memory: columns are allocated and freed in pieces of some MiB. glibc returns such pieces to the kernel and requests them
again, zeroed page by page: a tenth of the CPU time of ``tags``. Here glibc retains up to 64 MiB.

Broken pipes: a query that has enough rows (``show``, ``limit``) closes the pipe from its workers, and so may a query
that is planned. Spark's daemon then ends the worker, which is right, and prints a traceback, although the query
succeeded. This traceback is suppressed. The other end is the JVM, which reports its own errors.
"""

from __future__ import annotations

import gc
import sys
import traceback
from types import SimpleNamespace

from radiator import malloc
from radiator.limits import MIB

RETAINED_BYTES = 64 * MIB
_FREEZES = 2
_freezes = 0


def settle() -> None:
    """Set up the process of a task. Call it at the start of each task."""
    if _freeze():
        quiet()
        malloc.keep_freed(RETAINED_BYTES)  # half of it is the maximum threshold of mmap


def settle_planning() -> None:
    """Set up a process that plans queries. Call it for each query. In other processes it does nothing."""
    if hasattr(sys.modules["__main__"], "manager"):  # Spark's daemon
        _freeze()
        quiet()


def _freeze() -> bool:
    """Freeze all objects at the first calls, and return True then."""
    global _freezes
    if _freezes == _FREEZES:
        return False
    _freezes += 1
    gc.freeze()
    return True


def quiet() -> None:
    """Suppress the traceback of a broken pipe, in a process that Spark's daemon has forked."""
    daemon = sys.modules["__main__"]
    if hasattr(daemon, "manager") and getattr(daemon, "traceback", None) is traceback:
        daemon.traceback = SimpleNamespace(print_exc=_print_exc, format_exc=traceback.format_exc)  # type: ignore[attr-defined]


def _print_exc() -> None:
    if not isinstance(sys.exception(), BrokenPipeError):
        traceback.print_exc()
