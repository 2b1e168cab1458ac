"""Storage that fails, as the log of the broker tells it: when it begins, now and then while it lasts, when it ends.

    failed(job)     a job came back with an error         the first of its kind is told at once, the others are counted
    refused(text)   a message was refused at the door     counted
    tick()          what was counted since it was told last, every ``TELL_EVERY_NS`` at most; what is well again

A disk that refuses everything would otherwise write a line for each message and each ACK, and fill what is left of it.

Knows: who fails (``Job.keeper``: something with ``failed``), and texts. Must not know: files, what is tried again.
Invariant: every error is told or counted, and every count is told.
"""

from __future__ import annotations

import logging
from typing import Any

from radiator.clock import NS_PER_SECOND, MonoNs

log = logging.getLogger("radiator.broker")

REPORT_EVERY_NS = 10 * NS_PER_SECOND
TEXTS_MAX = 8  # of one failure: its first error, and what trying again has met


class StorageFailure:
    """One that lasts. Without a keeper nobody says when it ends: then it has when nothing more of it came."""

    __slots__ = ("count", "refused", "texts", "reported_ns")

    def __init__(self, text: str, now_ns: MonoNs) -> None:
        self.texts = [text]
        self.reported_ns = now_ns
        self.count = 0  # since it was told
        self.refused = 0  # since it began

    def add(self, refused: int) -> None:
        self.count += refused
        self.refused += refused


class StorageFailures:
    """All of one broker."""

    def __init__(self) -> None:
        self._known: dict[Any, StorageFailure] = {}  # by keeper, or by text

    def failed(self, job: Any, now_ns: MonoNs) -> None:
        """This job, which is done, has an error."""
        component, text = job.component, str(job.error)
        key = text if component is None or component.failed is None else component
        trouble = self._known.get(key)
        if trouble is None:
            if text not in self._known:  # the COMMIT that met it has just told it
                log.error("storage: %s", text)
            trouble = self._known[key] = StorageFailure(text, now_ns)
            trouble.refused = job.refused_count  # told with the error itself
            return
        if text not in trouble.texts and len(trouble.texts) < TEXTS_MAX:
            trouble.texts.append(text)
            log.error("storage: %s", text)
        trouble.add(job.refused_count if key is component else 1)

    def refused(self, text: str) -> None:
        """A message was not even tried, for this reason."""
        for trouble in self._known.values():
            if text in trouble.texts:
                trouble.add(1)
                return

    def tick(self, now_ns: MonoNs) -> None:
        """Time passes."""
        for key, trouble in list(self._known.items()):
            due = now_ns - trouble.reported_ns >= REPORT_EVERY_NS
            if not isinstance(key, str) and key.failed is None:
                del self._known[key]
                log.warning("storage: %s: well again; %d were refused in the meantime", key.name, trouble.refused)
            elif due and trouble.count:
                what = "times more" if isinstance(key, str) else "more were refused"
                log.error("storage: %s (still so: %d %s)", trouble.texts[-1], trouble.count, what)
                trouble.reported_ns, trouble.count = now_ns, 0
            elif due and isinstance(key, str):
                del self._known[key]
