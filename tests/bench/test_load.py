"""The load generator counts what it says it counts: every mode against a real broker, and failures that are noticed."""

from __future__ import annotations

import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from radiator.bench import frames, process
from radiator.bench.cells import table
from radiator.bench.latency import Latencies
from radiator.bench.run import generate
from radiator.bench.target import Target, parse
from radiator.cli.main import run
from radiator.client import connect
from radiator.errors import ConfigError
from tests.running import BrokerProcess

ROOT = Path(__file__).parent.parent.parent


def load(broker: BrokerProcess, mode: str, **more: Any) -> dict[str, Any]:
    spec = {"host": "127.0.0.1", "port": broker.port, "pids": [broker.pid], "mode": mode, **more}
    answer = generate(spec)
    assert "error" not in answer, answer["error"]
    return answer


def bodies(broker: BrokerProcess, destination: str) -> list[bytes]:
    with connect(broker.address) as connection:
        return [m.body for m in connection.subscribe(destination, start_position="first", stop_position="end")]


@pytest.mark.parametrize(("connections", "window"), [(1, 1), (3, 7)])
def test_produce_sends_what_it_reports(shared_broker: BrokerProcess, connections: int, window: int) -> None:
    name = f"/queue/produce-{connections}-{window}"
    answer = load(
        shared_broker, "produce", destination=name, count=100, connections=connections, window=window, size=50
    )
    assert answer["messages"] == 100
    assert bodies(shared_broker, name) == [b"x" * 50] * 100
    assert answer["per_second"] > 0
    assert answer["p50_ms"] <= answer["p99_ms"]
    assert answer["broker_cpu_us"] is not None


def test_produce_for_a_time_waits_for_every_receipt(shared_broker: BrokerProcess) -> None:
    answer = load(shared_broker, "produce", destination="/queue/timed", seconds=0.05, window=10)
    assert answer["messages"] == len(bodies(shared_broker, "/queue/timed")) > 0


def test_fanout_counts_deliveries(shared_broker: BrokerProcess) -> None:
    answer = load(shared_broker, "fanout", destination="/topic/fan", seconds=0.05, window=100, connections=5)
    assert answer["messages"] == 5 * len(bodies(shared_broker, "/topic/fan")) > 0


def test_drain_acknowledges_everything(shared_broker: BrokerProcess) -> None:
    load(shared_broker, "produce", destination="/queue/drain", count=500, window=100)
    prefetch = [["prefetch-count", "50"]]
    answer = load(
        shared_broker, "drain", destination="/queue/drain", count=500, connections=2, subscribe_headers=prefetch
    )
    assert answer["messages"] == 500
    with connect(shared_broker.address) as connection:
        assert connection.subscribe("/queue/drain").fetch(0.1) is None


def test_replay_reads_everything(shared_broker: BrokerProcess) -> None:
    load(shared_broker, "produce", destination="/queue/again", count=500, window=100)
    headers = [["start-position", "first"]]
    answer = load(shared_broker, "replay", destination="/queue/again", count=500, subscribe_headers=headers)
    assert answer["messages"] == 500


def test_latency_has_both_ways(shared_broker: BrokerProcess) -> None:
    answer = load(shared_broker, "latency", destination="/queue/late", rate=500, seconds=0.2)
    assert answer["messages"] == 100
    for figure in ("p50_ms", "p99_ms", "receipt_p50_ms", "receipt_p99_ms"):
        assert answer[figure] > 0


def test_idle_reads_the_memory(shared_broker: BrokerProcess) -> None:
    answer = load(shared_broker, "idle", destination="/topic/idle", connections=20)
    assert answer["messages"] == 20
    assert answer["bytes_per_connection"] is not None


def test_a_refusal_is_an_error_with_the_text_of_the_broker(shared_broker: BrokerProcess) -> None:
    base = {"host": "127.0.0.1", "port": shared_broker.port}
    refused = generate({**base, "mode": "produce", "destination": "/topic/*", "count": 1})
    assert "bad-destination" in refused["error"]
    headers = [["start-position", "yesterday"]]
    refused = generate({**base, "mode": "fanout", "destination": "/topic/a", "subscribe_headers": headers})
    assert "bad-position" in refused["error"]


