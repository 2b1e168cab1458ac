"""When the retention of a log is checked, and what the last checks have left.

Retention is checked when something has changed that lets it remove more: a cursor has settled the oldest segment, the
active segment has grown, the oldest one is too old, or an archive has more. ``radiator.storage.retention`` decides what
is removed. The module knows facts of segments, but no files. The event loop owns it.
"""

from __future__ import annotations

from collections.abc import Sequence

from radiator.clock import WallNs
from radiator.config import Settings
from radiator.storage.retention import size_due_bytes
from radiator.storage.segment import SegmentInfo

NEVER = 1 << 63  # an offset, or bytes


class RetentionChecks:
    """The retention checks of one log.

    Attributes:
        wanted: True if the next ``take`` of the log checks retention.
        reclaim_at: The offset at which the oldest segment ends, if it may go as soon as cursors have settled it.
        full_at_bytes: The size of the active segment above which the log is too large.
        age_due_ns: The wall time at which the oldest sealed segment is too old; None: there is no such time.
        archived_to: The offset below which the archive has everything, as of the last look.
        undeleted: Segments that were removed, and whose files could not be deleted.
    """

    __slots__ = (
        "_archive_error",
        "_archive_known",
        "age_due_ns",
        "archived_to",
        "full_at_bytes",
        "reclaim_at",
        "undeleted",
        "wanted",
    )

    def __init__(self) -> None:
        self._archive_error = ""
        self._archive_known = False  # ``archived_to`` was read for the check that comes next
        self.age_due_ns: WallNs | None = None
        self.archived_to = 0
        self.full_at_bytes = NEVER
        self.reclaim_at = NEVER
        self.undeleted: list[SegmentInfo] = []
        self.wanted = False

    def want(self) -> None:
        """Check with the next ``take``."""
        self.wanted = True

    def set_limits(self, segments: Sequence[SegmentInfo], settings: Settings) -> None:
        """Compute what the next checks wait for, after a change of the segments or of the settings."""
        sealed = len(segments) > 1
        self.reclaim_at = segments[1].base_offset if sealed and settings.reclaim_acked else NEVER
        full_at_bytes = size_due_bytes(segments, settings)
        self.full_at_bytes = NEVER if full_at_bytes is None else full_at_bytes
        self.age_due_ns = None
        if sealed and settings.retention_age_ns is not None:
            self.age_due_ns = WallNs(segments[0].last_receive_ns + settings.retention_age_ns + 1)

    def settled(self) -> None:
        """Wait no more for cursors to settle the oldest segment. If it must stay, the sweep checks again."""
        self.reclaim_at = NEVER

    def grown(self) -> None:
        """Wait no more for the active segment to grow."""
        self.full_at_bytes = NEVER

    def is_too_old(self, now_ns: WallNs) -> bool:
        """Return True if the oldest sealed segment is too old. True once only.

        The sweep of the store checks again if a cursor retains the segment.
        """
        if self.age_due_ns is None or self.age_due_ns > now_ns:
            return False
        self.age_due_ns = None
        return True

    def begin(self, settings: Settings) -> bool:
        """Begin the check that was wanted. Return False if the archive must be read first."""
        self.wanted = False
        if settings.wait_for_archive and not self._archive_known:
            return False
        self._archive_known = False
        return True

    def archive_read(self, archived_to: int, error: str) -> bool:
        """Take over how far the archive has the log. Return True if the error, if any, is a new one.

        Args:
            archived_to: The offset below which the archive has everything; 0 if that is not known.
            error: Why it is not known; empty without an error.
        """
        is_new = error != self._archive_error
        self._archive_error, self.archived_to, self._archive_known = error, archived_to, True
        return is_new

    def take_removed(self, dropped: list[SegmentInfo]) -> list[SegmentInfo]:
        """Return the segments whose files are to be deleted: those of earlier checks first, or there would be gaps."""
        removed, self.undeleted = self.undeleted + dropped, []
        return removed

    def keep_undeleted(self, segments: list[SegmentInfo]) -> None:
        """Note segments whose files could not be deleted."""
        self.undeleted = segments + self.undeleted
