"""Holes of archive and log fail only who may have asked for what is in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from radiator.archive import Changes, Lost, commit, load, open_files
from radiator.archive.run import Options, run
from radiator.client import connect
from radiator.columns.selection import Selection
from radiator.spark.boundary import find_boundary
from radiator.storage.reader import list_partitions
from tests.running import BrokerProcess
from tests.spark.archives import archive, lose
from tests.spark.stores import MS, START_NS, Writer, numbered

StartBroker = Callable[..., BrokerProcess]
MARK = 3  # milliseconds between records: a hole between two of them has an inside


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Offsets 100 to 149 of ``shared`` and of ``/topic/own`` are in the archive no more than in the log; it has what
    comes before and behind. A record's number is its offset, and its time."""
    root = tmp_path_factory.mktemp("holes")
    writer = Writer(root / "data", 4096)
    step = MARK * MS
    for first in range(0, 300, 10):
        writer.append("/topic/own", numbered("/topic/own", 10, first, step))
        names = ["/topic/a", "/topic/b"]
        writer.append("shared", [each._replace(destination=names[i % 2]) for i, each in enumerate(
            numbered("", 10, first, step))])  # fmt: skip
        writer.commit()
    writer.close()
    to = root / "archive"
    archive(to, writer.root, {"shared": 100, "/topic/own": 100})
    files = open_files(to)
    state = load(files)
    both = ("shared", "/topic/own")
    gone = [Lost(name, 100, 150, "damaged") for name in both]
    commit(files, state, Changes(state.source or "", lost=gone, ends=dict.fromkeys(both, 150)))
    archive(to, writer.root, dict.fromkeys(both, 200))
    return writer.root, str(to)


def reported(store: tuple[str | None, str], selection: Selection) -> list[str]:
    """The partitions with a hole that matters."""
    found = find_boundary(store[0], open_files(store[1]), selection)
    assert not found.settled
    return [text.split("'")[1] for text in found.gaps]


def at(number: int) -> int:
    return START_NS + number * MARK * MS


ALL = Selection()
OWN, SHARED = "/topic/own", "shared"


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (ALL, [OWN, SHARED]),
        (ALL.partition("in", SHARED), [SHARED]),
        (ALL.offsets(0, 100), []),
        (ALL.offsets(0, 101), [OWN, SHARED]),
        (ALL.offsets(149), [OWN, SHARED]),
        (ALL.offsets(150), []),
        (ALL.received(high_ns=at(99)), []),  # the last one before it is not wanted
        (ALL.received(high_ns=at(99) + 1), [OWN, SHARED]),  # of the same time there may be more
        (ALL.received(low_ns=at(150)), [OWN, SHARED]),
        (ALL.received(low_ns=at(150) + 1), []),
        (ALL.received(at(110), at(120)), [OWN, SHARED]),
        (ALL.destination("in", OWN), [OWN]),
        (ALL.destination("in", "/topic/a"), [SHARED]),
        (ALL.destination("pattern", "/topic/*"), [OWN, SHARED]),
        (ALL.destination("in", "/topic/none"), []),
        (ALL.destination("in", "/topic/a").received(low_ns=at(200)), []),
    ],
)
def test_a_gap_counts_if_it_may_contain_requested_records(
    store: tuple[str, str], selection: Selection, expected: Sequence[str]
) -> None:
    assert reported(store, selection) == list(expected)


def test_of_an_archive_alone_only_a_partition_of_one_name_is_known(store: tuple[str, str]) -> None:
    alone = (None, store[1])
    assert reported(alone, ALL.destination("in", OWN)) == [OWN, SHARED]
    assert reported(alone, ALL.destination("in", "/topic/none")) == [SHARED]
    assert reported(alone, ALL.destination("in", "/topic/none").received(low_ns=at(200))) == []


