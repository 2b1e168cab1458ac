"""The report: figures that are right, files that are there, errors that say what to do."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from radiator.cli import main as command_line
from radiator.cli.report import _print
from radiator.errors import ConfigError, StorageError
from radiator.spark import report as reports
from radiator.spark import report_session
from radiator.spark.page import Field, Page, Section, Table, Tile
from radiator.spark.report import FIRST, LAST, Report, _save, make_report
from radiator.spark.sections import SECTIONS
from tests.spark.archives import archive
from tests.spark.stores import MS, START_NS, Message, Writer, numbered
from tests.spark.test_source import damage

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    writer = Writer(tmp_path_factory.mktemp("report") / "data")
    writer.write("a", numbered("/topic/a", 300, carrier="UA"))
    writer.write("b", numbered("/topic/b<i>", 60, carrier="<DL>"))
    writer.close()
    return writer.root


@pytest.fixture(scope="module")
def made(spark: Any, store: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, list[tuple[str, int, int]]]:
    steps: list[tuple[str, int, int]] = []
    folder = tmp_path_factory.mktemp("out") / "report"
    return make_report(store, folder, spark=spark, progress=lambda *step: steps.append(step)), steps


def test_the_figures_are_those_of_the_log(made: tuple[Report, Any]) -> None:
    summary = made[0].summary()
    assert (summary["messages"], summary["missing"]) == (360, 0)
    assert summary["bytes"] == sum(len(each.body) for each in [*numbered("", 300), *numbered("", 60)])
    assert [(row["destination"], row["messages"]) for row in summary["totals"]] == [
        ("/topic/a", 300),
        ("/topic/b<i>", 60),
    ]
    assert sum(row["messages"] for row in summary["traffic"]) == 360
    assert sum(row["messages"] for row in summary["event_traffic"]) == 240  # two of three have an event time
    assert {row["leg"]: row["messages"] for row in summary["latency_all"]} == {
        "event to transmit": 120,
        "transmit to receive": 180,
        "event to receive": 240,
    }
    assert [(row["value"], row["messages"]) for row in summary["tags"]] == [("UA", 300), ("<DL>", 60)]
    assert [row["messages"] for row in summary["integrity"]] == [300, 60]


def test_page_pictures_and_json_are_in_the_folder(made: tuple[Report, Any]) -> None:
    report, _ = made
    assert report.folder is not None
    names = {path.name for path in report.files}
    pictures = {"volume.png", "traffic.png", "traffic-events.png", "latency.png", "lateness.png", "tags.png"}
    assert names == {"report.html", "report.json"} | pictures
    for path in report.files:
        assert path.parent == report.folder
        assert path.stat().st_size > 1000
    page = (report.folder / "report.html").read_text("utf-8")
    for text in ("/topic/a", "/topic/b&lt;i&gt;", "&lt;DL&gt;", "360", "Integrity", "complete"):
        assert text in page
    assert "<DL>" not in page
    assert json.loads((report.folder / "report.json").read_text("utf-8"))["messages"] == 360


def test_progress_is_reported_step_by_step(made: tuple[Report, Any]) -> None:
    steps, of = made[1], len(SECTIONS) + 2
    assert [what for what, _, _ in steps] == [FIRST, *SECTIONS, LAST, "done"]
    assert [place for _, place, _ in steps] == list(range(of + 1))
    assert {total for _, _, total in steps} == {of}


@pytest.mark.thorough
def test_an_empty_store_makes_a_page_that_says_so(spark: Any, writer: Writer, tmp_path: Path) -> None:
    report = make_report(writer.root, tmp_path / "out", spark=spark)
    assert "The store is empty." in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert report.summary()["messages"] == 0


@pytest.mark.thorough
def test_all_jobs_of_one_report_see_the_same_end(spark: Any, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    writer.write("p", numbered("/topic/a", 50))

    def more(what: str, place: int, of: int) -> None:
        writer.write("p", numbered("/topic/a", 10, 50 + 10 * place))

    summary = make_report(writer.root, spark=spark, sections=["traffic", "integrity"], progress=more).summary()
    assert summary["messages"] == summary["integrity"][0]["messages"] == 50
    assert sum(row["messages"] for row in summary["traffic"]) == 50


@pytest.mark.thorough
def test_history_that_was_published_later_is_not_drawn_as_latency(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    year = 365 * 86_400_000 * MS
    writer.write(
        "p", [Message("/topic/a", b"", b"", START_NS + i * MS, START_NS - 10 * year, START_NS - MS) for i in range(9)]
    )
    writer.close()
    report = make_report(writer.root, spark=spark, sections=["latency"])
    (latency,) = [section for section in report.page.sections if section.title == "Latency"]
    assert "recorded data was published" in latency.text
    assert len(latency.tables[0].rows) == 6


@pytest.mark.thorough
def test_one_section_has_a_page_of_its_own_and_reads_the_part_that_was_asked_for(
    spark: Any, store: str, tmp_path: Path
) -> None:
    window = {"start": str(START_NS + 10 * MS), "until": str(START_NS + 20 * MS)}
    report = make_report(
        store, tmp_path, spark=spark, sections=["traffic"], destination="/topic/a", every="1s", **window
    )
    assert {path.name for path in report.files} == {
        "traffic.html", "traffic.json", "volume.png", "traffic.png", "traffic-events.png",
    }  # fmt: skip
    assert [(row["destination"], row["messages"]) for row in report.answers["traffic"]] == [("/topic/a", 10)]
    assert [section.title for section in report.page.sections] == ["Traffic"]
    assert "destination /topic/a, from 2023-11-14 22:13:20" in (tmp_path / "traffic.html").read_text("utf-8")


@pytest.mark.thorough
def test_archive_and_log_are_read_as_one_and_the_log_may_be_gone(spark: Any, store: str, tmp_path: Path) -> None:
    archive(tmp_path / "archive", store, {"a": 200, "b": 60})
    both = make_report(
        store, spark=spark, archive=str(tmp_path / "archive"), sections=["traffic", "integrity", "compare"]
    )
    plain = make_report(store, spark=spark, sections=["traffic", "integrity", "compare"])
    assert both.answers == plain.answers
    since = {"archive": str(tmp_path / "archive"), "start": "2000-01-01"}
    begun = make_report(store, spark=spark, sections=["traffic"], **since)
    assert begun.answers["traffic"] == plain.answers["traffic"]
    alone = make_report(None, tmp_path / "out", spark=spark, archive=str(tmp_path / "archive"), sections=["integrity"])
    assert [row["messages"] for row in alone.answers["integrity"]] == [200, 60]
    assert str(tmp_path / "archive") in (tmp_path / "out" / "integrity.html").read_text("utf-8")
    with pytest.raises(ConfigError, match="or an archive, or both"):
        make_report(None, spark=spark)


@pytest.mark.thorough
def test_a_header_can_stand_in_the_place_of_destinations(spark: Any, store: str) -> None:
    report = make_report(store, spark=spark, sections=["traffic", "latency"], by="tag-carrier")
    assert [(row["destination"], row["messages"]) for row in report.answers["totals"]] == [("UA", 300), ("<DL>", 60)]
    assert {row["destination"] for row in report.answers["latency"]} == {"UA", "<DL>"}
    partitions = make_report(store, spark=spark, sections=["traffic"], by="partition").answers["totals"]
    assert [row["destination"] for row in partitions] == ["a", "b"]


@pytest.fixture
def run(spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """The command line, with the session of the tests: (exit code, stdout, stderr)."""

    class Shared:
        """The session, which the command may use but not stop."""

        def __getattr__(self, name: str) -> Any:
            return getattr(spark, name)

        def stop(self) -> None:
            pass

    monkeypatch.setattr(report_session, "get_session", lambda *_, **__: Shared())

    def call(*arguments: object) -> tuple[int, str, str]:
        code = command_line.run(["report", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_the_command_prints_tables_or_json(
    run: Any, made: tuple[Report, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(reports, "make_report", lambda *args, **options: asked.append((args, options)) or made[0])
    code, out, _ = run("--data", "somewhere", "--out", tmp_path / "out")
    assert code == 0
    for text in ("Overview", "/topic/b<i>", "300", "Percentiles", "Partitions", str(made[0].files[0])):
        assert text in out
    code, out, _ = run("--data", "somewhere", "--out", tmp_path / "out", "--json", "--skip-damaged")
    assert code == 0
    assert json.loads(out)["messages"] == 360
    assert [args for args, _ in asked] == [("somewhere", str(tmp_path / "out"))] * 2
    assert [options["fail_on_data_loss"] for _, options in asked] == [True, False]


def test_a_file_that_cannot_be_written_is_an_error_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "lag.html").mkdir()
    with pytest.raises(StorageError, match=r"lag\.html cannot be written: Is a directory; give another output folder"):
        _save(Report("", datetime.now(UTC), ["lag"], {}, Page("", "")), tmp_path)


def test_names_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    name = "/topic/:warning:[red]a[/red]"
    table = Table(name, [Field("n", name)], [{"n": name}])
    section = Section(name, name, [Tile("1", name)], [], [table], summary=name, findings=[name], notes=[name])
    section.title = "Names"
    _print(Report("", datetime.now(UTC), [], {}, Page("", "", [section]), Path(), [Path(name)]))
    assert capsys.readouterr().out.count(name) == 9


def test_what_clients_write_does_not_play_with_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "a\x1b[2Jb\x9bc\n\rd"
    table = Table(evil, [Field("a", evil)], [{"a": evil}])
    section = Section("Top", evil, [Tile("1", evil)], [], [table], evil, [evil], [evil])
    _print(Report("d", datetime.now(UTC), [], {}, Page("t", "", [section]), files=[Path("r.html")]))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\x9b" not in shown and "\r" not in shown
    assert shown.count("a\\x1b[2Jb\\x9bc\\n\\rd") == 8


@pytest.mark.thorough
def test_damage_ends_the_command_with_6_and_can_be_skipped(run: Any, writer: Writer, tmp_path: Path) -> None:
    writer.write("p", numbered("/topic/a", 50), per_batch=10)
    writer.close()
    damage(writer.root, "p")
    code, _, err = run("integrity", "--data", writer.root, "--out", tmp_path / "out")
    assert code == 6
    assert "offsets 10 to 19" in err
    assert "--skip-damaged" in err
    assert "Traceback" not in err
    code, out, err = run("integrity", "--data", writer.root, "--out", tmp_path / "out", "--skip-damaged")
    assert code == 6
    assert "Incomplete: 10 offsets missing, 0 twice" in out
    assert "batch at offset 10: crc expected" in out
    assert "10 records are missing" in err
    assert "Missing ranges" in (tmp_path / "out" / "integrity.html").read_text("utf-8")


def test_the_command_reads_an_archive_where_there_is_no_log(
    run: Any, store: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive(tmp_path / "archive", store, {"a": 100})
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("integrity", "--archive", tmp_path / "archive", "--out", tmp_path / "out", "--json")
    assert (code, json.loads(out)["integrity"][0]["messages"]) == (0, 100)
    code, _, err = run("integrity", "--archive", tmp_path / "archive", "--data", tmp_path / "none")
    assert (code, "no radiator store" in err) == (5, True)


def test_no_store_ends_the_command_with_5(run: Any, tmp_path: Path) -> None:
    code, _, err = run("--data", tmp_path / "none", "--out", tmp_path / "out")
    assert code == 5
    assert f"no radiator store at {tmp_path}/none" in err


def test_without_pyspark_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.startswith("radiator.spark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    assert command_line.run(["report", "--data", str(tmp_path)]) == 2
    assert "pip install 'radiator-broker[spark]'" in capsys.readouterr().err


def test_without_java_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], store: str, tmp_path: Path
) -> None:
    monkeypatch.setenv("RADIATOR_JAVA", str(tmp_path))
    assert command_line.run(["report", "--data", store, "--out", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert "Java 17 or newer" in err
    assert "pip install 'radiator-broker[spark]'" in err
