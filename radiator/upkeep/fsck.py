"""Check a data directory against ``docs/storage-format.md``. It writes nothing and takes no lock.

    offline                  every byte is checked, also what lies behind ``head``
    beside a running broker  each partition is checked up to its ``head``. What changes meanwhile (segments removed by
                             retention, or replaced) is not damage: a partition with findings is checked again, and
                             only what is found twice counts

Knows which files a store has and how segments join, but not batches (``check_segment``) or repair (``repair``). The
only state is that of the run: any thread, any process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest

from radiator import limits
from radiator.clock import rfc3339
from radiator.errors import StorageError
from radiator.storage import index, layout, names, salt
from radiator.storage.files import FileSystem, opened, read_file, read_fully
from radiator.storage.index import IndexEntry
from radiator.storage.journal.reading import JournalFiles
from radiator.storage.reader import UNREADABLE, read_head
from radiator.storage.segment import Window, locate_time
from radiator.upkeep import check_files
from radiator.upkeep.check_segment import CHUNK_BYTES, Committed, Walk
from radiator.upkeep.findings import Finding, SegmentCheck, span

LEFTOVERS = (".tmp", ".new")
RECHECK_SECONDS = (0.05, 0.2, 0.5)  # pauses before further looks at a partition of a running broker
ROOT_FILES = {
    layout.LOCK,
    layout.SALT,
    layout.TRANSACTIONS,
    layout.SUBSCRIPTIONS,
    layout.LAST_RULES,
    layout.MIRROR,
    layout.REMOVALS,
}
ROOT_DIRECTORIES = {
    layout.JOURNAL,
    layout.PARTITIONS,
    layout.CURSORS,
    layout.QUARANTINE,
    layout.SCHEMAS,
    layout.REMOVED,
}
PARTITION_FILES = {layout.HEAD, layout.NAMES, layout.DEDUP, layout.ARCHIVED}


class NoSuchStore(StorageError):
    """There is no store, or no partition of that name."""


@dataclass(slots=True)
class Counts:
    """How much a run has checked."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0


@dataclass(slots=True)
class PartitionCheck:
    """What is known of a partition once all of it has been read."""

    name: str
    directory: str
    first_offset: int = 0
    next_offset: int = 0
    end_offset: int = 0  # with what only the journal has
    findings: list[Finding] = field(default_factory=list)
    segments: list[SegmentCheck] = field(default_factory=list)
    destinations: set[str] = field(default_factory=set)
    first_late: int | None = None  # the first offset with a receive time later than is allowed


