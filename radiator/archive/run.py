"""Run the archiver once: write and commit new segments, report them to retention, merge small files.

One run at a time has the lock of the data directory; another one fails and reports which process has it. Jobs are
written in the order of their offsets, by this process or by several others, and committed in that order, some together.
A partition that cannot go on (damage, an older copy, a bug) stops, and the others go on. Anything that affects all (a
full disk, an unreachable store) ends the run: what was complete by then is committed.

This module knows all of ``radiator.archive``. It does not know how progress is shown, or when it runs. ``step`` is
called for every step, so that tests can end a run at each.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace

from radiator.archive.failures import is_full, run_failure
from radiator.archive.files import Files
from radiator.archive.jobs import Job, Written, jobs_of
from radiator.archive.lock import locked
from radiator.archive.manifest import DataFile, Lost, State, check_source, load
from radiator.archive.merging import DamagedFile, Sizes, groups_to_merge, merge_files
from radiator.archive.parquet import SCHEMA
from radiator.archive.planning import Plan, plan, source_of
from radiator.archive.publishing import Change, Publisher, ignore
from radiator.archive.retention_marks import ahead, marks
from radiator.archive.split import Settings
from radiator.archive.typed import evolved
from radiator.archive.uncommitted import check_commits
from radiator.archive.unit import Unit
from radiator.archive.workers import results
from radiator.columns.files import open_store
from radiator.columns.log import exists, partitions
from radiator.columns.typed import UNTYPED, readable_columns
from radiator.errors import StorageError
from radiator.limits import (
    ARCHIVE_COMMIT_BYTES,
    ARCHIVE_COMMIT_SECONDS,
    ARCHIVE_UNIT_BYTES,
    MIB,
)
from radiator.storage import archived, layout
from radiator.storage.copies import kind_of_copy
from radiator.storage.files import FileSystem, storage_error
from radiator.storage.reader import StoredPartition
from radiator.storage.typed_rules import REJECTED
from radiator.words import counted

ROUNDS_MAX = 10  # plans of one run: another one is made where retention or another archiver was faster


@dataclass(frozen=True)
class Options:
    """``partitions``: only these; empty: all. ``merge`` None: where it is worth it.

    ``retention_seconds``: how long merged files stay from now on; None: as before.
    """

    partitions: frozenset[str] = frozenset()
    level: int = Settings.level
    skip_damaged: bool = False
    mark: bool = True
    archive: bool = True
    merge: bool | None = None
    retention_seconds: int | None = None
    jobs: int = 1
    unit_bytes: int = ARCHIVE_UNIT_BYTES
    settings: Settings = field(default_factory=lambda: Settings(""))
    sizes: Sizes = field(default_factory=Sizes)


@dataclass
class Outcome:
    """The result of a run.

    ``problems`` are by partition; by the data directory if a mark could not be written, by a file of the archive that
    cannot be merged; by the archive, if the problem ended the run.
    """

    version: int = -1
    records: int = 0
    body_bytes: int = 0
    log_bytes: int = 0
    files: int = 0
    file_bytes: int = 0
    typed: int = 0  # records with a struct column
    rejected: int = 0  # records whose bodies do not fit their schema
    unsealed: int = 0  # records in segments that are still written to
    left_bytes: int = 0  # of the log, that a signal came before
    swept: int = 0
    merged_from: int = 0
    merged_to: int = 0
    vacuumed: int = 0  # files that were merged earlier, and are removed now
    lost: list[Lost] = field(default_factory=list)
    begins: dict[str, int] = field(default_factory=dict)  # partitions that are new to the archive, and not from 0 on
    problems: dict[str, str] = field(default_factory=dict)
    damaged: bool = False  # something of the log cannot be read, whether it was skipped or not


@dataclass(frozen=True)
class Watch:
    """Callbacks: a text, bytes to do, bytes done; ``stopping``: whether to end at the next step."""

    report: Callable[[str], None] = ignore
    total: Callable[[int], None] = lambda size: None
    advance: Callable[[int], None] = lambda done: None
    stopping: Callable[[], bool] = lambda: False
    step: Callable[[str], None] = ignore


def run(data: str, files: Files, options: Options = Options(), watch: Watch = Watch()) -> Outcome:
    """Run the archiver.

    Raises:
        Busy: Another run is active.
        StorageError: Nothing could be begun.
        OSError: Nothing could be begun.
    """
    source = source_of(data)
    exists(open_store(data))
    with locked(data) as owner:
        spool = files.spool(owner or secrets.token_hex(8))
        _empty(spool)
        try:
            publisher = Publisher(files, source, owner, watch.step, watch.report)
            return _Run(data, publisher, source, spool, options, watch).run()
        finally:
            shutil.rmtree(spool, ignore_errors=True)


def preview(data: str, files: Files, options: Options) -> Plan:
    """Return what a run would do now. Nothing is written."""
    source = source_of(data)
    state = load(files)
    check_source(files, state, source)
    check_commits(files, state)
    return plan(_logs(data, options), state, options.unit_bytes)


def _logs(data: str, options: Options) -> list[StoredPartition]:
    names = options.partitions
    return [each for each in partitions(open_store(data)) if not names or each.name in names]


def _empty(spool: str) -> None:
    for name in os.listdir(spool):
        os.unlink(f"{spool}/{name}")


class _Round:
    """The jobs of one plan, and what became of them so far."""

    def __init__(self, jobs: deque[Job]) -> None:
        self.jobs = jobs
        self.left_bytes = sum(job.bytes for job in jobs)  # of the log, in jobs without a result
        self.pending: list[Written] = []  # results that are not committed
        self.committed = time.monotonic()
        self.again = False  # whether another round is needed
        self._stopped: set[str] = set()  # partitions with a failed unit that later units depend on

    def wants(self, job: Job) -> bool:
        return self._stopped.isdisjoint(unit.partition for unit in job.units)

    def take(self, written: Written) -> None:
        """Add the result of a job. What it has left follows at once."""
        self._stopped.update(failure.unit.partition for failure in written.failed)
        self.again |= any(failure.gone for failure in written.failed)
        self.jobs.extendleft(reversed(written.left))
        self.left_bytes += sum(each.bytes for each in written.left)
        if written.units:
            self.pending.append(written)

    def is_due(self, pending_bytes: int) -> bool:
        """Return whether to commit now."""
        size = sum(each.bytes for each in self.pending)
        return size >= pending_bytes or time.monotonic() - self.committed >= ARCHIVE_COMMIT_SECONDS


class _Run:
    def __init__(
        self, data: str, publisher: Publisher, source: str, spool: str, options: Options, watch: Watch
    ) -> None:
        self._data, self._publisher, self._source, self._spool = data, publisher, source, spool
        self._options, self._watch = options, watch
        self._settings = replace(options.settings, spool=spool, level=options.level, skip_damaged=options.skip_damaged)
        self._out = Outcome()
        self._copy = kind_of_copy(FileSystem(), data)
        self._marks = options.mark and not self._copy
        self._unit_bytes, self._pending_bytes, self._jobs = options.unit_bytes, ARCHIVE_COMMIT_BYTES, options.jobs
        self._failed: Unit | None = None  # that for which there was no room

    def run(self) -> Outcome:
        try:
            self._steps()
        except (OSError, BrokenProcessPool) as error:
            files = self._publisher.files
            self._out.problems[files.uri] = run_failure(files, error, self._failed)
        self._out.version = self._publisher.state.version
        return self._out

    def _steps(self) -> None:
        self._out.swept = self._publisher.sweep(self._spool)
        check_commits(self._publisher.files, self._publisher.state)
        if self._options.retention_seconds is not None:
            self._publisher.set_retention(self._options.retention_seconds)
        self._vacuum()  # first, since it makes room
        self._type()
        if self._options.archive:
            for number in range(ROUNDS_MAX):
                if not self._round(first=number == 0) or self._watch.stopping():
                    break
            else:
                self._watch.report(
                    f"{self._data}: {ROUNDS_MAX} times, segments were removed or archived by others during this run, "
                    f"or the disk was full; the next run continues"
                )
            if self._out.rejected:
                self._watch.report(
                    f"{self._out.rejected} of {self._out.records} bodies do not fit the schema of their rule: "
                    f"their struct column is null, and the column {REJECTED} has the reason"
                )
            if self._copy and self._options.mark:
                self._watch.report(
                    f"{self._data}: is {self._copy}: it was read, but nothing was marked as archived in it"
                )
        if self._options.merge is not False:
            self._merge()
            self._vacuum()

    def _vacuum(self) -> None:
        """Remove merged files whose retention is over."""
        try:
            self._out.vacuumed += self._publisher.vacuum()
        except StorageError as error:
            self._out.problems[self._publisher.files.uri] = str(error)

    def _type(self) -> None:
        """Choose the columns of new files. Raises StorageError if the list of rules is damaged."""
        typed = readable_columns(open_store(self._data)) if self._options.archive else UNTYPED
        schema, refused = evolved(self._publisher.state.table, typed.fields())
        self._publisher.add_structs(list(schema)[len(SCHEMA) :])
        self._settings = replace(
            self._settings, schema=schema, typed=replace(typed, refused={**typed.refused, **refused})
        )

    # --- what is new --------------------------------------------------------------------------------------------------

    def _round(self, first: bool) -> bool:
        """Do one round. Return whether another one is needed."""
        _empty(self._spool)  # results nobody waits for
        units = self._units(first)
        self._watch.total(sum(unit.bytes for unit in units))
        jobs = jobs_of(units, self._source, min(self._unit_bytes, self._pending_bytes))
        now = _Round(deque(jobs))
        for job, result in results(now.jobs, self._settings, self._jobs, self._watch.advance, now.wants):
            now.left_bytes -= job.bytes
            if not now.wants(job):  # and another process was at it already
                with contextlib.suppress(Exception):
                    result()
                self._discard(job.token)
                continue
            try:
                written = result()
            except (OSError, BrokenProcessPool) as error:
                self._discard(job.token)
                had_pending = bool(now.pending)
                self._commit(now)
                if is_full(error):
                    if self._retry_smaller(job, had_pending):
                        return True
                    self._failed = job.units[0]
                raise
            now.take(written)
            self._report_failures(written)
            if not written.units:
                self._discard(job.token)
            self._watch.step("written")
            if now.is_due(self._pending_bytes):
                self._commit(now)
            if self._watch.stopping():
                self._out.left_bytes = now.left_bytes
                break
        self._commit(now)
        return now.again

    def _units(self, first: bool) -> list[Unit]:
        """Return the units to write. Correct the marks of the partitions before. ``first``: in this run."""
        logs, state = _logs(self._data, self._options), self._publisher.state
        if first:
            self._report_marks(logs)
        self._out.unsealed = sum(each.next_offset - each.segments[-1].base_offset for each in logs if each.segments)
        made = plan(logs, state, self._unit_bytes)
        self._out.problems.update(made.problems)
        self._mark(dict.fromkeys(made.other_logs, 0), lower=True)  # the archive has other logs of these names
        self._mark(_verified(logs, state, made.problems))  # commits of a run that died
        return [unit for unit in made.units if unit.partition not in self._out.problems]

    def _report_failures(self, written: Written) -> None:
        """Report why units were left out, except those that the next round plans again."""
        for failure in written.failed:
            if not failure.gone:
                self._out.problems[failure.unit.partition] = failure.text
                self._out.damaged |= failure.damaged

    def _retry_smaller(self, job: Job, committed: bool) -> bool:
        """Note that there was no room for a job. Return whether to retry with less at once."""
        segments = sum(len(unit.ranges) for unit in job.units)
        logs = job.units[0].partition if len(job.units) == 1 else counted(len(job.units), "log")
        again = segments > 1 or self._jobs > 1 or (committed and self._publisher.files.local is None)
        if again:
            self._watch.report(
                f"{self._spool}: no room for {job.bytes / MIB:.1f} MiB of log "
                f"({counted(segments, 'segment')} of {logs}, {self._jobs} at a time): "
                "continuing with less at once"
            )
            self._unit_bytes = self._pending_bytes = max(1, job.bytes // 4)
            self._jobs = 1
        return again

    def _discard(self, token: str) -> None:
        """Truncate and remove the files of something that failed: they take room, even while open."""
        for name in os.listdir(self._spool):
            if name.startswith(token):
                os.truncate(f"{self._spool}/{name}", 0)
                os.unlink(f"{self._spool}/{name}")

    def _commit(self, now: _Round) -> None:
        """Commit the results that wait. Another round is needed if another archiver was faster with some."""
        changes = [_change(each) for each in now.pending]
        done = self._publisher.publish(changes) if changes else []
        for change, written in zip(changes, now.pending, strict=True):
            if any(change is each for each in done):
                self._count(written)
        self._mark({name: end for change in done for name, end in change.ends.items()})
        now.again |= len(done) < len(changes)
        now.pending, now.committed = [], time.monotonic()

    def _count(self, written: Written) -> None:
        out = self._out
        out.records += sum(each.file.records for each in written.files)
        out.log_bytes += written.bytes
        out.files += len(written.files)
        out.file_bytes += sum(each.file.bytes for each in written.files)
        out.body_bytes += sum(each.file.body_bytes for each in written.files)
        out.lost += written.lost
        out.typed += sum(each.file.typed or 0 for each in written.files)
        out.rejected += sum(each.file.rejected or 0 for each in written.files)
        out.damaged |= any(lost.why == "damaged" for lost in written.lost)
        for lost in written.lost:
            self._watch.report(f"{lost.partition}: offsets {lost.first} to {lost.next_offset - 1} are lost: {lost.why}")
        for unit in written.units:
            if unit.before is None and unit.first > 0:
                out.begins[unit.partition] = unit.first
                self._watch.report(
                    f"{unit.partition}: the archive begins at offset {unit.first}; earlier ones were removed before it "
                    "was first archived (retention, or settled messages of a queue)"
                )

    def _mark(self, ends: Mapping[str, int], lower: bool = False) -> None:
        """Mark how far the archive is, for retention, where that is more than before. ``lower``: or less."""
        fs = FileSystem()
        for name, end in ends.items() if self._marks else ():
            directory = layout.partition_path(self._data, name)
            try:
                if not os.path.isdir(directory):
                    continue
                before = 0
                with contextlib.suppress(StorageError):  # damaged: nothing is removed by it
                    before = archived.read(fs, directory)
                if before < end or (lower and before > end):
                    # two syncs for each of 10,000 logs are a minute
                    archived.write(fs, directory, end, synced=lower)
                    self._watch.step("marked")
            except OSError as error:
                self._out.problems[self._data] = str(storage_error(layout.archived_path(directory), "write", error))

    def _report_marks(self, logs: Iterable[StoredPartition]) -> None:
        if self._marks:
            found = marks(open_store(self._data).fs, logs)
            text = ahead(found, self._publisher.files.uri, self._publisher.state)
            if text:
                self._watch.report(text)

    # --- small files --------------------------------------------------------------------------------------------------

    def _merge(self) -> None:
        state, options = self._publisher.state, self._options
        changes: list[Change] = []
        committed = time.monotonic()
        for group in groups_to_merge(state, options.sizes, options.merge is True, options.partitions):
            if self._watch.stopping():
                break
            try:
                made = self._merged(group)
            except OSError:
                self._replace(changes)
                raise
            if made is None:
                continue
            changes.append(made)
            self._watch.step("merged")
            size = sum(placed.file.bytes for change in changes for placed in change.add)
            if size >= ARCHIVE_COMMIT_BYTES or time.monotonic() - committed >= ARCHIVE_COMMIT_SECONDS:
                self._replace(changes)
                changes, committed = [], time.monotonic()
        self._replace(changes)

    def _merged(self, group: list[DataFile]) -> Change | None:
        """Merge files, without those that are missing or damaged, which are reported. Return None if too few are left.

        Raises OSError.
        """
        while len(group) > 1:
            token = secrets.token_hex(8)
            try:
                made = merge_files(self._publisher.files, group, self._settings, token, self._source)
                return Change([made], [each.path for each in group])
            except FileNotFoundError:
                self._discard(token)
                gone = self._report_missing(group)
                if not gone:
                    return None  # another archiver has merged some
            except OSError:
                self._discard(token)
                raise
            except StorageError as error:
                self._discard(token)
                gone = {error.path} if isinstance(error, DamagedFile) else {each.path for each in group}
                self._out.problems[error.path if isinstance(error, DamagedFile) else group[0].path] = str(error)
                self._out.damaged = True
            group = [each for each in group if each.path not in gone]
        return None

    def _report_missing(self, group: Iterable[DataFile]) -> set[str]:
        """Report missing files among these, unless another archiver has merged them. Return their paths."""
        files = self._publisher.files
        named = load(files).files
        gone = {each.path for each in group if each.path in named and files.size(each.path) is None}
        for path in gone:
            self._out.problems[path] = (
                f"{files.named(path)}: does not exist, but a commit names it; it is not merged: restore it"
            )
            self._out.damaged = True
        return gone

    def _replace(self, changes: list[Change]) -> None:
        for change in self._publisher.publish(changes) if changes else ():
            self._out.merged_from += len(change.remove)
            self._out.merged_to += 1


def _verified(logs: Iterable[StoredPartition], state: State, problems: Mapping[str, str]) -> dict[str, int]:
    """Return up to where to mark each log: at most its end, and nothing of a partition with problems."""
    return {
        each.name: min(state.ends[each.name], each.next_offset)
        for each in logs
        if each.name in state.ends and each.name not in problems
    }


def _change(written: Written) -> Change:
    units = written.units
    return Change(
        written.files,
        ends={unit.partition: unit.following for unit in units},
        starts={unit.partition: unit.first for unit in units if unit.before is None},
        lost=written.lost,
        before={unit.partition: unit.before for unit in units},
        anchors=written.anchors,
    )
