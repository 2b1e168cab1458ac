"""Log lines about failing storage: when a failure begins, now and then while it lasts, and when it ends.

    failed(job)     a job has an error: the first error of its kind is logged at once, later ones are counted
    refused(text)   a message was refused without an attempt to store it: counted
    tick()          logs the counts, at most every ``REPORT_EVERY_NS``, and the failures that have ended

A disk that refuses everything would otherwise cost a line for each message and each ACK, and fill up with them.

The module knows the component that fails (``Job.component``, an object with ``failed``) and texts, but not files or
retries.
Invariant: every error is logged or counted, and every count is logged.
"""

from __future__ import annotations

import logging
from typing import Any

from radiator.clock import NS_PER_SECOND, MonoNs

log = logging.getLogger("radiator.broker")

REPORT_EVERY_NS = 10 * NS_PER_SECOND
TEXTS_MAX = 8  # of one failure: its first error, and different errors of retries


class StorageFailure:
    """A failure that lasts.

    A failure without a component ends when no further error has come within an interval.

    Args:
        component: What fails, or None.
        text: The first error.
        now_ns: The monotonic time.
    """

    __slots__ = ("component", "count", "refused", "texts", "reported_ns")

    def __init__(self, component: Any, text: str, now_ns: MonoNs) -> None:
        self.component = component
        self.texts = [text]
        self.reported_ns = now_ns
        self.count = 0  # errors since the last log line
        self.refused = 0  # errors since the failure began

    def add(self, refused: int) -> None:
        """Count ``refused`` more refused messages."""
        self.count += refused
        self.refused += refused


class StorageFailures:
    """The storage failures of one broker."""

    def __init__(self) -> None:
        self._known: dict[Any, StorageFailure] = {}  # by component, or by text if there is no component

    def failed(self, job: Any, now_ns: MonoNs) -> None:
        """Log or count the error of a finished job."""
        text = str(job.error)
        component = job.component if job.component is not None and job.component.failed is not None else None
        key = text if component is None else component
        failure = self._known.get(key)
        if failure is None:
            if text not in self._known:  # the COMMIT with this error has just logged it
                log.error("storage: %s", text)
            failure = self._known[key] = StorageFailure(component, text, now_ns)
            failure.refused = job.refused_count  # logged with the error itself
            return
        if text not in failure.texts and len(failure.texts) < TEXTS_MAX:
            failure.texts.append(text)
            log.error("storage: %s", text)
        failure.add(1 if component is None else job.refused_count)

    def refused(self, text: str) -> None:
        """Count a message that was refused without an attempt to store it, because of the error ``text``."""
        for failure in self._known.values():
            if text in failure.texts:
                failure.add(1)
                return

    def tick(self, now_ns: MonoNs) -> None:
        """Log the counts that are due, and the failures that have ended."""
        for key, failure in list(self._known.items()):
            component, due = failure.component, now_ns - failure.reported_ns >= REPORT_EVERY_NS
            if component is not None and component.failed is None:
                del self._known[key]
                text = "storage: %s: works again; %d were refused in the meantime"
                log.warning(text, component.name, failure.refused)
            elif due and failure.count:
                what = "times more" if component is None else "more were refused"
                log.error("storage: %s (still failing: %d %s)", failure.texts[-1], failure.count, what)
                failure.reported_ns, failure.count = now_ns, 0
            elif due and component is None:
                del self._known[key]
