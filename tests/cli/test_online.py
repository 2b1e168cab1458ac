"""serve, send and tail with a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from radiator.cli.main import run
from radiator.client import connect
from radiator.client.errors import ServerError
from radiator.stomp.frames import Frame
from tests.client.fake import FakeBroker, Peer
from tests.running import BrokerProcess

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def address(shared_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("RADIATOR_URL", shared_broker.address)
    yield shared_broker.address


def command(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "radiator", *args], input=stdin, capture_output=True, timeout=60, check=False, cwd=ROOT
    )


def printed(capfdbinary: Any, *args: str) -> bytes:
    assert run(args) == 0
    out: bytes = capfdbinary.readouterr().out
    return out


# --- send -------------------------------------------------------------------------------------------------------------


def test_lines_from_stdin_become_messages(capfdbinary: Any) -> None:
    done = command("send", "/queue/lines", stdin=b"one\n\nthree")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"3 messages stored: /queue/lines offset 0 to 2\n"
    assert printed(capfdbinary, "tail", "/queue/lines", "-o", "first", "-e") == b"one\n\nthree\n"
    assert printed(capfdbinary, "tail", "/queue/lines", "-o", "first", "-e") == b"one\n\nthree\n"  # nothing was taken


def test_the_same_file_sent_again_stores_only_what_is_missing(tmp_path: Path, capfdbinary: Any) -> None:
    file = tmp_path / "orders.txt"
    file.write_text("a\nb\n")
    again = ["send", "/queue/numbered", "-f", str(file), "--producer-id", "orders.txt"]
    assert printed(capfdbinary, *again) == b"2 messages stored: /queue/numbered offset 0 to 1\n"
    file.write_text("a\nb\na\n")
    assert printed(capfdbinary, *again) == b"3 messages stored, 2 of them before: /queue/numbered offset 0 to 2\n"
    assert b'"duplicates":3' in printed(capfdbinary, *again, "--json")
    assert printed(capfdbinary, "tail", "/queue/numbered", "-o", "first", "-e") == b"a\nb\na\n"


def test_a_file_in_each_format(tmp_path: Path, capfdbinary: Any) -> None:
    (tmp_path / "a.csv").write_text("name,count\nx,1\n")
    (tmp_path / "a.jsonl").write_text('{"name":"y"}\n')
    (tmp_path / "a.bin").write_bytes(b"\0\n\xff")
    files = ["-f", str(tmp_path / "a.csv"), "-f", str(tmp_path / "a.jsonl")]
    assert printed(capfdbinary, "send", "/topic/files", *files, "--json").startswith(b'{"sent":2,')
    assert run(["send", "/topic/files", "-f", str(tmp_path / "a.bin"), "--as", "whole", "-H", "content-type:x"]) == 0
    capfdbinary.readouterr()
    out = printed(capfdbinary, "tail", "/topic/files", "-o", "first", "-e", "--json")
    records = [json.loads(line) for line in out.splitlines()]
    assert [record.get("body") for record in records] == ['{"name":"x","count":"1"}', '{"name":"y"}', None]
    assert [record["headers"]["content-type"] for record in records] == ["application/json", "application/json", "x"]
    assert records[2]["body_base64"] == "AAr/"


def test_messages_from_the_command_line_with_headers(capfdbinary: Any) -> None:
    assert run(["send", "/topic/args", "one", "-m", "two", "-H", "tag-x:a:b", "-H", "partition-key:k"]) == 0
    capfdbinary.readouterr()
    out = printed(capfdbinary, "tail", "/topic/args", "-o", "first", "-e", "-f", r"%t %p %o %g %k %S %s\n")
    assert out == b"/topic/args /topic/args 0 x=a:b k 3 one\n/topic/args /topic/args 1 x=a:b k 3 two\n"


def test_a_text_that_is_not_utf8_is_sent_as_the_bytes_that_were_given(capfdbinary: Any) -> None:
    assert run(["send", "/topic/bytes", "-m", os.fsdecode(b"caf\xe9")]) == 0
    capfdbinary.readouterr()
    assert printed(capfdbinary, "tail", "/topic/bytes", "-o", "first", "-e") == b"caf\xe9\n"


def test_what_tail_prints_can_be_sent_again(capfdbinary: Any) -> None:
    with connect(os.environ["RADIATOR_URL"]) as connection:
        connection.send("/topic/original", b"\xff", {"tag-a": "b", "event-time": "7"})
        connection.send("/topic/original", "text")
    lines = printed(capfdbinary, "tail", "/topic/original", "-o", "first", "-e", "--json")
    assert command("send", "/topic/copy", "--as", "records", stdin=lines).returncode == 0
    out = printed(capfdbinary, "tail", "/topic/copy", "-o", "first", "-e", "-f", r"%e %g %s\n")
    assert out == b"7 a=b \xff\n  text\n"


def test_a_transaction_stores_all_or_nothing(capfdbinary: Any) -> None:
    assert command("send", "/topic/all", "--transaction", stdin=b"1\n2\n").stdout == b"2 messages stored\n"
    bad = command("send", "/topic/all", "--transaction", "--as", "json", stdin=b"3\n4\noops\n")
    assert bad.returncode == 2
    assert b"stdin:3: expected a JSON value" in bad.stderr
    assert printed(capfdbinary, "tail", "/topic/all", "-o", "first", "-e") == b"1\n2\n"


def test_many_lines_are_all_stored_and_counted(capfdbinary: Any) -> None:
    lines = b"".join(b"%d\n" % number for number in range(30_000))
    done = command("send", "/topic/many", "--window", "700", stdin=lines)
    assert done.stdout == b"30,000 messages stored: /topic/many offset 0 to 29999\n", done.stderr
    assert printed(capfdbinary, "tail", "/topic/many", "-o", "first", "-e") == lines
    assert printed(capfdbinary, "tail", "/topic/many", "-o", "-2", "-c", "2") == b"29998\n29999\n"
    assert printed(capfdbinary, "tail", "/topic/many", "-o", "100", "--until", "102") == b"100\n101\n102\n"


def test_a_refusal_says_how_much_was_stored_before() -> None:
    done = command("send", "/topic/refused", "-m", "fine", "-H", "event-time:noon")
    assert done.returncode == 1
    assert b"bad-time" in done.stderr
    assert b"0 of 1 messages were stored for certain" in done.stderr
    assert done.stdout == b""


def test_a_pattern_cannot_be_sent_to() -> None:
    done = command("send", "/topic/*", "-m", "x")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"bad-destination" in done.stderr


# --- tail -------------------------------------------------------------------------------------------------------------


class Tail:
    """``radiator tail`` as a child whose lines are read as they come."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "radiator", "tail", *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip

    def line(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, number: signal.Signals) -> tuple[int, bytes]:
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, err


