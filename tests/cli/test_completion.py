"""Shells complete commands and options, and man pages say what the help says."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from radiator.cli.help import SHELLS
from radiator.cli.main import COMMANDS, run

ROOT = Path(__file__).parents[2]


def completed(line: str) -> list[str]:
    """The words that bash is offered for the last word of a line."""
    words = line.split(" ")
    environ = {
        **os.environ,
        "_RADIATOR_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    command = [sys.executable, "-m", "radiator"]
    answer = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=30)
    assert answer.stderr == ""
    return [line.partition(",")[2] for line in answer.stdout.splitlines()]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("radiator se", ["send", "serve"]),
        ("radiator ", list(COMMANDS)),
        ("radiator serve --l", ["--listen", "--log-level"]),
        ("radiator serve --log-level w", ["warning"]),
        ("radiator cursors s", ["sample", "set"]),
        ("radiator completion f", ["fish"]),
    ],
)
def test_the_last_word_is_completed(line: str, words: list[str]) -> None:
    assert completed(line) == words


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_accepts_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_RADIATOR_COMPLETE={shell}_complete" in script
    assert run(["completion", shell, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"shell": shell, "script": script.removesuffix("\n")}
    assert run(["completion", "--help"]) == 0
    assert f"\n  {shell + ':':6} ~/." in capsys.readouterr().out
    program = shutil.which(shell)
    if program is not None:
        assert subprocess.run([program, "-n"], input=script, text=True, capture_output=True).returncode == 0


@pytest.mark.thorough
def test_fish_completes_with_its_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("fish is not installed")
    assert run(["completion", "fish"]) == 0
    script, program = tmp_path / "radiator.fish", tmp_path / "radiator"
    script.write_text(capsys.readouterr().out)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m radiator "$@"\n')
    program.chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    for line, words in {"radiator cursors s": ["sample", "set"], "radiator serve --log-level w": ["warning"]}.items():
        command = [fish, "-c", f"source {script}; complete -C '{line}'"]
        shown = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert [each.partition("\t")[0] for each in shown.stdout.splitlines()] == words, shown.stderr


@pytest.fixture(scope="module")
def manpages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("manpages", ROOT / "packaging" / "manpages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_has_a_page_that_man_shows_without_a_warning(manpages: ModuleType, tmp_path: Path) -> None:
    pages = manpages.write(tmp_path)
    assert {f"radiator-{name}.1" for name in COMMANDS} < {page.name for page in pages}
    if shutil.which("man") is None or shutil.which("groff") is None:
        pytest.skip("man and groff are not installed")
    for page in pages:
        command = ["man", "--warnings", "-E", "UTF-8", "-l", str(page)]
        shown = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MANWIDTH": "80"})
        assert (shown.returncode, shown.stderr) == (0, ""), page.name
        assert "NAME" in shown.stdout and "SYNOPSIS" in shown.stdout
