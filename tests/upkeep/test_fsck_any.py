"""Files spoiled by chance: fsck falls over none, tells every offset that is lost, and repair leaves nothing to do.

Forty seeds here; with ``SEEDS`` in the environment, as many as one likes.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from radiator.storage import layout
from radiator.upkeep.findings import Finding
from tests.storage.driving import opened, read_all
from tests.upkeep.spoiled import QUEUE, Made, check, mended, repair

SEEDS = int(os.environ.get("SEEDS", "40"))
WAYS = ("flip", "flip", "cut", "zero", "garbage", "append", "twice", "gone")


def spoil(path: Path, random: Random) -> None:
    data = bytearray(path.read_bytes())
    at, size = random.randrange(len(data) + 1), random.randrange(1, 5_000)
    way = random.choice(WAYS)
    part = slice(at, at + size)
    if way == "flip" and at < len(data):
        data[at] ^= 1 << random.randrange(8)
    elif way == "cut":
        del data[at:]
    elif way == "zero":
        data[part] = bytes(len(data[part]))
    elif way == "garbage":
        data[part] = random.randbytes(len(data[part]))
    elif way == "append":
        data += random.randbytes(size)
    elif way == "twice":
        data[at & ~7 : at & ~7] = data[: size & ~7]
    elif path.name != f"{0:020}.rlog":  # without its oldest segment a log is one of which retention has taken it
        path.unlink()
        return
    path.write_bytes(data)


def offsets(findings: list[Finding], directory: str) -> set[int]:
    """Those that are told as lost, in one partition."""
    return {
        offset
        for each in findings
        if each.first_offset is not None and each.last_offset is not None and each.path.startswith(directory)
        for offset in range(each.first_offset, each.last_offset + 1)
    }


@pytest.mark.thorough
@pytest.mark.parametrize("block", range(10))
def test_whatever_is_spoiled_is_reported_and_mended(made: Made, block: int, tmp_path: Path) -> None:
    whole = str(tmp_path / "whole")
    shutil.copytree(made.root, whole)
    for seed in range(block, SEEDS, 10):
        random = Random(seed)
        shutil.rmtree(made.root)
        shutil.copytree(whole, made.root)
        files = sorted(
            path for path in Path(made.root).rglob("*") if path.is_file() and path.name not in ("delivered", "LOCK")
        )
        spoilt = {random.choice(files) for _ in range(random.choice([1, 1, 1, 2, 4]))}
        for path in sorted(spoilt):
            spoil(path, random)
        told = offsets(check(made.root), made.directory)
        _, left = repair(made.root)
        told |= offsets(left, made.directory)
        mended(made.root)
        store, _ = opened(root=made.root)
        found = read_all(store.partitions[QUEUE], memory=False)
        store.close()
        assert found.items() <= made.bodies.items(), (seed, spoilt)
        if made.path(layout.HEAD) not in spoilt:  # it alone says that an end that is torn was committed
            assert set(made.bodies) - set(found) == told, (seed, spoilt)
