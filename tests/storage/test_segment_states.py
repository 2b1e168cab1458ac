"""A segment's life is a table, and nothing else happens to a segment."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from radiator.storage.file_partition import FilePartition
from radiator.storage.jobs import run
from radiator.storage.segment import SegmentInfo
from radiator.storage.segment_states import TRANSITIONS, Event, State
from tests.clocks import both
from tests.storage.driving import ALWAYS, NOW, commit, opened, put
from tests.storage.faults import FaultyFileSystem
from tests.storage.test_reopen import SECOND, doubtful, later

DOCUMENT = Path(__file__).parents[2] / "docs" / "architecture.md"


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_what_the_table_does_not_have_is_an_error(state: State, event: Event) -> None:
    segment = SegmentInfo(0, 0, 0, 0, state=state)
    assert segment.can(event) == (event in TRANSITIONS[state])
    if segment.can(event):
        segment.on(event)
        assert segment.state is TRANSITIONS.after(state, event) is TRANSITIONS[state][event]
    else:
        with pytest.raises(RuntimeError, match=f"{state.value}.*{event.value}"):
            segment.on(event)
        assert segment.state is state


def test_every_segment_can_be_deleted_in_the_end() -> None:
    ends = {State.DELETED}
    while more := {state for state, events in TRANSITIONS.items() if ends & set(events.values())} - ends:
        ends |= more
    assert ends == set(State)


def test_the_document_has_the_table() -> None:
    """``| state | what it is | event: next state, ... |``"""
    text = DOCUMENT.read_text().partition("## The life of a segment")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z ]+)` \| [^|]+ \| ([^|]*) \|$", text, re.MULTILINE)
    documented = {state: dict(re.findall(r"`([a-z]+)`: `([a-z ]+)`", events)) for state, events in rows}
    assert documented == {
        state.value: {event.value: following.value for event, following in events.items()}
        for state, events in TRANSITIONS.items()
    }


def test_a_file_that_has_failed_is_cut_and_then_like_others() -> None:
    store, log = doubtful(FaultyFileSystem())
    (failed,) = log.segments
    assert log.log.state is State.FAILED
    after_retry, _ = later(store, NOW)
    assert log.segments[0] is failed and log.segments[1].state is log.log.state is State.ACTIVE
    assert failed.state is State.FAILED and failed.can(Event.REMOVE) and not failed.can(Event.REWRITE)
    now = both(after_retry + 3 * SECOND)
    store.tick(now)
    jobs = store.take(now)
    assert failed.state is State.CUTTING and not failed.can(Event.REMOVE)
    for job in run(jobs):
        job.done(now)
    assert failed.state is State.SEALED


def test_a_full_disk_refuses_appends_until_there_is_room() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    assert isinstance(log, FilePartition)
    put(log, b"first")
    commit(store)
    assert log.log.state is State.ACTIVE
    fs.fail("pwritev", 1, errno.ENOSPC)
    put(log, b"second")
    commit(store)
    assert log.log.state is State.REFUSING and log.segments[0].state is State.ACTIVE
    later(store, NOW)
    assert log.log.state is State.ACTIVE
