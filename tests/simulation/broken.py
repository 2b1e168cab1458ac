"""Brokers with one deliberate bug each. The checkers must find every one of them.

The simulation itself implements bugs of the shell; for these only the names are here (``SHELL``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from heapq import heappush
from typing import Any, NamedTuple
from unittest.mock import patch

from radiator.broker.committing import waits
from radiator.broker.delivery import dispatch, selective
from radiator.broker.durable.subscriptions import DurableSubscriptions
from radiator.broker.logs import delivery_times
from radiator.broker.logs.selection import NO, YES, Selection
from radiator.broker.outcomes import dead_letters
from radiator.broker.outcomes.dead_letters import DeadLetters
from radiator.broker.outcomes.delivery_log import DeliveryLog
from radiator.broker.outcomes.redelivery import Returns
from radiator.broker.queues.assignment import Assignment
from radiator.broker.queues.queue import Queue
from radiator.broker.queues.recorder import SourceRecord
from radiator.broker.queues.selectors import Wanted
from radiator.broker.queues.skipped import Skipped
from radiator.broker.timers.timing import Timing
from radiator.clock import NS_PER_SECOND, Now
from radiator.storage.batch import RecordBatch
from radiator.storage.cursor_store import CursorStore, EncodedCursors
from radiator.storage.file_partition import AppendJob, FilePartition
from radiator.storage.format import decode, decode_columns
from radiator.storage.header import decode_header
from radiator.storage.journal import format as journal_format
from radiator.storage.journal import reading, redo
from radiator.storage.journal.checkpoint import Checkpoint
from radiator.storage.journal.group import GroupJob
from radiator.storage.journal.journal import Journal
from radiator.storage.journal.redo import Redo
from radiator.storage.partition import Partition
from radiator.storage.segment import merge_run
from radiator.timers import NEVER_NS

Make = Callable[[Any], Any]
SHELL = ["acks forgotten", "a window too wide", "ids forgotten"]
BUGS: dict[str, list[Bug]] = {}  # a bug may be in several places


class Bug(NamedTuple):
    """A bug, and the ``cast`` that must find it."""

    owner: Any
    attribute: str
    make: Make
    cast: str


def bug(owner: Any, name: str, cast: str = "choosy") -> Callable[[Make], Make]:
    """Register a bug. The decorated function gets the right method and returns a wrong one; its name is the bug's."""

    def add(make: Make) -> Make:
        BUGS.setdefault(make.__name__.replace("_", " "), []).append(Bug(owner, name, make, cast))
        return make

    return add


@contextmanager
def broken(name: str) -> Iterator[None]:
    """Install a bug for the duration of the block; nothing without a name, or for one of ``SHELL``."""
    if name not in BUGS:
        assert not name or name in SHELL, name
        yield
        return
    with ExitStack() as patches:
        for owner, attribute, make, _ in BUGS[name]:
            patches.enter_context(patch.object(owner, attribute, make(getattr(owner, attribute))))
        yield


@bug(Journal, "sync", "plain")
def a_receipt_before_the_sync_of_the_journal(right: Any) -> Any:
    return lambda self: None


@bug(GroupJob, "write", "plain")
def no_journal(right: Any) -> Any:
    def write(self: Any) -> None:
        for job in self.appends:
            job.decided = True

    return write


@bug(Checkpoint, "run", "plain")
def a_checkpoint_releases_what_is_not_synced(right: Any) -> Any:
    return lambda self, threads=1: None


@bug(Checkpoint, "_save", "plain")
def a_checkpoint_releases_acks_that_no_snapshot_has(right: Any) -> Any:
    return lambda self: None


@bug(reading, "write_again", "plain")
@bug(redo, "write_records_again", "plain")
def a_start_trusts_the_page_cache(right: Any) -> Any:
    return lambda *args: None


@bug(EncodedCursors, "encode", "plain")
def a_snapshot_says_that_it_has_what_is_behind_it(right: Any) -> Any:
    return lambda self, first_entry: right(self, first_entry + 8)


@bug(Checkpoint, "_sync_all", "choosy")
def what_a_sync_of_everything_says_is_not_heard(right: Any) -> Any:
    def sync_all(self: Any, targets: Any) -> list[Any]:
        with suppress(OSError):
            self._fs.sync_all(self._root)
        return []

    return sync_all


@bug(Redo, "append", "plain")
def an_entry_is_applied_twice(right: Any) -> Any:
    def append(self: Any, notes: Any, now: Now) -> None:
        right(self, notes, now)
        for partition, each in [
            (partition, each) for partition, found in self._missing.items() for each in found.values()
        ]:
            columns, first = decode(each.data)[1], partition.next_offset
            offsets = range(first, first + len(columns.blocks))
            batch = RecordBatch(*columns._replace(offsets=offsets, base_offset=first))
            partition.next_offset = batch.next_offset
            job = AppendJob(partition, batch, None, True, False)
            job.decided = True
            job.write()
            job.done(now)

    return append


@bug(Redo, "_check_part", "plain")
def half_of_an_entry_is_applied(right: Any) -> Any:
    def look(self: Any, part: Any, partition_of: Any) -> None:
        if part.header.base_offset % 2:
            right(self, part, partition_of)

    return look


@bug(redo, "decode", "repeating")
@bug(redo, "merge_run", "repeating")
@bug(journal_format, "check", "repeating")
def a_torn_entry_is_taken_for_whole(right: Any) -> Any:
    if right is merge_run:
        return lambda data, at, header, end_offset, bytes_max: (None, at)  # each batch by itself

    def decoded(data: bytes, *place: Any) -> Any:
        header = decode_header(data)
        return header, decode_columns(data, 0, header)

    return decoded if right is decode else lambda data, at, header: None


