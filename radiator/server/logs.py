"""The process's log, stdout and stderr, written without ever blocking a caller.

The log goes to stderr, or to the file of ``logging.file``.

stderr may be a pipe without a reader, or a terminal that was stopped with Ctrl-S: a write to it then blocks for ever.
So ``install`` replaces ``sys.stdout`` and ``sys.stderr`` by streams that only append to a bounded queue, and a native
daemon thread for each of the outputs writes what is queued. This covers everything that Python code
writes: log lines, the hub's tracebacks, warnings, ``print`` of plug-ins. Lines that do not fit into the queue, or
cannot be written, are counted and dropped; a line in the output says how many, at the place where they are missing.

Invariants: the writing thread takes no lock, so no other thread ever waits for its write; lines are written in the
order in which they were queued; the queue is bounded in lines and in bytes.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import logging
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, NoReturn, TextIO

from gevent.monkey import get_original

from radiator import limits
from radiator.config import LoggingConfig
from radiator.errors import ConfigError

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
STDERR: Final = "stderr"  # the logger of text that is written to stderr, where the log is JSON
FILE_MODE: Final = 0o640  # lines have names of users and addresses
REPORT_SECONDS: Final = 10.0  # between two reports that the file cannot be written
UNREAD: Final = "this output was not read fast enough"
LAST_LINE_SECONDS: Final = 1.0  # a thread that was about to log when the file changed has done so by then
FLUSH_SECONDS: Final = 1.0  # the process waits so long at its end until the last lines are written
WRITE_BYTES: Final = 64 * limits.KIB  # of one write: the capacity of a pipe


class LogFile:
    """The file that the log is written to.

    Only the thread that writes calls it, but for ``check``, ``discard`` and ``reopen``. The file is opened again when
    its path is another file than the open one, or none: after a rename by logrotate, or when its directory was removed
    and is back. With ``rotate_bytes`` it is renamed to PATH.1 (and PATH.1 to PATH.2) before a write that would make it
    longer.

    Args:
        path: The path.
        rotate_bytes: The size above which the file is rotated, or None.
        keep: The number of rotated files that stay.
    """

    def __init__(self, path: str, rotate_bytes: int | None = None, keep: int = 5) -> None:
        self.path = os.path.abspath(path)
        self._rotate_bytes = rotate_bytes
        self._keep = keep
        self._fd: int | None = None
        self._stale = False
        self._made = False  # by ``check``

    def check(self) -> None:
        """Open the file once.

        Raises:
            ConfigError: The file cannot be written, or is not a regular file.
        """
        try:
            _check_regular(self.path)
            self._made = not os.path.exists(self.path)
            self._open()
        except OSError as error:
            raise ConfigError(f"logging.file: {self.path}: cannot be written: {error.strerror}") from None

    def discard(self) -> None:
        """Close the file, which is not used after all. If ``check`` has made it, remove it."""
        self.close()
        if self._made:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def reopen(self) -> None:
        """Open the file again before the next write."""
        self._stale = True

    def write(self, data: bytes) -> None:
        """Append whole lines, all of them or none.

        Raises:
            OSError: The file cannot be opened or written.
        """
        if self._stale or not self._is_current():
            self._stale = False
            self._open()
        assert self._fd is not None
        size = os.fstat(self._fd).st_size
        if self._rotate_bytes is not None and size and size + len(data) > self._rotate_bytes:
            self._rotate()
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:] if written else data)
        except OSError:
            if written:  # the disk is full; a part of a line would damage the next line
                end = os.fstat(self._fd).st_size
                os.ftruncate(self._fd, max(0, end - written))
            raise

    def _is_current(self) -> bool:
        if self._fd is None:
            return False
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except OSError:
            return False

    def _open(self) -> None:
        self.close()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self.path, flags | os.O_NONBLOCK, FILE_MODE)  # a FIFO without a reader: an error, no wait

    def _rotate(self) -> None:
        names = [self.path, *(f"{self.path}.{number}" for number in range(1, self._keep + 1))]
        try:
            if not self._keep:
                os.unlink(self.path)
            for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
                if os.path.exists(newer):
                    os.replace(newer, older)
        except OSError:
            return  # the directory may not be written: go on in the same file
        self._open()

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def check_file(name: str | None) -> list[str]:
    """Check the file of the log without opening it, and return warnings: another user may be able to write it.

    Raises:
        ConfigError: Nobody can write it.
    """
    if name is None:
        return []
    path = os.path.abspath(name)
    directory = os.path.dirname(path)
    _check_regular(path)
    if not os.path.isdir(directory):
        raise ConfigError(f"logging.file: {path}: there is no directory {directory}")
    if os.access(path, os.W_OK) if os.path.exists(path) else os.access(directory, os.W_OK | os.X_OK):
        return []
    return [f"logging.file: {path}: cannot be written by this user"]


def _check_regular(path: str) -> None:
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        raise ConfigError(f"logging.file: {path}: expected a regular file; with none the log is on stderr")


class Output:
    """A bounded queue of lines for one file descriptor or file, and the thread that writes them.

    Args:
        target: A file descriptor, blocking or not, or a file.
        lines_max: How many lines may be queued.
        bytes_max: How many bytes may be queued.
        note: Returns the line about dropped lines, for their number and the reason.
        report: Called by the thread with a text when writing begins to fail, and when it works again. Must not block.
    """

    def __init__(
        self,
        target: int | LogFile,
        lines_max: int = limits.LOG_LINES_MAX,
        bytes_max: int = limits.LOG_BYTES_MAX,
        note: Callable[[int, str], bytes] | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self._target = target
        self._lines_max = lines_max
        self._bytes_max = bytes_max
        self._note = note or _dropped
        self._report = report
        self._lock = threading.RLock()  # for ``put``; reentrant, because a signal handler may log too
        self._queue: SimpleQueue[tuple[bytes, int, int] | threading.Event] = SimpleQueue()
        self._ending = False
        self._started = False
        # Callers change the first two, under the lock; the thread changes the others.
        self._queued = [0, 0]  # lines and bytes since the start
        self._refused = 0  # lines that did not fit into the queue
        self._done = [0, 0]  # lines and bytes that were written, or could not be
        self._failed = 0  # lines that could not be written
        self._reported = 0  # dropped lines that the output reports
        self._fault = ""  # why the last write failed; empty if it did not
        self._fault_reported = False
        self._report_at = 0.0  # the monotonic time from which on a failure is reported again

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
                name = "file" if isinstance(self._target, LogFile) else self._target
                threading.Thread(target=self._run, name=f"radiator-log-{name}", daemon=True).start()

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

    def end(self) -> None:
        """Write what was queued, then close the file and end the thread. The handler is no longer in use."""
        with self._lock:
            self._ending = True
            if self._started:
                self._queue.put(threading.Event())
            else:
                self._close()

    def _close(self) -> None:
        if isinstance(self._target, LogFile):
            self._target.close()

    def use_note(self, note: Callable[[int, str], bytes] | None) -> None:
        """Use another form of the line about dropped lines."""
        self._note = note or _dropped

    def _run(self) -> None:
        while True:
            try:
                items = [self._queue.get(timeout=LAST_LINE_SECONDS if self._ending else None)]
            except Empty:
                with self._lock:
                    if not self._queue.empty():
                        continue
                    self._started = False
                    self._close()
                    return
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
                pieces.append(self._note(refused + self._failed - reported, self._fault or UNREAD))
                reported = refused + self._failed
            pieces.append(data)
            lines, size = lines + count, size + len(data)
        dropped = self._refused + self._failed
        if self._queue.empty() and dropped > reported:
            pieces.append(self._note(dropped - reported, self._fault or UNREAD))
            reported = dropped
        data, target = b"".join(pieces), self._target
        try:
            if isinstance(target, LogFile):
                target.write(data)
            else:
                _write(target, data)
        except OSError as error:  # no reader, a full disk, no directory
            self._failed += lines
            self._set_fault(error.strerror or str(error))
        else:
            self._reported = reported
            self._set_fault("")
        self._done = [self._done[0] + lines, self._done[1] + size]
        for item in items:
            if isinstance(item, threading.Event):
                item.set()

    def _set_fault(self, fault: str) -> None:
        before, self._fault = self._fault, fault
        if self._report is None or not (fault or before):
            return
        now = time.monotonic()
        if (
            fault and not self._fault_reported and now >= self._report_at
        ):  # a disk that is almost full fails again and again
            self._fault_reported, self._report_at = True, now + REPORT_SECONDS
            self._report(f"the log cannot be written: {fault}; its lines are dropped and counted")
        elif not fault and self._fault_reported:
            self._fault_reported = False
            self._report(f"the log is written again; lines that could not be written since the start: {self._failed}")


def _dropped_text(count: int, why: str) -> str:
    return f"{count} {'lines were' if count > 1 else 'line was'} dropped here: {why}"


def _dropped(count: int, why: str) -> bytes:
    return f"radiator: {_dropped_text(count, why)}\n".encode()


def _dropped_json(count: int, why: str) -> bytes:
    fields = {"logger": "radiator.logs", "message": _dropped_text(count, why), "dropped": count}
    return _json_line(time.time(), "error", fields)


def _json_line(created: float, level: str, fields: dict[str, Any]) -> bytes:
    text = json.dumps({"time": rfc3339(created), "level": level, **fields}, ensure_ascii=False, default=str)
    return f"{text}\n".encode("utf-8", "backslashreplace")


def rfc3339(seconds: float) -> str:
    """Return a time in seconds since 1970 as text in UTC with its zone: ``2026-11-20T09:59:58.123Z``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
    """The binary side of a replaced ``sys.stdout`` or ``sys.stderr``.

    Args:
        output: Where the data goes.
        fd: The file descriptor.

    Attributes:
        output: Where the data goes.
    """

    def __init__(self, output: Output, fd: int) -> None:
        self.output = output
        self._fd = fd
        self._as_json = False
        self._part = b""  # of a line whose end is missing

    def use_json(self, as_json: bool) -> None:
        """Write each line as a JSON object from now on, or as it comes."""
        self._as_json = as_json

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
        if copy and self._as_json:
            *lines, self._part = (self._part + copy).split(b"\n")
            if len(self._part) > WRITE_BYTES:
                lines, self._part = [*lines, self._part], b""
            for line in lines:
                text = line.decode("utf-8", "backslashreplace")
                if text.strip():
                    self.output.put(_json_line(time.time(), "error", {"logger": STDERR, "message": text}))
        elif copy:
            self.output.put(copy)
        return len(copy)