def send_until_seen(destination: str, tail: Tail, body: bytes) -> bytes:
    """When a child has subscribed is not known here: history makes it matter not."""
    with connect(os.environ["RADIATOR_URL"]) as connection:
        connection.send(destination, body)
    return tail.line()


def test_tail_follows_live_and_flushes_each_message() -> None:
    tail = Tail("/topic/live.>", "-o", "first")
    assert send_until_seen("/topic/live.a", tail, b"one") == b"one\n"
    assert send_until_seen("/topic/live.b", tail, b"two") == b"two\n"
    assert tail.end(signal.SIGINT) == (130, b"\n")  # the line end after ^C


def test_tail_into_a_closed_pipe_is_quiet() -> None:
    with connect(os.environ["RADIATOR_URL"]) as connection:
        connection.send_many([("/topic/pipe", "x" * 1_000)] * 1_000)
    tail = Tail("/topic/pipe", "-o", "first", "-e")
    assert tail.line()
    assert tail.process.stdout is not None
    assert tail.process.stderr is not None
    tail.process.stdout.close()
    assert tail.process.wait(30) == 0
    assert tail.process.stderr.read() == b""
    tail.process.stderr.close()


def test_tail_ends_with_its_reader_although_no_message_comes() -> None:
    tail = Tail("/topic/head", "-o", "first")
    assert send_until_seen("/topic/head", tail, b"one") == b"one\n"
    assert tail.process.stdout is not None
    tail.process.stdout.close()
    assert tail.process.wait(30) == 0
    assert tail.process.stderr is not None
    assert tail.process.stderr.read() == b""
    tail.process.stderr.close()


