"""Ctrl-C ends a command that has a JVM of its own at once, and takes this JVM along.

pyspark's handler asks the JVM to cancel its jobs, and waits behind the answer of a job that runs: half a minute. Nobody
waits for these jobs any more, so here the JVM itself is asked to end (it then removes its scratch files), and killed if
it does not. While the JVM starts its process is our youngest child; where ``/proc`` does not tell (another system),
Ctrl-C waits until it is there: one that is abandoned while it starts does not notice, and never ends.

Knows: signals, the process behind pyspark's gateway. Must not know: what is being asked of Spark.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pyspark import SparkContext

END_SECONDS = 1.0  # for its scratch files; it takes a few tenths


@contextmanager
def uninterrupted_start() -> Iterator[None]:
    """Around what starts a JVM: Ctrl-C ends that JVM, and is KeyboardInterrupt once nothing of it is left."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    others = _children()

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        for pid in _children() - others:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)  # it has no scratch files yet that it would remove

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception:
        if not asked:  # else it failed because we have ended it
            raise
    finally:
        if signal.getsignal(signal.SIGINT) is note:  # else pyspark has put its own there
            signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Around work with a session that nobody else uses: Ctrl-C ends its JVM, and is KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # once is enough: what follows takes about a second
        _end_java()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_java() -> None:
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:  # somebody else has started it
        return
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _children() -> set[int]:
    """Of this thread; none where the system does not tell."""
    try:
        return {int(pid) for pid in Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()}
    except OSError:
        return set()
