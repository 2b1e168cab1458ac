"""The group: lazy commands, exit codes, pipes, and that the documentation knows every option."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from radiator.cli import main as main_module
from radiator.cli.common import EXIT_CODES, CommandFailed, exit_code, say
from radiator.cli.formats import LETTERS
from radiator.cli.main import COMMANDS, SECTIONS, cli, run
from radiator.cli.sources import FORMATS
from radiator.cli.tail import position
from radiator.client.errors import BadAddress, ConnectFailed, Disconnected, ServerError, TimedOut
from radiator.errors import ConfigError, RadiatorError, StorageError
from tests.running import BrokerProcess
from tests.tiers import sampled

ROOT = Path(__file__).parent.parent.parent
DOCS = (ROOT / "docs" / "cli.md").read_text("utf-8")
SHARED = {"--url", "--login", "--user", "--passcode", "--passcode-file", "--ca", "--timeout", "--help"}


def command_of(name: str) -> click.Command:
    if name == "report":
        pytest.importorskip("radiator.cli.report")
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def params_of(name: str) -> list[click.Parameter]:
    """Of a command, and of the commands in it, if it is a group."""
    command = command_of(name)
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return [*command.params, *(each for one in inner for each in one.params)]


def section(name: str) -> str:
    found = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", DOCS, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/cli.md has no section {name}"
    return found[1]


def output(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "radiator", *args]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env={**os.environ, **environment}
    )


# --- the documentation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented_and_nothing_else(name: str) -> None:
    options = {
        option
        for parameter in params_of(name)
        if isinstance(parameter, click.Option)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    text = section(name)
    undocumented = [option for option in options - SHARED if not re.search(rf"`{option}[ `]", text)]
    assert undocumented == []
    rows = re.findall(r"^\| (`-[^|]*) \|", text, re.MULTILINE)
    named = {option for row in rows for option in re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", row)}
    assert named <= options, "docs/cli.md names options that do not exist"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_the_same_as_the_command(name: str) -> None:
    assert command_of(name).get_short_help_str(100) == COMMANDS[name][1]


def test_shared_options_letters_formats_and_exit_codes_are_documented() -> None:
    head = DOCS.partition("\n## ")[0]
    for option in SHARED - {"--help"}:
        assert f"`{option}" in head
    for letter, entry in LETTERS.items():
        assert f"| `%{letter}` | {entry.about} |" in section("tail")
    for kind in FORMATS:
        assert f"| `{kind}` |" in section("send")
    for code, about in EXIT_CODES.items():
        assert f"| {code} | {about} |" in head


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "report"])
def test_every_command_knows_json(name: str) -> None:
    command = command_of(name)
    for one in command.commands.values() if isinstance(command, click.Group) else (command,):
        assert any("--json" in parameter.opts for parameter in one.params), one.name


# --- help -------------------------------------------------------------------------------------------------------------


def test_the_page_of_a_command_names_the_connection_options_in_one_place(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["tail", "--help"]) == 0
    page = capfd.readouterr().out
    assert "--url" in page
    assert "radiator help connection" in " ".join(page.split())
    assert run(["help", "connection"]) == 0
    shared = capfd.readouterr().out
    for option in SHARED - {"--url", "--help"}:
        assert option not in page
        assert f"{option} " in shared or f"{option}," in shared
    assert "--url" in shared


def test_a_message_controls_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    say("the broker said \x1b]0;title\x07\x9b2J\nand a line")
    assert capfd.readouterr().err == "radiator: the broker said \\x1b]0;title\\x07\\x9b2J\nand a line\n"


def test_help_of_a_command_is_its_page(capfd: pytest.CaptureFixture[str]) -> None:
    for path in (["send"], ["cursors", "set"], []):
        assert run(["help", *path]) == 0
        page = capfd.readouterr().out
        assert run([*path, "--help"]) == 0
        assert capfd.readouterr().out == page
        assert run(["help", *path, "--json"]) == 0
        assert json.loads(capfd.readouterr().out) == {"topic": " ".join(path), "help": page.rstrip("\n")}


def test_a_command_that_asks_takes_a_short_yes() -> None:
    asking = [each for each in _all_commands() if any("--yes" in option.opts for option in each.params)]
    assert len(asking) > 4
    assert [each.name for each in asking if not any("-y" in option.opts for option in each.params)] == []


def _all_commands() -> Iterator[click.Command]:
    for name in COMMANDS:
        command = command_of(name)
        yield from command.commands.values() if isinstance(command, click.Group) else (command,)


@pytest.mark.parametrize(
    ("args", "meant"),
    [(["sned", "x"], "send"), (["help", "tial"], "tail"), (["help", "cursors", "st"], "set"), (["archiv"], "archive")],
)
def test_a_command_that_is_none_is_answered_with_the_closest(
    args: list[str], meant: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(args) == 2
    assert f"Did you mean {meant!r}?" in capfd.readouterr().err


def test_the_list_of_commands_fits_80_columns_and_has_sections(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [f"{title}:" in lines for title in SECTIONS] == [True] * len(SECTIONS)


# --- laziness ---------------------------------------------------------------------------------------------------------


def test_help_imports_no_command_and_nothing_heavy() -> None:
    code = "import sys; from radiator.cli.main import run; run(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
    for module in ("rich", "gevent", "yaml", "pyspark", "radiator.cli.serve", "radiator.client", "radiator.storage"):
        assert f"'{module}'" not in done.stderr


def test_a_command_whose_extra_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")

    monkeypatch.setattr(importlib, "import_module", missing)
    assert run(["report"]) == 2
    assert "pip install 'radiator-broker[spark]'" in capsys.readouterr().err


# --- exit codes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (BadAddress("x"), 2),
        (ConnectFailed("x"), 3),
        (TimedOut("x"), 3),
        (Disconnected("x"), 3),
        (ServerError("denied", "x"), 4),
        (ServerError("not-found", "x"), 5),
        (ServerError("full", "x"), 1),
        (StorageError("x"), 1),
        (CommandFailed(6, "x"), 6),
    ],
)
def test_an_error_has_its_exit_code(
    error: RadiatorError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    assert exit_code(error) == code
    monkeypatch.setattr(main_module.LazyGroup, "get_command", lambda *_: click.Command("ls", callback=fail))
    assert run(["ls"]) == code
    assert capsys.readouterr().err.startswith("radiator: x")


def test_usage_is_2_and_interruption_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert run(["nosuch"]) == 2
    assert run(["tail"]) == 2
    assert run(["--version"]) == 0
    monkeypatch.setattr(main_module.LazyGroup, "get_command", lambda *_: click.Command("ls", callback=interrupt))
    assert run(["ls"]) == 130


def test_a_bug_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    def bug() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(main_module.LazyGroup, "get_command", lambda *_: click.Command("ls", callback=bug))
    with pytest.raises(ZeroDivisionError):
        run(["ls"])


@pytest.mark.parametrize("args", [["tail", "/a"], ["send", "/a", "-m", "x"]])
def test_an_absent_broker_has_exit_code_3(args: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*args, "--url", "127.0.0.1:1"]) == 3
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("radiator: cannot connect to 127.0.0.1:1: ")


@pytest.mark.parametrize(
    "args",
    [
        ["tail", "/a", "-e", "--until", "end"],
        ["tail", "/a", "-f", "%s", "-J"],
        ["tail", "/a", "-f", "%q"],
        ["tail", "/a", "-o", "the other day"],
        ["tail", "/a", "-o", "@the other day"],
        ["tail", "/a", "-o", "ago:soon"],
        ["tail", "/a", "-o", "time:never"],
        ["tail", "/a", "--until", "-1w"],
        ["tail", "/a", "-c", "0"],
        ["tail", "/a", "--consume", "-o", "first"],
        ["tail", "/a", "--prefetch", "3"],
        ["tail", "/a", "-H", "nocolon"],
        ["tail", "/a", "--url", "http://a"],
        ["send"],
        ["send", "/a", "-m", "x", "-f", "y"],
        ["send", "/a", "-H", ":x", "-m", "y"],
        ["send", "/a", "-H", "destination:x", "-m", "y"],
        ["send", "/a", "--as", "xml"],
        ["check-config", "/does/not/exist"],
        ["check-config", "a", "--config", "b"],
        ["serve", "--config", "/does/not/exist"],
        ["serve", "--listen", "http://a"],
        ["bench", "--url", "http://a"],
        ["bench", "--only", "("],
    ],
)
def test_wrong_usage_is_2_and_says_what_was_expected(args: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(args) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err


def test_a_pipe_closed_by_its_reader_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "radiator", "check-config", "--explain", "/a"],
        stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False, cwd=ROOT,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "args", [["tail", os.fsdecode(b"/topic/\xff")], ["send", "/a", "x", "-H", os.fsdecode(b"a:\xff")]]
)
def test_an_argument_that_is_not_utf8_is_wrong_usage(
    args: list[str], broker: BrokerProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*args, "--url", broker.address]) == 2
    shown = next(text for text in args if not text.isascii()).replace("\udcff", "\\xff")
    assert capfd.readouterr().err == f"radiator: expected UTF-8 in names, headers and options, got '{shown}'\n"


INTERRUPTED_IMPORTS = {  # while this module is imported: the exit code
    "radiator.cli.common": -signal.SIGINT,
    "click": -signal.SIGINT,
    "radiator.cli.main": -signal.SIGINT,
    "radiator.cli.tail": 130,
    "radiator.broker.headers.values": 130,
    "radiator.client": 130,
    "radiator.stomp.parser": 130,
}


@pytest.mark.parametrize("module", INTERRUPTED_IMPORTS)
def test_an_interrupted_import_shows_no_traceback(module: str) -> None:
    code = (
        "import os, runpy, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "runpy.run_module('radiator', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "tail", "/topic/a", "-o", "-5", "--url", "127.0.0.1:1"],
        capture_output=True, text=True, timeout=60, check=False, cwd=ROOT,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.strip()) == (INTERRUPTED_IMPORTS[module], "", "")


@pytest.mark.parametrize("delay_ms", sampled([0, 5, 10, 20, 40, 80, 160, 320], 3))
@pytest.mark.parametrize("command", ["tail", "serve"])
def test_sigint_at_any_time_after_the_start_ends_a_command_without_traceback(
    command: str, delay_ms: int, broker: BrokerProcess, tmp_path: Path
) -> None:
    """Only the start of Python itself, before it imports anything of radiator, is not in our hands."""
    args = {
        "tail": ["tail", "/topic/a", "--url", broker.address],
        "serve": ["serve", "--data", str(tmp_path / "data"), "--listen", "stomp://127.0.0.1:0"],
    }[command]
    code = "import os\nfrom radiator.__main__ import main\nos.write(2, b'.')\nmain()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stderr.read(1) == b"."
    time.sleep(delay_ms / 1000)  # the moment that is tested
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 130, 0 if command == "serve" else 130), err
    assert b"Traceback" not in err and b"Exception ignored" not in err


# --- positions and check-config ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("first", "first"), ("beginning", "first"), ("next", "next"), ("end", "end"), ("last", "last"),
        ("7", "offset:7"), ("-10", "last:10"), ("@1357034400", "time:1357034400"), ("last:3", "last:3"),
        ("@2013-01-01T05:00:00Z", "time:2013-01-01T05:00:00Z"), ("ago:1h30m", "ago:1h30m"), ("offset:4", "offset:4"),
        ("-1h30m", "ago:1h30m"), ("2013-01-01T05:00:00Z", "time:2013-01-01T05:00:00Z"),
        ("@2013-01-01", "time:2013-01-01T00:00:00Z"), ("time:1357034400", "time:1357034400"),
    ],
)  # fmt: skip
def test_a_position_becomes_the_value_of_the_header(text: str, header: str) -> None:
    assert position(text) == header


def test_check_config_explains(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(
        "version: 1\ndestinations:\n  - match: /topic/weather.*\n    partition: weather-{1}\n    fsync: 1s\n"
    )
    done = output("check-config", str(path), "--explain", "/topic/weather.EWR")
    assert done.returncode == 0, done.stderr
    assert f"{path}:3" in done.stdout
    assert "partition: weather-EWR" in done.stdout
    as_json = output("check-config", "--config", str(path), "--explain", "/topic/weather.EWR", "--json")
    assert '"partition":"weather-EWR"' in as_json.stdout
    path.write_text("version: 1\ndestinatons: []\n")
    wrong = output("check-config", str(path))
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert f"{path}:2" in wrong.stderr
    assert "destinations" in wrong.stderr


def test_check_config_without_a_file_shows_the_defaults() -> None:
    done = output("check-config")
    assert done.returncode == 0
    assert "listen: stomp://127.0.0.1:61613" in done.stdout
