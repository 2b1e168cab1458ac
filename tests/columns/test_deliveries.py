"""Deliveries: headers become columns, and acknowledged offsets become runs."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from radiator.columns import schema as records
from radiator.columns.deliveries import RAW, Settled, _Headers, _Runs, arrow_schema, as_deliveries
from radiator.columns.scan import SegmentRange

MAP = pa.map_(pa.string(), pa.string())


def test_headers_are_looked_up_as_arrow_does() -> None:
    chance = random.Random(1)
    for _ in range(100):
        rows = [
            [(chance.choice("abcde"), str(number)) for number in range(chance.randrange(5))]
            for _ in range(chance.randrange(1, 30))
        ]
        maps = pa.array(rows, MAP)
        low = chance.randrange(len(maps))
        maps = maps.slice(low, chance.randrange(1, len(maps) - low + 1))
        found = _Headers(maps)
        for name in "abcdef":
            assert found.values(name).to_pylist() == pc.map_lookup(maps, name, "first").to_pylist()


def test_no_records_are_no_deliveries() -> None:
    empty = pa.RecordBatch.from_pylist([], records.arrow_schema(RAW))
    assert as_deliveries(empty, arrow_schema()).num_rows == 0
    one = pa.RecordBatch.from_pylist([{"headers": {"outcome": "acked"}, "offset": 1}], records.arrow_schema(RAW))
    assert as_deliveries(one.slice(1), arrow_schema()).num_rows == 0


def test_runs_have_exactly_the_offsets_that_were_added() -> None:
    chance = random.Random(2)
    for _ in range(100):
        runs, wanted = _Runs(), set[int]()
        for _ in range(chance.randrange(4)):
            part = [chance.randrange(200) for _ in range(chance.randrange(60))]
            runs.add(np.array(part, np.int64))
            wanted.update(part)
            if chance.random() < 0.5:
                runs.join()
        starts, stops = runs.join()
        assert [offset for low, high in zip(starts, stops, strict=True) for offset in range(low, high)] == sorted(
            wanted
        )
        assert (starts[1:] > stops[:-1]).all()
        settled = Settled({"p": (starts, stops)} if len(starts) else {})
        low, high = sorted((chance.randrange(200), chance.randrange(200)))
        part = settled.within([SegmentRange("p", "", 0, 0, low, high), SegmentRange("q", "", 0, 0, 0, 9)])
        for of in (settled, part):
            mask = of.mask("p", np.arange(low, high))
            assert [low + int(place) for place in np.flatnonzero(mask)] == sorted(wanted & set(range(low, high)))
        assert not settled.mask("q", np.arange(9)).any()
