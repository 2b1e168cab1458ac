"""The settings of a log."""

from __future__ import annotations

from radiator import limits
from radiator.config import Settings, SyncPolicy


def test_the_default_is_the_strongest_promise_and_keeps_everything() -> None:
    settings = Settings()
    assert settings.store == "file" and settings.sync.always and settings.segment_bytes == limits.SEGMENT_BYTES
    kept = (settings.roll_at_seconds, settings.retention_age_ns, settings.retention_bytes, settings.retention_count)
    assert kept == (None, None, None, None)


def test_policies() -> None:
    assert [(policy.always, policy.never) for policy in map(SyncPolicy, (0, None, 5))] == [
        (True, False),
        (False, True),
        (False, False),
    ]
