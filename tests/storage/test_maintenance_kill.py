"""SIGKILL of a real process that rewrites segments on the real file system: each is the old one or the new one."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from radiator.config import Settings, SyncPolicy
from tests.storage.driving import opened, read_all

CARING = """
import sys
from radiator.storage.files import FileSystem
from radiator.config import Settings, SyncPolicy
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.driving import NOW, commit

store, now = Store(sys.argv[1], FileSystem()), NOW
store.open(both(NOW))
merges = sys.argv[2] == "merge"
options = Settings(sync=SyncPolicy(None), segment_bytes=65_536, compress=None if merges else "zstd")
partition = store.partition("q", options)
partition.history = merges
cursor = store.cursors.open("c", "q", 0)
partition.settled_in = cursor.settled_in
while True:
    start = partition.next_offset
    for offset in range(start, start + 600):
        partition.append("q", b"h", (b"%d " % offset) * 40, 1)
        if merges or offset % 100 == 99:
            commit(store, now)
    cursor.ack([offset for offset in range(start, start + 600) if offset % 50])
    commit(store, now)
    partition.retain_from = cursor.floor
    now += 20_000_000_000
    store.tick(both(now))
    commit(store, now)
    while (job := store.maintenance.take()) is not None:
        job.run(lambda: True)
        assert not store.maintenance.done(job, both(now))
    print(store.maintenance.counts["rewritten"], flush=True)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["compress", "merge"])
def test_a_kill_while_segments_are_rewritten_leaves_each_of_them_whole(how: str, tmp_path: Path) -> None:
    root, random = str(tmp_path / "data"), Random(5)
    end = 0
    for _ in range(8):
        command = [sys.executable, "-c", CARING, root, how]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        assert writer.stdout is not None
        while int(writer.stdout.readline()) < 2:
            pass  # until it is at work
        time.sleep(random.random() / 20)  # not for anything to happen: to be somewhere else each time
        writer.kill()
        writer.wait()
        writer.stdout.close()
        store, notes = opened(root=root)
        assert [note.kind for note in notes] in ([], ["torn"]), [str(note) for note in notes]
        partition = store.partition("q", Settings(sync=SyncPolicy(None), segment_bytes=65_536))
        cursor = store.cursors.get("c", "q")
        assert cursor is not None and partition.next_offset > end
        end = partition.next_offset
        found = read_all(partition)
        assert all(body == (b"%d " % offset) * 40 for offset, body in found.items())
        assert {offset for offset in range(end) if not cursor.is_acked(offset)} <= set(found)
        assert not list(Path(root).rglob("*.new"))
        store.close()
    assert len(found) == end if how == "merge" else len(found) < end / 2
