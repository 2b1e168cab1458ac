"""export: what other programs get is what the broker has, whole or damaged, and a file is there whole or not at all."""

from __future__ import annotations

import base64
import csv
import errno
import gc
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from radiator.cli.main import run
from radiator.cli.selection import read_selection
from radiator.client import connect
from radiator.columns.deliveries import COLUMNS, arrow_schema
from radiator.columns.selection import Selection
from radiator.export import writers
from radiator.export.files import Export
from radiator.export.rows import Row
from radiator.limits import DESTINATION_BYTES_MAX
from radiator.storage import archived
from radiator.storage.files import FileSystem
from radiator.storage.layout import partition_path
from radiator.storage.reader import list_partitions
from tests.running import BrokerProcess
from tests.spark.deliveries import Delivery, records
from tests.spark.stores import START_NS, Writer, numbered

EVENT_NS = 1_357_017_300_000_000_789
CONFIG = """
defaults: {segment: {size: 64KiB}}
destinations: [{match: '/topic/w.*', partition: shared}]
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that still runs, with a queue, a shared partition and several segments of a topic."""
    broker = BrokerProcess(tmp_path_factory.mktemp("filled"), CONFIG)
    broker.start()
    with connect(broker.address, transmit_time=False) as connection:
        connection.send("/queue/jobs", "jöb", {"tag-a": "b:c", "tag-ü": "x\ny", "event-time": EVENT_NS, "n": 1})
        connection.send("/queue/jobs", b"\xff\0")
        connection.send_many([(f"/topic/w.{'ab'[number % 2]}", b"%d" % number) for number in range(10)])
        for number in range(300):
            connection.send("/topic/big", b"%d" % number * 500)
    yield broker
    assert broker.stop() == 0


def exported(broker: BrokerProcess, target: Path, *more: str, kind: str = "jsonl", code: int = 0) -> Path:
    assert run(["export", "--data", str(broker.data), "--format", kind, "--to", str(target), *more]) == code
    return target


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_record_is_there_once_with_the_columns_of_spark(filled: BrokerProcess, tmp_path: Path) -> None:
    found = lines(exported(filled, tmp_path / "all.jsonl"))
    assert len(found) == 312
    keys = [(each["partition"], each["offset"]) for each in found]
    assert len(set(keys)) == 312 and keys == sorted(keys, key=lambda key: (key[0], key[1]))
    job, binary = (each for each in found if each["partition"] == "/queue/jobs")
    assert list(job) == list(writers.COLUMNS)
    assert job["tags"] == {"a": "b:c", "ü": "x\ny"} and job["headers"]["tag-ü"] == "x\ny" and job["headers"]["n"] == "1"
    assert (job["body"], job["size"], job["message_id"]) == ("jöb", 4, "%2Fqueue%2Fjobs@0")
    assert (job["event_ns"], job["event_time"]) == (EVENT_NS, "2013-01-01T05:15:00.000000789Z")
    assert job["transmit_ns"] is job["transmit_time"] is None
    assert base64.b64decode(binary["body_base64"]) == b"\xff\0" and "body" not in binary


def test_what_was_exported_can_be_sent_again(filled: BrokerProcess, tmp_path: Path) -> None:
    path = exported(filled, tmp_path / "jobs.jsonl", "--partition", "/queue/jobs")
    assert run(["send", "--url", filled.address, "/topic/w.again", "--as", "records", "-f", str(path)]) == 0
    found = lines(exported(filled, tmp_path / "again.jsonl", "--destination", "/topic/w.again"))
    assert [each.get("body", each.get("body_base64")) for each in found] == ["jöb", "/wA="]
    assert found[0]["tags"] == {"a": "b:c", "ü": "x\ny"}


