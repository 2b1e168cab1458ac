"""Run work that may block on a native thread.

The event loop never waits for a disk. Work is submitted through a queue; results return through a deque and an async
watcher of the event loop, which any thread may trigger; ``then`` runs on the event loop. A hop there and back takes
about 40 microseconds, less than with gevent's thread pool, which does more than is needed here.

Ownership: the objects that a piece of work uses belong to the thread until its ``then`` has run.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, NoReturn

import gevent

from radiator.server import logs

log = logging.getLogger("radiator.server")

Work = tuple[Callable[[], Any], Callable[[Any], None]]


def abort_process() -> NoReturn:
    """Log the present exception and end the process.

    After a bug on the way to the disk or back it is unknown what is stored and which receipts are due. A restart
    recovers.
    """
    error = sys.exc_info()
    logs.exit_after(lambda: log.critical("disk work failed unexpectedly; stopping", exc_info=error), 70)


JOIN_SECONDS_MAX = 10.0


class Worker:
    """One thread. Work is done in the order of submission.

    Args:
        name: The name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._under_way = 0  # submitted, and ``then`` has not run
        self._todo: deque[Work] = deque()
        self._calls: SimpleQueue[bool] = SimpleQueue()  # True for each piece of work, False for the end
        self._done: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._async = gevent.get_hub().loop.async_()
        self._async.start(self._deliver)
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Run ``work()`` on the thread, then ``then(result)`` on the event loop. ``work`` must not raise."""
        self._under_way += 1
        self._todo.append((work, then))
        self._calls.put(True)

    @property
    def idle(self) -> bool:
        """True if no work is under way: the event loop may use the objects of this thread."""
        return not self._under_way

    def post(self, then: Callable[[Any], None], result: Any) -> None:
        """Run ``then(result)`` on the event loop. Called on the thread, during a piece of work."""
        self._done.append((then, result))
        self._async.send()

    def end(self) -> None:
        """End the thread after the submitted work, without a wait. Call ``stop`` later."""
        if not self._ending:
            self._ending = True
            self._calls.put(False)

    def stop(self, seconds: float = JOIN_SECONDS_MAX) -> None:
        """End the thread after the submitted work, and wait for it at most ``seconds``, because a disk may hang."""
        self.end()
        self._thread.join(seconds)
        if self._thread.is_alive():
            log.error("%s is still busy after %.0f s; not waiting for it", self._thread.name, seconds)
        self._deliver()
        self._async.stop()
        self._async.close()

    def _run(self) -> None:
        while self._calls.get():
            work, then = self._todo.popleft()
            try:
                result = work()
            except BaseException:
                abort_process()
            self.post(partial(self._ended, then), result)

    def _ended(self, then: Callable[[Any], None], result: Any) -> None:
        self._under_way -= 1
        then(result)

    def _deliver(self) -> None:
        done = self._done
        while done:
            then, result = done.popleft()
            then(result)
