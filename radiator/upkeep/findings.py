"""List what fsck can find: each kind with its severity and its meaning. ``docs/cli.md`` has the same table.

damage    stored messages, or what a cursor has settled, are lost or in doubt; only this makes fsck fail warning
nothing more is lost than was reported before; something can be rebuilt or should be looked at note      as expected
after a kill

Knows words only, no files. Pure: any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from radiator.storage.index import IndexEntry

DAMAGE, WARNING, NOTE = SEVERITIES = ("damage", "warning", "note")

KINDS: dict[str, tuple[str, str]] = {
    "damaged": (DAMAGE, "bytes of a segment that contain no whole batch"),
    "unreadable": (DAMAGE, "a file that cannot be read: missing rights, or a disk error"),
    "gap": (DAMAGE, "offsets that no batch has, between two adjacent batches or at the end of the log"),
    "missing": (DAMAGE, "messages that a queue had not settled are missing at the start of its log"),
    "contradiction": (DAMAGE, "a batch with a correct crc whose parts contradict one another"),
    "version": (DAMAGE, "a batch that a newer radiator wrote, or one with a flipped bit"),
    "head": (DAMAGE, "`head` is missing, damaged or unreadable, or does not fit the segments"),
    "snapshot": (DAMAGE, "the snapshot of the cursors and its copy are missing or cannot be read"),
    "copy": (WARNING, "the snapshot of the cursors or its copy is missing or damaged; the other one is used"),
    "journal": (DAMAGE, "entries in the middle of the journal, or of that of the cursors, cannot be read"),
    "quarantined": (WARNING, "damage, or a gap, that an earlier repair copied to `quarantine/`; readers get a `gap`"),
    "times": (WARNING, "a receive time before the previous one: a replay by time may begin too late"),
    "future": (WARNING, "receive times later than now, or than `--latest`: new messages get the last of them"),
    "key": (WARNING, "`salt` is missing or damaged; the next start makes a new one"),
    "salt": (WARNING, "a batch without the salt of its partition: after damage it would not be found"),
    "torn": (WARNING, "a torn batch at the end, never committed: the next start cuts it off"),
    "index": (WARNING, "an index that is missing, incomplete, damaged or wrong: reading costs more time"),
    "names": (
        WARNING,
        "a list of destinations that is damaged, incomplete, or not known to be whole: then nothing is reclaimed",
    ),
    "ids": (WARNING, "`dedup` is damaged, or ahead of its log: some ids may be forgotten"),
    "archived": (WARNING, "`archived` is damaged, or ahead of its log: retention waits"),
    "cursor": (WARNING, "a cursor that is ahead of its log, or whose records contradict one another"),
    "subscriptions": (DAMAGE, "the file of durable subscriptions cannot be read: they are unknown"),
    "removals": (WARNING, "the list of partitions that are being removed cannot be read: they stay"),
    "last_rules": (
        WARNING,
        "the `fan_out` rules of the last run cannot be read: queues without a cursor get all messages",
    ),
    "delivered": (WARNING, "the file of delivery hints has the wrong size"),
    "mode": (WARNING, "a file or directory that users other than its owner may read or write"),
    "leftover": (WARNING, "a temporary file, or part of what was removed: the broker does not need it"),
    "trailing": (
        NOTE,
        "bytes of a segment after the start of the next one, as after a failed sync; they are never read",
    ),
    "foreign": (NOTE, "not of this store; ignored"),
    "kept": (NOTE, "a damaged file that an earlier start has renamed"),
    "tail": (
        NOTE,
        "the end of `dedup` or `transactions` is torn: it was never committed",
    ),
    "decided": (
        NOTE,
        "entries of the journal, or the end of a log in it, that segments may lack: the next start writes them",
    ),
    "zeros": (NOTE, "zeros after the last batch: an earlier version wrote them in advance, or the power failed"),
    "uncommitted": (NOTE, "whole batches after `head`, without receipt: the next start keeps them"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as a clean stop leaves it.

    Attributes:
        kind: The kind, from ``KINDS``.
        path: The file or directory.
        text: What is wrong, in words.
        start: The first byte concerned.
        end: The byte behind the last one concerned.
        first_offset: The first offset concerned.
        last_offset: The last offset concerned, inclusive.
    """

    kind: str
    path: str
    text: str
    start: int | None = None
    end: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None

    @property
    def severity(self) -> str:
        """Return how bad this is: damage, warning or note."""
        return KINDS[self.kind][0]

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(slots=True)
class SegmentCheck:
    """What the check of one segment has found, and what it knows at its end."""

    path: str
    base_offset: int
    position: int = 0  # behind the last batch
    next_offset: int = 0
    latest_ns: int = 0
    batches: int = 0
    records: int = 0
    findings: list[Finding] = field(default_factory=list)
    entries: list[IndexEntry] = field(default_factory=list)  # that its index should have
    names: set[str] = field(default_factory=set)  # of destinations
    damaged_bytes: list[tuple[int, int]] = field(default_factory=list)  # bytes that are damaged

    def count(self, batches: int, records: int, latest_ns: int) -> None:
        """Count checked batches.

        Args:
            batches: How many there are.
            records: How many records they have.
            latest_ns: The latest receive time up to the end of them, in nanoseconds since 1970.
        """
        self.batches += batches
        self.records += records
        self.latest_ns = latest_ns

    def end(self, position: int, next_offset: int) -> None:
        """Set the position behind the last batch, and the offset that follows it."""
        self.position, self.next_offset = position, next_offset

    def drop_findings(self, *kinds: str) -> None:
        """Drop the findings of these kinds."""
        self.findings = [each for each in self.findings if each.kind not in kinds]


def span(first: int, stop: int) -> str:
    """Return a range of offsets in words."""
    return f"offset {first}" if stop == first + 1 else f"offsets {first} to {stop - 1}"
