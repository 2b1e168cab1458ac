"""Measure the processes of a broker with /proc, which works for any broker and needs no package."""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")


def cpu_seconds(pids: list[int]) -> float | None:
    """Return the user and system time of the processes in seconds, or None if it cannot be read."""
    if not pids:
        return None
    ticks = 0
    for pid in pids:
        try:
            stat = (PROC / str(pid) / "stat").read_text()
        except OSError:
            return None
        fields = stat[stat.rindex(")") + 2 :].split()  # the command name may hold blanks and brackets
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_bytes(pids: list[int]) -> int | None:
    """Return the resident memory of the processes in bytes, or None if it cannot be read."""
    if not pids:
        return None
    pages = 0
    for pid in pids:
        try:
            pages += int((PROC / str(pid) / "statm").read_text().split()[1])
        except OSError:
            return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def listeners(port: int) -> list[int]:
    """Return the processes that listen on a TCP port of this machine, as far as this user may see them."""
    inodes = set()
    for table in ("net/tcp", "net/tcp6"):
        try:
            lines = (PROC / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return []
    return sorted(pid for pid in _pids() if _holds(pid, inodes))


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def _holds(pid: int, inodes: set[str]) -> bool:
    try:
        with os.scandir(PROC / str(pid) / "fd") as descriptors:
            return any(_link(entry.path) in inodes for entry in descriptors)
    except OSError:
        return False


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def filesystem(path: str) -> str:
    """Return the type of the file system at ``path`` ("ext4", "tmpfs", ...), or "" if it is unknown."""
    best = ("", "")
    target = os.path.realpath(path)
    try:
        mounts = (PROC / "self/mounts").read_text().splitlines()
    except OSError:
        return ""
    for line in mounts:
        _, mount, kind, *_ = line.split()
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best[1]
