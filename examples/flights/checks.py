"""The claims of the demo, and how each is checked: functions from the recorded results to a Claim.

The follower, the late subscriber and the workers only record the messages they got, and the publishers the offset in
each receipt. These functions compare the records. The figures of a claim that does not hold show the difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Claim(NamedTuple):
    text: str
    holds: bool
    figures: str


Address = tuple[str, int]  # partition, offset


def address(message_id: str) -> Address:
    """Split a message-id into the partition's name and the offset."""
    partition, _, offset = message_id.rpartition("@")
    return partition, int(offset)


# --- a live follower --------------------------------------------------------------------------------------------------


def follower(text: str, runs: Sequence[Sequence[Address]], ends: Mapping[str, int], starts: bool = True) -> Claim:
    """Check that each run is in order, without gap or repeat, and that all runs together have all offsets."""
    faults = [fault for run in runs for fault in seams(run)]
    seen = {each for run in runs for each in run}
    expected = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    if expected - seen:
        faults.append(f"{len(expected - seen):,} never seen, such as {min(expected - seen)}")
    if seen - expected:
        faults.append(f"{len(seen - expected):,} that nobody published, such as {min(seen - expected)}")
    again = sum(map(len, runs)) - len(seen)
    figures = f"{len(seen):,} of {len(expected):,}"
    if len(runs) > 1:
        figures += f", {again:,} of them shown again where the second run took over"
    return Claim(text, not faults, "; ".join([figures, *faults]))


def seams(run: Iterable[Address]) -> list[str]:
    """Return the places where the offsets of a partition are not consecutive."""
    faults = []
    following: dict[str, int] = {}
    for partition, offset in run:
        if offset != following.get(partition, offset):
            faults.append(f"{partition}: expected offset {following[partition]}, got {offset}")
        following[partition] = offset + 1
    return faults


# --- the late subscriber ----------------------------------------------------------------------------------------------


def latecomer(
    seen: Mapping[str, Sequence[tuple[int, int, bool]]], expected: Mapping[str, Sequence[int]], joined_at: int
) -> Claim:
    """Check that every flight came once, in the order of publishing per destination: history first, then live."""
    faults: list[str] = []
    for destination in sorted({*seen, *expected}):
        came = seen.get(destination, ())
        wanted = expected.get(destination, ())
        flights = [flight for _, flight, _ in came]
        if flights != list(wanted):
            faults.append(f"{destination}: {_difference(flights, wanted)}")
        if [offset for offset, _, _ in came] != list(range(len(came))):
            faults.append(f"{destination}: the offsets are not 0, 1, 2 and so on")
        marks = [replayed for _, _, replayed in came]
        if marks != sorted(marks, reverse=True):
            faults.append(f"{destination}: history after live")
    marks = [replayed for came in seen.values() for _, _, replayed in came]
    history, live = sum(marks), len(marks) - sum(marks)
    if not history or not live:
        faults.append("it should have seen both history and live messages")
    figures = f"joined after {joined_at:,} messages; {history:,} of history + {live:,} live = {len(marks):,} flights"
    text = "late subscriber, start-position: first: every flight exactly once, in order, history then live"
    return Claim(text, not faults, "; ".join([figures, *faults]))


def _difference(came: Sequence[int], wanted: Sequence[int]) -> str:
    missing, extra = Counter(wanted) - Counter(came), Counter(came) - Counter(wanted)
    if missing or extra:
        return f"{missing.total():,} missing, {extra.total():,} too many"
    return "not in the order of publishing"


# --- the workers ------------------------------------------------------------------------------------------------------


