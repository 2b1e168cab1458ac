"""Raise the limit of open file descriptors, or reduce connections and open logs to what the limit allows.

A connection needs one descriptor, a log that is written two. Without free descriptors the process can neither accept a
connection to refuse it, nor open a file. If the hard limit is too low, the descriptors beside OTHERS are assigned in
this order: a few logs (OPEN_LOGS_FEW, or half of the rest), connections, more logs. Fewer connections than
``limits.connections`` are then accepted, and the next one gets an ERROR. Fewer open logs cost time if many are written.
"""

from __future__ import annotations

import logging
import resource
from typing import NamedTuple

from radiator import limits

log = logging.getLogger("radiator.server")

PER_LOG = 2  # the segment, and the mapping of its head
USES = {
    "Python, the event loop, its threads' wake-ups, signals": 16,
    "lock, delivery counts, the cursors' snapshot and its directory": 4,
    "the journal: its last files, not synced yet": limits.JOURNAL_FILES_MAX + 1,
    "checkpoint threads: a segment, or a directory": limits.CHECKPOINT_THREADS,
    "disk thread: a log more while it opens, a directory's sync, a small file that is replaced": 6,
    "read thread: a segment and its index": 2,
    "maintenance: a segment, its replacement, its index, the directory": 4,
    "listeners: addresses that clients connect to, and rejected connections": 16,
    "admin: the address, and its connections": 10,
    "files that libraries open briefly": 6,
}
OTHERS = sum(USES.values())


class DescriptorLimits(NamedTuple):
    """How many connections and open logs the file descriptors allow."""

    connections: int
    logs: int


def raise_limit(connections: int) -> DescriptorLimits:
    """Raise the soft limit as far as necessary and allowed, and return what it is enough for.

    Args:
        connections: The configured limit of connections.
    """
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
        "only %d files may be open (ulimit -Hn): %d connections are accepted, limits.connections is %d; "
        "%d logs are kept open for writing",
        most, room.connections, connections, room.logs,
    )  # fmt: skip
    return room
