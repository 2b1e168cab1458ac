"""Top keys, skew, senders, sessions: against figures counted by hand and by plain Python."""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F

from radiator.spark import collect
from radiator.spark.jobs import (
    each_session,
    key_columns,
    key_skew,
    partition_balance,
    senders,
    session_lengths,
    sessions,
    top_keys,
    top_tags,
)

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

START = datetime(2023, 11, 14, 22, tzinfo=UTC)
SCHEMA = (
    "destination STRING, partition STRING, headers MAP<STRING, STRING>, body BINARY, size BIGINT, "
    "receive_time TIMESTAMP, event_time TIMESTAMP"
)


def record(
    headers: dict[str, str], second: float = 0, *, partition: str = "p0", body: bytes = b"12345", event: bool = True
) -> tuple[Any, ...]:
    at = START + timedelta(seconds=second)
    return ("/topic/a", partition, headers, bytearray(body), len(body), at, at if event else None)


def keyed(spark: Any, counts: dict[str, int], without: int = 0) -> Any:
    rows = [record({"partition-key": key, "n": str(n)}, n) for key, count in counts.items() for n in range(count)]
    return spark.createDataFrame([*rows, *[record({"n": "0"})] * without], SCHEMA)


UNUSUAL = {"": 5, " ": 4, "a,b;c:d\\e\n": 4, "日本🛫": 3, "null": 2, "x" * 2000: 1}


def test_top_keys_of_unusual_values(spark: Any) -> None:
    rows = collect(top_keys(keyed(spark, UNUSUAL, without=7), limit=5))
    assert [(row["value"], row["messages"]) for row in rows] == sorted(
        UNUSUAL.items(), key=lambda pair: (-pair[1], pair[0].encode())
    )[:5]
    first = rows[0]
    assert (first["share"], first["bytes"], first["partitions"]) == (5 / 19, 25, 1)
    assert (first["first_received"], first["last_received"]) == (START, START + timedelta(seconds=4))


def test_a_key_may_be_any_header_or_a_field_of_the_body(spark: Any) -> None:
    bodies = [b'{"tail": {"num": "N1"}}', b'{"tail": {"num": "N1"}}', b'{"tail": {}}', b"not json", b"", b"\xff\xfe"]
    df = spark.createDataFrame([record({"tag-dest": "JFK"}, body=body) for body in bodies], SCHEMA)
    assert [(row["value"], row["messages"]) for row in collect(top_keys(df, key="$.tail.num"))] == [("N1", 2)]
    assert [(row["value"], row["share"]) for row in collect(top_keys(df, key="tag-dest"))] == [("JFK", 1.0)]
    assert collect(top_keys(df)) == []
    assert (key_columns("$.a", "size"), key_columns("a")) == (("body", "size"), ("headers",))


def skew_by_hand(counts: dict[str, int], percent: int) -> int | None:
    total, so_far = sum(counts.values()), 0
    for number, count in enumerate(sorted(counts.values(), reverse=True), 1):
        so_far += count
        if so_far * 100 >= total * percent:
            return number
    return None


def test_skew_says_how_many_keys_make_up_the_traffic(spark: Any) -> None:
    chance = random.Random(3)
    cases: list[dict[str, int]] = [
        {},
        {"a": 1},
        {"a": 10, "b": 10},
        {"a": 99, "b": 1},
        UNUSUAL,
        {str(n): 1 for n in range(20)},
        *[{str(n): int(chance.paretovariate(1)) for n in range(chance.randint(1, 40))} for _ in range(4)],
    ]
    parts = [
        key_skew(keyed(spark, counts, without=case)).select(F.lit(case).alias("case"), "*")
        for case, counts in enumerate(cases)
    ]
    together = parts[0]
    for part in parts[1:]:
        together = together.union(part)
    got = {row["case"]: row for row in collect(together)}
    assert 0 not in got, "nothing is stored, so nothing is said"
    for case, counts in enumerate(cases[1:], 1):
        row, total = got[case], sum(counts.values())
        assert (row["messages"], row["without"], row["values"]) == (total, case, len(counts)), counts
        assert (row["values_50"], row["values_90"]) == (skew_by_hand(counts, 50), skew_by_hand(counts, 90)), counts
        assert row["most_share"] == max(counts.values()) / total


def test_without_the_key_there_is_no_skew(spark: Any) -> None:
    (row,) = collect(key_skew(keyed(spark, {"a": 1}, without=2), key="absent"))
    assert row == {
        "messages": 0, "without": 3, "values": 0, "most_share": None, "values_50": None, "values_90": None,
    }  # fmt: skip


def test_uneven_partitions_are_seen(spark: Any) -> None:
    rows = [record({}, partition=f"p{n}") for n, count in enumerate((6, 1, 2)) for _ in range(count)]
    alone = ("/topic/one", "q", {}, bytearray(), 0, START, None)
    found = collect(partition_balance(spark.createDataFrame([*rows, alone], SCHEMA)))
    assert [(row["partition"], row["messages"], round(row["even"], 3)) for row in found] == [
        ("p0", 6, 2.0), ("p2", 2, 0.667), ("p1", 1, 0.333),
    ]  # fmt: skip


