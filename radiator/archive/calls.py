"""Call a remote store with a time limit, and convert its errors to OSErrors.

The libraries that reach stores raise errors of their own, of any class: here they become OSErrors that say what failed,
and where. Some retry for as long as a quarter of an hour before that. So the first call runs on a thread that is waited
for no longer than ``SECONDS_MAX``.

This module knows threads. It does not know what is called.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

SECONDS_MAX = 30.0  # for calls that take a second, or more with 100,000 commits
REMEDY = (
    "check the URI, the network, and the credentials (environment, profiles, roles: where the library of the store "
    "looks for them)"
)

Result = TypeVar("Result")


def call(ask: Callable[[], Result], doing: str, seconds: float | None = None) -> Result:
    """Call a function on another thread, and return its result.

    Args:
        ask: The function.
        doing: What failed, for the message; empty: errors are not converted.
        seconds: How long to wait; None: without a limit.

    Raises:
        OSError: The call has failed, or took too long.
    """
    done: list[Result] = []
    failed: list[Exception] = []

    def work() -> None:
        try:
            done.append(ask())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="asking a store", daemon=True)
    thread.start()
    thread.join(seconds)
    if done:
        return done[0]
    if not failed:
        raise TimeoutError(_message(doing, f"no answer within {seconds:g} s"))
    (error,) = failed
    if not doing:
        raise error
    raise OSError(_message(doing, _text(error))) from error


@contextlib.contextmanager
def as_os_errors(doing: str) -> Iterator[None]:
    """Convert errors of a driver to OSErrors with the text ``doing``.

    Errors with an errno are not changed, nor those that say that a file exists or does not.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, FileNotFoundError | FileExistsError) or getattr(error, "errno", None) is not None:
            raise
        raise OSError(_message(doing, _text(error))) from error


class OsErrorFile:
    """An open file of a driver, whose errors are converted (``as_os_errors``)."""

    def __init__(self, file: Any, doing: str) -> None:
        self._file, self._doing = file, doing

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._file, name)
        if not callable(found):
            return found

        def call(*args: Any, **more: Any) -> Any:
            with as_os_errors(self._doing):
                return found(*args, **more)

        return call

    def __enter__(self) -> OsErrorFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _text(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _message(doing: str, text: str) -> str:
    return f"{doing}: {text}; {REMEDY}" if doing else f"{text}; {REMEDY}"
