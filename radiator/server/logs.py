"""The process's log, stdout and stderr, written without ever blocking a caller.

stderr may be a pipe without a reader, or a terminal that was stopped with Ctrl-S: a write to it then blocks for ever.
So ``install`` replaces ``sys.stdout`` and ``sys.stderr`` by streams that only append to a bounded queue, and a native
daemon thread for each of the two file descriptors writes what is queued. This covers everything that Python code
writes: log lines, the hub's tracebacks, warnings, ``print`` of plug-ins. Lines that do not fit into the queue are
counted and dropped; a line in the output says how many, at the place where they are missing.

Invariants: the writing thread takes no lock, so no other thread ever waits for its write; lines are written in the
order in which they were queued; the queue is bounded in lines and in bytes.
"""

from __future__ import annotations

import atexit
import io
import json
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any, Final, NoReturn, TextIO

from gevent.monkey import get_original

from radiator import limits

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FLUSH_SECONDS: Final = 1.0  # the process waits so long at its end until the last lines are written
WRITE_BYTES: Final = 64 * limits.KIB  # of one write: the capacity of a pipe


class Output:
    """A bounded queue of lines for one file descriptor, and the thread that writes them.

    Args:
        fd: The file descriptor. It may be blocking or not.
        lines_max: How many lines may be queued.
        bytes_max: How many bytes may be queued.
    """

    def __init__(self, fd: int, lines_max: int = limits.LOG_LINES_MAX, bytes_max: int = limits.LOG_BYTES_MAX) -> None:
        self._fd = fd
        self._lines_max = lines_max
        self._bytes_max = bytes_max
        self._lock = threading.RLock()  # for ``put``; reentrant, because a signal handler may log too
        self._queue: SimpleQueue[tuple[bytes, int, int] | threading.Event] = SimpleQueue()
        self._started = False
        # Callers change the first two, under the lock; the thread changes the others.
        self._queued = [0, 0]  # lines and bytes since the start
        self._refused = 0  # lines that did not fit into the queue
        self._done = [0, 0]  # lines and bytes that were written, or could not be
        self._failed = 0  # lines that could not be written
        self._reported = 0  # dropped lines that the output reports

    @property
    def lines_dropped(self) -> int:
        """The number of lines that were dropped since the start."""
        return self._refused + self._failed

    def put(self, data: bytes) -> None:
        """Queue whole lines, or drop them if there is no room. Never blocks."""
        lines = max(1, data.count(b"\n"))
        with self._lock:
            queued, done = self._queued, self._done
            if queued[0] - done[0] + lines > self._lines_max or queued[1] - done[1] + len(data) > self._bytes_max:
                self._refused += lines
                return
            self._queued = [queued[0] + lines, queued[1] + len(data)]
            self._queue.put((data, lines, self._refused))
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name=f"radiator-log-{self._fd}", daemon=True).start()

    def flush(self, seconds: float) -> bool:
        """Wait until everything that was queued before is written.

        Args:
            seconds: How long to wait at most.

        Returns:
            False if the time was over first.
        """
        if not self._started:
            return True
        written = threading.Event()
        self._queue.put(written)
        return written.wait(seconds)

    def _run(self) -> None:
        while True:
            items = [self._queue.get()]
            size = 0
            try:
                while size < WRITE_BYTES:
                    items.append(self._queue.get_nowait())
                    size += 0 if isinstance(items[-1], threading.Event) else len(items[-1][0])
            except Empty:
                pass
            self._write_out(items)

    def _write_out(self, items: list[tuple[bytes, int, int] | threading.Event]) -> None:
        pieces, lines, size, reported = [], 0, 0, self._reported
        for item in items:
            if isinstance(item, threading.Event):
                continue
            data, count, refused = item
            if refused + self._failed > reported:
                pieces.append(_dropped(refused + self._failed - reported))
                reported = refused + self._failed
            pieces.append(data)
            lines, size = lines + count, size + len(data)
        dropped = self._refused + self._failed
        if self._queue.empty() and dropped > reported:
            pieces.append(_dropped(dropped - reported))
            reported = dropped
        try:
            _write(self._fd, b"".join(pieces))
        except OSError:  # no reader or a full disk: there is no place to report it
            self._failed += lines
        else:
            self._reported = reported
        self._done = [self._done[0] + lines, self._done[1] + size]
        for item in items:
            if isinstance(item, threading.Event):
                item.set()