def test_a_broker_that_goes_silent_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [sys.executable, "-m", "radiator.bench.modes"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        spec = {"mode": "produce", "port": port, "count": 1, "stall_seconds": 0.1}
        assert child.stdin is not None
        child.stdin.write(json.dumps(spec))
        child.stdin.close()
        peer, _ = listener.accept()
        peer.sendall(b"CONNECTED\nversion:1.2\n\n\0")
        assert child.stdout is not None
        assert "nothing came for 0.1 s" in json.load(child.stdout)["error"]
        child.stdout.close()
        assert child.wait(30) == 0
        peer.close()


def test_an_absent_broker_is_an_error() -> None:
    assert "refused" in generate({"mode": "produce", "port": 1})["error"].lower()


# --- the parts --------------------------------------------------------------------------------------------------------


def test_a_ring_gives_any_run_of_frames() -> None:
    ring = frames.Ring("/queue/a", 10, 4, [("x", "y")])
    one = bytes(ring.slice(0, 1))
    assert one == b"SEND\ndestination:/queue/a\ncontent-length:10\nx:y\nreceipt:000000\n\n" + b"x" * 10 + b"\0"
    numbers = [part[:1] for part in bytes(ring.slice(6, 4)).split(b"receipt:00000")[1:]]
    assert numbers == [b"2", b"3", b"0", b"1"]


def test_acks_go_back_as_they_came() -> None:
    assert frames.acks([b"a\\cb", b"2"]) == b"ACK\nid:a\\cb\n\n\0ACK\nid:2\n\n\0"
    assert frames.acks([]) == b""


def test_quantiles_count_messages_not_samples() -> None:
    latencies = Latencies()
    assert latencies.quantiles_ms(0.5) == [None]
    latencies.add(1_000_000, 98)
    latencies.add(5_000_000)
    latencies.add(9_000_000)
    assert latencies.quantiles_ms(0.5, 0.98, 0.99, 1.0) == [1.0, 1.0, 5.0, 9.0]


def test_a_process_is_measured_and_found_by_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert process.listeners(listener.getsockname()[1]) == [os.getpid()]
    cpu = process.cpu_seconds([os.getpid()])
    memory = process.resident_bytes([os.getpid()])
    assert cpu is not None
    assert cpu > 0
    assert memory is not None
    assert memory > 1_000_000
    assert process.cpu_seconds([]) is None
    assert process.cpu_seconds([2**22 + 1]) is None
    assert process.filesystem("/proc/self") == "proc"


def test_a_target_is_read_from_its_url() -> None:
    target = parse(
        "stomp://me:se%3Acret@127.0.0.1:1?name=peer&vhost=v&pid=1&pid=2&send=a:b&subscribe=c:d:e&replay=x:y&skip=^fan"
    )
    assert target == Target(
        "peer", "127.0.0.1", 1, "me", "se:cret", "v", [1, 2], [("a", "b")], [("c", "d:e")], ("x", "y"), "^fan"
    )
    assert target.skips("fanout_1")
    assert not target.skips("drain")


@pytest.mark.parametrize("url", ["http://a:1", "a", "a:x", "a:1?pid=x", "a:1?send=x", "a:1?colour=red"])
def test_a_bad_target_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="expected|unknown|Port"):
        parse(url)


def test_the_cells_are_those_that_the_issue_asks_for() -> None:
    names = {cell.name for cell in table(1.0)}
    wanted = {f"produce_{s}_w{w}_c{c}" for s in (100, 1024) for w in (1, 64, 1000) for c in (1, 8)}
    wanted |= {f"fanout_100_1to{n}" for n in (1, 10, 100)}
    assert wanted | {"drain_100_c1", "replay_100", "e2e1000_100", "idle_1000"} <= names


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_bench_starts_and_removes_its_own_broker(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "--only", "^start$|produce_100_w64_c1|idle", "--seconds", "0.05", "--data", str(tmp_path)]
    assert run([*arguments, "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    rows = {row["cell"]: row for row in report["rows"]}
    assert set(rows) == {"start", "produce_100_w64_c1", "idle_1000"}
    assert rows["start"]["start_seconds"] > 0
    assert rows["produce_100_w64_c1"]["per_second"] > 0
    assert report["machine"]["cpus"] == os.cpu_count()
    assert list(tmp_path.iterdir()) == []


def test_bench_compares_and_shows_a_table(shared_broker: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "--url", shared_broker.address, "--only", "produce_100_w1_c1", "--seconds", "0.05"]
    peer = f"stomp://{shared_broker.address}?name=peer"
    assert run([*arguments, "--compare", peer, "--rounds", "2"]) == 0
    out, err = capfd.readouterr()
    assert out.count("produce_100_w1_c1") == 2
    assert "peer" in out
    assert err == ""


class HangUp(socketserver.BaseRequestHandler):
    """Ends each connection at once."""


def test_bench_reports_a_cell_that_failed(capfd: pytest.CaptureFixture[str]) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), HangUp) as peer:
        threading.Thread(target=peer.serve_forever, args=(0.01,), daemon=True).start()
        assert (
            run(["bench", "--url", "{}:{}".format(*peer.server_address), "--only", "fanout_100_1to1$", "--json"]) == 1
        )
        peer.shutdown()
    out, err = capfd.readouterr()
    assert json.loads(out)["rows"][0]["error"]
    assert "fanout_100_1to1" in err


@pytest.mark.parametrize("option", ["--url", "--compare"])
def test_bench_of_a_broker_that_does_not_listen_ends_at_once(option: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", option, "127.0.0.1:1", "--only", "produce"]) == 3
    out, err = capfd.readouterr()
    assert out == ""
    assert "cannot connect to 127.0.0.1:1: Connection refused; is a broker running there?" in err


def test_bench_lists_its_cells(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--list", "--only", "replay"]) == 0
    assert [line.split()[0] for line in capfd.readouterr().out.splitlines()] == ["replay_100", "replay_1024"]
    assert run(["bench", "--only", "nosuch"]) == 5