def test_senders_are_counted_by_producer_id(spark: Any) -> None:
    rows = [
        *[record({"producer-id": "gate-1"}, n) for n in range(3)],
        ("/topic/b", "p", {"producer-id": "gate-1"}, bytearray(b"1"), 1, START + timedelta(seconds=9), None),
        record({"producer-id": "gate-2"}, 5),
        *[record({}, 60)] * 5,
    ]
    df = spark.createDataFrame(rows, SCHEMA)
    first, second = collect(senders(df))
    assert (first["sender"], first["messages"], first["share"], first["bytes"]) == ("gate-1", 4, 0.8, 16)
    assert (first["destinations"], first["silent_ms"], second["silent_ms"]) == (2, 51_000.0, 55_000.0)
    assert len(collect(senders(df, limit=1))) == 1


def test_a_tag_with_very_many_values_shows_its_first_ones(spark: Any) -> None:
    df = spark.range(2000).select(F.expr("map('id', string(id), 'odd', string(id % 2)) AS tags"))
    rows = collect(top_tags(df, limit=2))
    assert [(row["key"], row["value"], row["messages"], row["rank"], row["values"]) for row in rows] == [
        ("id", "0", 1, 1, 2000), ("id", "1", 1, 2, 2000), ("odd", "0", 1000, 1, 2), ("odd", "1", 1000, 2, 2),
    ]  # fmt: skip


# --- sessions ---------------------------------------------------------------------------------------------------------


def sessions_by_hand(times: list[int], gap: int) -> list[list[int]]:
    found: list[list[int]] = []
    for at in sorted(times):
        if found and at - found[-1][-1] <= gap:
            found[-1].append(at)
        else:
            found.append([at])
    return found


def test_sessions_are_those_of_plain_python(spark: Any) -> None:
    chance, gap = random.Random(11), 30
    times: dict[str, list[int]] = {"just": [0, 30, 60], "over": [0, 31], "one": [5], "tie": [7, 7, 7]}
    for n in range(40):
        times[f"k{n}"] = [chance.randint(0, 600) for _ in range(chance.randint(1, 30))]
    rows = [record({"partition-key": key}, at) for key, all_times in times.items() for at in all_times]
    chance.shuffle(rows)
    rows += [record({}, 3), record({"partition-key": "timeless"}, event=False)]
    df = spark.createDataFrame(rows, SCHEMA)
    expected = {
        (key, one[0], one[-1], len(one)) for key, all_times in times.items() for one in sessions_by_hand(all_times, gap)
    }
    got = collect(each_session(df, gap=f"{gap} seconds"))

    def second(at: datetime) -> int:
        return int((at - START).total_seconds())

    assert {(row["key"], second(row["start"]), second(row["end"]), row["messages"]) for row in got} == expected
    assert len(got) == len(expected)
    per_key = defaultdict(list)
    for key, start, end, _ in expected:
        per_key[key].append(end - start)
    answered = {row["key"]: row for row in collect(sessions(df, gap="30 seconds", limit=None))}
    assert answered.keys() == per_key.keys()
    for key, lengths in per_key.items():
        row = answered[key]
        middle = sorted(lengths)[math.ceil(0.5 * len(lengths)) - 1]
        assert (row["sessions"], row["longest_ms"], row["p50_ms"]) == (len(lengths), max(lengths) * 1000, middle * 1000)
        assert row["messages"] == len(times[key])
    histogram = {row["length"]: row["sessions"] for row in collect(session_lengths(df, gap="30 seconds"))}
    words = Counter(
        "one message" if n == 1 else "under 1 s" if end == start else "1 to 10 s" if end - start < 10
        else "10 s to 1 min" if end - start < 60 else "1 to 10 min" if end - start < 600 else "10 min to 1 h"
        for _, start, end, n in expected
    )  # fmt: skip
    assert histogram == words
    assert list(histogram) == [name for name in histogram if name in words], "short ones come first"


def test_sessions_by_a_field_of_the_body_and_the_time_of_arrival(spark: Any) -> None:
    rows = [record({}, at, body=json.dumps({"tail": "N1"}).encode(), event=False) for at in (0, 100, 5000)]
    df = spark.createDataFrame(rows, SCHEMA)
    (row,) = collect(sessions(df, key="$.tail", time="receive_time", gap="10 minutes"))
    assert (row["key"], row["sessions"], row["longest_ms"], row["per_session"]) == ("N1", 2, 100_000, 1.5)
    assert (row["first"], row["last"]) == (START, START + timedelta(seconds=5000))
    assert collect(sessions(df, key="$.tail")) == []  # by event time, which they have not
