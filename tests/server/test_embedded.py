"""A broker inside another program: it is the whole broker, and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import radiator
from radiator.client import ConnectFailed, connect
from radiator.config import load_text
from radiator.errors import ConfigError, StorageError
from radiator.server.embedded import Broker

WAIT_SECONDS = 30.0


def test_a_broker_in_this_process_serves_any_client() -> None:
    with radiator.Broker() as broker, broker.connect() as here:
        here.send("/queue/a", "one")
        code = (
            f"from radiator.client import connect\nprint(connect({broker.url!r}).subscribe('/queue/a').fetch(30).text)"
        )
        assert subprocess.check_output([sys.executable, "-c", code], text=True) == "one\n"


def test_nothing_is_left_of_it() -> None:
    with Broker() as broker:
        data = broker._settings.data_dir
        broker.connect().send("/queue/a", "x")
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    assert not os.path.exists(data)
    with pytest.raises(ConnectFailed):
        connect(broker.url)
    for _ in range(3):
        with Broker() as broker, broker.connect() as connection:
            connection.send("/queue/a", "x")
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_several_run_side_by_side() -> None:
    with Broker() as one, Broker() as two:
        assert one.url != two.url
        with one.connect() as first, two.connect() as second:
            first.send("/queue/a", "one")
            second.send("/queue/a", "two")
            message = second.subscribe("/queue/a").fetch(WAIT_SECONDS)
            assert message is not None
            assert message.text == "two"


def test_what_was_stored_is_there_in_the_next_one(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "d") as broker, broker.connect() as connection:
        connection.send("/queue/a", "kept")
    with Broker(data_dir=tmp_path / "d") as broker, broker.connect() as connection:
        message = connection.subscribe("/queue/a").fetch(WAIT_SECONDS)
        assert message is not None
        assert message.text == "kept"


def test_a_configuration_may_be_a_mapping_a_path_or_loaded(tmp_path: Path) -> None:
    keys = {"data_dir": str(tmp_path / "d"), "destinations": [{"match": "/queue/no", "create": "deny"}]}
    path = tmp_path / "radiator.yaml"
    path.write_text(f"data_dir: {tmp_path / 'e'}\n")
    local = ("stomp://127.0.0.1:0", f"unix:{tmp_path / 's'}")
    for config in (keys, path, load_text(f"data_dir: {tmp_path / 'f'}\n")):
        with Broker(config, listen=local) as broker:
            assert broker.urls[1] == local[1]
            connect(broker.urls[1]).send("/queue/a", "x")
    with Broker(keys, listen=local) as broker, pytest.raises(Exception, match="may not be created"):
        broker.connect().send("/queue/no", "x")


def test_a_fault_of_the_configuration_is_raised_where_it_is_made() -> None:
    with pytest.raises(ConfigError, match="did you mean data_dir"):
        Broker({"datadir": "x"})


def test_a_start_that_fails_is_raised_and_leaves_nothing(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "d"):
        threads = threading.active_count()
        with pytest.raises(StorageError, match="in use|another|running"):
            Broker(data_dir=tmp_path / "d").start()
        assert threading.active_count() == threads
    with Broker() as broker:
        with pytest.raises(ConfigError, match="port is in use"):
            Broker(listen=(broker.url,)).start()


def test_starts_that_fail_again_and_again_leave_nothing_open(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "d") as broker:
        counts = []
        for _ in range(4):
            with pytest.raises(StorageError):
                Broker(data_dir=tmp_path / "d").start()
            with pytest.raises(ConfigError):
                Broker(listen=(broker.url,)).start()
            gc.collect()
            counts.append((threading.active_count(), len(os.listdir("/proc/self/fd"))))
        assert counts[1:] == counts[:-1]


def test_it_stops_once_and_starts_once() -> None:
    broker = Broker().start()
    with pytest.raises(RuntimeError, match="started before"):
        broker.start()
    broker.stop()
    broker.stop()


def test_signals_and_an_exit_without_stop_are_the_programs_own() -> None:
    code = (
        "import os, signal\nfrom radiator import Broker\n"
        "before = signal.getsignal(signal.SIGTERM)\nbroker = Broker().start()\n"
        "assert signal.getsignal(signal.SIGTERM) is before\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=WAIT_SECONDS).returncode == 0


def test_under_gevents_patch_it_shares_the_programs_loop() -> None:
    code = (
        "from gevent import monkey\nmonkey.patch_all()\nfrom radiator import Broker\n"
        "with Broker() as broker, broker.connect() as connection:\n"
        "    connection.send('/queue/a', 'one')\n"
        "    print(connection.subscribe('/queue/a').fetch(30).text)\n"
        "import gevent\ngevent.sleep(0.01)\nprint('goes on')\n"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=WAIT_SECONDS)
    assert out == "one\ngoes on\n"


def test_where_it_listens_is_not_known_before_it_is_started() -> None:
    broker = Broker()
    with pytest.raises(RuntimeError, match="start"):
        print(broker.url)
    with pytest.raises(RuntimeError, match="start"):
        broker.connect()
