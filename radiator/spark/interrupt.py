"""End a command and its own JVM at once on Ctrl-C.

The handler of pyspark asks the JVM to cancel its jobs, and waits for the answer of a running job: half a minute. A
command that was interrupted does not need its jobs, so here the JVM is asked to end (it then removes its scratch
files), and killed if it does not. While the JVM starts, its process is the youngest child of this one. Where there is
no ``/proc`` (other systems), Ctrl-C waits until the JVM has started, because an abandoned JVM that starts never ends.

Uses signals, and the process of pyspark's gateway.
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

END_SECONDS = 1.0  # the JVM removes its scratch files in a few tenths


@contextmanager
def uninterrupted_start() -> Iterator[None]:
    """Protect the start of a JVM: Ctrl-C ends the JVM, and raises when its process is gone.

    Raises:
        KeyboardInterrupt: The user pressed Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    others = _children()

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        for pid in _children() - others:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)  # it has no scratch files yet

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception:
        if not asked:  # else it failed because note() killed the JVM
            raise
    finally:
        if signal.getsignal(signal.SIGINT) is note:  # else pyspark has installed its own handler
            signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """End the JVM on Ctrl-C, for work with a session that no other code uses.

    Raises:
        KeyboardInterrupt: The user pressed Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the rest takes about a second
        _end_java()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_java() -> None:
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:  # another process has started the JVM
        return
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _children() -> set[int]:
    """Return the child processes of this thread; none where the system does not list them."""
    try:
        return {int(pid) for pid in Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()}
    except OSError:
        return set()
