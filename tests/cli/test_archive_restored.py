"""archive, backup, restore and fsck: a restored data directory that has gone on is refused, a mended one is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from radiator.archive import load, open_files
from radiator.cli.main import run
from radiator.client import connect
from radiator.storage import archived
from radiator.storage.files import FileSystem
from radiator.storage.layout import partition_path
from tests.archive.stores import archive_rows
from tests.archive.test_lineage import log_of, segments, write
from tests.running import BrokerProcess

TOPIC = "/topic/flights"
RULES = "defaults: {segment: {size: 64KiB}, retention: {count: 1, wait_for: archive}}\n"


def send(broker: BrokerProcess, text: str, count: int) -> None:
    with connect(broker.address) as connection:
        for number in range(count):
            connection.send_many([(TOPIC, f"{text} {number} ".encode() * 100)])


def bodies(root: Path) -> set[bytes]:
    return {row["body"] for row in archive_rows(root).values()}


@pytest.mark.thorough
def test_a_broker_that_goes_on_from_a_backup_keeps_what_the_archive_does_not_have(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data, to, backup = (str(tmp_path / name) for name in ("data", "archive", "backup"))
    broker = BrokerProcess(tmp_path, RULES)
    broker.start()
    send(broker, "first", 100)
    assert broker.stop() == 0
    assert run(["backup", "--data", data, "--to", backup]) == 0
    broker.start()
    send(broker, "second", 200)
    assert broker.stop() == 0
    assert run(["archive", "--data", data, "--to", to]) == 0
    end = load(open_files(to)).ends[TOPIC]
    assert end > 100
    shutil.rmtree(data)
    assert run(["restore", backup, "--to", data]) == 0
    broker.start()
    send(broker, "third", 300)
    capfd.readouterr()
    for more in ([], ["--dry-run"]):
        assert run(["archive", "--data", data, "--to", to, *more]) == 1
        assert "is not the one that the archive has" in capfd.readouterr().err
    send(broker, "fourth", 100)
    assert broker.stop() == 0
    assert archived.read(FileSystem(), partition_path(data, TOPIC)) == 0
    assert not any(body.startswith((b"third", b"fourth")) for body in bodies(tmp_path / "archive"))
    assert run(["archive", "--data", data, "--to", str(tmp_path / "new")]) == 0
    found = bodies(tmp_path / "new")
    assert sum(body.startswith(b"third") for body in found) == 300


def test_a_log_that_was_mended_where_the_archive_ends_goes_on(tmp_path: Path) -> None:
    data, to = str(tmp_path / "data"), str(tmp_path / "archive")
    write(tmp_path, 2000, 0)
    assert run(["archive", "--data", data, "--to", to]) == 0
    end = load(open_files(to)).ends["flights"]
    for path, at in ((segments(tmp_path)[-2], -9), (segments(tmp_path)[-1], -9)):
        spoiled = bytearray(path.read_bytes().rstrip(b"\0"))
        spoiled[at] ^= 1
        path.write_bytes(spoiled)
    assert run(["fsck", "--data", data, "--repair"]) in (0, 6)
    write(tmp_path, 1000, 3000)
    assert run(["archive", "--data", data, "--to", to, "--skip-damaged"]) == 6  # of what was not archived yet
    assert load(open_files(to)).ends["flights"] > end
    assert log_of(tmp_path).next_offset > end
