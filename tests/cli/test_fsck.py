"""fsck on the command line: its exit codes, what people and programs are shown, beside a broker under load."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from radiator.cli.main import run
from radiator.client import connect
from radiator.clock import NS_PER_SECOND, now_ns
from radiator.storage import layout
from radiator.storage.reader import batches, list_partitions
from radiator.upkeep.findings import KINDS
from tests.cli.test_main import section
from tests.running import BrokerProcess
from tests.storage.driving import ALWAYS, commit, opened, put

CONFIG = """
version: 1
destinations:
  - match: /topic/*
    partition: topics
    segment: {size: 256KiB}
    retention: {size: 1MiB}
  - match: /queue/*
    segment: {size: 64KiB}
    fsync: 10ms
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A store with one queue, in which one batch is damaged."""
    root = tmp_path / "data"
    store, _ = opened(root=str(root))
    partition = store.partition("/queue/jobs", ALWAYS)
    for number in range(5):
        put(partition, b"job %d" % number, destination="/queue/jobs")
        commit(store)
    store.close()
    segment = Path(layout.segment_path(partition.directory, 0))
    whole = bytearray(segment.read_bytes())
    whole[len(whole) // 2] ^= 1
    segment.write_bytes(whole)
    return root


def lines(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_damage_is_6_and_is_shown_with_bytes_and_offsets(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["fsck", "--data", str(data)]) == 6
    out = capfd.readouterr().out
    assert re.search(r"damage +damaged +\d+-\d+ +2 +/queue/jobs, 0{20}.rlog: bytes", out)
    assert re.search(r"1 partition, 1 segment, 4 batches, 4 records, \d+ bytes: 1 damage", out)  # and no speed
    assert run(["fsck", "--data", str(data), "--json", "/queue/jobs"]) == 6
    finding, last = lines(capfd)
    assert (finding["kind"], finding["first_offset"], finding["last_offset"]) == ("damaged", 2, 2)
    assert (last["summary"]["damage"], last["summary"]["records"]) == (1, 4)


def test_repair_makes_damage_known_and_then_has_nothing_to_do(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["fsck", "--data", str(data), "--repair"]) == 0
    out = capfd.readouterr().out
    assert "repaired  " in out and "quarantine/%2Fqueue%2Fjobs/" in out and "1 warning" in out
    assert len(list((data / layout.QUARANTINE).rglob("*.bin"))) == 1
    assert run(["fsck", "--data", str(data), "--repair", "--json"]) == 0
    assert not [line for line in lines(capfd) if "repaired" in line]
    assert run(["fsck", "--data", str(data)]) == 0


def test_what_is_not_there_is_5(data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["fsck", "--data", str(tmp_path / "nowhere")]) == 5
    assert run(["fsck", "--data", str(tmp_path)]) == 5
    assert run(["fsck", "--data", str(tmp_path), "--repair"]) == 5
    assert not (tmp_path / "LOCK").exists()
    assert run(["fsck", "--data", str(data), "/queue/other"]) == 5
    assert "no partition '/queue/other'" in capfd.readouterr().err
    assert run(["fsck", "--data", str(data), "--repair", "/queue/jobs"]) == 2


@pytest.mark.thorough
def test_beside_a_broker_under_load_nothing_is_found_and_repair_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = BrokerProcess(tmp_path, CONFIG)
    broker.start()
    stop = threading.Event()

    def load(number: int) -> None:
        with connect(broker.address) as connection:
            jobs = connection.subscribe(f"/queue/{number}", prefetch=50)
            while not stop.is_set():
                connection.send_many([(f"/queue/{number}", b"x" * 400), (f"/topic/{number}", b"y" * 3_000)] * 20)
                for _ in range(10):
                    message = jobs.fetch(20)
                    assert message is not None
                    message.ack()

    threads = [threading.Thread(target=load, args=(number,)) for number in range(3)]
    try:
        for thread in threads:
            thread.start()
        records = 0
        while records < 3_000:
            assert run(["fsck", "--data", str(broker.data), "--json"]) == 0
            found = lines(capfd)
            assert len(found) == 1, found
            assert found[0]["summary"]["live"]
            records = found[0]["summary"]["records"]
        assert run(["fsck", "--data", str(broker.data), "--repair"]) == 1
        assert f"process {broker.pid}); stop it first" in capfd.readouterr().err
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    broker.kill()
    assert run(["fsck", "--data", str(broker.data)]) == 0
    assert "0 partitions" not in capfd.readouterr().out


def test_receive_times_in_the_future_are_shown_and_lowered_on_request(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    store, _ = opened(root=data)
    partition = store.partition("/queue/jobs", ALWAYS)
    ahead_ns = now_ns() + 365 * 86_400 * NS_PER_SECOND
    for at in (1_000, ahead_ns, ahead_ns):
        put(partition, b"job", destination="/queue/jobs", at=at)
        commit(store)
    store.close()

    def times() -> list[int]:
        (stored,) = list_partitions(data)
        return [time for batch in batches(stored) for time in batch.receive_ns]

    for arguments in ([], ["--latest", "now"], ["--repair"]):
        assert run(["fsck", "--data", data, "--json", *arguments]) == 0
        found = [line for line in lines(capfd) if "kind" in line]
        assert {line["kind"] for line in found} == {"future"}
        assert found[-1]["first_offset"] == 1 and "`--repair --latest` lowers them" in found[-1]["text"]
    assert times() == [1_000, ahead_ns, ahead_ns]
    assert run(["fsck", "--data", data, "--repair", "--latest", "2020-01-01"]) == 0
    assert "2 receive times lowered" in capfd.readouterr().out
    assert times() == [1_000] + 2 * [1_577_836_800 * NS_PER_SECOND]
    assert run(["fsck", "--data", data, "--json"]) == 0 and len(lines(capfd)) == 1
    assert run(["fsck", "--data", data, "--latest", "tomorrow"]) == 2
    assert "expected now, a time such as" in capfd.readouterr().err


def test_the_document_has_every_kind_of_finding() -> None:
    for kind, (severity, about) in KINDS.items():
        assert f"| `{kind}` | {severity} | {about} |" in section("fsck")
