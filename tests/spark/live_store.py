"""Spark and the broker asked the same about one store, while it is being written and when it is done.

    python -m tests.spark.live_store [--records 5600000] [--directory DIR]

A real broker keeps topics in every way it has: small segments that roll, zstd, retention by size, transactions over
two logs (of which every tenth is given up), several topics in one log. Producers in processes of their own send records
of which everything is known. Meanwhile Spark reads the files up to ``snapshot`` again and again, and the broker itself
hands out the same offsets by replay over STOMP: counts and hashes must be equal, partition by partition. At the end all
of it is compared once more, and with what the producers were told.

A record's hash is crc32 over its address, destination, number (a header), tag and body; the hash of many is their sum,
which does not depend on their order.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.running import BrokerProcess

CONFIG = """
defaults: {fsync: 50ms}
destinations:
  - {match: '/topic/packed.*', compress: zstd, segment: {size: SMALL}}
  - {match: '/topic/brief', segment: {size: SMALL}, retention: {size: KEPT}}
  - {match: '/topic/shared.*', partition: shared, segment: {size: LARGE}}
  - {match: '/topic/>', segment: {size: LARGE}}
"""
LONE = ("/topic/plain", "/topic/packed.a", "/topic/brief", "/topic/shared.x", "/topic/shared.y", "/topic/packed.a")
PAIR = ("/topic/paid", "/topic/shipped")
BRIEF = "/topic/brief"
SLOWLY_SECONDS = 0.5
IN_ONE_CALL = 2_000
IN_A_TRANSACTION = 200
GIVEN_UP_EVERY = 10
BODIES = [(b"%d:" % size) + bytes(range(33, 127)) * 4 for size in range(40)]
READ_BACK = 50_000  # offsets of each partition that the broker replays while it is being written


@dataclass(frozen=True)
class Sum:
    """What many records come to."""

    records: int = 0
    hash: int = 0

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.records + other.records, self.hash + other.hash)


def body(number: int) -> bytes:
    return b"%d %b" % (number, BODIES[number % len(BODIES)][: 20 + number % 300])


def hash_of(message_id: str, destination: str, number: str, tag: str, content: bytes) -> int:
    return crc32(f"{message_id}|{destination}|{number}|{tag}|".encode() + content)


def config(records: int) -> str:
    """Segments of a size that makes so many records roll, and retention work."""
    large = min(max(2 * records, 256 << 10), 8 << 20)
    kept = f"{min(20 * records, 64 << 20)}B"
    return CONFIG.replace("KEPT", kept).replace("LARGE", f"{large}B").replace("SMALL", f"{max(large // 4, 64 << 10)}B")


# --- writing ----------------------------------------------------------------------------------------------------------


def produce(address: str, which: int, records: int, enough: Any, told: Any) -> None:
    """In a process of its own: so many records, and then some more, slowly, until the event ``enough`` is set. Puts
    into ``told`` how many were sent, how many of them were receipted alone, and how many in transactions."""
    from radiator.client import connect

    number, call = which * 1_000_000_000, 0
    sent = alone = paired = 0

    def messages(names: tuple[str, ...], count: int) -> Iterator[tuple[str, bytes, Mapping[str, Any]]]:
        nonlocal number
        for _ in range(count):
            yield names[number % len(names)], body(number), {"number": number, "tag-call": call}
            number += 1

    with connect(address, timeout=120) as connection:
        while sent < records or not enough.wait(SLOWLY_SECONDS):
            call += 1
            if call % 4:
                count = IN_ONE_CALL if sent < records else IN_ONE_CALL // 10
                alone += len(connection.send_many(messages(LONE, count)))
                sent += count
                continue
            for _ in range(IN_ONE_CALL // IN_A_TRANSACTION if sent < records else 1):
                call += 1
                sent += IN_A_TRANSACTION
                with connection.transaction() as transaction:
                    transaction.send_many(messages(PAIR, IN_A_TRANSACTION))
                    if call % GIVEN_UP_EVERY == 0:
                        transaction.abort()
                        continue
                paired += IN_A_TRANSACTION
    told.put((sent, alone, paired))


# --- asking the broker ------------------------------------------------------------------------------------------------


def replayed(address: str, destinations: str, start: int, stop: int) -> Sum:
    """What the broker hands out of a log, from ``start`` up to, not including, ``stop``."""
    from radiator.client import connect

    records = total = 0
    expected = start
    with connect(address, timeout=120) as connection:
        options = {"start_position": f"offset:{start}", "stop_position": f"offset:{stop - 1}"}
        for message in connection.subscribe(destinations, ack="auto", **options):
            assert message.offset == expected, f"{destinations}: offset {message.offset} where {expected} was expected"
            expected += 1
            headers = message.headers
            total += hash_of(message.id, message.destination, headers["number"], headers["tag-call"], message.body)
            records += 1
    assert expected == stop, f"{destinations}: the replay ended at {expected}, not at {stop}"
    return Sum(records, total)


DESTINATIONS_OF = {"shared": "/topic/shared.*"}  # others are called like their partition


def by_replay(address: str, ranges: Mapping[str, tuple[int, int]]) -> dict[str, Sum]:
    return {
        partition: replayed(address, DESTINATIONS_OF.get(partition, partition), start, stop)
        for partition, (start, stop) in ranges.items()
        if start < stop
    }


# --- asking Spark -----------------------------------------------------------------------------------------------------


def by_spark(spark: Any, path: str, ranges: Mapping[str, tuple[int, int]]) -> dict[str, Sum]:
    from pyspark.sql import functions as F

    from radiator.spark import read

    df = read(
        spark,
        path,
        columns=["partition", "message_id", "destination", "headers", "tags", "body"],
        starting_offsets=json.dumps({name: start for name, (start, _) in ranges.items()}),
        ending_offsets=json.dumps({name: stop for name, (_, stop) in ranges.items()}),
    )
    text = F.concat_ws("|", "message_id", "destination", F.col("headers")["number"], F.col("tags")["call"], F.lit(""))
    one = F.crc32(F.concat(F.encode(text, "UTF-8"), "body"))
    found = df.groupBy("partition").agg(F.count("*").alias("records"), F.sum(one).alias("hash")).collect()
    return {row["partition"]: Sum(row["records"], row["hash"]) for row in found}


def ranges_now(path: str) -> dict[str, tuple[int, int]]:
    """The offsets that each partition holds now."""
    from radiator.columns.files import open_store
    from radiator.columns.log import partitions

    logs = partitions(open_store(path))
    return {log.name: (log.log_start_offset, log.next_offset) for log in logs if log.next_offset}


def compare(spark: Any, broker: BrokerProcess, ranges: dict[str, tuple[int, int]]) -> int:
    """How many records were compared. Raises AssertionError where they differ."""
    path = str(broker.data)
    found = by_spark(spark, path, ranges)
    told = by_replay(broker.address, ranges)
    assert found == told, f"of {ranges} Spark has {found}, and the broker {told}"
    return sum(each.records for each in told.values())


def while_written(spark: Any, broker: BrokerProcess) -> tuple[int, int]:
    """All records counted, and the latest ones compared. Returns how many in all, and how many compared."""
    from radiator.columns.scan import LostRecords
    from radiator.spark.report import reason

    for _ in range(20):
        everything = ranges_now(str(broker.data))
        if BRIEF in everything:
            start, stop = everything[BRIEF]
            everything[BRIEF] = ((start + stop) // 2, stop)  # ahead of retention
        try:
            found = by_spark(spark, str(broker.data), everything)
        except Exception as error:  # the one error that may be: retention has taken what was planned
            told = reason(error) or ""
            assert "retention" in told and LostRecords.__name__ in str(error) and repr(BRIEF) in told, error
            continue
        for name, (start, stop) in everything.items():
            assert found.get(name, Sum()).records == stop - start, f"{name}: {found.get(name)} of {start} to {stop}"
        lately = {
            name: (max(start, stop - READ_BACK), stop) for name, (start, stop) in everything.items() if name != BRIEF
        }
        return sum(each.records for each in found.values()), compare(spark, broker, lately)
    raise AssertionError("retention was faster than twenty queries")


# --- all of it --------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    records: int
    looks: int
    compared_meanwhile: int
    segments: int
    retained_from: int
    given_up: int

    def __str__(self) -> str:
        return (
            f"{self.records:,} records in {self.segments} segments, {self.retained_from:,} more gone by retention, "
            f"{self.given_up:,} given up in transactions; Spark and broker equal in {self.looks} looks while it was "
            f"written ({self.compared_meanwhile:,} records compared one by one) and in all of it at the end"
        )


def run(spark: Any, directory: Path, records: int, producers: int = 2, looks_min: int = 3) -> Outcome:
    """Raises AssertionError where Spark and the broker differ."""
    broker = BrokerProcess(directory, config(records))
    broker.start()
    try:
        return _run(spark, broker, records, producers, looks_min)
    finally:
        if broker.running:
            broker.kill()


def _run(spark: Any, broker: BrokerProcess, records: int, producers: int, looks_min: int) -> Outcome:
    context = multiprocessing.get_context("spawn")
    enough, told = context.Event(), context.Queue()
    each = -(-records // producers // (4 * IN_ONE_CALL)) * 4 * IN_ONE_CALL
    processes = [
        context.Process(target=produce, args=(broker.address, which + 1, each, enough, told), daemon=True)
        for which in range(producers)
    ]
    for process in processes:
        process.start()
    looks = compared = 0
    while not set(PAIR) < ranges_of(broker).keys():
        assert all(process.is_alive() for process in processes)
        time.sleep(0.05)
    while any(process.is_alive() for process in processes):
        before = ends_of(broker)
        seen, same = while_written(spark, broker)
        assert ends_of(broker) > before or enough.is_set(), "nothing was written while Spark looked"
        looks, compared = looks + 1, compared + same
        print(f"  {seen:,} records in the log; {same:,} compared with the broker's", file=sys.stderr)
        if looks >= looks_min:
            enough.set()
    sent, alone, paired = (sum(counts) for counts in zip(*(told.get(timeout=60) for _ in processes), strict=True))
    for process in processes:
        process.join()
        assert process.exitcode == 0
    everything = ranges_now(str(broker.data))
    compared_at_last = compare(spark, broker, everything)
    gone = everything[BRIEF][0]
    assert sum(stop for name, (_, stop) in everything.items() if name not in PAIR) == alone
    assert sum(everything[name][1] for name in PAIR) == paired
    assert compared_at_last == alone + paired - gone
    segments = len(list(broker.data.glob("partitions/*/*.rlog")))
    assert segments > 10 and gone > 0, "the store did not roll, or retention had nothing to do: more records"
    return Outcome(compared_at_last, looks, compared, segments, gone, sent - alone - paired)


def ends_of(broker: BrokerProcess) -> int:
    return sum(stop for _, stop in ranges_of(broker).values())


def ranges_of(broker: BrokerProcess) -> dict[str, tuple[int, int]]:
    return ranges_now(str(broker.data)) if os.path.isdir(broker.data / "partitions") else {}


def main() -> None:
    from radiator.spark import get_session

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--records", type=int, default=5_600_000)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    spark = get_session("evidence", log_level="OFF")
    begun = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
            print(run(spark, Path(scratch), given.records))
    finally:
        spark.stop()
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
