"""archive: what the command says and leaves, on a schedule, beside a broker, and when the store cannot be reached."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from radiator.archive import files as archive_files
from radiator.archive import load, open_files
from radiator.cli import archive as archive_command
from radiator.cli.main import run
from radiator.client import connect
from radiator.columns.files import open_store
from radiator.columns.log import partitions
from tests.archive.killing import check_all
from tests.archive.stores import archive_rows, fill, log_rows, more
from tests.running import BrokerProcess

ROOT = Path(__file__).parent.parent.parent
SECONDS_MAX = 120.0


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[tuple[str, str]]:
    fill(tmp_path / "data", days=2).close()
    yield str(tmp_path / "data"), str(tmp_path / "archive")


def said(capfd: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capfd.readouterr().out)


def until(what: Any) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_says_what_it_did_and_the_next_one_that_there_was_nothing(
    paths: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    data, to = paths
    assert run(["archive", "--data", data, "--to", to, "--dry-run"]) == 0
    text = capfd.readouterr().out
    assert "flights: offsets 0 to " in text
    assert "\n1 partition, " in text and "nothing was written" in text
    assert not Path(to).exists()
    assert run(["archive", "--data", data, "--to", to]) == 0
    assert "records, " in capfd.readouterr().out
    found = check_all(Path(data), Path(to))
    assert run(["archive", "--data", data, "--to", to, "--json"]) == 0
    again = said(capfd)
    assert again["unsealed"] == 2000 - len(found)
    assert run(["archive", "--data", data, "--to", to]) == 0
    assert f"{2000 - len(found)} records in segments that are still written to" in capfd.readouterr().err
    assert (again["records"], again["files"], again["problems"]) == (0, 0, {})
    assert run(["archive", "ls", to, "--json"]) == 0
    listed = said(capfd)
    assert sum(each["records"] for each in listed["days"]) == len(found)
    assert listed["ends"] == {"flights": len(found)}
    assert run(["archive", "ls", to]) == 0
    shown = capfd.readouterr().out
    assert f"{len(found):,} records in" in shown
    for same in (["archive", "ls", "--to", to], ["archive", "--to", to, "ls"]):
        assert run(same) == 0
        assert capfd.readouterr().out == shown
    assert run(["archive", "ls"]) == run(["archive", "ls", to, "--to", "other"]) == 2


def test_a_trial_run_says_what_retention_took_before(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    writer, data, to = fill(tmp_path / "data"), str(tmp_path / "data"), str(tmp_path / "archive")
    assert run(["archive", "--data", data, "--to", to]) == 0
    more(writer, first=2000)
    writer.close()
    end = load(open_files(to)).ends["flights"]
    for segment in sorted(Path(data).glob("partitions/*/*.rlog"))[:-2]:
        segment.unlink()
    (log,) = partitions(open_store(data))
    capfd.readouterr()
    assert run(["archive", "--data", data, "--to", to, "--dry-run"]) == 0
    told = capfd.readouterr()
    assert f"flights: offsets {end} to {log.log_start_offset - 1} would be lost: retention" in told.err
    assert f"flights: offsets {log.log_start_offset} to {log.segments[-1].base_offset - 1}, " in told.out
    Path(log.segments[0].path).unlink()
    assert run(["archive", "--data", data, "--to", to, "--dry-run"]) == 0
    told = capfd.readouterr()
    assert f"flights: offsets {end} to {log.segments[-1].base_offset - 1} would be lost: retention" in told.err
    assert told.out.startswith("0 partitions, ")


def test_the_files_of_a_destination_and_a_time_are_listed(
    paths: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    data, to = paths
    run(["archive", "--data", data, "--to", to])
    capfd.readouterr()
    assert run(["archive", "files", to, "--destination", "/topic/flights.1", "--until", "2023-11-15"]) == 0
    (path,) = capfd.readouterr().out.split()
    assert archive_files(to, "/topic/flights.1", end="2023-11-15") == [path]
    capfd.readouterr()
    assert run(["archive", "files", to, "--destination", "flights.1"]) == 0
    nothing = capfd.readouterr()
    assert not nothing.out and "has no destination 'flights.1' yet; did you mean /topic/flights.1?" in nothing.err
    assert run(["archive", "files", to, "--json"]) == 0
    assert len(said(capfd)) == len(load(open_files(to)).files)
    assert run(["archive", "files", to, "--from", "yesterday"]) == 2


def test_verify_ends_with_6_if_a_file_is_gone(paths: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    data, to = paths
    run(["archive", "--data", data, "--to", to])
    assert run(["archive", "verify", to, "--records"]) == 0
    Path(archive_files(to)[0]).unlink()
    capfd.readouterr()
    assert run(["archive", "verify", to, "--json"]) == 6
    assert "does not exist" in said(capfd)["faults"][0]


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["--to", ""], 1, "names no archive"),
        ([], 2, "--to is missing"),
        (["--to", "x", "--every", "1h", "--at", "03:00"], 2, "cannot be combined"),
        (["--to", "x", "--every", "soon"], 2, "expected a duration"),
        (["--to", "x", "--every", "0s"], 2, "expected a duration above 0"),
        (["--to", "x", "--at", "25:00"], 2, "expected"),
        (["--to", "x", "--partition", "nobody"], 5, "no partition nobody"),
        (["--to", "nowhere://x"], 1, "no library for"),
        (["--to", "x", "--data", "not here"], 5, "no radiator store"),
        (["ls", "not here"], 5, "no archive here"),
    ],
)
def test_what_cannot_be_done_is_reported(
    paths: tuple[str, str], capfd: pytest.CaptureFixture[str], args: list[str], code: int, text: str
) -> None:
    data = [] if "--data" in args or args[:1] == ["ls"] else ["--data", paths[0]]
    assert run(["archive", *data, *args]) == code
    assert text in capfd.readouterr().err


@pytest.mark.parametrize("inside", ["", "partitions/x", "archive"])
def test_an_archive_has_a_place_of_its_own(
    paths: tuple[str, str], capfd: pytest.CaptureFixture[str], inside: str
) -> None:
    data, _ = paths
    before = sorted(Path(data).rglob("*"))
    assert run(["archive", "--data", data, "--to", f"{data}/{inside}"]) == 2
    assert "is in the data directory" in capfd.readouterr().err
    assert sorted(Path(data).rglob("*")) == before


def test_without_pyarrow_the_remedy_is_reported(
    paths: tuple[str, str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("radiator.archive")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.compute", None)
    assert run(["archive", "--data", paths[0], "--to", paths[1]]) == 2
    assert "pip install 'radiator-broker[parquet]'" in capfd.readouterr().err


def test_damage_ends_with_6_and_names_what_is_lost(paths: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    data, to = paths
    segment = sorted(Path(data).glob("partitions/*/*.rlog"))[0]
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2] ^= 1
    segment.write_bytes(raw)
    assert run(["archive", "--data", data, "--to", to]) == 6
    assert "cannot be read" in capfd.readouterr().err
    assert run(["archive", "--data", data, "--to", to, "--skip-damaged", "--json"]) == 6
    (lost,) = said(capfd)["lost"]
    assert (lost["partition"], lost["why"]) == ("flights", "damaged")
    assert run(["archive", "verify", to, "--records"]) == 0


def test_a_schedule_goes_on_over_a_store_that_cannot_be_reached_and_ends_on_sigterm(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data")
    (tmp_path / "mount").write_text("not yet a directory")
    archive, log = tmp_path / "mount" / "archive", tmp_path / "log"
    command = [sys.executable, "-m", "radiator", "archive", "--data", str(tmp_path / "data"), "--to", str(archive)]
    with log.open("wb") as out:
        process = subprocess.Popen([*command, "--every", "50ms", "--json"], cwd=ROOT, stdout=out, stderr=out)
    try:
        until(lambda: b"Not a directory" in log.read_bytes())
        (tmp_path / "mount").unlink()
        until(lambda: archive.exists() and load(open_files(archive)).ends)
        more(writer, first=2000)
        end = max(each.segments[-1].base_offset for each in partitions(open_store(str(tmp_path / "data"))))
        until(lambda: load(open_files(archive)).ends["flights"] == end)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()
    writer.close()
    check_all(tmp_path / "data", archive)


def test_a_single_run_that_a_signal_ends_says_that_something_is_left(
    paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = archive_command._run

    def interrupted(*given: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return real(*given)

    monkeypatch.setattr(archive_command, "_run", interrupted)
    assert run(["archive", "--data", paths[0], "--to", paths[1]]) == 130


def test_what_a_signal_left_is_reported(paths: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    import radiator.archive.run as archive_run

    data, to = paths
    whole = archive_run.preview(data, open_files(to), archive_run.Options(unit_bytes=1))
    assert len(whole.units) > 1
    first = archive_run.Watch(stopping=lambda: True)
    outcome = archive_run.run(data, open_files(to), archive_run.Options(unit_bytes=1), first)
    assert outcome.left_bytes == sum(unit.bytes for unit in whole.units[1:]) > 0
    assert archive_command._report_outcome(outcome, to, False) == 0
    assert "ended by a signal: " in capfd.readouterr().err
    archive_command._report_outcome(outcome, to, True)
    assert said(capfd)["left_bytes"] == outcome.left_bytes
    assert archive_run.run(data, open_files(to)).left_bytes == 0
    check_all(Path(data), Path(to))


class Clocks:
    """A day that passes while one waits, by a clock that somebody puts right."""

    def __init__(self, wall: float) -> None:
        self.wall, self.steady, self.jumps = wall, 0.0, list[float]()

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.steady

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        self.steady += seconds
        self.wall += seconds + (self.jumps.pop(0) if self.jumps else 0.0)
        return False


@pytest.mark.parametrize("jump", [-20 * 86_400.0, 20 * 86_400.0, -3_000.0, 0.0])
def test_a_clock_that_is_put_right_meanwhile_is_gone_by(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    clocks = Clocks(30 * 86_400.0)
    monkeypatch.setattr(time, "time", clocks.time)
    monkeypatch.setattr(time, "monotonic", clocks.monotonic)
    stop: Any = clocks
    clocks.jumps = [jump]
    assert archive_command._waited(stop, float("inf"), 3_600)  # at 01:00
    late = (clocks.wall - 3_600) % 86_400
    assert clocks.steady <= 86_400 and (jump > 0 or late == 0)
    clocks.steady, clocks.jumps = 0.0, [jump]
    assert archive_command._waited(stop, 900.0, None)  # every 15 minutes
    assert clocks.steady == 900.0


def test_without_sealed_segments_the_command_says_how_to_seal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "data", count=40).close()
    assert run(["archive", "--data", str(tmp_path / "data"), "--to", str(tmp_path / "to")]) == 0
    told = capfd.readouterr()
    assert "0 files; 40 more in segments that are still written to" in told.out
    assert "40 records in segments that are still written to" in told.err
    assert "radiator.spark.table" in told.err and "radiator export --format parquet" in told.err


def test_the_time_of_day_comes_again_within_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    for now in (0.0, 599.0, 600.0, 601.0, 86_399.0):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        due = archive_command._next(600)
        assert (due - 600) % 86_400 == 0
        assert 0 < due - now <= 86_400


CONFIG = """
defaults:
  segment: {size: 64KiB}
  retention: {size: 128KiB, wait_for: archive}
"""


def test_beside_a_broker_retention_waits_and_archive_and_log_have_everything(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, CONFIG)
    broker.start()
    archive, sent = tmp_path / "archive", 0

    def log_start() -> int:
        return min((each.log_start_offset for each in partitions(open_store(str(broker.data)))), default=0)

    with connect(broker.address) as connection:
        while log_start() == 0 or sent < 3000:
            connection.send_many([("/topic/a", b"%d " % (sent + number) * 50) for number in range(100)])
            sent += 100
            if sent % 500 == 0:
                assert run(["archive", "--data", str(broker.data), "--to", str(archive)]) == 0
            assert sent < 200_000
    assert broker.stop() == 0
    kept, start = log_rows(broker.data), log_start()
    found = archive_rows(archive)
    assert load(open_files(archive)).ends["/topic/a"] >= start > 0
    both = {**found, **kept}
    assert sorted(offset for _, offset in both) == list(range(sent))
    assert all(row["body"] == b"%d " % offset * 50 for (_, offset), row in both.items())
    assert all(found[key] == kept[key] for key in found.keys() & kept.keys())
