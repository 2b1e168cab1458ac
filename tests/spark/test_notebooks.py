"""The notebooks of examples/notebooks run from top to bottom, and find what they say. All in one session: a notebook's
``get_session`` finds the one that runs."""

from __future__ import annotations

import importlib
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from radiator.columns.planning import snapshot

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "examples" / "notebooks"

# program -> a part of its output, its pictures
EXPECTED = {
    "bad_day.py": ("worst day: 2013-07-10, 64 minutes late", {"bad-day-hours", "bad-day-carriers", "bad-day-field"}),
    "lateness.py": ("half of 12,951 messages came more than", {"watermark-flights"}),
    "aircraft.py": ("of them make half of the departures", {"aircraft-sessions", "aircraft-busiest"}),
    "archive.py": ("12,951 flights in the table, ", {"archive-airlines"}),
    "lakehouse.py": ("airports; at first of ['/topic/flights.JFK']", {"lakehouse-airlines"}),
    "deliveries.py": (
        "12,951 flights, 38,853 acknowledgements of three desks, at most 1 of each",
        {"deliveries-throughput", "deliveries-hand"},
    ),
    "stream.py": ("hours are complete, 236 of them as in the files", {"stream-hours"}),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Filled by the first notebook, as on anybody's machine."""
    return tmp_path_factory.mktemp("notebooks") / "data"


@pytest.mark.parametrize("name", EXPECTED)
def test_a_notebook_runs_from_top_to_bottom(
    name: str,
    spark: Any,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = data.with_name("desks") if name == "deliveries.py" else data  # the same flights, in another log
    monkeypatch.setattr(sys, "argv", [name, "--data", str(data), "--out", str(tmp_path)])
    monkeypatch.syspath_prepend(str(NOTEBOOKS))
    runpy.run_path(str(NOTEBOOKS / name), run_name="__main__")
    words, pictures = EXPECTED[name]
    assert words in capsys.readouterr().out
    assert {path.stem for path in tmp_path.glob("*.png")} == pictures
    assert all(path.stat().st_size > 5000 for path in tmp_path.glob("*.png"))


def test_flights_that_an_interrupted_run_has_left_are_not_there_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(NOTEBOOKS))
    prepare = importlib.import_module("prepare")
    told = [(0, {"origin": "JFK"}, {"producer-id": "tower", "sequence": number}) for number in (1, 2)]
    with prepare.broker(tmp_path / "data.unfinished") as connection:
        connection.send("/topic/flights.JFK", "left by another run")
    monkeypatch.setattr(prepare, "departures", lambda: told)
    prepare.fill(tmp_path / "data")
    assert snapshot(str(tmp_path / "data")) == {"flights-JFK": 2}
    assert "2 flights" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_a_notebook_is_a_program(name: str, data: Path, tmp_path: Path) -> None:
    data = data.with_name("desks") if name == "deliveries.py" else data
    command = [sys.executable, str(NOTEBOOKS / name), "--data", str(data), "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert EXPECTED[name][0] in done.stdout


def test_no_notebook_is_forgotten() -> None:
    assert {path.name for path in NOTEBOOKS.glob("*.py")} == {*EXPECTED, "prepare.py", "desks.py"}
    told = (NOTEBOOKS / "README.md").read_text("utf-8")
    assert all(f"({name})" in told for name in EXPECTED)
