"""Faults of one part of the disk, and faults during starts.

    a part of the disk fails    the next calls of a verb on files of one kind, as of a bad sector or a lost permission
    a part of the disk is full  as a quota does it: the journal has room, and the segments do not
    clean pages are forgotten   what a failed sync has not written is read as it was before
    a start ends                it is killed in the middle, or fails

They are drawn from a ``Random`` of their own, so that a history in which none of them happens is as it was without
them. ``SIZES`` are small, so that few messages have the steps of many: a snapshot takes several turns, a turn begins
few files.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from unittest.mock import patch

from radiator import limits
from radiator.storage import cursor_store, dedup_file, store
from tests.storage.faults import FaultyFileSystem

CHANCE = 0.004  # of a fault, at each step
KINDS = [".rlog", ".rlog", "/journal/", "/cursors/", "/partitions/", "/data"]  # of files, by what their paths contain
VERBS = ["fdatasync", "fdatasync", "pwritev", "open", "sync_dir", "rename", "remove", "truncate", "sync_all"]
SIZES = [
    (store, "NEW_FILES_MAX", [1, 2, 64]),
    (cursor_store, "SLICE_BYTES", [1, 64 << 10]),
    (dedup_file, "BLOCK_IDS", [1, 3, 1_024]),
    (dedup_file, "BLOCK_LOG_BYTES", [1, 500, 1 << 20]),
    (dedup_file, "SYNC_LOG_BYTES", [1, 500, 8 << 20]),
    (dedup_file, "SPARE_IDS", [0, 4, 4_096]),
    (limits, "JOURNAL_FILE_BATCHES", [4, 80_000]),
]


class DiskFaults:
    """The faults of one history. ``evicted``: the disk has forgotten clean pages since the last start."""

    def __init__(self, fs: FaultyFileSystem, random: Random) -> None:
        self._fs = fs
        self._random = random
        self.evicted = False

    @contextmanager
    def sizes(self) -> Iterator[None]:
        """Draw the sizes of this history."""
        with ExitStack() as patches:
            for owner, name, values in SIZES:
                patches.enter_context(patch.object(owner, name, self._random.choice(values)))
            yield

    def happen(self) -> str:
        """Let something happen now and then, and return what."""
        if self._random.random() >= CHANCE:
            return ""
        return self._random.choice([self._fail, self._fill, self._evict])()

    def spoil_start(self) -> str:
        """Let the next start end early, if it comes so far. Returns how."""
        if self._random.random() < 0.7:
            self._fs.crash_at(self._random.randrange(1, 150))
            return "killed"
        return self._fail(fatal=self._random.random() < 0.5)

    def power_fails_now(self) -> bool:
        """Return whether the power fails, when a start has been killed."""
        return self._random.random() < 0.4

    def starts_that_end(self) -> int:
        """Return how many starts to spoil."""
        return self._random.choice([0, 0, 0, 1, 1, 2])

    def _fail(self, fatal: bool = False) -> str:
        verb, under = self._random.choice(VERBS), self._random.choice(KINDS)
        error = errno.ENOSPC if verb in ("pwritev", "open") and self._random.random() < 0.3 else errno.EIO
        times = self._random.choice([1, 2, 5])
        self._fs.fail(verb, self._random.randrange(1, 4), error, under, times, fatal)
        return f"{verb} under {under} fails {times} times"

    def _fill(self) -> str:
        under = self._random.choice(KINDS)
        self._fs.fill(self._random.choice([0, 0, 50, 300, 20_000]), under)
        return f"no room under {under}"

    def _evict(self) -> str:
        self.evicted = True
        for path in [path for path in self._fs.nodes if path.endswith((".rlog", ".rjl"))]:
            if self._random.random() < 0.5:
                self._fs.evict(path)
        return "clean pages are forgotten"
