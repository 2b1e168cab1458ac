"""``table``: archive and log as one, nothing missing and nothing twice."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from radiator.archive import Changes, Lost, NoArchive, commit, load, open_files
from radiator.columns.scan import LostRecords
from radiator.errors import ConfigError, StorageError
from radiator.spark import collect, read, table, tables
from radiator.spark.report import reason
from radiator.spark.schema import SCHEMA
from tests.spark.archives import archive, compact, lose
from tests.spark.stores import START_NS, Writer, numbered
from tests.tiers import sampled

pytestmark = pytest.mark.spark

DAY_NS = 86_400 * 10**9


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two partitions over two days; of ``abc`` the archive has 200 of 300 records, in two commits, of ``p/1`` none, of
    ``q`` all."""
    root = tmp_path_factory.mktemp("table")
    writer = Writer(root / "data")
    for i in range(10):
        group = [each for name in "abc" for each in numbered(f"/topic/{name}", 10, 10 * i, step_ns=DAY_NS // 60)]
        writer.append("abc", sorted(group, key=lambda each: each.receive_ns))
        writer.commit()
    writer.write("p/1", numbered("/queue/p", 50))
    writer.write("q", numbered("/queue/q", 50))
    writer.close()
    archive(root / "archive", writer.root, {"abc": 100, "q": 50})
    archive(root / "archive", writer.root, {"abc": 200})
    return writer.root, str(root / "archive")


def offsets(df: Any) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in df.select("partition", "offset").collect():
        found.setdefault(row.partition, []).append(row.offset)
    return {name: sorted(each) for name, each in found.items()}


WHOLE = {"abc": list(range(300)), "p/1": list(range(50)), "q": list(range(50))}


def test_every_record_is_in_the_table_once(spark: Any, store: tuple[str, str]) -> None:
    df = table(spark, *store)
    assert offsets(df) == WHOLE
    assert df.columns == SCHEMA.names and [each.dataType for each in df.schema] == [each.dataType for each in SCHEMA]


def test_both_sides_give_the_same_rows_byte_for_byte(spark: Any, store: tuple[str, str]) -> None:
    def rows(df: Any) -> list[dict[str, Any]]:
        return sorted(collect(df), key=lambda row: (row["partition"], row["offset"]))

    assert rows(table(spark, *store)) == rows(read(spark, store[0]))


def test_a_view_answers_sql(spark: Any, store: tuple[str, str]) -> None:
    table(spark, *store, view="log")
    rows = spark.sql("SELECT destination, count(*) AS n, max(receive_ns) AS last FROM log GROUP BY 1").collect()
    assert {row.destination: row.n for row in rows} == {
        "/topic/a": 100, "/topic/b": 100, "/topic/c": 100, "/queue/p": 50, "/queue/q": 50,
    }  # fmt: skip


def test_it_is_a_snapshot_of_when_it_was_made(spark: Any, tmp_path: Path, writer: Writer) -> None:
    writer.write("a", numbered("/topic/a", 10))
    df = table(spark, writer.root, tmp_path / "archive")
    writer.write("a", numbered("/topic/a", 10, 10))
    writer.write("b", numbered("/topic/b", 10))
    assert offsets(df) == {"a": list(range(10))}
    assert offsets(table(spark, writer.root, tmp_path / "archive")) == {"a": list(range(20)), "b": list(range(10))}


@pytest.mark.parametrize(
    "destination", sampled(["/topic/b", "/topic/*", "/topic/a,/queue/>", "#.q", "/topic/nothing", "/topic.a"], 2)
)
@pytest.mark.parametrize("many", [False, True], ids=["listed", "unlisted"])
def test_a_destination_is_chosen_as_the_log_itself_chooses_it(
    spark: Any, store: tuple[str, str], tmp_path: Path, destination: str, many: bool
) -> None:
    there = store[1]
    if many:
        there = str(tmp_path / "many")
        archive(there, store[0], {"abc": 200, "q": 50}, many=True)
    assert offsets(table(spark, store[0], there, destination=destination)) == offsets(
        read(spark, store[0], destination=destination)
    )


@pytest.mark.thorough
def test_times_are_selected_across_the_archive_boundary_to_the_nanosecond(spark: Any, store: tuple[str, str]) -> None:
    low, high = START_NS + DAY_NS // 60 * 30, START_NS + DAY_NS // 60 * 80
    df = table(spark, *store, partition="abc", start=low, end=high)
    assert offsets(df) == offsets(read(spark, store[0], partition="abc", start_time=low, end_time=high))
    assert df.count() == 150
    assert table(spark, *store, start=10**18, end=10**18 + 1).count() == 0
    assert table(spark, *store, partition="abc", end=low // 10**6).count() == 90  # milliseconds
    for number in (1, 1_700_000_000):
        with pytest.raises(ConfigError, match="start: expected nanoseconds since 1970"):
            table(spark, *store, start=number)
    with pytest.raises(ConfigError, match="option end: expected RFC 3339"):
        table(spark, *store, end="soon")
    days = [table(spark, *store, start=day).count() for day in ("2023-11-15", date(2023, 11, 15))]
    assert days[0] == days[1] and 0 < days[0] < 300
    moment = datetime.fromtimestamp(low // 10**9, UTC)
    assert table(spark, *store, partition="abc", start=moment, end=str(high)).count() == 150
    assert table(spark, *store, partition="abc", start=low + 1).count() == 207


def files_of(df: Any) -> list[str]:
    return [unquote(unquote(path)) for path in df.inputFiles()]


def test_only_files_that_can_hold_what_is_asked_for_are_read(spark: Any, store: tuple[str, str]) -> None:
    total = len(open_files(store[1]).list("")) - 2
    every = files_of(table(spark, *store))
    assert len(every) == len(set(every)) >= 10
    only = files_of(table(spark, *store, destination="/topic/b"))
    assert only and all("~2Ftopic~2Fb" in path for path in only) and len(only) < total
    late = files_of(table(spark, *store, partition="abc", start="2023-11-15T12:00:00Z"))
    assert late and all("date=2023-11-15" in path or "date=2023-11-16" in path for path in late)
    assert all("/q@" in path for path in files_of(table(spark, *store, partition="q")))
    assert files_of(table(spark, *store, partition="p/1")) == []


def test_only_columns_that_are_named_are_read(spark: Any, store: tuple[str, str]) -> None:
    df = table(spark, *store, columns=["size", "destination"])
    assert df.columns == ["size", "destination"]
    plan = df._jdf.queryExecution().executedPlan().toString()
    assert "body" not in plan and "headers" not in plan
    assert table(spark, *store, columns=[]).columns == []
    with pytest.raises(ConfigError, match="did you mean destination"):
        table(spark, *store, columns=["destinaton"])
    with pytest.raises(ConfigError, match="Kafka's value is body here"):
        table(spark, *store, columns=["value"])
    for taking in (table, read):
        with pytest.raises(ConfigError, match=r"expected a list of names, such as columns=\['size'\], got the text"):
            taking(spark, store[0], columns="size")


def test_either_side_may_be_missing(spark: Any, store: tuple[str, str], tmp_path: Path) -> None:
    data, there = store
    assert offsets(table(spark, data)) == WHOLE
    assert offsets(table(spark, data, tmp_path / "no archive yet")) == WHOLE
    assert offsets(table(spark, None, there)) == {"abc": list(range(200)), "q": list(range(50))}
    empty = Writer(tmp_path / "empty")
    empty.close()
    shutil.copy(f"{data}/salt", f"{empty.root}/salt")
    nothing = table(spark, empty.root, tmp_path / "no archive yet")
    assert nothing.columns == SCHEMA.names and nothing.count() == 0
    assert offsets(table(spark, empty.root, there)) == {"abc": list(range(200)), "q": list(range(50))}
    told: list[str] = []
    assert offsets(table(spark, data, tmp_path / "no archive yet", report=told.append)) == WHOLE
    assert "the archive does not exist or is empty, so only the log is read" in "".join(told)
    with pytest.raises(
        NoArchive, match="the archive does not exist or is empty.*`radiator archive --data DIR --to URI` writes"
    ):
        table(spark, None, tmp_path / "no archive yet")
    with pytest.raises(ConfigError, match="got neither"):
        table(spark, None)


def test_a_name_that_neither_side_has_is_reported_once_and_one_of_the_archive_is_not(
    spark: Any, store: tuple[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    assert table(spark, *store, destination="/topic/aa", report=told.append).count() == 0
    assert told == ["neither archive nor log has a destination '/topic/aa' yet; did you mean /topic/a?"]
    empty = Writer(tmp_path / "empty")
    empty.close()
    shutil.copy(f"{store[0]}/salt", f"{empty.root}/salt")
    assert table(spark, empty.root, store[1], destination="/topic/a").count() == 67
    assert "has no destination" not in capfd.readouterr().err


def test_a_wrong_schema_and_several_directories_are_refused_with_the_reason(spark: Any, store: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="nowhere.json: expected a JSON Schema, and there is no such file"):
        table(spark, *store, schema="nowhere.json")
    with pytest.raises(ConfigError, match=r"got 'schemas/': .*SYNTAX.*for a file of another name give a Path"):
        table(spark, *store, schema="schemas/")
    with pytest.raises(Exception, match="load: expected one data directory, got several") as error:
        spark.read.format("radiator").load([store[0], store[0]])
    assert reason(error.value) == (
        "load: expected one data directory, got several; read each one, and join them with unionByName"
    )
    assert reason(ConfigError("plain")) == "plain"


@pytest.mark.thorough
def test_names_and_places_may_have_any_characters(spark: Any, tmp_path: Path) -> None:
    names = ["_x", ".x", "a%2Fb", "a b", "ü/{x}[y]*?", "date=1", "~many", "a@1-2", "x" * 220]
    writer = Writer(tmp_path / "da[t]a {x}%20")
    for name in names:
        writer.write(name, numbered(f"/topic/{name}", 20))
    writer.close()
    there = tmp_path / "_arch [i]ve {x}%20 *"
    archive(there, writer.root, dict.fromkeys(names, 10))
    expected = {name: list(range(20)) for name in names}
    assert offsets(table(spark, writer.root, there)) == expected
    assert offsets(table(spark, f"file://{writer.root}".replace("%", "%25"), there)) == expected


def test_files_that_no_commit_names_are_not_read(spark: Any, store: tuple[str, str], tmp_path: Path) -> None:
    there = tmp_path / "archive"
    shutil.copytree(store[1], there)
    for path in list(there.rglob("*.parquet")):
        shutil.copy(path, path.with_name(f"left-over-{path.name}"))
    assert offsets(table(spark, store[0], there)) == WHOLE


def test_what_retention_took_before_it_was_archived_is_reported(spark: Any, tmp_path: Path, writer: Writer) -> None:
    writer = Writer(tmp_path / "small", segment_bytes=4096)
    writer.write("a", numbered("/topic/a", 300), per_batch=10)
    writer.write("b", numbered("/topic/b", 300), per_batch=10)
    writer.close()
    archive(tmp_path / "archive", writer.root, {"a": 20})
    segments = sorted(Path(writer.root, "partitions", "a").glob("*.rlog"))
    first = int(segments[2].stem)
    for path in segments[:2]:
        path.unlink()
    sorted(Path(writer.root, "partitions", "b").glob("*.rlog"))[0].unlink()  # an archive has nothing of it
    with pytest.raises(LostRecords, match=rf"'a': offsets 20 to {first - 1}: retention.*fail_on_data_loss=False"):
        table(spark, writer.root, tmp_path / "archive")
    found = offsets(table(spark, writer.root, tmp_path / "archive", fail_on_data_loss=False))
    assert found["a"] == [*range(20), *range(first, 300)]
    assert offsets(table(spark, writer.root, tmp_path / "archive", partition="b"))["b"][-1] == 299


def test_what_the_archive_could_not_read_is_reported(spark: Any, store: tuple[str, str], tmp_path: Path) -> None:
    shutil.copytree(store[1], tmp_path / "archive")
    lose(tmp_path / "archive", Lost("abc", 17, 19, "damaged"))
    with pytest.raises(LostRecords, match="'abc': offsets 17 to 18: the archive could not read them: damaged"):
        table(spark, store[0], tmp_path / "archive")
    assert table(spark, store[0], tmp_path / "archive", partition="q").count() == 50
    assert table(spark, store[0], tmp_path / "archive", fail_on_data_loss=False).count() == 400


def test_a_compaction_before_the_files_are_listed_is_waited_for(
    spark: Any, store: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(store[1], tmp_path / "archive")
    find_boundary, seen = tables.find_boundary, Counter[str]()

    def compacted_behind_our_back(*args: Any) -> Any:
        found = find_boundary(*args)
        seen["calls"] += 1
        if seen["calls"] == 1:
            compact(tmp_path / "archive", "abc", "/topic/a")
        return found

    monkeypatch.setattr(tables, "find_boundary", compacted_behind_our_back)
    assert offsets(table(spark, store[0], tmp_path / "archive")) == WHOLE
    assert seen["calls"] > 1


def test_the_archive_of_another_store_is_refused(spark: Any, store: tuple[str, str], writer: Writer) -> None:
    with pytest.raises(StorageError, match="archive of another data directory"):
        table(spark, writer.root, store[1])
    shutil.copytree(store[0], f"{writer.root}-copy")
    assert table(spark, f"{writer.root}-copy", store[1]).count() == 400


def test_a_file_that_spark_leaves_out_without_a_word_is_an_error(
    spark: Any, store: tuple[str, str], tmp_path: Path
) -> None:
    """One that goes while Spark lists, or one that it takes for hidden."""
    shutil.copytree(store[1], tmp_path / "archive")
    files = open_files(tmp_path / "archive")
    state = load(files)
    old = next(iter(state.files.values()))
    hidden = replace(old, path=f"{old.path.rpartition('/')[0]}/_{old.path.rpartition('/')[2]}")
    (tmp_path / "archive" / old.path).rename(tmp_path / "archive" / hidden.path)
    commit(files, state, Changes(state.source or "", add=[hidden], remove=[old.path]))
    with pytest.raises(StorageError, match=r"Spark does not find all files that the commits name: it lists \d+ of"):
        table(spark, store[0], tmp_path / "archive")


def test_options_that_would_move_the_archive_boundary_are_refused(spark: Any, store: tuple[str, str]) -> None:
    for name in ("startingOffsets", "ending_offsets", "startingOffsetsByTimestamp", "ending_offsets_by_timestamp"):
        with pytest.raises(
            ConfigError, match=f"table has no option {name}: it sets the start and the end of the log itself"
        ):
            table(spark, *store, **{name: '{"abc": 1700000000000}'})
    for name, told in [
        ("pushdown", "many queries"),
        ("failOnDataLoss", "argument fail_on_data_loss="),
        ("Archive", "e="),
    ]:
        with pytest.raises(ConfigError, match=f"table has no option {name}: .*{told}"):
            table(spark, *store, **{name: "true"})
    assert table(spark, *store, rows_per_batch=7).count() == 400
