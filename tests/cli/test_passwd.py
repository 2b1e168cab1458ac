"""radiator passwd, and what the users that it writes may do."""

from __future__ import annotations

import fcntl
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from radiator.config.users import load_users
from radiator.server.passwords import verify

LOCKS = Path("/proc/locks")
ROOT = Path(__file__).parent.parent.parent


def passwd(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "radiator", "passwd", *args]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False, cwd=ROOT)


def hash_of(path: Path, name: str) -> str:
    return load_users(str(path)).users[name].password or ""


def test_a_new_users_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "users.yaml"
    done = passwd(str(path), "alice", "--stdin", stdin=b"open sesame\n")
    assert done.returncode == 0, done.stderr
    assert verify(hash_of(path, "alice"), "open sesame")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"sesame" not in done.stdout + done.stderr and b"argon2" not in done.stdout + done.stderr
    assert os.listdir(tmp_path) == ["users.yaml"]


def test_a_passcode_is_changed_and_comments_stay(tmp_path: Path) -> None:
    path = tmp_path / "users.yaml"
    path.write_text("# mine\nusers:\n  alice: {read: '#'}  # she\n")
    assert passwd(str(path), "alice", "--stdin", stdin=b"one\n").returncode == 0
    assert passwd(str(path), "alice", "--stdin", stdin=b"two\n").returncode == 0
    assert verify(hash_of(path, "alice"), "two") and not verify(hash_of(path, "alice"), "one")
    assert path.read_text().startswith("# mine\n") and path.read_text().endswith("# she\n")


def test_a_user_is_deleted_once(tmp_path: Path) -> None:
    path = tmp_path / "users.yaml"
    passwd(str(path), "alice", "--stdin", stdin=b"one\n")
    assert passwd(str(path), "alice", "--delete").returncode == 0
    gone = passwd(str(path), "alice", "--delete")
    assert gone.returncode == 5 and b"no user 'alice'" in gone.stderr


@pytest.mark.parametrize(("stdin", "told"), [(b"\n", b"got nothing"), (b" x \n", b"without blanks")])
def test_a_passcode_that_would_not_work_is_refused(tmp_path: Path, stdin: bytes, told: bytes) -> None:
    done = passwd(str(tmp_path / "u"), "alice", "--stdin", stdin=stdin)
    assert done.returncode == 2 and told in done.stderr
    assert not (tmp_path / "u").exists()


def test_without_a_terminal_it_asks_for_stdin_and_a_faulty_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "users.yaml"
    assert b"--stdin" in passwd(str(path), "alice").stderr
    path.write_text("user: x")
    done = passwd(str(path), "alice", "--stdin", stdin=b"x\n")
    assert done.returncode == 2 and b"did you mean users?" in done.stderr
    assert path.read_text() == "user: x"


def test_at_a_terminal_it_asks_twice_and_shows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "users.yaml"
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "radiator", "passwd", str(path), "alice"]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, start_new_session=True)
    os.close(slave)
    shown = b""
    for prompt in (b"Passcode:", b"Once more:"):
        while prompt not in shown:
            shown += os.read(master, 1_024)
        os.write(master, b"typed in\n")
    assert process.wait(60) == 0
    os.close(master)
    assert verify(hash_of(path, "alice"), "typed in")
    assert b"typed in" not in shown


@pytest.mark.parametrize("mode", [0o640, 0o600, 0o664])
def test_the_permissions_of_the_file_stay(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "users.yaml"
    path.write_text("users: {}\n")
    path.chmod(mode)
    assert passwd(str(path), "alice", "--stdin", stdin=b"one\n").returncode == 0
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_of_two_that_change_the_file_at_once_both_have_an_effect(tmp_path: Path) -> None:
    """The second is under way, and waits, while the file is changed by somebody who holds the lock."""
    path = tmp_path / "users.yaml"
    path.write_text("users: {}\n")
    directory = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    command = [sys.executable, "-m", "radiator", "passwd", str(path), "alice", "--stdin"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=ROOT)
    assert process.stdin is not None
    process.stdin.write(b"one\n")
    process.stdin.close()
    while not any("->" in line and f" {process.pid} " in line for line in LOCKS.read_text().splitlines()):
        assert process.poll() is None, "it did not wait"
    path.write_text("users: {bob: {read: /topic/b}}\n")
    os.close(directory)
    assert process.wait(60) == 0
    assert set(load_users(str(path)).users) == {"alice", "bob"}


def test_a_user_without_rights_is_warned_about(tmp_path: Path) -> None:
    path = tmp_path / "users.yaml"
    assert b"alice has no rights" in passwd(str(path), "alice", "--stdin", stdin=b"one\n").stderr
    assert b"alice has no rights" in passwd(str(path), "alice", "--stdin", stdin=b"two\n").stderr
    path.write_text("users:\n  bob: {read: /topic/a}\n")
    assert b"warning" not in passwd(str(path), "bob", "--stdin", stdin=b"one\n").stderr
    assert b"warning" not in passwd(str(path), "bob", "--delete").stderr


def test_check_config_names_the_users_without_rights(tmp_path: Path) -> None:
    users, config = tmp_path / "users.yaml", tmp_path / "radiator.yaml"
    users.write_text("users:\n  bob: {read: /topic/a}\n")
    passwd(str(users), "alice", "--stdin", stdin=b"one\n")
    passwd(str(users), "bob", "--stdin", stdin=b"one\n")
    config.write_text(f"version: 1\nauth: {{users_file: {users}}}\n")
    command = [sys.executable, "-m", "radiator", "check-config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 0
    assert "users without rights, who can only log in: alice\n" in done.stdout
