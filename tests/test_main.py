"""``python -m tests``, what ``make test`` is: tiers of tests; steps with one result, and a failure in one fails it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.__main__ import main
from tests.tiers import sampled

ROOT = Path(__file__).parent.parent
BESIDE = "import pytest\n\n@pytest.mark.slow\ndef test_beside_others(): assert {}\n"
ALONE = "import pytest\n\n@pytest.mark.slow\n@pytest.mark.alone\ndef test_by_itself(): assert {}\n"
CONFIG = "[pytest]\nmarkers =\n    alone: by itself\n    slow: takes long\n"


def result(folder: Path, **files: str) -> tuple[int, str]:
    """Exit code and last line, for a folder with these tests in it."""
    (folder / "pytest.ini").write_text(CONFIG)
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "tests", "slow"],
        cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()[-1]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("beside", "alone", "code", "told"),
    [
        (False, True, 1, "1 failed, 1 passed (side by side: 1 failed; alone: 1 passed)"),
        (True, False, 1, "1 failed, 1 passed (side by side: 1 passed; alone: 1 failed)"),
        (True, True, 0, "2 passed (side by side: 1 passed; alone: 1 passed)"),
    ],
)
def test_both_steps_count(beside: bool, alone: bool, code: int, told: str, tmp_path: Path) -> None:
    found, last = result(tmp_path, beside=BESIDE.format(beside), alone=ALONE.format(alone))
    assert found == code
    assert last.startswith("FAILED in " if code else "passed in ")
    assert last.endswith(told)


@pytest.mark.parametrize(
    ("arguments", "tier"),
    [
        ([], ["not thorough and not slow"]),
        (["thorough"], ["thorough and not slow"]),
        (["all"], ["not slow"]),
        (["slow"], ["slow and not alone", "slow and alone"]),
    ],
)
def test_each_command_runs_the_tests_of_its_tier(
    arguments: list[str], tier: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(options: list[str], plugins: object) -> pytest.ExitCode:
        asked.append(options)
        return pytest.ExitCode.OK

    monkeypatch.setattr(pytest, "main", run)
    assert main([*arguments, "tests/stomp"]) == 0
    marks = [options[options.index("-m") + 1] for options in asked]
    assert marks == tier
    assert {options[-1] for options in asked} == {"tests/stomp"}


def test_of_many_parameters_a_few_that_are_evenly_spread_run_in_make_test() -> None:
    quick = [each for each in sampled(range(100), 4) if isinstance(each, int)]
    assert quick == [0, 25, 50, 75]
    assert sampled([("a", 1), ("b", 2)], 1) == [("a", 1), pytest.param("b", 2, marks=pytest.mark.thorough)]


@pytest.mark.thorough
def test_a_step_without_tests_is_no_failure_and_no_tests_at_all_are(tmp_path: Path) -> None:
    assert result(tmp_path)[0] == pytest.ExitCode.NO_TESTS_COLLECTED
    assert result(tmp_path, beside=BESIDE.format(True))[0] == 0


@pytest.mark.thorough
def test_a_file_that_cannot_be_imported_fails_the_whole(tmp_path: Path) -> None:
    code, last = result(tmp_path, beside=BESIDE.format(True), wrong="import nothing_of_that_name\n")
    assert code != 0
    assert last.startswith("FAILED in ")
