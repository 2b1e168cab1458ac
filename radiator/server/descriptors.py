"""File descriptors: as many as the configuration needs, or as many connections and open logs as there are some for.

Each connection is one, each log that is written two. A process that runs out of them cannot even say no: connections
wait in the kernel without a word, and files cannot be opened. So the soft limit is raised at the start. Where the hard
one is lower still, some logs come first (OPEN_LOGS_FEW, or half of what remains beside OTHERS), then connections, then
more logs: fewer connections are taken than ``limits.connections`` says, and the next one gets its ERROR; fewer logs are
kept open, which costs time where many are written.
"""

from __future__ import annotations

import logging
import resource
from typing import NamedTuple

from radiator import limits

log = logging.getLogger("radiator.server")

PER_LOG = 2  # the segment, and the mapping of its head
USES = {
    "Python, the loop, its threads' wake-ups, signals": 16,
    "lock, hints of deliveries, the cursors' snapshot and its directory": 4,
    "the journal: its last files, not synced yet": limits.JOURNAL_FILES_MAX + 1,
    "checkpoint threads: a segment, or a directory": limits.CHECKPOINT_THREADS,
    "disk thread: a log more while it opens, a directory's sync, a small file that is replaced": 6,
    "read thread: a segment and its index": 2,
    "caretaker: a segment, what it becomes, its index, the directory": 4,
    "listeners: addresses that clients connect to, and who is turned away": 16,
    "admin: the address, those who are answered": 10,
    "what libraries open for a moment": 6,
}
OTHERS = sum(USES.values())


class DescriptorLimits(NamedTuple):
    """How many there may be at a time."""

    connections: int
    logs: int


def raise_limit(connections: int) -> DescriptorLimits:
    """Raise the limit of open files as far as needed and allowed; returns what it leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = DescriptorLimits(connections, limits.OPEN_LOGS_MAX)
    wanted = connections + PER_LOG * limits.OPEN_LOGS_MAX + OTHERS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return enough
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError) as error:
        log.debug("open files: %s", error)
        most = soft
    if most >= wanted:
        return enough
    left = most - OTHERS
    few = min(max(left // 2 // PER_LOG, 1), limits.OPEN_LOGS_FEW)
    taken = min(max(left - PER_LOG * few, 1), connections)
    room = DescriptorLimits(taken, min(max((left - taken) // PER_LOG, few), limits.OPEN_LOGS_MAX))
    log.warning(
        "only %d files may be open (ulimit -Hn): %d connections are taken, limits.connections is %d; "
        "%d logs are kept open for writing",
        most, room.connections, connections, room.logs,
    )  # fmt: skip
    return room
