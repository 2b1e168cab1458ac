"""Asking a store elsewhere, with an end: what comes of it in time, or an error in words.

The libraries that reach stores raise errors of their own, and some try again for as long as a quarter of an hour before
they do. So the first question is asked on a thread that is not waited for any longer than ``SECONDS_MAX``.

Knows: threads. Must not know: what is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

SECONDS_MAX = 30.0  # for what takes a store a second, or some where it has a hundred thousand commits
REMEDY = (
    "look at the URI, the network, and what proves who asks (environment, profiles, roles: where the library of the "
    "store looks for them)"
)

Answer = TypeVar("Answer")


def asked(ask: Callable[[], Answer], doing: str, seconds: float | None = None) -> Answer:
    """Raises OSError. ``doing``: what failed, for the message; empty: errors are as they are. ``seconds``: to wait;
    None: for as long as it takes."""
    done: list[Answer] = []
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
        raise TimeoutError(_told(doing, f"no answer within {seconds:g} s"))
    (error,) = failed
    if not doing:
        raise error
    text = " ".join(str(error).split()) or type(error).__name__
    raise OSError(_told(doing, text)) from error


def _told(doing: str, text: str) -> str:
    return f"{doing}: {text}; {REMEDY}" if doing else f"{text}; {REMEDY}"
