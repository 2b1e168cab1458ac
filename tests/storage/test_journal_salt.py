"""A message may hold whole entries of the journal. None of them is ever taken for one, whatever is torn or damaged."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from radiator.storage import layout
from radiator.storage.format import encode_batch
from radiator.storage.journal import format as journal_format
from radiator.storage.journal.format import EntryBuilder
from radiator.storage.journal.reading import JournalFiles
from tests.storage.driving import ALWAYS, NOW, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem

FILE = layout.journal_file_path(layout.journal_path("/data"), 1)
PAGE = 4_096


def forged(number: int) -> bytes:
    """An entry with a message to a log of others, at every alignment, as a client would make it."""
    builder = EntryBuilder()
    batch = encode_batch(0, [NOW], None, None, [0], ["of-others"], [b""], [b"forged"], salt=1)
    builder.add_batch(b"of-others", batch)
    data = builder.encode(number, 1, 0)
    return b"".join(b"".ljust(shift) + data.ljust(PAGE, b".") for shift in range(8))


def test_a_forged_entry_holds_but_for_the_salt() -> None:
    data = memoryview(forged(7))
    assert journal_format.decode_entry(data, 0, 0) is not None
    assert journal_format.find_entry(data, 0, 1, 0) is not None


@pytest.mark.parametrize("seed", range(20))
def test_what_a_torn_or_damaged_message_holds_is_no_entry(seed: int) -> None:
    random = Random(seed)
    fs = FaultyFileSystem(random)
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    put(log, b"one")
    commit(store)
    position = store.journal.position
    put(log, b"".join(map(forged, range(1, 9))))
    commit(store)
    place = random.randrange(position, store.journal.position - 10 * PAGE)
    fs.nodes[FILE].cache[place : place + 16] = bytes(16)
    assert [entry.number for entry in JournalFiles(fs, "/data").entries()] == [1]  # type: ignore[arg-type]
    fs.kill()
    store, _ = opened(fs)
    assert store.partitions.keys() == {"q"} and read_all(store.partitions["q"])[0] == b"one"


def test_each_file_has_a_salt_of_its_own(tmp_path: Path) -> None:
    store, _ = opened(root=str(tmp_path), journal_file_bytes=1_000)
    log = store.partition("q", ALWAYS)
    for _ in range(8):
        put(log, b"x" * 500)
        commit(store)
    headers = [journal_format.decode_file_header(path.read_bytes()) for path in (tmp_path / layout.JOURNAL).iterdir()]
    store.close()
    salts = {header.salt for header in headers if header is not None}
    assert len(salts) == len(headers) > 2 and 0 not in salts


def test_looking_for_a_way_on_costs_no_more_than_reading_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    put(log, b"one")
    commit(store)
    position = store.journal.position
    beginning = forged(7)[: journal_format.ENTRY_HEADER_BYTES]
    put(log, beginning * 20_000)  # each would have to be checked, up to the end of the file
    commit(store)
    fs.nodes[FILE].cache[position] ^= 1
    looked_at = []
    decode_entry = journal_format.decode_entry

    def counted(data: memoryview, at: int, salt: int) -> journal_format.Entry | None:
        looked_at.append(at)
        return decode_entry(data, at, salt)

    monkeypatch.setattr(journal_format, "decode_entry", counted)
    assert [entry.number for entry in JournalFiles(fs, "/data").entries()] == [1]  # type: ignore[arg-type]
    assert len(looked_at) < 3