def test_a_name_that_only_a_gap_had_is_not_hidden_by_files_without_it(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data", 4096)
    writer.write("p", numbered("/topic/a", 100), 10)
    writer.write("p", numbered("/topic/once", 50, 100), 10)
    writer.write("p", numbered("/topic/a", 100, 150), 10)
    writer.close()
    archive(tmp_path / "archive", writer.root, {"p": 100})
    for path in sorted(Path(writer.root, "partitions", "p").glob("*.rlog"))[:-1]:
        path.unlink()
    there = writer.root, str(tmp_path / "archive")
    assert reported(there, ALL.destination("in", "/topic/once")) == ["p"]
    assert reported(there, ALL.destination("in", "/topic/never")) == []
    Path(writer.root, "partitions", "p", "names").unlink()
    assert reported(there, ALL.destination("in", "/topic/never")) == ["p"]  # then nobody knows


def test_files_that_list_no_names_may_have_any(tmp_path: Path, store: tuple[str, str]) -> None:
    archive(tmp_path / "archive", store[0], {SHARED: 100}, many=True)
    lose(tmp_path / "archive", Lost(SHARED, 17, 19, "damaged"))
    assert reported((store[0], str(tmp_path / "archive")), ALL.destination("in", "/topic/none")) == [SHARED]


# --- what queues were through with ------------------------------------------------------------------------------------

CONFIG = """
defaults: {segment: {size: 64KiB}, fsync: never}
destinations:
  - {match: /queue/both.*, partition: both}
  - {match: /*/mixed, partition: mixed, retention: {count: 10}}
"""
BODY = b"x" * 2000
QUEUES = ("/queue/jobs", "/queue/both.a", "/queue/both.b", "/queue/mixed")
COUNT = 200


def test_what_queues_were_through_with_is_reported_and_fails_nothing(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(CONFIG)
    data, to = str(broker.data), open_files(tmp_path / "archive")

    def starts() -> dict[str, int]:
        return {each.name: each.log_start_offset for each in list_partitions(data)}

    def send() -> None:
        for name in (*QUEUES, "/topic/mixed"):
            connection.send_many((name, BODY) for _ in range(COUNT))

    def gaps() -> tuple[str, str]:
        found = find_boundary(data, to, ALL)
        return "; ".join(found.settled), "; ".join(found.gaps)

    with connect(broker.address) as connection:
        send()
        run(data, to, Options(merge=False))
        ends = load(to).ends
        send()
        for name in QUEUES:
            with connection.subscribe(name, ack="client", prefetch=2 * COUNT) as messages:
                for _ in range(2 * COUNT):
                    message = messages.fetch(timeout=30)
                assert message is not None
                message.ack(receipt=True)
        deadline = time.monotonic() + 60
        while any(starts()[name] <= end for name, end in ends.items()):
            assert time.monotonic() < deadline, (starts(), ends)
            time.sleep(0.05)
        assert ends.keys() == {"/queue/jobs", "both", "mixed"}
    for _ in range(2):
        settled, lost = gaps()
        assert "'/queue/jobs'" in settled and "'both'" in settled and "their queues had settled them" in settled
        assert "'mixed'" in lost and "settled messages of a queue" in lost and "'both'" not in lost
        run(data, to, Options(merge=False))  # now the commits say so too
    assert {each.partition for each in load(to).lost} == ends.keys()
    broker.stop()
    for path in Path(data, "cursors").iterdir():
        path.unlink()  # who was through with what is not known any more
    settled, lost = gaps()
    assert not settled and "'/queue/jobs'" in lost


def test_what_a_log_that_the_archive_does_not_know_lacks_at_its_beginning_is_reported_and_fails_nothing(
    tmp_path: Path,
) -> None:
    writer = Writer(tmp_path / "data", 4096)
    writer.write("known", numbered("/topic/known", 200), per_batch=10)
    writer.write("new", numbered("/topic/new", 200), per_batch=10)
    writer.close()
    root, files = str(tmp_path / "data"), open_files(tmp_path / "archive")
    new = next(each for each in list_partitions(root) if each.name == "new")
    for each in new.segments[:2]:
        Path(each.path).unlink()
    start = new.segments[2].base_offset
    assert find_boundary(root, files, Selection()).settled == ()  # no archive yet, which could have had them
    run(root, files, Options(partitions=frozenset(["known"])))
    found = find_boundary(root, files, Selection())
    (text,) = found.settled
    assert text.startswith(f"partition 'new': offsets 0 to {start - 1}: they were removed before the first run")
    assert found.gaps == ()
    assert find_boundary(root, files, Selection().offsets(start, 1000)).settled == ()
    out = run(root, files, Options())
    assert (out.begins, out.problems) == ({"new": start}, {})
    assert find_boundary(root, files, Selection()).settled == ()
