"""A native thread for work that may block: one for writes and syncs, one for cold reads.

gevent's loop never waits for a disk. Work goes out through a queue and comes back through a deque and one async watcher
of the loop, which a thread may trigger at any time; ``then`` runs on the loop. One hop there and back costs about 40
microseconds, less than gevent's thread pool, whose generality is not needed here.

Ownership: whatever a piece of work touches belongs to this thread until its ``then`` has run.
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
    """A bug of ours, on the way to the disk or back: nobody could tell any more what is stored and receipted, so the
    only honest way is to stop, loudly. A restart recovers."""
    error = sys.exc_info()
    logs.exit_after(lambda: log.critical("disk work failed in an unforeseen way; stopping", exc_info=error), 70)


JOIN_SECONDS_MAX = 10.0


class Worker:
    """One thread; work is done in the order it was submitted."""

    def __init__(self, name: str) -> None:
        self._under_way = 0  # submitted, ``then`` not yet run
        self._todo: deque[Work] = deque()
        self._calls: SimpleQueue[bool] = SimpleQueue()  # True for each piece of work, False for the end
        self._done: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._async = gevent.get_hub().loop.async_()
        self._async.start(self._deliver)
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Run ``work()`` on the thread, then ``then(result)`` on the loop. ``work`` must not raise."""
        self._under_way += 1
        self._todo.append((work, then))
        self._calls.put(True)

    @property
    def idle(self) -> bool:
        """Nothing is under way: what belongs to this thread may be touched by the loop."""
        return not self._under_way

    def post(self, then: Callable[[Any], None], result: Any) -> None:
        """On the thread, in the middle of its work: ``then(result)`` on the loop."""
        self._done.append((then, result))
        self._async.send()

    def end(self) -> None:
        """Let the thread end after what was submitted, without waiting for it. ``stop`` is to follow."""
        if not self._ending:
            self._ending = True
            self._calls.put(False)

    def stop(self, seconds: float = JOIN_SECONDS_MAX) -> None:
        """Let the thread end after what was submitted; waits for it, but not for a disk that hangs."""
        self.end()
        self._thread.join(seconds)
        if self._thread.is_alive():
            log.error("%s is still at work after %.0f s; left behind", self._thread.name, seconds)
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
