"""backup and restore, with a real broker: under load, killed, and brought back elsewhere."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from radiator.cli.backup import pacer
from radiator.cli.main import run
from radiator.client import connect
from tests.crash.asking import drain, replay
from tests.load import QUEUE, TOPIC, Brief, Client, Consumer, Producer, Records
from tests.running import BrokerProcess

StartBroker = Callable[..., BrokerProcess]
KEPT = """
version: 1
defaults: {segment: {size: 64KiB}, retention: {acked: keep}, merge_commits: false}
destinations:
  - match: /topic/brief
    retention: {size: 128KiB}
"""
REWRITTEN = KEPT.replace("{acked: keep}, merge_commits: false}", "{acked: reclaim}, compress: zstd}")
BACKUPS = 4


def ran(capfd: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    assert run(args) == code, capfd.readouterr().err
    return capfd.readouterr().out


def backed_up(capfd: pytest.CaptureFixture[str], broker: BrokerProcess, target: Path, *more: str) -> dict[str, Any]:
    return json.loads(ran(capfd, "backup", "--data", str(broker.data), "--to", str(target), "--json", *more))


def segments(data: Path, partition: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((data / "partitions" / partition).glob("*.rlog"))}


@pytest.mark.thorough
@pytest.mark.parametrize("config", [KEPT, REWRITTEN], ids=["kept", "rewritten"])
def test_backups_made_under_load_are_exact_prefixes_and_restore_to_a_store_that_works(
    start_broker: StartBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str], config: str
) -> None:
    broker, records = start_broker(config), Records()
    clients: list[Client] = [Producer(broker, records, name) for name in ("p0", "p1")]
    clients.append(Brief(broker, records, "brief"))
    made: list[tuple[Path, dict[str, int], set[bytes]]] = []
    for number in range(BACKUPS):
        clients.append(Consumer(broker, records, f"c{number}"))  # each holds more and more unacknowledged
        records.wait_for(stored=1000, acked=100)
        receipted = {name: max(found) + 1 for name, found in records.stored.items()}
        acked = set(records.acked)
        since = ["--since", str(made[-1][0])] if made else []
        result = backed_up(capfd, broker, tmp_path / f"copy-{number}", *since)
        ends = {each["partition"]: each["next_offset"] for each in result["partitions"]}
        assert all(ends[name] >= end for name, end in receipted.items()), "receipted before, and not in the backup"
        made.append((tmp_path / f"copy-{number}", ends, acked))
    broker.kill()
    for client in clients:
        client.result()
    assert made[-1][1][TOPIC] > made[0][1][TOPIC]
    for number, (copy, ends, acked) in enumerate(made):
        again = BrokerProcess(_directory(tmp_path / f"again-{number}"), config)
        ran(capfd, "restore", str(copy), "--to", str(again.data))
        if config == KEPT:
            for name in (TOPIC, QUEUE):
                _check_prefix(broker.data, again.data, name.replace("/", "%2F"))
        again.start()
        try:
            _check_restored(again, records, ends, acked, config == KEPT)
            assert again.stop() == 0
        finally:
            if again.running:
                again.kill()
        for word in ("damage", "torn", "ahead", "are gone", "WARNING", "Traceback"):
            assert word not in again.text().replace("damaged_ranges", "")  # a counter


def _check_restored(
    broker: BrokerProcess, records: Records, ends: dict[str, int], acked: set[bytes], kept: bool
) -> None:
    for name in (TOPIC, QUEUE):
        found = replay(broker, name)
        stored = {offset: body for offset, body in records.stored[name].items() if offset < ends[name]}
        if kept or name == TOPIC:
            assert list(found) == list(range(ends[name]))
        assert all(found[offset] == body for offset, body in stored.items() if offset in found)
        assert set(stored.values()) - set(found.values()) <= records.acked, "not settled, and gone"
    brief = list(replay(broker, "/topic/brief"))
    assert brief == list(range(brief[0], ends["/topic/brief"]))
    assert not acked & {body for body, _ in drain(broker)}, "settled before the backup, and delivered again"
    with connect(broker.address) as connection:
        receipt = connection.send(TOPIC, b"next")
        assert receipt is not None and receipt.offset == ends[TOPIC]


def _directory(path: Path) -> Path:
    path.mkdir()
    return path


def _check_prefix(original: Path, copy: Path, partition: str) -> None:
    source, copied = segments(original, partition), segments(copy, partition)
    assert list(copied) == list(source)[: len(copied)]
    *sealed, last = copied
    assert all(source[name] == copied[name] for name in sealed)
    assert source[last].startswith(copied[last])


def test_a_damaged_backup_is_named_and_ends_with_code_6(
    broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(broker.address) as connection:
        connection.send_many([("/topic/a", b"x" * 100)] * 100)
    copy = tmp_path / "copy"
    assert backed_up(capfd, broker, copy)["offsets"] == 100
    assert json.loads(ran(capfd, "restore", str(copy), "--verify-only", "--json"))["offsets"] == 100
    assert "every checksum is right" in ran(capfd, "restore", str(copy), "--verify-only")
    ran(capfd, "fsck", "--data", str(copy))  # a backup has the layout of a store, and nothing is wrong with it
    path = next(copy.rglob("*.rlog"))
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    for more in (["--verify-only"], ["--to", str(tmp_path / "again")]):
        assert run(["restore", str(copy), *more]) == 6
        assert f"{path}: wrong checksum" in capfd.readouterr().err
    assert not (tmp_path / "again").exists()


def test_what_is_asked_wrongly_is_refused_with_the_reason(
    broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(broker.address) as connection:
        connection.send("/topic/a", b"x")
    data, copy = str(broker.data), str(tmp_path / "copy")
    cases = [
        (["backup", "--data", str(tmp_path / "nothing"), "--to", copy], 5, "no radiator store here"),
        (["backup", "--data", data, "--to", str(tmp_path / "no" / "copy")], 5, "no such directory"),
        (["backup", "--data", data, "--to", data + "/copy"], 1, "is inside the data directory"),
        (["backup", "--data", data, "--to", data], 1, "is inside the data directory"),
        (["backup", "--data", data, "--to", str(tmp_path)], 1, "exists already"),
        (["backup", "--data", data, "--to", copy, "--rate", "fast"], 2, "expected a size"),
        (["backup", "--data", data, "--to", copy, "--since", data], 1, "no backup here"),
        (["restore", str(tmp_path), "--to", copy], 5, "no backup here"),
        (["restore", str(tmp_path)], 2, "either --to DIR or --verify-only"),
    ]
    for args, code, words in cases:
        assert run(args) == code, args
        assert words in capfd.readouterr().err
    ran(capfd, "backup", "--data", data, "--to", copy)
    assert run(["restore", copy, "--to", data]) == 1
    assert "not empty" in capfd.readouterr().err


def test_a_pace_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    pace = pacer(1000)
    assert pace is not None
    for _ in range(10):
        pace(500)
    assert now[0] == pytest.approx(104.5)
    assert pacer(None) is None


def test_a_message_sent_again_after_a_restore_is_recognised(
    broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(broker.address) as connection:
        for number in range(5):
            connection.send("/topic/a", b"x", {"dedup-id": str(number)})
        ran(capfd, "backup", "--data", str(broker.data), "--to", str(tmp_path / "copy"))
        connection.send("/topic/a", b"x", {"dedup-id": "later"})
    again = BrokerProcess(_directory(tmp_path / "again"))
    ran(capfd, "restore", str(tmp_path / "copy"), "--to", str(again.data))
    again.start()
    try:
        with connect(again.address) as connection:
            receipts = [connection.send("/topic/a", b"x", {"dedup-id": each}) for each in ("3", "later", "4")]
        assert [receipt.offset for receipt in receipts if receipt is not None] == [3, 5, 4]
        assert again.stop() == 0
    finally:
        if again.running:
            again.kill()
