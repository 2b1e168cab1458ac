"""What a rule decides about a partition."""

from __future__ import annotations

from radiator import limits
from radiator.storage.options import PartitionOptions, SyncPolicy


def test_the_default_is_the_strongest_promise_and_keeps_everything() -> None:
    options = PartitionOptions()
    assert options.store == "file" and options.sync.always and options.segment_bytes == limits.SEGMENT_BYTES
    kept = (options.roll_at_seconds, options.retention_age_ns, options.retention_bytes, options.retention_count)
    assert kept == (None, None, None, None)


def test_policies() -> None:
    assert [(policy.always, policy.never) for policy in map(SyncPolicy, (0, None, 5))] == [
        (True, False),
        (False, True),
        (False, False),
    ]
