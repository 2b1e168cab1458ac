"""Random queries have the same rows with the optimizer rule as over Spark's own memory.

RADIATOR_QUERY_SEEDS=100:120 tries other seeds.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from radiator.spark import read
from tests.spark.stores import Message, Writer

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

FIRST, LAST = map(int, os.environ.get("RADIATOR_QUERY_SEEDS", "0:2").split(":"))
QUERIES = 30  # of a seed
START_NS = 1_700_000_000_000_000_000

KEYS = ["k", "K", "a b", "ü", "number", "none"]
VALUES = ["v", "", "1", "é", "a\\cb", "\\n", "x" * 40, "NULL"]
NAMES = ["/topic/a", "/topic/B", "/topic/b", "/queue/é", "/topic/x_y", "/topic/x%y", "/topic/a.b"]
SCALARS = """
    offset|Offset|size|receive_ns|event_ns|length(body)|octet_length(body)|tags['{key}']|headers['{key}']|tags.k
    tags.`a b`|destination|DESTINATION|partition|upper(partition)|message_id|cardinality(tags)
    element_at(tags, '{key}')|receive_time|event_time|date_trunc('hour', receive_time)|body|offset + 1
    coalesce(tags['{key}'], 'z')|cast(body AS string)|substring(destination, 2, 5)|hash(tags.k)
    try_cast(tags.number AS int)|map_contains_key(headers, 'k')
"""
CONDITIONS = """
    destination = '{name}'|destination <> '{name}'|destination IN ('{name}', '/none', '/topic/b')
    destination >= '/topic/a'|destination NOT IN ('{name}')|destination LIKE '/topic%'|destination LIKE '%b'
    destination LIKE '%/x!_%' ESCAPE '!'|destination LIKE '%é%'|startswith(destination, '/t')
    contains(partition, 'p')|partition = 'P'|partition > 'p'|lower(partition) = 'p'|(offset < {n})
    (offset >= {n})|(offset <> {n})|(offset <=> {n})|(offset IN (1, {n}, NULL))|(offset BETWEEN 3 AND {n})
    (offset > {n}.5)|(offset = '{n}')|(offset <> NULL)|message_id = 'p@{n}'|message_id LIKE 'p@%'
    receive_time > timestamp_micros({us})|receive_time = timestamp_micros({us})
    receive_time <= timestamp_micros({us})|receive_ns > {us}000|date(receive_time) = date'2023-11-15'
    tags['{key}'] = 'v'|tags['{key}'] IS NULL|tags['{key}'] IS NOT NULL|headers['{key}'] <> 'v'
    length(body) > {n}|size = length(body)|event_time IS NULL|event_ns > receive_ns - 10|body = X''|rand() >= 0
    exists(map_keys(tags), key -> key = 'k')
"""
SUMS = "count(*)|count(tags.k)|sum(length(body))|max(offset)|min(destination)|count(DISTINCT partition)|max(tags['k'])"


class Queries:
    """SQL over a table with the columns of the log."""

    def __init__(self, seed: int, table: str) -> None:
        self._random, self._table = Random(seed), table

    def _one(self, texts: str) -> str:
        text = self._random.choice([each.strip() for line in texts.strip().splitlines() for each in line.split("|")])
        number, time_us = self._random.randrange(90), START_NS // 1000 + self._random.randrange(200_000_000)
        key, name = self._random.choice(KEYS), self._random.choice(NAMES)
        return text.format(n=number, us=time_us, key=key, name=name)

    def _condition(self, depth: int = 0) -> str:
        choice = self._random.random()
        if depth > 2 or choice < 0.45:
            return self._one(CONDITIONS)
        if choice < 0.55:
            return f"NOT ({self._condition(depth + 1)})"
        word = self._random.choice(["AND", "AND", "OR"])
        return f"({self._condition(depth + 1)} {word} {self._condition(depth + 1)})"

    def next(self) -> str:
        """Return one more query."""
        kind = self._random.random()
        rows = self._table + (f" WHERE {self._condition()}" if self._random.random() < 0.75 else "")
        if kind < 0.4:
            columns = [f"{self._one(SCALARS)} AS c{number}" for number in range(self._random.randint(1, 4))]
            return f"SELECT {', '.join(columns)} FROM {rows}"
        if kind < 0.75:
            sums = f"{self._one(SUMS)} AS a, {self._one(SUMS)} AS b"
            return f"SELECT {self._one(SCALARS)} AS k, {sums} FROM {rows} GROUP BY 1"
        if kind < 0.85:
            return f"SELECT count(*) FROM {rows}"
        if kind < 0.92:
            place = "PARTITION BY partition ORDER BY offset"
            return f"SELECT * FROM (SELECT *, row_number() OVER ({place}) AS place FROM {rows}) WHERE place <= 3"
        return (
            f"SELECT a.offset, b.tags.k FROM (SELECT * FROM {rows}) a JOIN {self._table} b "
            "ON a.offset = b.offset AND a.partition <> b.partition"
        )


def fill(root: Path, seed: int) -> str:
    random, time_ns = Random(seed), START_NS
    writer = Writer(root / "data")
    for partition in ("p", "q", "P"):
        messages = []
        for number in range(80):
            time_ns += random.choice([1, 999, 1000, 1_000_000, 1_700_000_000])
            headers = [
                f"{random.choice(['', 'tag-'])}{random.choice(KEYS[:-1])}:{random.choice(VALUES)}"
                for _ in range(random.randrange(6))
            ]
            if random.random() < 0.2:
                headers.append(f"event-time:{START_NS + number}")
            body = random.choice([b"", b"x" * number, b"\xff\xfe", b'{"a":1}'])
            messages.append(Message(random.choice(NAMES), body, "\n".join(headers).encode(), time_ns))
        writer.write(partition, messages, per_batch=random.randint(1, 30))
    writer.close()
    return writer.root


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_a_random_query_has_the_rows_that_it_has_over_memory(spark: Any, tmp_path: Path, seed: int) -> None:
    log = read(spark, fill(tmp_path, seed))
    log.createOrReplaceTempView("random_log")
    log.localCheckpoint().createOrReplaceTempView("random_memory")
    queries, expected = Queries(seed, "random_log"), Queries(seed, "random_memory")
    some = 0
    for _ in range(QUERIES):
        text = queries.next()
        found = sorted(map(repr, spark.sql(text).collect()))
        assert found == sorted(map(repr, spark.sql(expected.next()).collect())), text
        some += bool(found)
    assert some > QUERIES // 2
