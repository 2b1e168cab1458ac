"""Write jobs one after the other in this process, or several at a time in others; results come in order.

This module knows processes. It does not know commits. The files of another process are in the spool when its result
comes; a worker ends with the process that started it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from multiprocessing.connection import wait

from radiator.archive.jobs import Job, Written, write_job
from radiator.archive.split import Settings

Result = Callable[[], Written]


def results(
    jobs: deque[Job], settings: Settings, processes: int, advance: Callable[[int], None], wanted: Callable[[Job], bool]
) -> Generator[tuple[Job, Result]]:
    """Yield each wanted job, and a function that returns its result or raises. Call it before the next one.

    Args:
        jobs: The jobs, which are taken from it. Others may be put at its front meanwhile.
        settings: Of the files.
        processes: How many write at a time.
        advance: Called with the bytes of the log that are done.
        wanted: Whether a job is to be written.
    """
    if processes <= 1 or len(jobs) <= 1:
        while jobs:
            if wanted(job := jobs.popleft()):
                yield job, partial(write_job, job, settings, advance)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(jobs)), context, initializer=_start) as pool:
        waiting: deque[tuple[Job, Future[Written]]] = deque()
        try:
            while True:
                while jobs and len(waiting) <= processes:
                    if wanted(job := jobs.popleft()):
                        waiting.append((job, pool.submit(write_job, job, settings)))
                if not waiting:
                    return
                job, future = waiting.popleft()
                yield job, future.result
                advance(future.result().bytes)
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
