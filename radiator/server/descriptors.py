"""File descriptors: as many as the configuration needs, or as many connections as there are descriptors for.

Each connection is one. A process that runs out of them cannot even say no: connections wait in the kernel without a
word, and logs cannot be opened. So the soft limit is raised at the start, and where the hard one is lower still, fewer
connections are taken than ``limits.connections`` says, and the next one gets its ERROR.
"""

from __future__ import annotations

import logging
import resource

from radiator import limits

log = logging.getLogger("radiator.server")

OTHERS = 2 * limits.OPEN_LOGS_MAX + 64  # logs that are written, cold reads, listeners, the loop, Python itself


def provide(connections: int) -> int:
    """Raise the limit of open files as far as needed and allowed; returns how many connections it leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHERS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError) as error:
        log.debug("open files: %s", error)
        most = soft
    if most >= wanted:
        return connections
    room = max(most - OTHERS, most // 2)
    log.warning(
        "only %d files may be open (ulimit -Hn): %d connections are taken, limits.connections is %d",
        most, room, connections,
    )  # fmt: skip
    return room