@bug(FilePartition, "committed", "repeating")
def what_is_written_counts_as_synced(right: Any) -> Any:
    def committed(self: Any, job: Any, now_ns: Any) -> None:
        right(self, job, now_ns)
        self.synced_to = self.high_watermark

    return committed


@bug(FilePartition, "wait_point", "repeating")
def a_repeat_is_receipted_when_it_is_written(right: Any) -> Any:
    return Partition.wait_point


@bug(waits, "request_syncs", "repeating")
def a_COMMIT_does_not_wait_for_the_syncs_of_what_it_repeats(right: Any) -> Any:
    return lambda transaction, places: None


@bug(dead_letters, "MemoryPartition", "plain")
def a_dead_letter_and_its_ack_apart(right: Any) -> Any:
    return Partition


@bug(DeadLetters, "decided", "plain")
def a_dead_letter_twice(right: Any) -> Any:
    """A dead letter is forgotten and moved once more."""

    def decided(self: Any, letter: Any, together: bool, holds: bool) -> None:
        if holds and letter.offset % 3 == 0 and letter.deliveries < 1_000:
            self.bury([letter._replace(deliveries=1_000)])
        else:
            right(self, letter, together, holds)

    return decided


@bug(Assignment, "_held")
def a_partition_is_given_to_the_next_before_the_last_is_done(right: Any) -> Any:
    return lambda self, source, wanted, consumers: False


@bug(Assignment, "takers")
def partitions_of_a_group_belong_to_nobody(right: Any) -> Any:
    return lambda self, source, consumers: consumers


@bug(dispatch, "_deliver")
def what_comes_back_waits_for_what_is_new(right: Any) -> Any:
    def hand_out(queue: Any, source: Any, credits: Any, count_max: int) -> Any:
        back = []
        if source.returned and source.next_offset < source.feed.partition.high_watermark:
            back, source.returned = source.returned, []
        try:
            return right(queue, source, credits, count_max)
        finally:
            for offset in back:
                heappush(source.returned, offset)

    return hand_out


@bug(Returns, "left")
def what_a_member_held_is_settled_when_it_goes(right: Any) -> Any:
    def left(self: Any, source: Any, offsets: Any) -> None:
        if source.queue.name.startswith(("group:", "sub:")):
            source.settle(offsets)
        else:
            right(self, source, offsets)

    return left


@bug(DurableSubscriptions, "_take_over")
def a_name_is_not_taken_over(right: Any) -> Any:
    return lambda self, named: iter(())


@bug(CursorStore, "delete")
def a_deleted_name_keeps_its_place(right: Any) -> Any:
    return lambda self, name, where=None: None


@bug(Assignment, "active")
def nobody_is_exclusive(right: Any) -> Any:
    return property(lambda self: None)


@bug(Assignment, "active")
def the_last_exclusive_consumer_has_its_turn(right: Any) -> Any:
    return property(lambda self: next(reversed(self._exclusive), None))


@bug(Selection, "verdicts")
def a_selector_takes_everything(right: Any) -> Any:
    return lambda self, wire, batch, start, stop: bytearray([YES]) * len(batch)


@bug(Wanted, "by")
def a_queue_takes_every_selector_for_true(right: Any) -> Any:
    def by(self: Any, index: int) -> list[Any]:
        keyed = [group for _, groups in self._keyed for each in groups.values() for group in each]
        return [group for group, _ in self._evaluated] + keyed

    return by


@bug(Selection, "verdicts")
def a_selector_misses_one(right: Any) -> Any:
    def verdicts(self: Any, wire: Any, batch: Any, start: int, stop: int) -> bytearray:
        found = bytearray(right(self, wire, batch, start, stop))
        for index, offset in enumerate(batch.offsets):
            if offset % 5 == 2:
                found[index] = NO
        return found

    return verdicts


@bug(selective.Call, "skip")
def what_nobody_wants_now_is_settled(right: Any) -> Any:
    return lambda self, batch, index, groups: self.source.settle([batch.offsets[index]])


@bug(selective, "_deal_skipped")
def what_was_skipped_is_not_looked_at_again(right: Any) -> Any:
    return lambda call, skipped: None


@bug(Skipped, "begin")
def a_new_selector_is_not_evaluated_for_what_was_skipped(right: Any) -> Any:
    return lambda self, group: None


@bug(Queue, "sort")
def the_lowest_priority_goes_first(right: Any) -> Any:
    def sort(queue: Queue) -> None:
        right(queue)
        queue.sources.reverse()

    return sort


@bug(Timing, "see")
def a_step_of_the_clock_is_believed_at_once(right: Any) -> Any:
    def see(self: Any, now: Now) -> Now:
        self.now, self.shown_ns = now, now.wall
        return now

    return see


@bug(delivery_times, "_deliver_at")
def what_is_to_wait_does_not(right: Any) -> Any:
    return lambda block: None


@bug(delivery_times, "expiry")
def what_has_expired_is_delivered(right: Any) -> Any:
    return lambda batch, index, ttl_ns: NEVER_NS


@bug(delivery_times, "expiry")
def what_expires_does_so_too_early(right: Any) -> Any:
    return lambda batch, index, ttl_ns: right(batch, index, ttl_ns) - 1_000_000 * NS_PER_SECOND


@bug(SourceRecord, "settled", "plain")
def settlements_do_not_wait_for_their_rows(right: Any) -> Any:
    def wrong(self: SourceRecord, offsets: Any, outcome: bytes, transaction: str = "") -> None:
        self._source.cursor.ack(offsets)  # type: ignore[attr-defined]
        right(self, offsets, outcome, transaction)

    return wrong


@bug(DeliveryLog, "add", "plain")
def a_transaction_has_no_rows(right: Any) -> Any:
    return lambda self, settled, outcome, transaction="": None
