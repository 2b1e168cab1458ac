"""purge on the command line: with a broker, without one, and never unasked."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from radiator.cli import purge as module
from radiator.cli.main import run
from radiator.client import connect
from tests.running import BrokerProcess
from tests.storage.driving import ALWAYS, commit, opened, put


@pytest.fixture
def address(shared_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("RADIATOR_URL", shared_broker.address)
    return shared_broker.address


def bodies(address: str, queue: str) -> list[str]:
    with connect(address) as connection:
        return [message.text for message in connection.subscribe(queue, headers={"browser": "true"})]


def test_a_queue_is_emptied_through_its_broker(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    with connect(address) as connection:
        connection.send_many([("/queue/purged", b"%d" % number) for number in range(300)])
        assert run(["purge", "/queue/purged", "--yes", "--json"]) == 0
        assert json.loads(capfd.readouterr().out) == {
            "destination": "/queue/purged",
            "settled": 300,
            "held": 0,
        }
        connection.send("/queue/purged", "new")
    assert bodies(address, "/queue/purged") == ["new"]
    assert run(["purge", "/queue/purged", "-y"]) == 0
    assert run(["purge", "/queue/purged", "-y"]) == 0
    assert capfd.readouterr().out.splitlines() == [
        "1 message of /queue/purged settled", "0 messages of /queue/purged settled"
    ]  # fmt: skip


def test_a_name_that_does_not_exist_is_not_found_and_the_closest_one_is_shown(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(address) as connection:
        connection.send("/queue/spelt", "stays", receipt=True)
    for confirmed in (["--yes"], []):
        assert run(["purge", "/queue/spellt", *confirmed]) == 5
        out, err = capfd.readouterr()
        assert out == "" and "Did you mean '/queue/spelt'?" in err and "confirm" not in err
    assert run(["purge", "/queue/spelt"]) == 2
    assert "confirm with --yes" in capfd.readouterr().err
    assert bodies(address, "/queue/spelt") == ["stays"]


@pytest.mark.parametrize("name", ["sub:billing", "group:workers"])
@pytest.mark.parametrize("confirmed", [["--yes"], []])
def test_a_cursor_cannot_be_purged_and_the_command_that_skips_its_messages_is_shown(
    name: str, confirmed: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["purge", name, *confirmed]) == 2
    assert f"{name} is a cursor" in (err := capfd.readouterr().err) and f"`radiator cursors set {name} next`" in err


def test_the_cursor_of_a_queue_cannot_be_purged_and_the_queue_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["purge", "queue:/queue/jobs", "--yes"]) == 2
    expected = "radiator: queue:/queue/jobs is a cursor, and purge takes a queue, such as /queue/jobs\n"
    assert capfd.readouterr().err == expected


def test_messages_in_flight_are_left_and_reported(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    with connect(address) as connection:
        connection.send_many([("/queue/held", b"%d" % number) for number in range(5)])
        inbox = connection.subscribe("/queue/held", ack="client-individual", prefetch=2)
        held = [inbox.fetch(20), inbox.fetch(20)]
        assert run(["purge", "/queue/held", "-y"]) == 0
        out, err = capfd.readouterr()
        assert out == "3 messages of /queue/held settled\n"
        assert "2 messages of /queue/held are unacknowledged at consumers" in err
        for message in held:
            assert message is not None
            message.ack(receipt=True)
    assert bodies(address, "/queue/held") == []


@pytest.mark.thorough
def test_delayed_messages_are_settled_too(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    with connect(address) as connection:
        connection.send("/queue/later", "1", {"delay": "1h"})
        connection.send("/queue/later", "refused")
        inbox = connection.subscribe("/queue/later", ack="client-individual")
        refused = inbox.fetch(20)
        assert refused is not None
        refused.nack(delay_ms=3_600_000, receipt=True)
        inbox.close()
        connection.send("/queue/later", "held")
        connection.send("/queue/later", "2", {"delay": "1h"})
        inbox = connection.subscribe("/queue/later", ack="client-individual")
        held = inbox.fetch(20)
        assert held is not None and held.text == "held"
        assert run(["purge", "/queue/later", "-y"]) == 0
        out, err = capfd.readouterr()
        assert out == "3 messages of /queue/later settled\n"
        assert "1 message of /queue/later is unacknowledged at consumers" in err
        assert bodies(address, "/queue/later") == ["held"]
        connection.send("/queue/later", "new", {"delay": "1h"})
        held.ack(receipt=True)
    assert run(["purge", "/queue/later", "-y", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"destination": "/queue/later", "settled": 1, "held": 0}


def test_without_the_admin_right_nothing_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    users = tmp_path / "users.yaml"
    users.write_text("anonymous: {read: '#', write: '#', browse: '#', monitor: true, admin: /queue/mine}\n")
    broker = BrokerProcess(tmp_path, f"listen: [stomp://{{address}}]\nauth: {{users_file: {users}}}\n")
    broker.start()
    monkeypatch.setenv("RADIATOR_URL", broker.address)
    with connect(broker.address) as connection:
        connection.send_many([("/queue/mine", b"1"), ("/queue/theirs", b"1")])
    assert run(["purge", "/queue/theirs", "-y"]) == 4
    assert "anonymous has no admin right over '/queue/theirs'" in capfd.readouterr().err
    assert bodies(broker.address, "/queue/theirs") == ["1"]
    assert run(["purge", "/queue/mine", "-y"]) == 0
    assert broker.stop() == 0


def test_a_bound_queue_is_purged_of_the_messages_of_its_source(
    start_broker: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker("destinations: [{match: /queue/f, fan_out: [/queue/f.a, /queue/f.b]}]")
    monkeypatch.setenv("RADIATOR_URL", broker.address)
    with connect(broker.address) as connection:
        for number in range(5):
            connection.send("/queue/f", str(number))
        connection.send("/queue/f.a", "direct")
    assert run(["purge", "/queue/f.b", "-y"]) == 0
    assert run(["purge", "/queue/f.a", "-y"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines() == ["5 messages of /queue/f.b settled", "6 messages of /queue/f.a settled"] and not err
    assert bodies(broker.address, "/queue/f.a") == bodies(broker.address, "/queue/f.b") == []
    assert run(["purge", "/queue/f", "-y"]) == 1  # it has no consumers
    assert "/queue/f.a" in capfd.readouterr().err


def test_without_a_broker_the_counts_of_a_fan_out_are_true(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broker = BrokerProcess(tmp_path, "destinations: [{match: /queue/f, fan_out: [/queue/f.a, /queue/f.b]}]")
    broker.start()
    with connect(broker.address) as connection:
        for number in range(8):
            connection.send("/queue/f", str(number))
        connection.send("/queue/f.b", "direct")
    assert broker.stop() == 0
    data = ["--data", str(broker.data), "-y"]
    assert run(["purge", "/queue/f", *data]) == 1
    assert "queue:/queue/f.a, queue:/queue/f.b" in capfd.readouterr().err
    assert run(["purge", "/queue/f.b", *data]) == 0
    assert capfd.readouterr().out.startswith("9 messages of /queue/f.b settled\n")
    broker.start()
    assert bodies(broker.address, "/queue/f.b") == []
    assert len(bodies(broker.address, "/queue/f.a")) == 8
    assert broker.stop() == 0


@pytest.mark.parametrize("name", ["/queue/*", "/queue/a,/queue/b", "/queue/>", ""])
def test_it_takes_one_name_and_no_pattern(name: str, address: str, capfd: pytest.CaptureFixture[str]) -> None:
    with connect(address) as connection:
        connection.send("/queue/a", "stays")
    before = bodies(address, "/queue/a")
    assert run(["purge", name, "--yes"]) == 2
    assert capfd.readouterr().err.startswith("radiator: ")
    assert bodies(address, "/queue/a") == before


def test_of_a_topic_it_says_what_to_do(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["purge", "/topic/t", "-y"]) == 2
    assert "give --data" in capfd.readouterr().err


@pytest.fixture
def stored(tmp_path: Path) -> str:
    """A data directory with a message of /topic/t, and one of /topic/other in a shared log."""
    store, _ = opened(root=str(tmp_path))
    put(store.partition("/topic/t", ALWAYS), b"x", destination="/topic/t")
    put(store.partition("shared", ALWAYS), b"x", destination="/topic/other")
    commit(store)
    store.close()
    (tmp_path / "LOCK").unlink()
    return str(tmp_path)


def test_without_a_terminal_it_does_nothing_unasked(stored: str, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("/topic/t", "/topic/other"):
        assert run(["purge", name, "--data", stored]) == 2
        assert "confirm with --yes" in capfd.readouterr().err
    assert not Path(stored, "LOCK").exists()


def test_of_a_name_without_messages_it_does_not_ask(stored: str, capfd: pytest.CaptureFixture[str]) -> None:
    said = f"radiator: {stored}: nothing is stored for /topic/none; `radiator ls` lists the destinations\n"
    assert run(["purge", "/topic/none", "--data", stored]) == 5
    assert capfd.readouterr().err == said
    assert not Path(stored, "LOCK").exists()
    assert run(["purge", "/topic/none", "--data", stored, "--yes"]) == 5
    assert capfd.readouterr().err == said


def test_it_asks_about_a_name_that_only_the_journal_may_have(stored: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path(stored, "journal").mkdir(exist_ok=True)
    Path(stored, "journal", "0000000001.rjl").touch()
    assert run(["purge", "/topic/none", "--data", stored]) == 2
    assert "confirm with --yes" in capfd.readouterr().err


def test_on_a_terminal_it_asks(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def confirm(text: str, **options: Any) -> None:
        asked.append(text)
        raise module.click.Abort

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(module.click, "confirm", confirm)
    assert run(["purge", "/topic/t", "--data", stored]) == 130
    assert asked == [f"drop the whole history of /topic/t in {stored}?"]


def test_a_broker_that_starts_afterwards_goes_on_with_the_next_offset(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    with connect(broker.address) as connection:
        connection.send_many([("/topic/t", b"old")] * 7 + [("/queue/q", b"old")] * 5)
    data = ["--data", str(broker.data), "-y"]
    assert run(["purge", "/topic/t", *data]) == 1
    assert f"process {broker.pid}); stop it first" in capfd.readouterr().err
    broker.stop()
    assert run(["purge", "/topic/t", *data, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["partitions"] == [
        {"partition": "/topic/t", "records": 7, "next_offset": 7}
    ]
    assert run(["purge", "/queue/q", *data]) == 0
    assert run(["purge", "/queue/r", *data]) == 5
    assert run(["purge", "/queue/r", "--data", str(tmp_path / "none"), "-y"]) == 5
    broker.start()
    with connect(broker.address) as connection:
        assert connection.send("/topic/t", "new", receipt=True).offset == 7
        connection.send("/queue/q", "new")
        replayed = list(connection.subscribe("/topic/t", start_position="first", stop_position="end"))
        assert [(message.offset, message.text) for message in replayed] == [(7, "new")]
    assert bodies(broker.address, "/queue/q") == ["new"]
    assert broker.stop() == 0
    assert run(["fsck", "--data", str(broker.data)]) == 0
