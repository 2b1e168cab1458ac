"""CPU time by who spent it: this process, its JVM's task threads and the rest of the JVM, the Python workers below it.

On a machine that others use as well, CPU time says more than the clock. From /proc, so Linux only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Spent(NamedTuple):
    """Seconds. ``tasks``: the threads of the JVM that run Spark's tasks; ``jvm``: its others (compiler, collector)."""

    own: float
    tasks: float
    jvm: float
    python: float

    def since(self, before: Spent) -> Spent:
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


def _seconds(stat: Path, children: bool = False) -> tuple[str, int, float]:
    """Name, parent, CPU time; with that of children who have ended."""
    name, _, rest = stat.read_text().partition("(")[2].rpartition(") ")
    fields = rest.split()
    return name, int(fields[1]), sum(map(int, fields[11 : 15 if children else 13])) / _TICKS


def _threads(process: Path) -> Iterator[float]:
    for thread in (process / "task").iterdir():
        try:
            name, _, seconds = _seconds(thread / "stat")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name.startswith("Executor task"):
            yield seconds


def spent() -> Spent:
    """So far, by this process and all below it."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found[int(folder.name)] = _seconds(folder / "stat", children=True)
            except (FileNotFoundError, ProcessLookupError):
                continue
    below, me = {os.getpid()}, os.getpid()
    while more := {pid for pid, (_, parent, _) in found.items() if parent in below} - below:
        below |= more
    tasks = jvm = python = 0.0
    for pid in below - {me}:
        if found[pid][0] != "java":
            python += found[pid][2]
            continue
        own = sum(_threads(Path("/proc") / str(pid)))
        tasks += own
        jvm += _seconds(Path("/proc") / str(pid) / "stat")[2] - own
    return Spent(_seconds(Path("/proc/self/stat"))[2], tasks, jvm, python)