def test_a_part_by_destination_partition_offset_and_time(filled: BrokerProcess, tmp_path: Path) -> None:
    odd = lines(exported(filled, tmp_path / "odd", "--destination", "/topic/w.b,/queue/none", "--until", "9"))
    assert [each["body"] for each in odd] == ["1", "3", "5", "7", "9"]
    part = lines(exported(filled, tmp_path / "part", "--partition", "/topic/big", "--from", "200", "--until", "250"))
    assert [each["offset"] for each in part] == list(range(200, 251))
    times = [f"@{part[index]['receive_ns']}" for index in (5, 40)]
    more = ["--partition", "/topic/big", "--from", times[0], "--until", times[1]]
    found = lines(exported(filled, tmp_path / "time", *more))
    wanted = [each["offset"] for each in part if part[5]["receive_ns"] <= each["receive_ns"] < part[40]["receive_ns"]]
    assert [each["offset"] for each in found] == wanted and len(wanted) > 20
    assert len(lines(exported(filled, tmp_path / "hour", "--from", "-1h", "--partition", "/topic/big"))) == 300
    assert lines(exported(filled, tmp_path / "old", "--until", "-1h")) == []
    assert lines(exported(filled, tmp_path / "new", "--from", "2100-01-01T00:00:00Z")) == []  # an @ may be left out


def test_the_suffix_says_the_format_unless_it_is_given(filled: BrokerProcess, tmp_path: Path) -> None:
    def begins(name: str, *more: str) -> bytes:
        target = tmp_path / name
        command = ["export", "--data", str(filled.data), "--to", str(target), "--partition", "/queue/jobs", *more]
        assert run(command) == 0
        return (target if target.is_file() else next(target.iterdir())).read_bytes()[:12]

    for name in ("a.jsonl", "a.ndjson", "A.JSONL"):
        assert begins(name) == b'{"destinatio', name
    assert begins("a.csv") == begins("b.parquet", "--format", "csv") == b"destination,"
    (tmp_path / "folder.parquet").mkdir()
    assert begins("a.parquet").startswith(b"PAR1") and begins("folder.parquet").startswith(b"PAR1")


def test_csv_has_both_kinds_of_body(filled: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["export", "--data", str(filled.data), "--format", "csv", "--to", "-", "--partition", "/queue/jobs"]) == 0
    )
    out, err = capfd.readouterr()
    one, two = csv.DictReader(io.StringIO(out))
    assert (one["body"], one["body_base64"], two["body"], two["body_base64"]) == ("jöb", "", "", "/wA=")
    assert json.loads(one["tags"]) == {"a": "b:c", "ü": "x\ny"}
    assert "2 records of 1 partition," in err


