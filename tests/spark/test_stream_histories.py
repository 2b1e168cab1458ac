"""Random lives of a store under a stream: whatever happens to files and queries, each record that is wanted comes once,
or was removed on purpose, or is told as lost."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from radiator.storage import layout
from tests.spark.stores import MS, START_NS, Message, Writer
from tests.spark.streams import Query
from tests.storage.rewriting import rewritten

pytestmark = pytest.mark.spark

NAMES = ["/topic/a", "/topic/b", "/topic/c"]


class Life:
    """``log``: the destinations of each partition by offset; ``left``: the first offset that retention has left."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.writer = Writer(root, 8192)
        self.holds = {name: chance.sample(NAMES, chance.randrange(1, 4)) for name in ("p", "q")}
        self.holds |= {name: [name, *chance.sample(NAMES, chance.randrange(2))] for name in NAMES}
        self.log: dict[str, list[str]] = {}
        self.left: dict[str, int] = {}
        self.removed: set[tuple[str, int]] = set()
        self.rewritten: set[Path] = set()
        self.found: list[tuple[str, int]] = []
        self.wanted = chance.choice([NAMES, NAMES[:1], NAMES[:2]])
        self.options = {"startingOffsets": chance.choice(["earliest", "latest"]), "failOnDataLoss": "false"}
        if self.wanted is not NAMES:
            self.options["subscribe"] = ",".join(self.wanted)
        for _ in range(chance.randrange(4)):
            self.write()
        self.query = Query(self.writer.root, **self.limits())
        self.query.plan()
        self.begun = {name: mark["from"] for name, mark in json.loads(self.query.checkpoint[0]).items()}

    def limits(self) -> dict[str, object]:
        """Other ones for each run of the query."""
        more = {"maxOffsetsPerTrigger": [1, 7, 40, 1000], "splitBytes": [256, 5000, 40_000], "minPartitions": [2, 9]}
        chosen = {name: self.chance.choice(values) for name, values in more.items() if self.chance.random() < 0.5}
        return {**self.options, **chosen}

    def write(self) -> None:
        name = self.chance.choice(list(self.holds))
        log = self.log.setdefault(name, [])
        holds = self.holds[name] if len(log) > 20 else self.holds[name][:1]
        fresh = [self.chance.choice(holds) for _ in range(self.chance.randrange(1, 60))]
        messages = [
            Message(each, bytes(self.chance.randrange(300)), b"a:b", START_NS + number * MS)
            for number, each in enumerate(fresh, len(log))
        ]
        self.writer.write(name, messages, self.chance.choice([1, 3, 20, 100]))
        log += fresh

    def read(self) -> bool:
        """One batch, which may be lost before the sink has noted its end."""
        ends = self.chance.random() < 0.8
        rows = self.query.trigger(commit=ends)
        if rows is not None and ends:
            self.found += [(name, offset) for name, offsets in rows.items() for offset in offsets]
        return rows is not None

    def again(self) -> None:
        self.query = Query(self.writer.root, self.query.checkpoint, self.query.committed, **self.limits())

    def segments(self) -> tuple[str, list[Path]]:
        name = self.chance.choice(list(self.log) or ["p"])
        return name, sorted(Path(layout.partition_path(self.writer.root, name)).glob("*.rlog"))

    def retain(self) -> None:
        name, files = self.segments()
        for path in files[: self.chance.randrange(max(len(files), 1))]:
            path.unlink()
            self.left[name] = int(files[files.index(path) + 1].stem)

    def rewrite(self) -> None:
        name, files = self.segments()
        for path, following in pairwise(files):
            if path not in self.rewritten and self.chance.random() < 0.5:
                self.rewritten.add(path)
                base, part = int(path.stem), self.chance.choice([1, 2, 5])
                left = rewritten(path.read_bytes(), base, lambda each, part=part: each % part == 0, 3, 20)
                path.write_bytes(left)
                self.removed |= {(name, each) for each in range(base, int(following.stem) - 1) if each % part}

    def unindex(self) -> None:
        for path in Path(self.writer.root).rglob("*.idx"):
            if self.chance.random() < 0.5:
                path.unlink()

    def end(self) -> None:
        self.again()
        if self.chance.random() < 0.5:
            self.query.reader.prepareForTriggerAvailableNow()
        while self.read() or self.query.committed < len(self.query.checkpoint):
            pass
        self.writer.close()


@pytest.mark.parametrize("lives", [range(16), pytest.param(range(16, 300), marks=pytest.mark.slow)], ids=["16", "284"])
def test_each_record_comes_once_or_is_reported(
    lives: range, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in lives:
        life = Life(tmp_path / f"{seed}", seed)
        steps = [life.write, life.read, life.again, life.retain, life.rewrite, life.unindex]
        for step in life.chance.choices(steps, weights=[40, 30, 8, 12, 7, 3], k=life.chance.randrange(5, 40)):
            step()
        life.end()
        told = capsys.readouterr().err
        found = set(life.found)
        assert len(found) == len(life.found), seed
        for name, log in life.log.items():
            begin, left = life.begun.get(name, 0), life.left.get(name, 0)
            wanted = {(name, each) for each in range(begin, len(log)) if log[each] in life.wanted} - life.removed
            assert {each for each in found if each[0] == name} - life.removed <= wanted, seed
            missing = wanted - found
            assert all(offset < left for _, offset in missing), seed
            assert repr(name) in told or not (missing and name in life.begun), seed
