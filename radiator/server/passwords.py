"""Hashes of passcodes: argon2id. Making or verifying one is 20 ms of work, so never on the loop.

The parameters are those that OWASP names as the least for argon2id (19 MiB, 2 rounds, 1 lane): enough to make guessing
from a stolen file dear, little enough that a thousand logins are half a minute of one core. A file may hold others.
"""

from __future__ import annotations

import base64
import secrets
from typing import Final

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import Argon2Error, InvalidHashError

PARAMETERS: Final = "$argon2id$v=19$m=19456,t=2,p=1"  # as a hash begins
_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


def make_hash(passcode: str) -> str:
    """As a users file holds it."""
    return _HASHER.hash(passcode)


def verify(hash_: str, passcode: str) -> bool:
    """Whether the passcode is the one that was hashed."""
    try:
        return _HASHER.verify(hash_, passcode)
    except (Argon2Error, InvalidHashError):
        return False


def cost_of(hash_: str) -> tuple[int, ...]:
    """What verifying it takes, to be compared: the work, then its kind; empty if nobody can log in with it."""
    try:
        like = extract_parameters(hash_)
        PasswordHasher(like.time_cost, like.memory_cost, like.parallelism, type=like.type)
    except (Argon2Error, InvalidHashError, ValueError):
        return ()
    if like.memory_cost < 8 * like.parallelism:
        return ()
    return like.memory_cost * like.time_cost, like.memory_cost, like.parallelism, like.type.value


def dummy_like(hash_: str | None) -> str:
    """A hash of nothing that anybody knows, as dear to verify as this one. Random bytes: no work to make it."""
    parameters = PARAMETERS if hash_ is None or not cost_of(hash_) else hash_.rsplit("$", 2)[0]
    return f"{parameters}${_random(16)}${_random(32)}"


def _random(size: int) -> str:
    return base64.b64encode(secrets.token_bytes(size)).decode().rstrip("=")
