"""Measure what a group commit over many files costs the disk: ``python -m bench.syncs [--quick]``.

A group brings each of N files a few hundred bytes. They are made durable in one of these ways:

    each       write and fdatasync of each file, one after the other
    threads    write of each, then fdatasync by eight threads
    syncfs     write of each, then one syncfs
    journal    one append of all of it to one file, one fdatasync; the files themselves are not written
    zeros      the same into a file that was filled with zeros before
        lazy       as zeros, and then the files are written, but not synced

Each way is measured in turn, ROUNDS times; the output is medians and quartiles. ADR 33 has the figures.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import quantiles

FILES = (1, 10, 100, 1_000)
GROUP_BYTES = 40 << 10  # for all files together
ROUNDS = 40
THREADS = 8
JOURNAL_BYTES = 64 << 20

libc = ctypes.CDLL(None, use_errno=True)


class Ways:
    """The files of one measurement, and the ways to write to them."""

    def __init__(self, directory: Path, files: int) -> None:
        self.files = [os.open(directory / str(number), os.O_CREAT | os.O_RDWR | os.O_APPEND) for number in range(files)]
        self.body = os.urandom(max(1, GROUP_BYTES // files))
        self.group = self.body * files
        self.pool = ThreadPoolExecutor(THREADS)
        self.root = os.open(directory, os.O_RDONLY)
        self.plain = os.open(directory / "plain", os.O_CREAT | os.O_RDWR | os.O_APPEND)
        self.zeros = os.open(directory / "zeros", os.O_CREAT | os.O_RDWR)
        os.write(self.zeros, bytes(JOURNAL_BYTES))
        os.fsync(self.zeros)
        self.at = 0

    def close(self) -> None:
        self.pool.shutdown()
        for fd in (*self.files, self.root, self.plain, self.zeros):
            os.close(fd)

    def _write(self) -> None:
        for fd in self.files:
            os.write(fd, self.body)

    def each(self) -> None:
        for fd in self.files:
            os.write(fd, self.body)
            os.fdatasync(fd)

    def threads(self) -> None:
        self._write()
        list(self.pool.map(os.fdatasync, self.files))

    def syncfs(self) -> None:
        self._write()
        if libc.syncfs(self.root):
            raise OSError(ctypes.get_errno(), "syncfs")

    def journal(self) -> None:
        os.write(self.plain, self.group)
        os.fdatasync(self.plain)

    def into_zeros(self) -> None:
        if self.at + len(self.group) > JOURNAL_BYTES:
            self.at = 0
        os.pwrite(self.zeros, self.group, self.at)
        os.fdatasync(self.zeros)
        self.at += len(self.group)

    def lazy(self) -> None:
        self.into_zeros()
        self._write()


def measure(directory: Path, files: int, rounds: int) -> None:
    ways = Ways(directory, files)
    named: dict[str, Callable[[], None]] = {
        "each": ways.each,
        "threads": ways.threads,
        "syncfs": ways.syncfs,
        "journal": ways.journal,
        "zeros": ways.into_zeros,
        "lazy": ways.lazy,
    }
    took: dict[str, list[float]] = {name: [] for name in named}
    for _ in range(rounds):
        for name, way in named.items():
            start = time.perf_counter()
            way()
            took[name].append(1_000 * (time.perf_counter() - start))
    ways.close()
    for name, values in took.items():
        low, middle, high = quantiles(values, n=4)
        print(f"{files:>6} files  {name:<8} {middle:8.2f} ms   ({low:.2f} to {high:.2f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--directory", help="where the files are made, on the disk to be measured")
    args = parser.parse_args()
    for files in FILES:
        with tempfile.TemporaryDirectory(dir=args.directory) as directory:
            measure(Path(directory), files, 5 if args.quick else ROUNDS)


if __name__ == "__main__":
    main()
