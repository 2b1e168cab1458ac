"""SIGKILL of a real process on the real file system: what it said is stored is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from radiator.config import Settings, SyncPolicy
from tests.storage.driving import opened, read_all

WRITER = """
import sys
from radiator.clock import BEFORE
from radiator.storage.files import FileSystem
from radiator.config import Settings, SyncPolicy
from radiator.storage.store import Store
from tests.storage.driving import commit

interval = None if sys.argv[2] == "never" else int(sys.argv[2])
store = Store(sys.argv[1], FileSystem())
store.open(BEFORE)
partition = store.partition("q", Settings(sync=SyncPolicy(interval), segment_bytes=65_536))
cursor = store.cursors.open("c", "q", 0)
while True:
    for each in range(1 + partition.next_offset % 7):
        partition.append("q", b"h", b"%d" % partition.next_offset, 1)
    cursor.ack([partition.high_watermark - 1] if partition.high_watermark else [])
    cursor.delivered = partition.high_watermark
    for job in commit(store):
        assert job.error is None
    print(partition.high_watermark, flush=True)
"""


@pytest.mark.parametrize("policy", ["0", "1000000", "never"])
def test_what_was_said_to_be_stored_is_there_after_a_kill(tmp_path: Path, policy: str) -> None:
    root, promised = str(tmp_path / "data"), 0
    for lines in (2, 40, 300):  # the first line comes before the first ack
        command = [sys.executable, "-c", WRITER, root, policy]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        assert writer.stdout is not None
        for _ in range(lines):
            promised = int(writer.stdout.readline())
        writer.kill()
        rest = writer.stdout.read().split()
        writer.wait()
        writer.stdout.close()
        promised = int(rest[-1]) if rest else promised
        store, notes = opened(root=root)
        assert [note.kind for note in notes] in ([], ["torn"]), [str(note) for note in notes]
        partition = store.partition("q", Settings(sync=SyncPolicy(0), segment_bytes=65_536))
        assert partition.next_offset >= promised > 0
        assert read_all(partition) == {offset: b"%d" % offset for offset in range(partition.next_offset)}
        cursor = store.cursors.open("c", "q", 0)
        assert promised - 8 <= cursor.delivered <= partition.next_offset and cursor.ceiling > 0
        store.close()
