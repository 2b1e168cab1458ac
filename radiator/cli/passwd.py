"""``radiator passwd``: set the passcode of one user in a users file.

The file is replaced in one step, so a broker that reads it meanwhile sees the old one or the new one. Its permissions
stay unchanged; a new file is readable by its owner only. Concurrent commands wait for one another, with a lock on the
directory. Passcodes and hashes are never printed.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from radiator.cli.common import FAILED, NOT_FOUND, OK, CommandFailed, json_option, put_json, say

if TYPE_CHECKING:
    from radiator.config.users import User


@click.command(short_help="Set or delete the passcode of a user in a users file.")
@click.argument("users_file", metavar="USERS_FILE")
@click.argument("name", metavar="NAME")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the passcode from the first line of stdin.")
@click.option("--delete", is_flag=True, help="Delete the user with all rights.")
@json_option
def passwd(users_file: str, name: str, from_stdin: bool, delete: bool, as_json: bool) -> int:
    """Set the passcode of NAME in USERS_FILE, and create the user and the file if necessary.

    Asks for the passcode twice. Rights, comments and other users stay unchanged. A running broker uses the new file
    within three seconds.
    """
    from radiator.config.load import read_text
    from radiator.config.users import load_users_text
    from radiator.config.users_edit import delete_user, set_password
    from radiator.server.passwords import make_hash

    path = os.path.realpath(users_file)

    def read() -> tuple[str, User | None]:
        text = read_text(path, "the users file") if os.path.exists(path) else ""
        return text, load_users_text(text, users_file).users.get(name)

    read()  # report a fault in the file before the prompt
    hash_ = "" if delete else make_hash(_passcode(from_stdin))
    try:
        with _alone(path):
            text, known = read()
            if delete and known is None:
                raise CommandFailed(NOT_FOUND, f"{users_file}: no user {name!r}")
            _replace(
                path, delete_user(text, users_file, name) if delete else set_password(text, users_file, name, hash_)
            )
    except OSError as error:
        raise CommandFailed(FAILED, f"{users_file}: cannot be written: {error.strerror}") from None
    if not delete and (known is None or not known.grants.rights):
        say(
            f"warning: {name} has no rights: logging in works, and everything is denied. Add lines such as "
            f"`read: /topic/>`, `write: /queue/orders` or `monitor: true` to the user in {users_file}"
        )
    done = "deleted" if delete else "changed" if known is not None else "added"
    if as_json:
        put_json({"users_file": users_file, "user": name, "done": done})
    else:
        say(f"{users_file}: {name} {done}")
    return OK


def _passcode(from_stdin: bool) -> str:
    if from_stdin:
        passcode = sys.stdin.readline().rstrip("\r\n")
    elif not sys.stdin.isatty():
        raise click.UsageError("expected a terminal for the question, or --stdin")
    else:
        passcode = click.prompt("Passcode", hide_input=True, confirmation_prompt="Once more", err=True)
    if not passcode:
        raise click.UsageError("expected a passcode, got nothing")
    if passcode != passcode.strip():
        raise click.UsageError("expected a passcode without blanks at its ends, which STOMP 1.0 removes")
    return passcode


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Hold the lock on the directory of the file, as a context manager.

    The file itself is replaced, so it cannot be locked.
    """
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _replace(path: str, text: str) -> None:
    directory = os.path.dirname(path)
    handle, temporary = tempfile.mkstemp(dir=directory, prefix=".users-")  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            if os.path.exists(path):
                facts = os.stat(path)
                if (facts.st_uid, facts.st_gid) != (os.geteuid(), os.getegid()) and stat.S_ISREG(facts.st_mode):
                    os.fchown(file.fileno(), facts.st_uid, facts.st_gid)  # the broker may run as another user
                os.fchmod(file.fileno(), facts.st_mode & 0o777)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
