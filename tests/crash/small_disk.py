"""A data directory on a real disk that is small: a tmpfs of 10 MiB, for tests of what happens when it is full.

Mounting one needs root, or a user namespace: ``unshare --map-root-user --mount make test``. Elsewhere tests that need
one are skipped, and pytest's summary says so (the same is tested through the file seam in ``tests/storage``).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.running import BrokerProcess

Small = Callable[[str], tuple[BrokerProcess, Path]]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Small]:
    """``small_disk(config)`` starts a broker whose data is on a small disk, and gives that disk's directory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"NOT TESTED: no tmpfs ({mounted.stderr.decode().strip()}); try unshare --map-root-user --mount")
    brokers: list[BrokerProcess] = []

    def start(config: str) -> tuple[BrokerProcess, Path]:
        directory = tmp_path / "broker"
        directory.mkdir()
        broker = BrokerProcess(directory, config)
        broker.data = disk / "data"
        brokers.append(broker)
        broker.start()
        return broker, disk

    yield start
    for broker in brokers:
        if broker.running:
            broker.kill()
    subprocess.run(["umount", str(disk)], check=True)