def test_consume_takes_messages_off_the_queue(capfdbinary: Any) -> None:
    assert run(["send", "/queue/eat", "-m", "1", "-m", "2", "-m", "3"]) == 0
    capfdbinary.readouterr()
    assert printed(capfdbinary, "tail", "/queue/eat", "--consume", "-c", "2") == b"1\n2\n"
    assert printed(capfdbinary, "tail", "/queue/eat", "--consume", "-c", "1", "--prefetch", "5") == b"3\n"
    assert printed(capfdbinary, "tail", "/queue/eat", "-o", "first", "-e") == b"1\n2\n3\n"


def test_a_gap_is_reported_on_stderr(capfdbinary: Any) -> None:
    fake = FakeBroker()

    def deliver(peer: Peer, frame: Frame) -> None:
        fake.default(peer, frame)
        peer.message(frame.headers["id"], b"x", gap=7, partition="p", offset=12)

    fake.on["SUBSCRIBE"] = deliver
    assert run(["tail", "/topic/a", "-c", "1", "--url", fake.address]) == 0
    out, err = capfdbinary.readouterr()
    fake.close()
    assert out == b"x\n"
    assert err == b"radiator: 7 records of p before offset 12 are lost (retention, damage)\n"


def test_a_bad_subscription_is_explained(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["tail", "/topic/a.>.b"]) == 2
    assert "bad-pattern" in capfd.readouterr().err
    assert run(["tail", "/topic/a", "-H", "selector:a="]) == 2
    assert "bad-selector" in capfd.readouterr().err


def test_a_lost_broker_is_3(start_broker: Any) -> None:
    broker = start_broker()
    tail = Tail("/topic/a", "-o", "first", "--url", broker.address)
    with connect(broker.address) as connection:
        connection.send("/topic/a", "x")
    assert tail.line() == b"x\n"
    broker.kill()
    _, err = tail.process.communicate(timeout=30)
    assert tail.process.returncode == 3
    assert err.startswith(b"radiator: the ")


# --- serve ------------------------------------------------------------------------------------------------------------