def test_partitions_without_a_chosen_record_are_not_counted(
    filled: BrokerProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--destination", "/queue/jobs"]
    assert run(["export", "--data", str(filled.data), "--format", "jsonl", "--to", "-", *chosen]) == 0
    assert "2 records of 1 partition," in capfd.readouterr().err


def test_parquet_has_the_same_rows_in_groups_of_bounded_size(
    filled: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(writers, "GROUP_BYTES", 32 * 1024)
    path = exported(filled, tmp_path / "big.parquet", "--partition", "/topic/big", kind="parquet")
    file = pq.ParquetFile(path)
    assert file.num_row_groups > 5 and file.metadata.num_rows == 300
    assert file.metadata.row_group(0).column(12).compression == "ZSTD"
    exported(filled, tmp_path / "jobs.parquet", "--partition", "/queue/jobs", kind="parquet")
    job, binary = pq.read_table(tmp_path / "jobs.parquet").to_pylist()
    assert list(job) == list(writers.COLUMNS)
    assert dict(job["tags"]) == {"a": "b:c", "ü": "x\ny"} and job["body"] == "jöb".encode()
    assert job["event_ns"] == EVENT_NS and job["event_time"].isoformat() == "2013-01-01T05:15:00+00:00"
    assert (binary["body"], binary["event_ns"], binary["event_time"]) == (b"\xff\0", None, None)
    assert job["receive_time"].timestamp() * 1e6 == pytest.approx(job["receive_ns"] / 1000, abs=2)


def test_large_headers_count_where_parquet_bounds_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(writers, "GROUP_BYTES", 100_000)
    path = tmp_path / "large.parquet"
    with path.open("wb") as file:
        writer = writers.Parquet(file)
        shared = {"note": "x" * 10_000}
        for offset in range(60):
            headers = shared if offset < 30 else {"note": f"{offset}" * 5_000}
            writer.write([Row("/topic/a", "p", offset, f"p@{offset}", 1, None, None, {}, headers, b"")])
        writer.close()
    assert 5 < pq.ParquetFile(path).num_row_groups <= 7


@pytest.mark.parametrize(
    "kind", ["jsonl", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("csv", "parquet"))]
)
def test_deliveries_are_exported_with_their_columns(tmp_path: Path, kind: str) -> None:
    writer = Writer(tmp_path / "data")
    writer.write("a", numbered("/topic/a", 3))
    rows = [
        Delivery("/topic/a", "a", 0, "billing", "ann/0", 1, START_NS + 1, "acked", START_NS + 2_000),
        Delivery("/topic/b", "b", 0, "billing", None, 0, None, "expired", START_NS + 3_000),
        Delivery("/topic/a", "a", 1, "billing", "ann/s:0", 2, START_NS + 4_000, "nacked", START_NS + 5_000, "tx"),
    ]
    writer.write("deliveries", records(rows))
    writer.close()
    target, about = tmp_path / f"out.{kind}", ["--destination", "/topic/a", "--partition", "a"]
    assert run(["export", "--table", "deliveries", "--data", writer.root, "--to", str(target), *about]) == 0
    if kind == "parquet":
        table = pytest.importorskip("pyarrow.parquet").read_table(target)
        assert table.schema.equals(arrow_schema())
        found = table.to_pylist()
        assert [each["settled_at"].microsecond for each in found] == [2, 5]
    else:
        found = lines(target) if kind == "jsonl" else list(csv.DictReader(io.StringIO(target.read_text())))
        assert list(found[0]) == [column.name for column in COLUMNS]
        assert found[0]["delivered_at"] == "2023-11-14T22:13:20.000000001Z"
    assert [str(each["record_offset"]) for each in found] == ["0", "2"]
    assert [each["consumer"] for each in found] == ["ann/0", "ann/s:0"]
    assert [each["transaction"] or "" for each in found] == ["", "tx"]


def test_a_directory_gets_a_file_per_partition(
    filled: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    exported(filled, tmp_path, "--json", "--partition", "shared", "--partition", "/queue/jobs")
    found = json.loads(capfd.readouterr().out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["%2Fqueue%2Fjobs.jsonl", "shared.jsonl"]
    assert found["partitions"]["/queue/jobs"] == len(lines(tmp_path / "%2Fqueue%2Fjobs.jsonl")) == 2
    exported(filled, tmp_path, "--partition", "shared", code=1)
    assert "exists already" in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_the_longest_name_of_a_partition_has_its_file(tmp_path: Path, kind: str) -> None:
    writer = Writer(tmp_path / "data")
    writer.write("n" * DESTINATION_BYTES_MAX, numbered("/topic/a", 3))
    writer.close()
    (tmp_path / "out").mkdir()
    assert run(["export", "--data", writer.root, "--format", kind, "--to", str(tmp_path / "out")]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["n" * DESTINATION_BYTES_MAX + f".{kind}"]


def test_of_several_files_none_is_left_if_one_cannot_be_written(
    filled: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write, calls = Export.to_file, []

    def fails(self: Export, partitions: Any, path: str) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        write(self, partitions, path)

    monkeypatch.setattr(Export, "to_file", fails)
    exported(filled, tmp_path, code=1)
    assert len(calls) == 2 and "cannot be written: No space left" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def damaged(filled: BrokerProcess, tmp_path: Path) -> Path:
    """A copy of the store, with a flipped bit in the middle of a segment."""
    data = tmp_path / "data"
    assert run(["backup", "--data", str(filled.data), "--to", str(data)]) == 0
    path = sorted((data / "partitions" / "%2Ftopic%2Fbig").glob("*.rlog"))[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return data


def test_damage_ends_an_export_and_leaves_nothing_unless_it_is_skipped(
    damaged: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["export", "--data", str(damaged), "--format", "jsonl", "--partition", "/topic/big", "--to"]
    assert run([*command, str(tmp_path / "out")]) == 6
    err = capfd.readouterr().err
    assert "/topic/big: offsets" in err and "cannot be read" in err and "--skip-damaged" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
    assert run([*command, str(tmp_path / "out"), "--skip-damaged", "--json"]) == 6
    (lost,) = json.loads(capfd.readouterr().out)["lost"]
    missing = range(lost["first"], lost["last"] + 1)
    assert 0 < len(missing) < 100
    assert [each["offset"] for each in lines(tmp_path / "out")] == [each for each in range(300) if each not in missing]


def test_an_archive_is_reported_to_retention_and_goes_on_where_it_ended(filled: BrokerProcess, tmp_path: Path) -> None:
    data, fs = tmp_path / "data", FileSystem()
    assert run(["backup", "--data", str(filled.data), "--to", str(tmp_path / "backup")]) == 0
    assert run(["restore", str(tmp_path / "backup"), "--to", str(data)]) == 0
    directory = partition_path(str(data), "/topic/big")
    command = ["export", "--data", str(data), "--format", "jsonl", "--partition", "/topic/big", "--to"]
    assert run([*command, str(tmp_path / "one"), "--mark-archived"]) == 0
    assert archived.read(fs, directory) == 300
    archived.write(fs, directory, 290)  # as if ten had come since
    assert run([*command, str(tmp_path / "two"), "--mark-archived", "--from", "archived"]) == 0
    assert [each["offset"] for each in lines(tmp_path / "two")] == list(range(290, 300))
    assert archived.read(fs, directory) == 300


def test_what_is_asked_wrongly_is_refused_with_the_reason(
    filled: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "out")
    cases = [
        (["--format", "parquet", "--to", "-"], 2, "cannot be written to standard output"),
        (["--to", "-"], 2, "--format is missing: expected jsonl, csv, parquet, or a --to that ends in .jsonl, "),
        (["--to", f"{out}.json"], 2, "--format is missing"),
        (["--to", f"{out}.csv.gz"], 2, "--format is missing"),
        (["--format", "jsonl", "--to", out, "--from", "the other day"], 2, "--from: expected first, N"),
        (["--format", "jsonl", "--to", out, "--destination", "/a/>/b"], 2, "malformed pattern"),
        (["--format", "jsonl", "--to", out, "--partition", "none"], 5, "no partition none; `radiator ls`"),
        (["--format", "jsonl", "--to", out, "--partition", "/queue/job"], 5, "/queue/job; did you mean /queue/jobs?"),
        (["--format", "jsonl", "--to", out, "--mark-archived", "--until", "5"], 2, "cannot be combined with --until"),
        (["--format", "jsonl", "--to", out, "--mark-archived", "--from", "5"], 2, "other than first or archived"),
        (["--format", "jsonl", "--to", str(tmp_path / "no" / "out")], 1, "No such file or directory"),
    ]
    for args, code, words in cases:
        assert run(["export", "--data", str(filled.data), *args]) == code, args
        assert words in capfd.readouterr().err
    assert run(["export", "--data", str(tmp_path), "--format", "jsonl", "--to", out]) == 5
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    assert run(["export", "--data", str(filled.data), "--format", "parquet", "--to", out]) == 2
    assert "pip install 'radiator-broker[parquet]'" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_destination_that_nothing_is_called_by_is_reported(
    filled: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    exported(filled, tmp_path / "x", "--destination", "/topic/w.aa,/topic/big,/queue/jibs,/topic/z.*")
    told = capfd.readouterr().err
    assert f"{filled.data} has no destination '/topic/w.aa' yet; did you mean /topic/w.a?" in told
    assert "has no destination '/queue/jibs' yet; did you mean /queue/jobs?" in told
    assert "has no destination that matches '/topic/z.*' yet" in told
    assert "/topic/big'" not in told


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_ctrl_c_leaves_no_file_and_no_word_of_python(
    filled: BrokerProcess, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    monkeypatch.setattr(writers, "GROUP_ROWS", 10)
    calls = iter(range(3))

    def interrupted(done: int) -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt

    partitions = list_partitions(str(filled.data))
    work = Export(Selection(), kind, skip=False, on_loss=print, progress=interrupted)
    with pytest.raises(KeyboardInterrupt):
        work.to_file(partitions, str(tmp_path / "x"))
    del work
    gc.collect()
    assert said == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("at", ["", "@"])
@pytest.mark.parametrize(
    "moment", ["2013-01-31", "2013-01-31T00:00:00", "2013-01-31T00:00:00.0Z", "2013-01-31T01:00:00+01:00"]
)
def test_a_time_is_a_date_or_a_time_with_or_without_at(at: str, moment: str) -> None:
    chosen = read_selection(at + moment, at + moment, None, ())
    assert (chosen.receive_low_ns, chosen.receive_high_ns) == (1_359_590_400 * 10**9,) * 2