def workers(journals: Mapping[str, Sequence[Mapping[str, Any]]], late: Iterable[int], killed: str) -> Claim:
    """Check that every late flight was handled, and no message twice unless it was marked ``redelivered``."""
    lines = [line for journal in journals.values() for line in journal]
    faults = []
    undone = set(late) - {line["id"] for line in lines}
    if undone:
        faults.append(f"{len(undone):,} never done, such as flight {min(undone)}")
    unmarked = Counter(line["message"] for line in lines if not line["redelivered"])
    twice = [message for message, times in unmarked.items() if times > 1]
    if twice:
        faults.append(f"{len(twice):,} done twice without a mark, such as {min(twice)}")
    again = {line["message"] for line in lines if line["redelivered"]}
    done = {line["message"] for line in lines}
    shares = ", ".join(f"{name} {len(journal):,}" for name, journal in journals.items())
    figures = f"{len(done):,} messages ({shares}); {len(again):,} given out again and marked redelivered, "
    figures += f"{len(lines) - len(done):,} of them done twice"
    return Claim(
        f"queue: {killed} was killed with work in hand, and no job was lost", not faults, "; ".join([figures, *faults])
    )


def deliveries(
    outcomes: Mapping[str, Any], returned: Sequence[Mapping[str, Any]], jobs: int, killed: str, survivor: str
) -> Claim:
    """Check that every job was acknowledged once, and who got those that the killed worker had in hand."""
    faults = []
    if outcomes["messages"] != jobs or outcomes["acked"] != jobs:
        faults.append(f"{outcomes['messages']:,} with a final outcome, {outcomes['acked']:,} acknowledged, of {jobs:,}")
    if outcomes["repeated"]:
        faults.append(f"{outcomes['repeated']:,} with several final outcomes")
    of_killed = [row for row in returned if row["had"].partition("/")[0] == killed]
    others = [row for row in of_killed if row["consumer"] is None or row["consumer"].partition("/")[0] != survivor]
    if others:
        faults.append(f"{sum(row['messages'] for row in others):,} of them did not go to {survivor}")
    figures = (
        f"{jobs:,} jobs, each acknowledged once; {killed} had {sum(row['messages'] for row in of_killed):,} in hand "
    )
    figures += f"when it was killed, and {survivor} did them"
    text = f"deliveries: one final outcome for each job, and {survivor} got what {killed} had in hand"
    return Claim(text, not faults, "; ".join([figures, *faults]))


# --- what Spark has counted -------------------------------------------------------------------------------------------


def counts(found: Sequence[Mapping[str, Any]], published: Mapping[str, int]) -> Claim:
    """Check that the destinations, and the number of different messages in each, are those that were published."""
    stored = {row["destination"]: row["different"] for row in found}
    faults = [
        f"{name}: {stored.get(name, 0):,} instead of {published.get(name, 0):,}"
        for name in sorted({*stored, *published})
        if stored.get(name, 0) != published.get(name, 0)
    ]
    figures = f"{sum(stored.values()):,} different messages in {len(stored)} destinations"
    return Claim("Spark: the counts equal what was published", not faults, "; ".join([figures, *faults]))


def promises(found: Mapping[str, int]) -> Claim:
    """Check that the record of every receipt is stored and equals the sent message."""
    broken = found["receipts"] - found["kept"]
    figures = f"{found['kept']:,} of {found['receipts']:,} receipts ({found['before']:,} of them from before the kill)"
    if broken:
        figures += f"; {broken:,} are not at their offset as they were sent"
    text = "broker killed under load: every receipted message is at its offset, byte for byte"
    return Claim(text, not broken and found["kept_before"] == found["before"] > 0, figures)


def copies(extra: int, sent_again: int) -> Claim:
    """Check that no message is stored twice which was sent again because the crash took its receipt."""
    figures = f"{sent_again:,} sent again after the crash, {extra:,} of them are stored twice"
    return Claim("each message is stored once, however often it was sent", not extra, figures)


def whole(found: Sequence[Mapping[str, Any]]) -> Claim:
    """Check that every offset is stored exactly once."""
    records = sum(row["messages"] for row in found)
    missing, twice = (sum(row[key] for row in found) for key in ("missing", "duplicates"))
    figures = f"{records:,} records in {len(found)} partitions, {missing:,} missing, {twice:,} repeated"
    return Claim("every offset of every partition is there, once", not missing and not twice, figures)