class Fsck:
    """One check of a store.

    Args:
        root: The data directory.
        fs: The file system.
        on_bytes: Called with how many bytes have been read since the last call.
        live: Whether a broker is running; None to find out.
        latest_ns: The latest receive time that is not reported; None to report none.
    """

    def __init__(
        self,
        root: str,
        fs: FileSystem | None = None,
        on_bytes: Callable[[int], None] | None = None,
        live: bool | None = None,
        latest_ns: int | None = None,
    ) -> None:
        self.root = root
        self.latest_ns = latest_ns
        self.fs = fs or FileSystem()
        self.counts = Counts()
        self.live = self.fs.is_locked(root) if live is None else live
        self.checked: list[PartitionCheck] = []
        self._on_bytes = on_bytes or (lambda count: None)

    def total_bytes(self, only: set[str] | None = None) -> int:
        """Return about how many bytes there are to read."""
        total = 0
        for _, directory in self._partitions(only):
            for file in self.fs.listdir(directory):
                facts = self.fs.stat(f"{directory}/{file}") if layout.segment_base(file) is not None else None
                total += facts.size if facts is not None else 0
        return total

    def run(self, only: set[str] | None = None) -> Iterator[Finding]:
        """Check the store and yield what is found.

        Args:
            only: Names of the partitions to check; None to check everything.

        Raises:
            NoSuchStore: This is no store, or it has no partition of such a name.
        """
        listed = self.fs.listdir(self.root)
        if layout.PARTITIONS not in listed and layout.LOCK not in listed:
            raise NoSuchStore(f"{self.root}: no radiator store here; expected the data_dir of a broker")
        if only is None:
            yield from self._root(listed)
        for name, directory in self._partitions(only):
            found = self._partition(name, directory)
            self.checked.append(found)
            self.counts.partitions += 1
            self.counts.segments += len(found.segments)
            self.counts.batches += sum(segment.batches for segment in found.segments)
            self.counts.records += sum(segment.records for segment in found.segments)
            self.counts.bytes += sum(segment.position for segment in found.segments)
            yield from found.findings
        if only is None:
            logs = {each.name: (each.first_offset, each.end_offset) for each in self.checked}
            if not self.live:
                logs |= {name: (0, end) for name, end in self._journal_ends.items() if name not in logs}
                yield from check_files.transactions(self.fs, self.root)
                yield from check_files.journal(self.fs, self.root)
            yield from check_files.definition_files(self.fs, self.root)
            try:
                yield from check_files.cursors(self.fs, self.root, None if self.live else logs)
            except OSError as error:
                yield _unreadable(layout.cursors_path(self.root), error)

    def _partitions(self, only: set[str] | None) -> list[tuple[str, str]]:
        """Return name and directory of the partitions to check."""
        root, found = layout.partitions_path(self.root), []
        for encoded in self.fs.listdir(root):
            facts = self.fs.stat(f"{root}/{encoded}")
            if facts is None or not facts.is_dir:
                continue
            try:
                name = layout.decode_name(encoded)
            except ValueError:
                continue
            if only is None or name in only or encoded in only:
                found.append((name, f"{root}/{encoded}"))
        known = {name for pair in found for name in (pair[0], pair[1].rpartition("/")[2])}
        for missing in sorted((only or set()) - known):
            raise NoSuchStore(f"{self.root}: no partition {missing!r} here; `radiator ls` lists them")
        return found

    # --- other files --------------------------------------------------------------------------------------------------

    def _root(self, listed: list[str]) -> Iterator[Finding]:
        yield from self._mode(self.root)
        key = read_file(self.fs, layout.salt_path(self.root))
        if salt.decode_key(key) is None:
            text = "missing" if key is None else "damaged"
            why = "a new key is created; the first header of a segment identifies batches with the old key"
            yield Finding("key", layout.salt_path(self.root), f"{text}; {why}", 0, len(key or b""))
        files = ROOT_FILES if layout.LOCK in listed else ROOT_FILES | {layout.MANIFEST}  # a backup has no lock
        yield from self._listed(self.root, listed, files, ROOT_DIRECTORIES)
        journal = layout.journal_path(self.root)
        names = self.fs.listdir(journal)
        yield from self._listed(journal, names, {n for n in names if layout.journal_file_number(n) is not None}, set())
        root = layout.partitions_path(self.root)
        for encoded in self.fs.listdir(root):
            facts = self.fs.stat(f"{root}/{encoded}")
            try:
                if facts is not None and facts.is_dir and layout.decode_name(encoded):
                    continue
            except ValueError:
                pass
            if facts is not None:
                yield Finding("foreign", f"{root}/{encoded}", "not a partition; ignored")

    def _listed(self, directory: str, listed: list[str], files: set[str], directories: set[str]) -> Iterator[Finding]:
        """Yield too open modes of files that belong here, and files that do not."""
        for name in listed:
            path = f"{directory}/{name}"
            facts = self.fs.stat(path)
            if facts is None:
                continue
            if (facts.is_file and name in files) or (facts.is_dir and name in directories):
                yield from self._mode(path)
            elif facts.is_file and name.endswith(LEFTOVERS):
                if not self.live:
                    yield Finding("leftover", path, "an unfinished temporary file", 0, facts.size)
            else:
                yield Finding("foreign", path, "not of this store; ignored")

    def _mode(self, path: str) -> Iterator[Finding]:
        facts = self.fs.stat(path)
        if facts is not None and facts.mode & 0o077:
            wanted = layout.DIRECTORY_MODE if facts.is_dir else layout.FILE_MODE
            yield Finding("mode", path, f"mode {facts.mode:04o}, expected no more than {wanted:04o}")

    # --- a partition --------------------------------------------------------------------------------------------------

    def _partition(self, name: str, directory: str) -> PartitionCheck:
        """Check a partition.

        Beside a running broker it is checked again until nothing is found, or the same twice.
        """
        found = self._check_once(name, directory)
        for pause in RECHECK_SECONDS if self.live else ():
            before = set(found.findings)
            if not before:
                break
            time.sleep(pause)  # the index of a renamed segment is written a moment later
            found = self._check_once(name, directory)
            found.findings = [each for each in found.findings if each in before]
        return found

    def _check_once(self, name: str, directory: str) -> PartitionCheck:
        found = PartitionCheck(name, directory)
        try:
            self._examine(found, directory)
        except OSError as error:
            found.findings.append(_unreadable(directory, error))
        return found

    def _examine(self, found: PartitionCheck, directory: str) -> None:
        fs = self.fs
        head, raw = read_head(fs, directory)  # before the directory, so that the files it names are listed
        listed = fs.listdir(directory)
        bases = sorted(base for base in map(layout.segment_base, listed) if base is not None)
        found.findings += self._unexpected_files(directory, listed, bases)
        head = self._committed_end(found, head, raw, bases)
        found.next_offset = head.next_offset if head is not None else 0
        if not bases and head is not None and head.next_offset:
            text = "all segments are missing; their offsets are not reused"
            found.findings.append(Finding("gap", directory, text, None, None, 0, head.next_offset - 1))
        if self.live and head is not None:
            bases = [base for base in bases if base <= head.segment_base]
        self._segments(found, bases, head)
        found.first_offset = bases[0] if bases else found.next_offset
        found.destinations = set().union(*(segment.names for segment in found.segments))
        if not self.live:
            self._take_from_journal(found, bases)
        self._names(found)
        self._future(found)
        found.end_offset = max(found.next_offset, 0 if self.live else self._journal_ends.get(found.name, 0))
        found.findings += check_files.run(fs, directory, found.end_offset, self.live, self.latest_ns)

    @cached_property
    def _journal(self) -> JournalFiles:
        """The journal. Not for use beside a running broker, which renames and removes its files."""
        return JournalFiles(self.fs, self.root)

    @cached_property
    def _journal_ends(self) -> dict[str, int]:
        return self._journal.ends()

    def _take_from_journal(self, found: PartitionCheck, bases: list[int]) -> None:
        """Replace a finding that offsets are lost by a note, if the journal has all of them.

        A start makes up only what the last segment lacks: at its end, and where there is room for it.
        """
        journal, name = self._journal, found.name
        for place, finding in enumerate(found.findings):
            first, last = finding.first_offset, finding.last_offset
            if finding.kind not in ("gap", "damaged") or first is None or last is None:
                continue
            room = (finding.end or 0) - (finding.start or 0)
            fits = last + 1 == found.next_offset or journal.size(name, first, last + 1) <= room
            if first >= max(bases, default=0) and fits and journal.has(name, first, last + 1):
                text = f"{span(first, last + 1)}: only the journal has them, and the next start writes them"
                found.findings[place] = Finding("decided", finding.path, text, None, None, first, last)
                found.first_offset = min(found.first_offset, first)

    def _committed_end(
        self, found: PartitionCheck, head: layout.Head | None, raw: bytes | None, bases: list[int]
    ) -> layout.Head | None:
        """Return where the committed part of a log ends; None, with a finding, if that is unknown."""
        if head is None:
            if raw is None or not layout.nothing_committed(raw) or len(bases) > 1:
                self._no_head(found, raw, bases)
                return None
            base = bases[0] if bases else 0
            return layout.Head(base, 0, base)  # nothing was ever committed
        if not bases or head.segment_base in bases:
            return head
        if head.segment_base < bases[0] == head.next_offset:
            return layout.Head(bases[0], 0, bases[0])  # rolled while idle, and retention removed the segments before
        text = f"names the segment {head.segment_base}, which does not exist"
        found.findings.append(Finding("head", layout.head_path(found.directory), text))
        return None

    def _future(self, found: PartitionCheck) -> None:
        """Report receive times that are later than allowed."""
        if self.latest_ns is None:
            return
        for segment in found.segments:
            if segment.latest_ns > self.latest_ns:
                found.first_late = self._first_late(segment)
                if found.first_late is not None:
                    break
        else:
            return
        first, last_ns = found.first_late, found.segments[-1].latest_ns
        latest = rfc3339(self.latest_ns)
        text = f"receive times from offset {first} on are later than {latest}, the last is {rfc3339(last_ns)}: "
        if reason := check_files.needed_by_archive(self.fs, found.directory, first):
            text += f"they must stay, because {reason}"
        else:
            text += "`--repair --latest` lowers them"
        found.findings.append(Finding("future", found.directory, text, first_offset=first))

    def _first_late(self, segment: SegmentCheck) -> int | None:
        assert self.latest_ns is not None
        with opened(self.fs, self.fs.open_read(segment.path)) as fd:
            window = Window(self.fs, fd, CHUNK_BYTES, segment.path)
            return locate_time(window, [], self.latest_ns + 1, segment.next_offset)

    def _no_head(self, found: PartitionCheck, raw: bytes | None, bases: list[int]) -> None:
        if any(self._size(found.directory, base) for base in bases) or (
            raw is not None and not layout.nothing_committed(raw)
        ):
            causes = {None: "missing", UNREADABLE: "cannot be read: Input/output error"}
            text = causes.get(raw, "damaged")
            path = layout.head_path(found.directory)
            found.findings.append(Finding("head", path, f"{text}; the batches show where the log ends"))

    def _size(self, directory: str, base: int) -> int:
        facts = self.fs.stat(layout.segment_path(directory, base))
        return facts.size if facts is not None else 0

    def _unexpected_files(self, directory: str, listed: list[str], bases: list[int]) -> Iterator[Finding]:
        yield from self._mode(directory)
        segments = {name for name in listed if layout.segment_base(name) is not None}
        indexes = {name for name in listed if layout.index_base(name) is not None}
        for name in sorted(indexes):
            if layout.index_base(name) not in bases and not self.live:
                yield Finding("leftover", f"{directory}/{name}", "the index of a segment that was removed")
        yield from self._listed(directory, listed, segments | indexes | PARTITION_FILES, set())

    def _segments(self, found: PartitionCheck, bases: list[int], head: layout.Head | None) -> None:
        latest = 0
        for base, following in zip_longest(bases, bases[1:]):
            path = layout.segment_path(found.directory, base)
            try:
                fd = self.fs.open_read(path)
            except FileNotFoundError:
                continue  # taken by retention, just now
            except OSError as error:
                found.findings.append(_unreadable(path, error))
                continue
            try:
                size = self.fs.size(fd)
                walk = Walk(self.fs, fd, path, base, *_bounds(base, size, following, head, self.live), latest)
                segment = walk.run()
                if self.live and head is None:
                    segment.drop_findings("torn", "zeros")
                self._index(found.directory, segment, walk, following is not None)
            except OSError as error:
                found.findings.append(_unreadable(path, error))
                continue
            finally:
                self.fs.close(fd)
            if head is not None and base > head.segment_base and found.segments:
                self._joined(found.segments[-1], base)
            latest = segment.latest_ns
            self._on_bytes(size)
            found.segments.append(segment)
            found.next_offset = max(found.next_offset, segment.next_offset)
            found.findings += [known(self.fs, self.root, each) for each in segment.findings]

    def _joined(self, before: SegmentCheck, base: int) -> None:
        """Report a gap between two segments of which the second begins behind the head."""
        if before.next_offset < base:
            text = f"the batches end at byte {before.position}; {span(before.next_offset, base)} lost"
            place = (before.position, before.position, before.next_offset, base - 1)
            before.findings.append(Finding("gap", before.path, text, *place))

    # --- caches -------------------------------------------------------------------------------------------------------

    def _index(self, directory: str, segment: SegmentCheck, walk: Walk, sealed: bool) -> None:
        path = layout.index_path(directory, segment.base_offset)
        raw = read_file(self.fs, path)
        if not raw:
            if sealed and segment.position and not self.live:
                segment.findings.append(Finding("index", path, "missing; --repair rebuilds it"))
            return
        entries = index.decode(raw, segment.base_offset)
        behind = index.ENTRY_BYTES * (1 + len(entries))
        is_growing = self.live and not sealed
        if behind < len(raw) and not is_growing:
            text = f"nothing from byte {behind if entries else 0} on is valid"
            segment.findings.append(Finding("index", path, text, behind if entries else 0, len(raw)))
        wrong = self._wrong_entry(entries, segment, walk, sealed)
        if wrong is not None:
            text = f"says that the batch at offset {wrong.base_offset} is at byte {wrong.position}; it is not"
            segment.findings.append(Finding("index", path, text))
        elif sealed and len(entries) < len(segment.entries) and not segment.damaged_bytes:
            text = f"has {len(entries)} entries of {len(segment.entries)}"
            segment.findings.append(Finding("index", path, text, behind, behind))

    def _wrong_entry(
        self, entries: list[IndexEntry], segment: SegmentCheck, walk: Walk, sealed: bool
    ) -> IndexEntry | None:
        """Return the first entry that names no batch, or lies behind the end of a sealed segment; None without one."""
        below = [entry for entry in entries if entry.position < segment.position]
        for entry in below:
            if entry not in segment.entries and not self._is_right(walk, entry, segment):
                return entry
        return entries[len(below)] if sealed and len(below) < len(entries) else None

    def _is_right(self, walk: Walk, entry: IndexEntry, segment: SegmentCheck) -> bool:
        """Return whether an unexpected index entry is right all the same, or was before the damage."""
        if any(start <= entry.position < end for start, end in segment.damaged_bytes):
            return True
        return walk.matches(entry)

    def _names(self, found: PartitionCheck) -> None:
        path = layout.names_path(found.directory)
        raw = read_file(self.fs, path)
        listed, position = names.decode(raw or b"")
        missing = found.destinations - set(listed or [found.name])
        if raw is not None and position < len(raw):
            text = f"nothing from byte {position} on is valid"
            found.findings.append(Finding("names", path, text, position, len(raw)))
        elif not self.live and self._unproven(found, raw or b""):
            text = "the list may be incomplete, so nothing is reclaimed here"
            found.findings.append(Finding("names", path, text))
        elif missing:
            shown = ", ".join(sorted(missing)[:3])
            text = f"does not list {len(missing)} of {len(found.destinations)} destinations: {shown}"
            found.findings.append(Finding("names", path, text if raw is not None else f"missing; it {text}"))

    def _unproven(self, found: PartitionCheck, raw: bytes) -> bool:
        """Return whether the head does not vouch for the list, and the log is too long to check it at a start."""
        _, head = read_head(self.fs, found.directory)
        if names.vouched(raw, layout.decode_listed(head or b"")):
            return False
        return sum(segment.position for segment in found.segments) > limits.NAMES_SCAN_BYTES_MAX


