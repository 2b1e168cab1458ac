"""The journal by itself: what is in it is found again, whole and in order; nothing else is ever taken for an entry."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from radiator import limits
from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.format import encode_batch
from radiator.storage.journal import format as journal_format
from radiator.storage.journal.format import CURSORS, FILE_HEADER_BYTES, Entry, EntryBuilder, FileHeader, decode_entry
from radiator.storage.journal.journal import AHEAD_BYTES_MIN, PROBE, Journal
from radiator.storage.journal.reading import JournalFiles, end_of
from tests.storage.driving import NOW
from tests.storage.faults import Crash, FaultyFileSystem
from tests.tiers import sampled

pytestmark = pytest.mark.usefixtures("both_speeds")

DIRECTORY = layout.journal_path("/data")
SALT = 0x1122_3344_5566_7788
FILE_BYTES = 1_000


def path(number: int) -> str:
    return layout.journal_file_path(DIRECTORY, number)


def file_system(seed: int = 0) -> FaultyFileSystem:
    """With salts that differ, as real ones do."""
    random = Random(seed)
    fs = FaultyFileSystem(random)
    fs.entropy = random.randbytes  # type: ignore[method-assign]
    fs.mkdir("/data")
    fs.sync_dir("/")
    return fs


def journal_of(fs: FaultyFileSystem, file_bytes: int = FILE_BYTES) -> Journal:
    """As a start has it."""
    files, journal = JournalFiles(fs, "/data"), Journal(fs, "/data", file_bytes=file_bytes)  # type: ignore[arg-type]
    for _ in files.entries():
        pass
    files.hand_over(journal, 1)
    return journal


def builder(body: bytes, offset: int = 0, partition: str = "q", acks: bytes = b"") -> EntryBuilder:
    entry = EntryBuilder()
    entry.add_batch(partition.encode(), encode_batch(offset, [NOW], None, None, [0], ["/t"], [b""], [body], salt=7))
    if acks:
        entry.add(CURSORS, acks)
    return entry


def body_of(entry: Entry) -> bytes:
    (part,) = entry.parts
    return bytes(part.data).rpartition(b"/t")[2].strip(b"\0")


def read(fs: FaultyFileSystem) -> tuple[dict[int, bytes], JournalFiles]:
    """Bodies by the numbers of their entries, which rise."""
    files = JournalFiles(fs, "/data")  # type: ignore[arg-type]
    entries = list(files.entries())
    numbers = [entry.number for entry in entries]
    assert numbers == sorted(set(numbers))
    return {entry.number: body_of(entry) for entry in entries}, files


def file_with(count: int, first: int = 1, number: int = 1) -> tuple[bytes, list[tuple[int, int]]]:
    """A file with so many entries, and where each of them stands."""
    pieces, places = [journal_format.encode_file_header(FileHeader(number, first, 1, SALT))], []
    at = FILE_HEADER_BYTES
    for entry_number in range(first, first + count):
        pieces.append(builder(b"%d" % entry_number).encode(entry_number, 1, SALT))
        places.append((at, at + len(pieces[-1])))
        at += len(pieces[-1])
    return b"".join(pieces), places


def stored(*files: tuple[int, bytes]) -> FaultyFileSystem:
    fs = file_system()
    fs.mkdir(DIRECTORY)
    for number, data in files:
        fd = fs.open(path(number), create=True)
        fs.pwritev(fd, [data], 0)
        fs.fdatasync(fd)
        fs.close(fd)
    fs.sync_dir("/data")
    fs.sync_dir(DIRECTORY)
    return fs


# --- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", sampled(range(30), 6))
def test_entries_are_read_as_they_were_written(seed: int) -> None:
    random = Random(seed)
    written, data = [], b""
    for number in range(1, 12):
        entry, batches, acks = EntryBuilder(), [], b""
        for name in random.sample(["q", "/queue/ä.ö", "x" * 240, "a b", "/topic/€"], random.randrange(4)):
            count, base = random.randrange(1, 5), random.randrange(1 << 40)
            blocks, bodies = [[random.randbytes(random.randrange(300)) for _ in range(count)] for _ in "ab"]
            pieces = encode_batch(base, [NOW] * count, None, None, [0] * count, ["/t"], blocks, bodies, salt=seed)
            entry.add_batch(name.encode(), pieces)
            batches.append((name, b"".join(pieces), base + count))
        if random.random() < 0.5:
            acks = random.randbytes(random.randrange(1, 100))
            entry.add(CURSORS, acks)
        encoded = entry.encode(number, seed, SALT)
        assert len(encoded) == entry.size_bytes and not len(encoded) & 7
        written.append((number, seed, batches, acks))
        data += encoded
    found, at = [], 0
    while (decoded := decode_entry(memoryview(data), at, SALT)) is not None:
        assert decoded.start == at
        for part in decoded.parts:
            assert data[part.position : part.position + len(part.data)] == part.data
        batches = [(part.partition, bytes(part.data), end_of(part)) for part in decoded.parts]
        found.append((decoded.number, decoded.epoch, batches, decoded.cursors))
        at = decoded.end
    assert found == written and at == len(data)


def test_an_entry_holds_only_in_its_own_file() -> None:
    data = memoryview(builder(b"x").encode(1, 1, SALT))
    assert decode_entry(data, 0, SALT) is not None
    assert decode_entry(data, 0, SALT + 1) is None and journal_format.find_entry(data, 0, 1, SALT + 1) is None


@pytest.mark.parametrize("behind", ["nothing", "zeros", "the file before"])
def test_a_torn_entry_is_never_taken_for_whole(behind: str) -> None:
    data, places = file_with(3)
    used_before = file_with(8, first=1, number=9)[0].replace(SALT.to_bytes(8, "little"), bytes(7) + b"\1")
    for cut in range(FILE_HEADER_BYTES, len(data)):
        rest = {"nothing": b"", "zeros": bytes(len(data)), "the file before": used_before[cut:]}[behind]
        torn = data[:cut] + rest
        found, files = read(stored((1, torn)))
        whole = [place + 1 for place, (_, end) in enumerate(places) if torn[:end] == data[:end]]
        assert found == {number: b"%d" % number for number in whole}
        assert not files.notes() and files.next_entry == len(found) + 1


def test_any_flipped_bit_costs_its_entry_which_is_reported_and_no_other() -> None:
    data, places = file_with(4)
    whole = {number: b"%d" % number for number in range(1, 5)}
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            found, files = read(stored((1, bytes(changed))))
            notes = [note.text for note in files.notes()]
            hit = [place + 1 for place, (start, end) in enumerate(places) if start <= at < end]
            if at < 44:  # the end of the header's crc
                assert found == {} and notes == ["not a file of this journal; skipped"]
            elif found == whole:
                assert not notes and (at < FILE_HEADER_BYTES or not data[at]), "only padding has no crc"
            else:
                assert found == {number: body for number, body in whole.items() if number not in hit}
                # Nobody can tell damage of the last one from a write that the power has cut short.
                assert notes == [
                    f"entries {number} to {number} are damaged or missing; later entries are kept"
                    for number in hit
                    if number < 4
                ]


@pytest.mark.parametrize("seed", sampled(range(40), 8))
def test_damage_of_any_kind_loses_only_what_it_hits_and_makes_nothing_up(seed: int) -> None:
    random = Random(seed)
    made = [file_with(random.randrange(1, 30), 1, 1)]
    made.append(file_with(random.randrange(1, 30), 1 + len(made[0][1]), 2))
    files, lost, number = [], set(), 0
    for place, (data, places) in enumerate(made):
        changed = bytearray(data)
        for _ in range(random.randrange(3)):
            at = random.randrange(FILE_HEADER_BYTES, len(data))
            end = min(len(data), at + random.randrange(1, 400))
            changed[at:end] = random.choice([random.randbytes(end - at), bytes(end - at), bytes([changed[at] ^ 1])])[
                : end - at
            ].ljust(end - at, b"\1")
            lost |= {number + each + 1 for each, (first, last) in enumerate(places) if first < end and at < last}
        number += len(places)
        files.append((place + 1, bytes(changed)))
    found, reading = read(stored(*files))
    every = {each: b"%d" % each for each in range(1, number + 1)}
    assert found.items() <= every.items() and found.keys() >= every.keys() - lost
    missing = every.keys() - found.keys()
    reported = {each for gap in reading.gaps for each in range(gap.first, gap.last + 1)}
    assert reported == {each for each in missing if each < max(found, default=0) or each <= len(made[0][1])}


# --- files ------------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_over_many_files_and_starts() -> None:
    fs = file_system()
    journal, expected = journal_of(fs), {}
    for number in range(1, 60):
        if not number % 13:
            journal.sync()
            journal.close()
            fs.kill()
            journal = journal_of(fs)
        assert journal.next_entry == number
        journal.write(builder(b"%d" % number))
        expected[number] = b"%d" % number
        found, files = read(fs)
        assert found == expected and not files.notes()
    assert len(fs.listdir(DIRECTORY)) > 5 and journal.wants_checkpoint


def test_an_entry_that_is_larger_than_a_file_has_one_of_its_own() -> None:
    fs = file_system()
    journal = journal_of(fs)
    for body in (b"a", b"b" * 3 * FILE_BYTES, b"c"):
        journal.write(builder(body))
    assert journal.file_number == 3
    assert read(fs)[0] == {1: b"a", 2: b"b" * 3 * FILE_BYTES, 3: b"c"}


def test_one_sync_covers_everything_that_was_written_before() -> None:
    fs = file_system()
    journal = journal_of(fs)
    for number in range(1, 12):
        journal.write(builder(b"%d" % number))
    assert journal.file_number > 1
    journal.sync()
    before = fs.calls["fdatasync"]
    journal.sync()
    assert fs.calls["fdatasync"] == before, "there is nothing more"
    journal.write(builder(b"12"))
    journal.sync()
    assert fs.calls["fdatasync"] == before + 1
    fs.power_cut()
    found, files = read(fs)
    assert found == {number: b"%d" % number for number in range(1, 13)} and not files.notes()


@pytest.mark.parametrize("alike", [False, True])
def test_a_file_that_is_used_again_does_not_bring_old_entries_back(alike: bool) -> None:
    fs = file_system()
    if alike:  # should the salts be the same, the numbers tell
        fs.entropy = bytes  # type: ignore[method-assign]
    journal = journal_of(fs)
    random, first_needed, numbers = Random(1), 1, []
    nodes = {}
    for number in range(1, 200):
        nodes.update({id(node): node for node in fs.nodes.values()})
        if not number % 7:
            first_needed = journal.begin_file()
            found, files = read(fs)
            assert not files.notes() and set(found) == set(range(numbers[0] if numbers else 1, number))
            journal.release(first_needed)
            numbers = []
        journal.write(builder(b"%d" % number + b"." * random.randrange(60)))
        numbers.append(number)
        found, files = read(fs)
        assert not files.notes() and max(found) == number and set(found) >= set(numbers)
        assert all(body.rstrip(b".") == b"%d" % each for each, body in found.items())
    assert journal.file_number - len(nodes) > 10, "used again"


@pytest.mark.parametrize("seed", sampled(range(20), 4))
def test_nothing_grows_without_bound(seed: int) -> None:
    fs = file_system(seed)
    journal, random, largest = journal_of(fs), Random(seed), 0
    for number in range(1, 400):
        journal.write(builder(b"%d" % number * random.randrange(1, 100)))
        if random.random() < 0.5:
            journal.sync()
        if random.random() < 0.05:
            fs.fail("fdatasync")
            first, number_before = journal.next_entry, journal.next_entry
            entry = builder(b"refused")
            journal.write(entry)
            with pytest.raises(StorageError):
                journal.sync()
            journal.take_back(first, journal.position - entry.size_bytes)
            assert journal.next_entry == number_before
        if journal.wants_checkpoint and random.random() < 0.5:
            journal.release(journal.begin_file())
            journal.wants_checkpoint = False
            assert journal.bytes == FILE_HEADER_BYTES
            assert len(fs.listdir(DIRECTORY)) <= 2, "the last, and one to be used again"
            assert len(fs.descriptors) == 1
        assert journal.bytes >= FILE_HEADER_BYTES
        largest = max(largest, *(len(node.cache) for node in fs.nodes.values()))
    assert largest <= 2 * FILE_BYTES + len(PROBE)
    journal.clear()
    assert not fs.listdir(DIRECTORY) and not fs.descriptors


def test_files_of_which_something_is_needed_stay() -> None:
    fs = file_system()
    journal = journal_of(fs)
    for number in range(1, 6):
        journal.write(builder(b"%d" % number))
    first_needed = journal.begin_file()
    for number in range(6, 40):
        journal.write(builder(b"%d" % number))
    journal.release(first_needed)
    assert journal.bytes > FILE_BYTES
    assert read(fs)[0].items() >= {number: b"%d" % number for number in range(6, 40)}.items()
    before = journal.bytes
    journal.release(first_needed)
    assert journal.bytes == before


def test_a_start_releases_nothing_before_a_checkpoint_and_forgets_no_file() -> None:
    fs = file_system()
    journal = journal_of(fs)
    for number in range(1, 20):
        journal.write(builder(b"%d" % number))
    journal.sync()
    fs.kill()
    journal = journal_of(fs)
    assert journal.wants_checkpoint and journal.doubtful and journal.bytes > FILE_BYTES
    journal.write(builder(b"20"))
    assert set(read(fs)[0]) == set(range(1, 21))
    journal.release(journal.begin_file())
    assert not journal.doubtful and journal.bytes == FILE_HEADER_BYTES and len(fs.listdir(DIRECTORY)) == 2


# --- failures ---------------------------------------------------------------------------------------------------------


def refused(fs: FaultyFileSystem, journal: Journal, verb: str = "fdatasync", times: int = 1) -> None:
    """An entry whose sync fails."""
    number, entry = journal.next_entry, builder(b"refused")
    journal.write(entry)
    fs.fail(verb, times=times)
    with pytest.raises(StorageError):
        journal.sync()
    journal.take_back(number, journal.position - entry.size_bytes)


@pytest.mark.parametrize("end", ["kill", "power"])
@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("seed", sampled(range(10), 2))
def test_what_was_refused_by_a_failed_sync_is_void_once_another_file_begins(seed: int, synced: bool, end: str) -> None:
    fs = file_system(seed)
    journal = journal_of(fs)
    journal.write(builder(b"1"))
    journal.sync()
    refused(fs, journal)
    journal.write(builder(b"2"))
    if synced:
        journal.sync()
    (fs.kill if end == "kill" else fs.power_cut)()
    found, files = read(fs)
    expected = {1: b"1", 2: b"2"}
    assert found == expected or (end == "power" and not synced and found == {1: b"1"})
    assert not files.notes()


@pytest.mark.parametrize("seed", sampled(range(40), 8))
def test_a_file_is_let_go_before_the_one_that_voids_its_last_entries(seed: int) -> None:
    fs = file_system(seed)
    journal = journal_of(fs)
    refused(fs, journal, "sync_dir")  # it is on the disk all the same
    for body in (b"1", b"2"):
        journal.write(builder(body))
        journal.sync()
        journal.begin_file()
    journal.release(journal.file_number)
    journal.write(builder(b"3"))
    journal.begin_file()
    fs.power_cut()
    assert b"refused" not in read(fs)[0].values()


def test_a_sync_that_failed_is_not_made_good_by_one_that_succeeds() -> None:
    fs = file_system()
    journal = journal_of(fs)
    journal.write(builder(b"1"))  # for an interval: nobody has asked for a sync
    refused(fs, journal)
    assert journal.doubtful
    touched = []
    pwritev, fdatasync = fs.pwritev, fs.fdatasync

    def recorded(fd: int, *rest: Any) -> int:
        touched.append(fs.descriptors[fd][0])
        return pwritev(fd, *rest)

    def recorded_sync(fd: int) -> None:
        touched.append(fs.descriptors[fd][0])
        fdatasync(fd)

    fs.pwritev, fs.fdatasync = recorded, recorded_sync  # type: ignore[method-assign]
    journal.write(builder(b"2"))
    journal.sync()
    assert journal.doubtful, "a checkpoint makes sure of what stands in the first"
    assert path(1) not in touched
    assert len([fd for fd, (name, _) in fs.descriptors.items() if name == path(1)]) == 0
    journal.release(journal.begin_file())
    assert not journal.doubtful


@pytest.mark.parametrize("seed", sampled(range(10), 3))
def test_a_start_does_not_trust_what_the_kernel_holds(seed: int) -> None:
    """The sync fails, and SIGKILL comes before the broker can do anything about it. The disk is full ever since."""
    fs = file_system(seed)
    journal = journal_of(fs, file_bytes=2 << 20)
    for body in (b"1", Random(seed).randbytes(1_300_000), b"3"):
        journal.write(builder(body))
    fs.fail("fdatasync")
    fs.crash_at(2)  # whatever would follow
    with pytest.raises((Crash, StorageError)):
        journal.sync()
    fs.kill()
    fs.fill()
    fs.short_writes = seed % 2 == 1
    before, files = read(fs)
    assert list(before) == [1, 2, 3]
    files.sync()
    fs.sync_dir("/data")  # as a start does with all directories
    fs.power_cut()
    assert read(fs)[0] == before


def test_an_entry_whose_padding_found_no_room_is_written_again() -> None:
    entry = EntryBuilder()
    entry.add(CURSORS, b"odd one")
    data = journal_format.encode_file_header(FileHeader(1, 1, 1, SALT)) + entry.encode(1, 1, SALT)
    fs = stored((1, data[:-1]))
    files = JournalFiles(fs, "/data")  # type: ignore[arg-type]
    (found,) = files.entries()
    assert found.cursors == b"odd one" and found.end == len(data)
    files.sync()
    assert bytes(fs.nodes[path(1)].cache) == data[:-1]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("verb", ["pwritev", "open", "mkdir", "fdatasync", "sync_dir"])
@pytest.mark.parametrize("seed", sampled(range(12), 2))
def test_whatever_fails_what_was_promised_is_there_and_what_was_refused_is_not(
    seed: int, verb: str, error: int
) -> None:
    random = Random(seed)
    fs = file_system(seed)
    journal = journal_of(fs)
    written: dict[int, bytes] = {}  # promised to outlive the process
    synced: dict[int, bytes] = {}  # and the machine
    doubtful: set[int] = set()
    failures = 0
    for step in range(120):
        if random.random() < 0.15:
            fs.fail(verb, random.randrange(1, 3), error)
        number, body = journal.next_entry, b"%d." % step
        entry = builder(body)
        needs_sync = random.random() < 0.4
        try:
            journal.write(entry)
            if needs_sync:
                journal.sync()
        except StorageError:
            failures += 1
            if journal.next_entry > number:
                journal.take_back(number, journal.position - entry.size_bytes)
                doubtful |= written.keys() - synced.keys()
        else:
            written[number] = body
            if needs_sync:
                synced = {each: text for each, text in written.items() if each not in doubtful}
        if random.random() < 0.05:
            try:
                journal.begin_file()
            except StorageError:
                failures += 1
    assert failures > 2
    fs.heal()
    journal.write(builder(b"last"))
    written[journal.next_entry - 1] = b"last"
    assert read(fs)[0] == written
    fs.power_cut()
    found, _ = read(fs)
    assert found.items() <= written.items() and found.items() >= synced.items()


ROOMS = [*range(0, 400, 8), *range(AHEAD_BYTES_MIN, AHEAD_BYTES_MIN + 400, 8)]


@pytest.mark.parametrize("file_bytes", [FILE_BYTES, 1 << 20])
@pytest.mark.parametrize("room", sampled(ROOMS, 25))
def test_wherever_the_disk_is_full_the_journal_goes_on_when_there_is_room(room: int, file_bytes: int) -> None:
    fs = file_system(room)
    journal, expected = journal_of(fs, file_bytes), {}
    if room % 3:
        journal.write(builder(b"before"))
        journal.sync()
        expected[1] = b"before"
    fs.fill(room)
    refused_count = 0
    for number in range(30):
        body = b"%d" % number * (1 + number % 5)
        try:
            journal.write(builder(body))
        except StorageError as error:
            refused_count += 1
            assert "No space left" in str(error) and journal.failed is error
        else:
            expected[journal.next_entry - 1] = body
        assert read(fs)[0] == expected
    fs.capacity = None
    journal.begin_file()
    assert journal.failed is None
    journal.write(builder(b"after"))
    expected[journal.next_entry - 1] = b"after"
    journal.sync()
    assert refused_count or room >= AHEAD_BYTES_MIN or room % 3
    fs.power_cut()
    found, files = read(fs)
    assert found == expected and not files.notes()


def test_a_write_that_fails_leaves_what_was_written_before_to_the_next_sync() -> None:
    fs = file_system()
    journal = journal_of(fs)
    journal.write(builder(b"1"))
    fs.fail("pwritev")
    with pytest.raises(StorageError):
        journal.write(builder(b"refused"))
    journal.write(builder(b"2"))
    journal.sync()
    fs.power_cut()
    found, files = read(fs)
    assert found == {1: b"1", 2: b"2"} and not files.notes()


@pytest.mark.parametrize("verb", ["fdatasync", "sync_dir"])
def test_a_file_that_could_not_begin_voids_nothing(verb: str) -> None:
    """Its header may be there all the same."""
    fs = file_system()
    journal = journal_of(fs)
    journal.write(builder(b"1"))
    journal.sync()
    if verb == "sync_dir":
        fs.fail(verb)
    refused(fs, journal, times=2 if verb == "fdatasync" else 1)
    assert not any(fs._faults.values()), "both have failed"
    journal.write(builder(b"2"))
    journal.write(builder(b"3"))
    journal.sync()
    fs.power_cut()
    found, files = read(fs)
    assert found == {1: b"1", 2: b"2", 3: b"3"} and not files.notes()


# --- what others do to the files --------------------------------------------------------------------------------------


def three_files() -> tuple[FaultyFileSystem, list[set[int]]]:
    """Entries 1 to 15, and which of them each file has."""
    made = [file_with(5, first, number) for number, first in ((1, 1), (2, 6), (3, 11))]
    fs = stored(*[(place + 1, data) for place, (data, _) in enumerate(made)])
    return fs, [set(range(first, first + 5)) for first in (1, 6, 11)]


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_a_file_that_was_deleted_costs_its_entries_and_is_reported_where_others_follow(gone: int) -> None:
    fs, entries = three_files()
    fs.remove(path(gone))
    found, files = read(fs)
    assert set(found) == set(range(1, 16)) - entries[gone - 1]
    assert len(files.notes()) == (gone == 2), "before the first and behind the last there may have been none"
    assert files.next_entry == (11 if gone == 3 else 16)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("size", [0, 10, 63, 64, 65, 200, 400])
def test_a_file_that_was_cut_costs_what_is_behind(number: int, size: int) -> None:
    fs, entries = three_files()
    _, places = file_with(5)
    fs.truncate(fs.open(path(number)), size)
    found, files = read(fs)
    kept = [each for each, (_, end) in zip(sorted(entries[number - 1]), places, strict=True) if end <= size]
    assert set(found) == set(range(1, 16)) - entries[number - 1] | set(kept)
    reported = {each for gap in files.gaps for each in range(gap.first, gap.last + 1)}
    lost = set(range(1, 16)) - set(found)
    if size < FILE_HEADER_BYTES:
        assert path(number) in [note.path for note in files.notes()] or not size
        assert reported == (lost if number == 2 else set())
    else:
        assert reported == (set() if number == 3 else lost), "behind the last the power may have failed"


@pytest.mark.parametrize("pair", [(1, 2), (2, 3), (1, 3)])
def test_files_that_have_changed_places_are_passed_over_and_reported(pair: tuple[int, int]) -> None:
    fs, entries = three_files()
    first, second = map(path, pair)
    fs.nodes[first], fs.nodes[second] = fs.nodes[second], fs.nodes[first]
    found, files = read(fs)
    (other,) = {1, 2, 3} - {*pair}
    assert set(found) == entries[other - 1]
    assert files.notes()
    journal = journal_of(fs)
    journal.write(builder(b"goes on"))
    assert set(read(fs)[0]) >= entries[other - 1] and journal.file_number == 4


def test_a_file_under_the_name_of_a_later_one_is_not_read_twice() -> None:
    fs, entries = three_files()
    fs.nodes[path(7)] = fs.nodes[path(2)]
    found, files = read(fs)
    assert set(found) == set().union(*entries)
    assert [note.path for note in files.notes()] == [path(7)]


def test_files_with_other_names_are_none_of_ours() -> None:
    fs, entries = three_files()
    for name in ("note.txt", "1.rjl", "0000000002.rjl.bak", "00000000x2.rjl", "00000000002.rjl"):
        fs.nodes[f"{DIRECTORY}/{name}"] = fs.nodes[path(1)]
    found, files = read(fs)
    assert set(found) == set().union(*entries) and not files.notes()


def test_a_file_with_a_number_far_ahead_costs_no_time() -> None:
    fs, _ = three_files()
    fs.nodes[path(10**9)] = fs.nodes.pop(path(3))
    journal = journal_of(fs)
    journal.write(builder(b"goes on"))
    journal.release(journal.begin_file())
    assert len(fs.listdir(DIRECTORY)) == 2
    journal.clear()
    assert not fs.listdir(DIRECTORY)


def test_a_file_that_is_deleted_beside_a_running_journal_is_not_written_any_more() -> None:
    fs = file_system()
    journal = journal_of(fs)
    journal.write(builder(b"1"))
    fs.remove(path(1))
    with pytest.raises(StorageError):
        journal.write(builder(b"refused"))
    journal.write(builder(b"2"))
    journal.sync()
    fs.power_cut()
    assert read(fs)[0] == {2: b"2"}


def test_a_directory_without_a_journal_is_empty() -> None:
    fs = file_system()
    files = JournalFiles(fs, "/data")  # type: ignore[arg-type]
    assert not files and list(files.entries()) == [] and not files.notes() and files.next_entry == 1


def test_batches_are_found_by_log_and_offset() -> None:
    fs = file_system()
    journal = journal_of(fs)
    for offset in range(20):
        for name in "ab":
            journal.write(builder(b"%s%d" % (name.encode(), offset), offset, name))
    files = JournalFiles(fs, "/data")  # type: ignore[arg-type]
    assert files.has("a", 3, 20) and not files.has("a", 3, 21) and not files.has("c", 0, 1) and files.has("c", 5, 5)
    for start, end in ((0, 20), (3, 7), (19, 30), (20, 30), (5, 5)):
        bodies = [data.rpartition(b"/t")[2].strip(b"\0") for data in files.batches("b", start, end)]
        assert bodies == [b"b%d" % offset for offset in range(start, min(end, 20))]


def only_acks() -> EntryBuilder:
    entry = EntryBuilder()
    entry.add(CURSORS, b"acks")
    return entry


def test_entries_without_messages_count_as_batches_and_have_room_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start takes as long for each; on a full disk, where no file can be begun, they go on all the same."""
    monkeypatch.setattr(limits, "JOURNAL_FILE_BATCHES", 5)
    fs = FaultyFileSystem()
    journal = journal_of(fs, 64 << 20)
    for _ in range(5):
        journal.write(only_acks())
    journal.write(builder(b"in the next file"))
    assert journal.file_number == 2
    for number in range(4):
        journal.write(builder(b"%d" % number))
    fs.capacity = sum(len(node.cache) for node in fs.nodes.values())
    with pytest.raises(StorageError, match="No space left"):
        journal.write(builder(b"no room"))
    for _ in range(1_000):
        journal.write(only_acks())
    assert journal.file_number == 2 and len(list(JournalFiles(fs, "/data").entries())) == 5 + 5 + 1_000  # type: ignore[arg-type]
