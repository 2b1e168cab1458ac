"""No command prints control characters of names and headers, or characters that turn the text around them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from unicodedata import category

import pytest

from radiator.cli.formats import escaped, visible
from radiator.cli.main import run
from radiator.client import connect
from tests.running import BrokerProcess

HOSTILE = "\u202egnp.exe\u2066\u200b\x1b[2J\x9b2J\u2028"
QUEUE = f"/queue/jobs.{HOSTILE}"
DEAD = f"/queue/dead.jobs.{HOSTILE}"
CONFIG = "destinations: [{match: '/queue/jobs.>', dead_letter: '/queue/dead.{name}', redeliver: {max: 1, delay: 0ms}}]"
BAD = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    started = BrokerProcess(tmp_path_factory.mktemp("hostile"), CONFIG)
    started.start()
    with connect(started.address) as client:
        for number in range(3):
            client.send(QUEUE, f"{HOSTILE} {number}", {f"h{HOSTILE}".replace("\x1b", ""): HOSTILE})
        with client.subscribe(QUEUE, ack="client-individual", prefetch=2) as inbox:
            for _ in range(2):
                inbox.fetch(30).reject(receipt=True)
        for name in (HOSTILE, f"{HOSTILE}2"):
            headers = {"subscription-name": name}
            client.subscribe(f"/topic/{HOSTILE}", ack="client", headers=headers).close()
        with client.subscribe(f"/topic/{HOSTILE}"):
            yield started
    assert started.stop() == 0


COMMANDS = [
    "ls",
    "ls --json",
    "clients",
    "clients --json",
    "cursors ls",
    "cursors ls --json",
    "stats",
    "top --once --interval 0.1",
    "top --once --interval 0.1 --json",
    "describe QUEUE",
    "describe MISSING",
    "dlq ls",
    "dlq ls --json",
    "dlq show DEAD",
    "dlq show DEAD --json",
    "dlq show MISSING",
    "tail QUEUE --from first -n 1",
    "tail QUEUE --from first -n 1 --json",
    "pause QUEUE",
    "resume QUEUE",
    "cursors rm SUB --yes",
    "dlq replay DEAD --all",
    "purge QUEUE --yes",
]


@pytest.mark.thorough
def test_no_command_prints_a_character_that_controls_or_turns_a_terminal(
    broker: BrokerProcess, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RADIATOR_URL", broker.address)
    names = {"QUEUE": QUEUE, "DEAD": DEAD, "MISSING": f"{QUEUE}x", "SUB": f"sub:{HOSTILE}2"}
    for command in COMMANDS:
        run([names.get(word, word) for word in command.split()])
        shown = "".join(capfd.readouterr())
        assert not [each for each in shown if category(each) in BAD and each != "\n"], (command, shown)
        assert shown, command


def test_such_characters_are_shown_by_their_code() -> None:
    assert visible("a\u202eb\u2066\U000e0041\x9b\n") == r"a\u202eb\u2066\udb40\udc41\x9b\n"
    assert visible("日本\u3000é") == "日本\u3000é"
    text = json.dumps([HOSTILE, "\x7f\x85"], ensure_ascii=False)
    assert json.loads(escaped(text)) == json.loads(text) and escaped(text).isprintable()


@pytest.mark.thorough
def test_the_offline_commands_print_none_either(
    broker: BrokerProcess, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for command in ("ls", "export --format csv --to - --columns destination", "archive --dry-run --to x"):
        run([*command.replace("x", str(tmp_path / "archive")).split(), "--data", str(broker.data)])
        out, err = capfd.readouterr()
        shown = err if command.startswith("export") else out + err  # the output of an export is data
        assert not [each for each in shown if category(each) in BAD and each != "\n"], (command, shown)
