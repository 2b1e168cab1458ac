"""Hash passcodes with argon2id. A hash takes 20 ms, so it is never computed on the event loop.

The parameters are the minimum that OWASP recommends for argon2id (19 MiB, 2 passes, 1 lane): guessing from a stolen
file is expensive, and a thousand logins take half a minute of one core. A users file may contain other parameters.

Source: OWASP Password Storage Cheat Sheet.
"""

from __future__ import annotations

import base64
import secrets
from typing import Final

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import Argon2Error, InvalidHashError

PARAMETERS: Final = "$argon2id$v=19$m=19456,t=2,p=1"  # the beginning of a hash
_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


def make_hash(passcode: str) -> str:
    """Return the hash of a passcode in the form of the users file."""
    return _HASHER.hash(passcode)


def verify(hash_: str, passcode: str) -> bool:
    """Return True if the passcode matches the hash."""
    try:
        return _HASHER.verify(hash_, passcode)
    except (Argon2Error, InvalidHashError):
        return False


def cost_of(hash_: str) -> tuple[int, ...]:
    """Return the cost of verifying a hash as a tuple that can be compared; empty if the hash is not valid."""
    try:
        like = extract_parameters(hash_)
        PasswordHasher(like.time_cost, like.memory_cost, like.parallelism, type=like.type)
    except (Argon2Error, InvalidHashError, ValueError):
        return ()
    if like.memory_cost < 8 * like.parallelism:
        return ()
    return like.memory_cost * like.time_cost, like.memory_cost, like.parallelism, like.type.value


def dummy_like(hash_: str | None) -> str:
    """Return a hash that no passcode matches and that takes as long to verify as ``hash_``."""
    parameters = PARAMETERS if hash_ is None or not cost_of(hash_) else hash_.rsplit("$", 2)[0]
    return f"{parameters}${_random(16)}${_random(32)}"


def _random(size: int) -> str:
    return base64.b64encode(secrets.token_bytes(size)).decode().rstrip("=")