class TextFormatter(logging.Formatter):
    """Format a record as text that begins with the time in UTC."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the time of a record (RFC 3339)."""
        return rfc3339(record.created)


class JsonFormatter(logging.Formatter):
    """Format a record as one JSON object: time, level, logger, message, its ``extra`` fields, and the exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        fields: dict[str, Any] = {"logger": record.name, "message": record.getMessage()}
        fields.update((name, value) for name, value in record.__dict__.items() if name not in NOT_EXTRA)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return _json_line(record.created, record.levelname.lower(), fields).decode().rstrip("\n")


# Attributes of every record, which are not ``extra`` fields; a field cannot replace those of the line.
NOT_EXTRA: Final = frozenset((
    *logging.LogRecord("", 0, "", 0, "", (), None).__dict__, "message", "asctime", "taskName",
    "time", "level", "logger", "exception",
))  # fmt: skip


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
_file: LogFile | None = None
_file_output: Output | None = None
_stderr: _Raw | None = None
_handler: LogHandler | None = None
_levels: list[logging.Logger] = []  # whose level ``set_levels`` has set


def install(config: LoggingConfig) -> None:
    """Write the log, and make writes to stdout and stderr non-blocking. For a process that only runs a broker.

    Args:
        config: The format, the levels and the file.

    Raises:
        ConfigError: The file cannot be written.
    """
    global _stderr
    new = NewLog(config)
    sys.stdout = _replaced(sys.stdout)
    sys.stderr = _replaced(sys.stderr)
    if isinstance(sys.stderr, io.TextIOWrapper) and isinstance(raw := sys.stderr.buffer, _Raw):
        _stderr = raw
    new.use()
    set_levels(config.level, config.levels)
    atexit.register(flush)


class NewLog:
    """The format and the file of a configuration that is not in force yet.

    Args:
        config: The configuration of the log.

    Raises:
        ConfigError: The file cannot be written.
    """

    def __init__(self, config: LoggingConfig) -> None:
        self._as_json = config.format == "json"
        self._file = None if config.file is None else LogFile(config.file, config.rotate_bytes, config.keep)
        if self._file is not None:
            self._file.check()

    def use(self) -> None:
        """Write the log there from now on. An earlier file gets the lines that were logged before."""
        global _file, _file_output, _handler
        as_json, file = self._as_json, self._file
        note = _dropped_json if as_json else _dropped
        output = None
        if _stderr is not None:
            _stderr.use_json(as_json)
            output = _stderr.output
            output.use_note(note)
        before, _file, _file_output = _file_output, file, None
        if file is not None:
            report = None if output is None else partial(_report, output, file.path, as_json)
            output = _file_output = Output(file, note=note, report=report)
            _outputs.append(output)
        handler = None if output is None else LogHandler(output, JsonFormatter() if as_json else TextFormatter())
        root = logging.getLogger()
        if handler is not None:
            root.addHandler(handler)
        if _handler is not None:
            root.removeHandler(_handler)
        _handler = handler
        if before is not None:
            before.end()

    def drop(self) -> None:
        """Discard the file: the configuration is not used."""
        if self._file is not None:
            self._file.discard()


def is_installed() -> bool:
    """Return True if the log of this process is written by this module."""
    return _handler is not None


def set_levels(level: str, levels: Iterable[tuple[str, str]] = ()) -> None:
    """Set the lowest level that is logged, also while the broker runs.

    Args:
        level: The level, such as ``"info"``.
        levels: The loggers that differ, with their levels.
    """
    while _levels:
        _levels.pop().setLevel(logging.NOTSET)
    logging.getLogger().setLevel(level.upper())
    for name, own in levels:
        logger = logging.getLogger(name)
        logger.setLevel(own.upper())
        _levels.append(logger)


def reopen() -> None:
    """Open the file of the log again before its next line. Does nothing without a file."""
    if _file is not None:
        _file.reopen()


def _report(output: Output, path: str, as_json: bool, text: str) -> None:
    """Write a line about the file of the log to stderr."""
    text = f"logging.file: {path}: {text}"
    line = _json_line(time.time(), "error", {"logger": "radiator.logs", "message": text})
    output.put(line if as_json else f"{rfc3339(time.time())} ERROR radiator.logs: {text}\n".encode())


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
