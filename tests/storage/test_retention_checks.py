"""When the retention of a log is checked, and what the last checks have left."""

from __future__ import annotations

from radiator.clock import WallNs
from radiator.config import Settings
from radiator.storage.retention_checks import NEVER, RetentionChecks
from radiator.storage.segment import SegmentInfo

SEGMENTS = [SegmentInfo(0, 10, 20, 600), SegmentInfo(100, 30, 40, 50)]


def test_the_active_segment_alone_is_never_checked() -> None:
    checks = RetentionChecks()
    checks.set_limits(SEGMENTS[:1], Settings(reclaim_acked=True, retention_age_ns=5, retention_bytes=1_000))
    assert (checks.reclaim_at, checks.full_at_bytes, checks.age_due_ns) == (NEVER, NEVER, None)


def test_a_check_waits_for_cursors_for_bytes_and_for_time() -> None:
    checks = RetentionChecks()
    checks.set_limits(SEGMENTS, Settings(reclaim_acked=True, retention_age_ns=5, retention_bytes=1_000))
    assert (checks.reclaim_at, checks.full_at_bytes, checks.age_due_ns) == (100, 400, 26)
    checks.settled()
    checks.grown()
    assert checks.reclaim_at == checks.full_at_bytes == NEVER
    assert [checks.is_too_old(WallNs(now_ns)) for now_ns in (25, 26, 27)] == [False, True, False]


def test_a_check_that_waits_for_an_archive_reads_it_each_time_and_reports_an_error_once() -> None:
    checks, settings = RetentionChecks(), Settings(wait_for_archive=True)
    for error, archived_to, is_new in (("", 50, False), ("gone", 0, True), ("gone", 0, False), ("", 60, True)):
        checks.want()
        assert not checks.begin(settings) and not checks.wanted
        assert checks.archive_read(archived_to, error) is is_new
        assert checks.begin(settings)
        assert checks.archived_to == archived_to
    assert RetentionChecks().begin(Settings())


def test_files_that_could_not_be_deleted_come_first_the_next_time() -> None:
    checks = RetentionChecks()
    assert checks.take_removed(SEGMENTS[:1]) == SEGMENTS[:1]
    checks.keep_undeleted(SEGMENTS[:1])
    assert checks.undeleted == SEGMENTS[:1]
    assert checks.take_removed(SEGMENTS[1:]) == SEGMENTS and not checks.undeleted