def _dropped(count: int) -> bytes:
    return b"radiator: %d lines were dropped here: this output was not read fast enough\n" % count


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()


class _Raw(io.RawIOBase):
    """The binary side of a replaced ``sys.stdout`` or ``sys.stderr``."""

    def __init__(self, output: Output, fd: int) -> None:
        self._output = output
        self._fd = fd

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the file descriptor that the output writes to."""
        return self._fd

    def isatty(self) -> bool:
        """Return True if the file descriptor is a terminal."""
        return os.isatty(self._fd)

    def write(self, data: Any, /) -> int:
        """Queue the data. Never blocks."""
        copy = bytes(data)
        if copy:
            self._output.put(copy)
        return len(copy)


class JsonFormatter(logging.Formatter):
    """Format a record as one JSON object: time (RFC 3339 in UTC), level, logger, message, exception and counters."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if (counters := getattr(record, "counters", None)) is not None:
            fields["counters"] = counters
        return json.dumps(fields, ensure_ascii=False)


class LogHandler(logging.Handler):
    """Queue each record, formatted, as one piece of an output."""

    def __init__(self, output: Output, formatter: logging.Formatter) -> None:
        super().__init__()
        self._output = output
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record. Never blocks."""
        try:
            self._output.put(f"{self.format(record)}\n".encode("utf-8", "backslashreplace"))
        except Exception:
            self.handleError(record)


_outputs: list[Output] = []


def install(level: str, *, as_json: bool = False) -> None:
    """Log to stderr, and make writes to stdout and stderr non-blocking. For a process that only runs a broker.

    Args:
        level: The lowest level that is logged, such as ``"info"``.
        as_json: Write a record as a JSON object on a line instead of text.
    """
    sys.stdout = _replaced(sys.stdout)
    sys.stderr = _replaced(sys.stderr)
    root = logging.getLogger()
    root.setLevel(level.upper())
    if isinstance(sys.stderr, io.TextIOWrapper) and isinstance(raw := sys.stderr.buffer, _Raw):
        root.addHandler(LogHandler(raw._output, JsonFormatter() if as_json else logging.Formatter(FORMAT)))
    atexit.register(flush)


def _replaced(stream: TextIO | None) -> TextIO:
    """Return a stream that never blocks instead of this one. A closed stream (None) is returned unchanged."""
    if stream is None:
        return stream  # type: ignore[return-value]
    stream.flush()
    output = Output(stream.fileno())
    _outputs.append(output)
    raw: Any = _Raw(output, stream.fileno())
    return io.TextIOWrapper(raw, stream.encoding, "backslashreplace", line_buffering=True)


def lines_dropped() -> int:
    """Return the number of lines of the log, stdout and stderr that were dropped since the start."""
    return sum(output.lines_dropped for output in _outputs)


def flush(seconds: float = FLUSH_SECONDS) -> None:
    """Wait until what was logged before is written.

    Args:
        seconds: How long to wait at most.
    """
    end = time.monotonic() + seconds
    for output in _outputs:
        output.flush(max(0.0, end - time.monotonic()))


def exit_after(last_words: Callable[[], None], code: int) -> NoReturn:
    """End the process, whatever its log does.

    Args:
        last_words: Logs why. Runs on a thread of its own, as the handlers of a program that embeds the broker may
            block; the process ends after ``FLUSH_SECONDS`` even if this has not returned.
        code: The exit code.
    """
    try:
        said = get_original("_thread", "allocate_lock")()  # native, even if gevent has patched threads
        said.acquire()

        def say() -> None:
            try:
                last_words()
                logging.shutdown()
                flush()
            finally:
                said.release()

        get_original("_thread", "start_new_thread")(say, ())
        said.acquire(timeout=FLUSH_SECONDS)
    finally:
        os._exit(code)
