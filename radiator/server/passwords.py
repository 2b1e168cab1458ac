"""Hashes of passcodes: argon2id. Making or verifying one is 20 ms of work, so never on the loop.

The parameters are those that OWASP names as the least for argon2id (19 MiB, 2 rounds, 1 lane): enough to make guessing
from a stolen file dear, little enough that a thousand logins are half a minute of one core. A file may hold others.
"""

from __future__ import annotations

import secrets
from typing import Final

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import Argon2Error, InvalidHashError

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
    """A hash of nothing that anybody knows, as dear to verify as this one."""
    if hash_ is None:
        return make_hash(secrets.token_hex(16))
    try:
        like = extract_parameters(hash_)
        hasher = PasswordHasher(like.time_cost, like.memory_cost, like.parallelism, type=like.type)
        return hasher.hash(secrets.token_hex(16))
    except (Argon2Error, InvalidHashError):  # nobody can log in with such a hash
        return make_hash(secrets.token_hex(16))
