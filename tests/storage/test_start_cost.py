"""What a start reads: tails and first headers, however much there is. (Seconds: ``python -m bench.recovery``.)"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from radiator import limits
from radiator.config import Settings
from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.files import FileSystem
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.driving import NEVER, NOW, commit, opened, put, read_all

GIB = 1024 * 1024 * 1024


class Counting(FileSystem):
    """Bytes read and written by calls."""

    def __init__(self) -> None:
        self.read = self.written = 0

    def pread(self, fd: int, size: int, position: int) -> bytes:
        data = os.pread(fd, size, position)
        self.read += len(data)
        return data

    def pwritev(self, fd: int, pieces: list[bytes], position: int) -> int:
        written = os.pwritev(fd, pieces, position)
        self.written += written
        return written


def large(root: str, segments: int, size_bytes: int) -> str:
    """Sealed segments of which only the first batch is there, holes up to their size, and one of 3 MiB that is active;
    the partition's directory."""
    store = Store(root, FileSystem())
    store.open(both(NOW))
    partition = store.partition("q", Settings(sync=NEVER.sync, segment_bytes=limits.SEGMENT_BYTES_MAX))
    for _ in range(segments):
        put(partition, b"x" * 100)
        commit(store)
        partition.roll_wanted = True  # type: ignore[attr-defined]
        partition.queue()
        commit(store)
    for _ in range(300):
        put(partition, b"x" * 10_000)
        commit(store)
    store.close()
    for segment in partition.segments[:-1]:
        os.truncate(layout.segment_path(partition.directory, segment.base_offset), size_bytes)
    return partition.directory


@pytest.mark.parametrize("killed", [False, True])
def test_of_20_gib_a_start_reads_first_headers_and_the_tail_of_the_last_segment(tmp_path: Path, killed: bool) -> None:
    segments, size = 160, limits.SEGMENT_BYTES
    directory = large(str(tmp_path), segments, size)
    files = [f"{directory}/{name}" for name in os.listdir(directory)]
    assert sum(map(os.path.getsize, files)) > segments * size >= 20 * GIB
    active = max(path for path in files if path.endswith(".rlog"))
    whole = os.path.getsize(active)
    if killed:
        with open(active, "ab") as file:
            file.write(os.urandom(20_000))
    fs = Counting()
    store = Store(str(tmp_path), fs)
    notes = store.open(both(NOW))
    assert [note.kind for note in notes] == (["torn"] if killed else [])
    assert os.path.getsize(active) == whole and store.partitions["q"].next_offset == segments + 300
    # The window of the walk is 1 MiB; what is torn is read once more to be judged.
    assert fs.read < segments * 64 + 3 * 1024 * 1024
    assert fs.written < 24 * limits.CURSORS_MAX + 4_096, "the slots of the cursors, and little else"
    store.close()


def test_without_its_index_a_segment_is_read_once(tmp_path: Path) -> None:
    directory = large(str(tmp_path), 1, 10_000)
    active = max(path for path in os.listdir(directory) if path.endswith(".rlog"))
    size = os.path.getsize(f"{directory}/{active}")
    os.unlink(f"{directory}/{active.replace('.rlog', '.idx')}")
    fs = Counting()
    store = Store(str(tmp_path), fs)
    assert not store.open(both(NOW))
    assert size <= fs.read < size + 2 * 1024 * 1024
    assert len(read_all(store.partitions["q"])) == 301
    store.close()
    store, notes = opened(root=str(tmp_path))
    assert not notes
    store.close()
    assert len(os.listdir(directory)) >= 4, "the index was written again"
    assert os.path.getsize(f"{directory}/{active.replace('.rlog', '.idx')}") > 32 * 10


HOLD = """
import sys
from radiator.clock import BEFORE
from radiator.storage.files import FileSystem
from radiator.storage.store import Store
store = Store(sys.argv[1], FileSystem())
store.open(BEFORE)
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_broker_is_refused_with_the_pid_of_the_first_and_the_lock_of_a_dead_one_is_free(
    tmp_path: Path,
) -> None:
    """A real process holds the directory, and is killed."""
    (tmp_path / "LOCK").write_text("999999999\n")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StorageError, match=rf"process {holder.pid}\).*another data_dir"):
            opened(root=str(tmp_path))
        holder.kill()
        holder.wait()
    assert (tmp_path / "LOCK").read_text() == f"{holder.pid}\n"
    store, notes = opened(root=str(tmp_path))
    assert not notes and (tmp_path / "LOCK").read_text() == f"{os.getpid()}\n"
    store.close()