def test_serve_says_when_it_is_ready_and_ends_well(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "radiator", "serve", "--listen", "stomp://127.0.0.1:0", "--data", str(tmp_path / "d"),
         "--json", "--log-level", "warning"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["pid"] == process.pid
    with connect(ready["listen"][0]) as connection:
        assert connection.send("/queue/a", "x") is not None
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")


def test_a_busy_port_and_a_busy_directory_are_explained(shared_broker: BrokerProcess, tmp_path: Path) -> None:
    listen = f"stomp://{shared_broker.address}"
    busy_port = command("serve", "--listen", listen, "--data", str(tmp_path / "d"))
    assert busy_port.returncode in (1, 2)
    assert shared_broker.address.encode() in busy_port.stderr
    busy_data = command("serve", "--listen", "stomp://127.0.0.1:0", "--data", str(shared_broker.data))
    assert busy_data.returncode in (1, 2)
    assert str(shared_broker.data).encode() in busy_data.stderr
    for done in (busy_port, busy_data):
        assert b"Traceback" not in done.stderr


def test_the_time_that_a_message_shows_is_now(capfdbinary: Any) -> None:
    before = time.time_ns()
    assert run(["send", "/topic/now", "-m", "x"]) == 0
    capfdbinary.readouterr()
    received = int(printed(capfdbinary, "tail", "/topic/now", "-o", "first", "-e", "-f", "%T"))
    assert before <= received <= time.time_ns()


def test_a_place_where_nothing_can_be_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    data = command("serve", "--listen", "stomp://127.0.0.1:0", "--data", str(file))
    assert data.returncode == 1 and b"choose another data_dir" in data.stderr
    unix = command("serve", "--listen", f"unix:{file}/radiator.sock", "--data", str(tmp_path / "d"))
    assert unix.returncode == 2 and b"cannot listen there" in unix.stderr
    assert b"Traceback" not in data.stderr + unix.stderr


# --- what a broker says of itself -------------------------------------------------------------------------------------


def test_a_broker_lists_its_destinations(address: str, capfdbinary: Any) -> None:
    assert run(["send", "/queue/listed", "a", "b"]) == 0
    capfdbinary.readouterr()
    listed = json.loads(printed(capfdbinary, "ls", "--url", address, "--json"))["destinations"]
    (found,) = [each for each in listed if each["name"] == "/queue/listed"]
    assert (found["ready"], found["in_flight"], found["consumers"]) == (2, 0, 0)
    table = printed(capfdbinary, "ls", "--url", address).decode()
    line = next(line for line in table.splitlines() if line.startswith("/queue/listed"))
    assert line.split()[1:6] == ["queue", "2", "0", "0", "2"]
    assert line.split()[-1] == "0-2"


def test_a_broker_lists_what_matches_with_what_is_delayed_and_what_feeds_others(
    start_broker: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    started = start_broker("destinations: [{match: /queue/f, fan_out: [/queue/f.a, /queue/f.b]}]")
    with connect(started.address) as connection:
        for body in ("1", "2"):
            connection.send("/queue/f", body)
        connection.send("/queue/f.a", "later", {"delay": "1h"})
        connection.send("/queue/other", "x")

    def table() -> list[list[str]]:
        assert run(["ls", "--url", started.address, "/queue/f.#"]) == 0
        return [line.split()[:6] for line in capfd.readouterr().out.splitlines()[1:]]

    expected = [
        ["/queue/f", "fan_out", "-", "-", "-", "-"],
        ["/queue/f.a", "queue", "2", "0", "1", "3"],
        ["/queue/f.b", "queue", "2", "0", "0", "2"],
    ]
    assert table() == expected
    started.stop()
    started.start()
    assert table() == expected  # it looks until it knows


def test_a_broker_lists_its_connections(address: str, capfdbinary: Any) -> None:
    with connect(address) as connection:
        connection.subscribe("/topic/watched")
        listed = json.loads(printed(capfdbinary, "clients", "--match", connection.session, "--json"))["clients"]
        assert [each["destination"] for each in listed[0]["subscriptions"]] == ["/topic/watched"]
        assert printed(capfdbinary, "clients", "--match", "nobody") == b"no client matches nobody\n"
        table = printed(capfdbinary, "clients").decode()
        line = next(line for line in table.splitlines() if line.startswith(connection.session))
        assert line.split()[1] == "-" and "/topic/watched" in line


def test_cursors_are_listed_moved_and_deleted(address: str, capfdbinary: Any) -> None:
    with connect(address) as connection:
        connection.send("/topic/cursors", "one")
        named = {"subscription-name": "cli"}
        with connection.subscribe("/topic/cursors", start_position="first", headers=named) as inbox:
            assert inbox.fetch(10).body == b"one"
    (row,) = json.loads(printed(capfdbinary, "cursors", "ls", "sub:cli", "--json"))["cursors"]
    assert (row["destination"], row["end"], row["members"]) == ("/topic/cursors", 1, 0)
    (row,) = json.loads(printed(capfdbinary, "cursors", "set", "cli", "first", "--yes", "--json"))["cursors"]
    assert (row["position"], row["lag"]) == (0, 1)
    assert b"sub:cli" in printed(capfdbinary, "cursors", "ls", "sub:*")
    for command in (["set", "cli", "first"], ["rm", "cli"]):
        assert run(["cursors", *command]) == 2
        assert b"confirm with --yes" in capfdbinary.readouterr().err
    assert printed(capfdbinary, "cursors", "rm", "cli", "--yes") == b"sub:cli is deleted\n"
    for command in (["rm", "cli", "--yes"], ["rm", "cli"], ["set", "cli", "first"], ["rm", "c[l]i*"]):
        assert run(["cursors", *command]) == 5
        said = f"radiator: there is no cursor '{command[1]}' (not-found): `radiator cursors ls` lists them.\n"
        assert capfdbinary.readouterr().err == said.encode()


def test_a_list_comes_in_the_order_that_was_asked_for(address: str, capfdbinary: Any) -> None:
    with connect(address) as connection:
        connection.send_many([(f"/queue/sorted.{number}", b"x") for number in (1, 2, 2, 3, 3, 3)])
    lines = printed(capfdbinary, "ls", "--url", address, "/queue/sorted.*", "--sort", "ready", "--limit", "2")
    assert [line.split()[0] for line in lines.splitlines()[1:]] == [b"/queue/sorted.3", b"/queue/sorted.2"]
    assert run(["ls", "--sort", "ready"]) == 2
    assert b"give --url" in capfdbinary.readouterr().err


def test_one_destination_is_described(address: str, capfdbinary: Any) -> None:
    with connect(address) as connection:
        connection.send("/queue/described", "x" * 2000)
        inbox = connection.subscribe("/queue/described", ack="client-individual")
        assert inbox.fetch(10) is not None
        connection.send("/queue/described", "y", receipt=True)
        text = printed(capfdbinary, "describe", "/queue/described").decode()
        shown = json.loads(printed(capfdbinary, "describe", "/queue/described", "--json"))
        assert shown["destination"]["in_flight"] == 1
        assert [each["session"] for each in shown["consumers"]] == [connection.session]
    facts = dict(line.split(maxsplit=1) for line in text.partition("\n\n")[0].splitlines())
    assert facts["ready"] == "1" and facts["published"] == "2"
    assert facts["rule"] == "none matches (defaults)" and facts["oldest"].startswith("message  offset 0, ")
    for words in (connection.session, "/queue/described  ", "redeliver.max", "fsync"):
        assert words in text
    assert run(["describe", "/queue/descrbed"]) == 5
    assert b"Did you mean '/queue/described'?" in capfdbinary.readouterr().err


def test_the_counters_of_a_broker_are_printed(address: str, capfdbinary: Any) -> None:
    found = json.loads(printed(capfdbinary, "stats", "--json"))
    assert set(found) == {"version", "stats", "now", "store", "histograms", "cursors", "rules"}
    text = printed(capfdbinary, "stats").decode()
    for name in (*found["stats"], *found["store"], "memory.total"):
        assert f"\n{name} " in text


def test_a_client_is_disconnected(address: str, capfdbinary: Any) -> None:
    with connect(address) as connection:
        assert run(["disconnect", connection.session]) == 2
        assert b"confirm with --yes" in capfdbinary.readouterr().err
        assert printed(capfdbinary, "disconnect", connection.session, "--reason", "for a test", "-y") == (
            f"{connection.session} is disconnected\n".encode()
        )
        with pytest.raises(ServerError, match="disconnected") as caught:
            connection.send("/queue/a", "x", receipt=True)
        assert "for a test" in str(caught.value)
    for confirmed in (["-y"], []):
        assert run(["disconnect", connection.session, *confirmed]) == 5
        err = capfdbinary.readouterr().err
        assert f"there is no client '{connection.session}'".encode() in err and b"confirm" not in err
