"""The line of receipts: never before the effect, always in the order of the frames, nothing after a failure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.broker.clients.receipts import PLAIN_SUFFIX, ReceiptLine
from radiator.errors import ProtocolError
from radiator.storage.turn import Turn
from tests.broker.harness import World

pytestmark = pytest.mark.usefixtures("both_speeds")

FAILURE = ProtocolError("storage", "no")
SUFFIX = b"\npartition:p\n\n\0"


class Batch:
    def __init__(self, turn: Turn | None = None) -> None:
        self.waiters: list[Any] = []
        self.turn = turn or Turn()
        self.turn.begins()

    def commit(self, failure: ProtocolError | None = None) -> None:
        for each in self.waiters:
            each.settle(failure)
        for each in self.turn.ends(self, failure):
            each.stored(self.turn)


class Line:
    """A ReceiptLine, and what came out of it."""

    def __init__(self) -> None:
        self.out = b""
        self.failures: list[tuple[ProtocolError, bytes | None]] = []
        self.line = ReceiptLine(self._out, lambda error, receipt: self.failures.append((error, receipt)))

    def _out(self, data: bytes) -> None:
        self.out += data

    @property
    def ids(self) -> list[str]:
        frames = self.out.split(b"\0")[:-1]
        return [frame.split(b"receipt-id:")[1].split(b"\n")[0].decode() for frame in frames]


@pytest.fixture
def line() -> Line:
    return Line()


def test_a_receipt_whose_effect_is_done_goes_out_at_once(line: Line) -> None:
    line.line.now(b"a")
    assert line.out == b"RECEIPT\nreceipt-id:a\n\n\0\n"
    assert line.line.empty


def test_a_stored_receipt_waits_for_its_batch_and_carries_its_offset(line: Line) -> None:
    batch = Batch()
    line.line.stored(b"a", 7, batch, SUFFIX)
    assert line.out == b""
    assert not line.line.empty
    batch.commit()
    assert line.out == b"RECEIPT\nreceipt-id:a\noffset:7\npartition:p\n\n\0"
    assert line.line.empty


def test_receipts_of_one_batch_share_a_group(line: Line) -> None:
    batch = Batch()
    for number in range(5):
        line.line.stored(b"%d" % number, number, batch, SUFFIX)
    assert len(batch.turn.waiters) == 1
    batch.commit()
    assert line.ids == list("01234")


def test_a_different_suffix_is_another_group_and_the_order_stays(line: Line) -> None:
    batch, other = Batch(), b"\npartition:q\n\n\0"
    for number, suffix in enumerate([SUFFIX, other, SUFFIX]):
        line.line.stored(b"%d" % number, number, batch, suffix)
    batch.commit()
    assert line.ids == list("012")
    assert [b"partition:q" in frame for frame in line.out.split(b"\0")[:-1]] == [False, True, False]


def test_an_effect_that_is_done_waits_for_the_promises_before_it(line: Line) -> None:
    batch = Batch()
    line.line.stored(b"1", 0, batch, SUFFIX)
    line.line.now(b"2")
    assert line.out == b""
    batch.commit()
    assert line.ids == ["1", "2"]


def test_a_later_batch_that_commits_first_waits_for_the_earlier_one(line: Line) -> None:
    first, second = Batch(), Batch()
    line.line.stored(b"1", 0, first, SUFFIX)
    line.line.stored(b"2", 0, second, SUFFIX)
    second.commit()
    assert line.out == b""
    first.commit()
    assert line.ids == ["1", "2"]


def test_a_receipt_after_several_commits_waits_for_all_of_them(line: Line) -> None:
    batches = [Batch(), Batch(), Batch()]
    line.line.after(b"tx", [batch.waiters for batch in batches])
    for batch in batches:
        assert line.out == b""
        batch.commit()
    assert line.ids == ["tx"]


def test_a_receipt_after_nothing_is_due_at_once(line: Line) -> None:
    line.line.after(b"a", [])
    assert line.ids == ["a"]


def test_a_failed_commit_is_reported_in_place_of_its_receipt_and_ends_the_line(line: Line) -> None:
    first, second = Batch(), Batch()
    line.line.stored(b"1", 0, first, SUFFIX)
    line.line.stored(b"2", 0, second, SUFFIX)
    line.line.now(b"3")
    first.commit()
    second.commit(FAILURE)
    assert line.ids == ["1"]
    assert line.failures == [(FAILURE, b"2")]
    assert line.line.empty


def test_a_failure_waits_for_the_receipts_before_it(line: Line) -> None:
    first, second = Batch(), Batch()
    line.line.stored(b"1", 0, first, SUFFIX)
    line.line.stored(b"2", 0, second, SUFFIX)
    second.commit(FAILURE)
    assert not line.failures
    first.commit()
    assert line.ids == ["1"]
    assert line.failures == [(FAILURE, b"2")]


def test_one_failed_commit_of_several_fails_the_receipt_once(line: Line) -> None:
    batches = [Batch(), Batch(), Batch()]
    line.line.after(b"tx", [batch.waiters for batch in batches])
    batches[1].commit(FAILURE)
    batches[0].commit()
    batches[2].commit(ProtocolError("storage", "second"))
    assert line.out == b""
    assert line.failures == [(FAILURE, b"tx")]


def test_the_final_frame_comes_after_all_receipts(line: Line) -> None:
    batch = Batch()
    line.line.stored(b"1", 0, batch, SUFFIX)
    line.line.final(b"ERROR\n\n\0")
    assert line.out == b""
    batch.commit()
    assert line.out.endswith(b"ERROR\n\n\0")
    assert line.out.startswith(b"RECEIPT\nreceipt-id:1\n")


def test_receipt_ids_are_echoed_byte_by_byte(line: Line) -> None:
    line.line.now(b"a\\cb\\\\ \xc3\xbc")
    assert line.out == b"RECEIPT\nreceipt-id:a\\cb\\\\ \xc3\xbc" + PLAIN_SUFFIX


def test_receipts_of_batches_that_are_written_together_go_out_together(line: Line) -> None:
    turn = Turn()
    batches = [Batch(turn) for _ in range(3)]
    for number in range(9):
        line.line.stored(b"%d" % number, number, batches[number % 3], SUFFIX)
    pieces: list[bytes] = []
    line.line._out = pieces.append
    for batch in batches:
        assert not pieces
        batch.commit()
    assert len(pieces) == 1
    line.out = pieces[0]
    assert line.ids == list("012345678") and line.line.empty and line.line.held_bytes == 0


def test_the_failure_of_one_of_several_batches_is_reported_at_its_first_receipt(line: Line) -> None:
    turn = Turn()
    first, second, third = Batch(turn), Batch(turn), Batch(turn)
    for number, batch in enumerate([first, second, first, third, second]):
        line.line.stored(b"%d" % number, number, batch, SUFFIX)
    line.line.now(b"5")
    third.commit(ProtocolError("storage", "the third"))
    second.commit(FAILURE)
    assert not line.failures
    first.commit()
    assert line.ids == ["0"]
    assert line.failures == [(FAILURE, b"1")]
    assert line.line.empty and line.line.held_bytes == 0


@given(st.data())
def test_any_interleaving_keeps_order_and_never_promises_early(data: st.DataObject) -> None:
    """Receipts of random kinds, commits in random order, some in vain: what is out is always a prefix that is true, all
    of it once it is known, and behind the first failure nothing but that."""
    line = Line()
    turns = [Turn(), Turn()]
    batches = [Batch(data.draw(st.sampled_from(turns))) for _ in range(4)]
    done, failed = [False] * 4, [False] * 4
    wanted: list[tuple[str, list[int], str]] = []
    for number in range(data.draw(st.integers(1, 12))):
        kind = data.draw(st.sampled_from(["now", "stored", "stored", "stored", "after"]))
        waits: list[int] = []
        receipt = str(number).encode()
        if kind == "now":
            line.line.now(receipt)
        elif kind == "stored":
            waits = [data.draw(st.integers(0, 3))]
            line.line.stored(receipt, number, batches[waits[0]], SUFFIX)
        else:
            waits = data.draw(st.lists(st.integers(0, 3), unique=True))
            line.line.after(receipt, [batches[each].waiters for each in waits])
        wanted.append((str(number), waits, kind))

    def true() -> tuple[list[str], str | None]:
        ids: list[str] = []
        for receipt_id, waits, kind in wanted:
            if kind == "after" and any(done[each] and failed[each] for each in waits):
                return ids, receipt_id  # whatever becomes of the others
            if not all(done[each] for each in waits):
                return ids, None
            if any(failed[each] for each in waits):
                return ids, receipt_id
            ids.append(receipt_id)
        return ids, None

    for place in data.draw(st.permutations(range(4))):
        failed[place] = data.draw(st.booleans()) and data.draw(st.booleans())
        batches[place].commit(FAILURE if failed[place] else None)
        done[place] = True
        ids, failure = true()
        assert line.ids == ids[: len(line.ids)]
        assert not line.failures or line.failures == [(FAILURE, failure and failure.encode())]
    ids, failure = true()
    assert line.ids == ids
    assert line.failures == ([] if failure is None else [(FAILURE, failure.encode())])
    assert line.line.empty and line.line.held_bytes == 0


# --- what was sent without asking -----------------------------------------------------------------------------------


def test_a_receipt_waits_for_what_was_sent_before_it_without_one() -> None:
    line, first, second = Line(), Batch(), Batch()
    line.line.silently(first)
    line.line.stored(b"1", 0, second, SUFFIX)
    second.commit()
    assert line.ids == []
    first.commit()
    assert line.ids == ["1"]


def test_what_is_sent_behind_it_keeps_no_receipt_back() -> None:
    line, first, second = Line(), Batch(), Batch()
    line.line.stored(b"1", 0, first, SUFFIX)
    line.line.silently(second)
    first.commit()
    assert line.ids == ["1"]
    line.line.now(b"2")
    assert line.ids == ["1"]
    second.commit()
    assert line.ids == ["1", "2"]


def test_one_of_the_same_batch_waits_for_what_was_silent_between_them() -> None:
    line, first, second = Line(), Batch(), Batch()
    line.line.stored(b"1", 0, first, SUFFIX)
    line.line.silently(second)
    line.line.stored(b"2", 1, first, SUFFIX)
    first.commit()
    assert line.ids == ["1"]
    second.commit()
    assert line.ids == ["1", "2"]


def test_many_in_one_batch_are_noted_once_and_nothing_is_left_of_them() -> None:
    line, batches = Line(), [Batch() for _ in range(3)]
    for number in range(300):
        line.line.silently(batches[number % 3])
    line.line.silently_after([batches[0].waiters])
    assert [len(batch.waiters) for batch in batches] == [1, 0, 0]
    assert [len(batch.turn.waiters) for batch in batches] == [1, 1, 1]
    for batch in batches:
        batch.commit()
    assert not line.line._silent and not line.line._fresh and line.line.quiet is None and line.line.empty


@pytest.mark.parametrize("asked", ["before", "after"])
@pytest.mark.parametrize("how", ["now", "stored", "after"])
def test_the_failure_of_a_send_without_a_receipt_is_reported_at_the_next_receipt(how: str, asked: str) -> None:
    line, silent, batch = Line(), Batch(), Batch()
    line.line.silently(silent)
    if asked == "after":
        silent.commit(FAILURE)
    if how == "now":
        line.line.now(b"1")
    elif how == "stored":
        line.line.stored(b"1", 0, batch, SUFFIX)
    else:
        line.line.after(b"1", [batch.waiters])
    if asked == "before":
        silent.commit(FAILURE)
    batch.commit()
    assert line.ids == [] and line.failures == [(FAILURE, b"1")]
    assert line.line.empty and line.line.held_bytes == 0


def test_a_line_that_is_closed_keeps_no_batch() -> None:
    line, batch = Line(), Batch()
    line.line.silently(batch)
    line.line.close()
    assert not line.line._silent and line.line.quiet is None
    batch.commit()
    assert line.ids == []


@pytest.mark.parametrize("command", ["DISCONNECT", "SUBSCRIBE"])
def test_one_receipt_covers_all_that_was_sent_before(command: str) -> None:
    world = World()
    client = world.connect()
    client.publish("/queue/new", "x")
    client.say(command, receipt="r", **({"destination": "/topic/a", "id": "0"} if command == "SUBSCRIBE" else {}))
    world.flush()
    assert client.receipts() == []
    world.settle()
    assert client.receipts() == ["r"]
    world.power_cut()
    reader = world.connect()
    reader.subscribe("/queue/new")
    world.settle()
    assert reader.bodies() == ["x"]


def test_a_commit_without_a_receipt_is_meant_too() -> None:
    world = World()
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.say("SEND", "x", destination="/queue/a", transaction="t")
    client.say("COMMIT", transaction="t")
    client.say("BEGIN", transaction="u", receipt="r")
    world.flush()
    assert client.receipts() == []
    world.settle()
    assert client.receipts() == ["r"]


def test_a_repeat_without_a_receipt_depends_on_the_first_message() -> None:
    world = World()
    first, again = world.connect(), world.connect()
    first.publish("/queue/a", "x", dedup_id="1")
    again.publish("/queue/a", "x", dedup_id="1")
    again.say("BEGIN", transaction="t", receipt="r")
    world.flush()
    assert again.receipts() == []
    world.settle()
    assert again.receipts() == ["r"]


def test_a_receipt_that_is_asked_for_after_a_failed_write_is_an_error() -> None:
    world = World()
    client = world.connect()
    client.publish("/queue/a", "good")
    world.settle()
    world.fs.fail("pwritev", 1)
    client.publish("/queue/a", "lost")
    world.settle()
    client.say("DISCONNECT", receipt="r")
    world.settle()
    assert client.receipts() == [] and client.error() == "storage"


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_a_receipt_waits_for_the_cursor_though_the_turn_ends_behind_the_last_acknowledged_message(
    command: str,
) -> None:
    world = World("defaults: {fsync: always}")
    client = world.connect()
    client.subscribe("/queue/a", ack="client", prefetch_count=10)
    client.publish("/queue/a", *"0123456789")
    world.settle()
    messages = client.messages()
    assert len(messages) == 10
    world.broker.budget.most = 5  # what these ten cost
    client.ack(messages[-1], command, receipt="r", **({"requeue": "false"} if command == "NACK" else {}))
    assert client.session.command.at_once
    world.take()
    client.go_on()
    assert client.receipts() == []
    world.write()
    world.sync()
    world.completed()
    assert client.receipts() == ["r"]