def quarantine_of(root: str, finding: Finding) -> str | None:
    """Return the path of the copy of damaged bytes; None if there can be no copy of such a finding."""
    directory, _, file = finding.path.rpartition("/")
    base = layout.segment_base(file)
    if finding.kind not in ("damaged", "gap", "torn") or finding.start is None or base is None:
        return None
    return layout.quarantine_path(root, directory, base, finding.start)


def known(fs: FileSystem, root: str, finding: Finding) -> Finding:
    """Return the finding as quarantined if an identical copy of the damage exists; else the finding itself."""
    path = quarantine_of(root, finding)
    if path is None or finding.start is None or finding.end is None or fs.stat(path) is None:
        return finding
    with opened(fs, fs.open_read(finding.path)) as damaged, opened(fs, fs.open_read(path)) as kept:
        for at in range(0, max(finding.end - finding.start, 1), CHUNK_BYTES):
            size = min(CHUNK_BYTES, finding.end - finding.start - at)
            if read_fully(fs, damaged, size, finding.start + at) != read_fully(fs, kept, size + 1, at)[: size or 1]:
                return finding
    text = f"{finding.text}; copied to {path}"
    place = (finding.start, finding.end, finding.first_offset, finding.last_offset)
    return Finding("quarantined", finding.path, text, *place)


def _unreadable(path: str, error: OSError) -> Finding:
    return Finding("unreadable", path, f"cannot be read: {error.strerror or error}; its content was not checked")


def _bounds(base: int, size: int, following: int | None, head: layout.Head | None, live: bool) -> tuple[int, Committed]:
    """Return how much of a segment is checked, and up to where it must be whole."""
    if head is None or following is not None:  # what is sealed may have been rewritten since the head was written
        return size, Committed(size, following, following)
    if base == head.segment_base:
        return min(head.position, size) if live else size, Committed(head.position, head.next_offset, following)
    return size, Committed(0, base, following)
