"""Measure the processes of a broker with /proc, which works for any broker and needs no package."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PROC = Path("/proc")


def cpu_seconds(pids: list[int]) -> float | None:
    """Return the user and system time of the processes in seconds, or None if it cannot be read."""
    texts = _read_all(pids, "stat")
    if texts is None:
        return None
    found = [text[text.rindex(")") + 2 :].split() for text in texts]  # the command name may hold blanks and brackets
    return sum(int(fields[11]) + int(fields[12]) for fields in found) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pids: list[int]) -> int | None:
    """Return the resident memory of the processes in bytes, or None if it cannot be read."""
    texts = _read_all(pids, "statm")
    return None if texts is None else sum(int(text.split()[1]) for text in texts) * os.sysconf("SC_PAGE_SIZE")


def _read_all(pids: list[int], name: str) -> list[str] | None:
    try:
        return [(PROC / str(pid) / name).read_text() for pid in pids] or None
    except OSError:
        return None


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
    found = set()
    for link in PROC.glob("[0-9]*/fd/*") if inodes else ():
        with contextlib.suppress(OSError):  # of another user, or closed meanwhile
            if os.readlink(link) in inodes:
                found.add(int(link.parts[2]))
    return sorted(found)


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
