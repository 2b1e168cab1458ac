"""Write units one after the other in this process, or several at a time in others; results come in order.

This module knows processes. It does not know commits. The files of another process are in the spool when its result
comes; a worker ends with the process that started it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from itertools import islice
from multiprocessing.connection import wait

from radiator.archive.split import Settings
from radiator.archive.unit import Unit, Written, write_unit

Result = Callable[[], Written]


def results(
    units: Sequence[Unit], settings: Settings, jobs: int, advance: Callable[[int], None], wanted: Callable[[Unit], bool]
) -> Generator[tuple[Unit, Result]]:
    """Yield each wanted unit, and a function that returns its result or raises. Call it before the next one."""
    rest = filter(wanted, units)
    if jobs <= 1 or len(units) <= 1:
        for unit in rest:
            yield unit, partial(write_unit, unit, settings, advance)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(units)), context, initializer=_start) as pool:
        waiting: deque[tuple[Unit, Future[Written]]] = deque()
        try:
            while True:
                for more in islice(rest, jobs + 1 - len(waiting)):
                    waiting.append((more, pool.submit(write_unit, more, settings)))
                if not waiting:
                    return
                unit, future = waiting.popleft()
                yield unit, future.result
                advance(unit.bytes)
        finally:
            pool.shutdown(cancel_futures=True)


def _start() -> None:
    """Ignore signals, which are for the parent, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel

        def watch() -> None:
            wait([sentinel])
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
