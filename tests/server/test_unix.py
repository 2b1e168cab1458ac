"""Unix sockets: whose they are from the first moment, what makes way for them, and what does not."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from radiator.errors import ConfigError
from radiator.server import unix


@pytest.fixture
def near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Paths of unix sockets are short."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fault(path: str) -> str:
    with pytest.raises(ConfigError) as caught:
        unix.bind(path, 1)
    return str(caught.value)


def test_no_other_user_may_open_the_socket_whatever_the_umask_is(near: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[int] = []
    monkeypatch.setattr(os, "umask", lambda mask: changed.append(mask) or 0)
    unix.bind("a.sock", 1).close()
    assert stat.S_IMODE((near / "a.sock").stat().st_mode) == 0o600
    if os.uname().sysname == "Linux":
        assert not changed, "files that other threads make meanwhile would get the wrong mode"


def test_where_the_socket_has_no_mode_the_umask_does_it(near: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, mode: int) -> None:
        raise OSError("not here")

    monkeypatch.setattr(os, "fchmod", refuse)
    unix.bind("a.sock", 1).close()
    assert stat.S_IMODE((near / "a.sock").stat().st_mode) == 0o600


def test_what_a_killed_broker_left_makes_way(near: Path) -> None:
    unix.bind("a.sock", 1).close()  # the file stays
    sock = unix.bind("a.sock", 1)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("a.sock")
    sock.close()


def test_a_broker_that_is_alive_and_any_other_file_do_not(near: Path) -> None:
    sock = unix.bind("a.sock", 1)
    assert "in use by another program" in fault("a.sock")
    sock.close()
    (near / "notes").write_text("precious")
    assert "expected nothing or a socket there" in fault("notes")
    (near / "link").symlink_to(near / "a.sock")
    assert "expected nothing or a socket there" in fault("link")
    assert (near / "notes").read_text() == "precious"


def test_a_path_that_is_too_long_is_an_error(near: Path) -> None:
    assert "expected a path of at most 107 bytes, got 120" in fault("x" * 120)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do anything")
def test_a_directory_that_may_not_be_written_is_reported(near: Path) -> None:
    (near / "locked").mkdir(mode=0o500)
    assert "Permission denied" in fault("locked/a.sock")


def test_a_directory_that_is_a_file_is_reported(near: Path) -> None:
    (near / "file").write_text("")
    assert "cannot listen there" in fault("file/a.sock")


def test_a_directory_that_every_user_may_write_is_a_warning(near: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, mode in (("open", 0o777), ("sticky", 0o1777), ("own", 0o700)):
        (near / name).mkdir()
        (near / name).chmod(mode)
        unix.bind(f"{name}/a.sock", 1).close()
    assert "chmod o-w open" in caplog.text
    assert "sticky" not in caplog.text and "own" not in caplog.text


def test_only_its_own_file_is_removed(near: Path) -> None:
    sock = unix.bind("a.sock", 1)
    mine = unix.identity("a.sock")
    (near / "a.sock").rename(near / "kept")
    other = unix.bind("a.sock", 1)
    unix.remove("a.sock", mine)
    assert (near / "a.sock").exists()
    unix.remove("a.sock", unix.identity("a.sock"))
    assert not (near / "a.sock").exists()
    unix.remove("a.sock", mine)
    sock.close()
    other.close()
