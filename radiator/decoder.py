"""Define the interface of decoders: functions of the operator that read bodies which are not JSON.

A rule with ``decoder: mypackage.bodies:flight`` names such a function. Readers and the archiver call it with the body
and the headers of each message. It returns the document that the ``schema`` of the rule describes. An error makes the
message a reject. The broker never calls it.

A data directory names the functions that its readers call. So that it cannot name any function of the machine, readers
accept only functions that ``decoder`` has marked.

Example:
    >>> @decoder
    ... def flight(body: bytes, headers: dict[str, str]) -> object:
    ...     return {"carrier": body[:2].decode(), "flight": int(body[2:])}
    >>> flight(b"UA1545", {})
    {'carrier': 'UA', 'flight': 1545}

This module imports nothing else. ``docs/configuration.md`` has the rules of the key ``decoder``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

MARK: Final = "__radiator_decoder__"

Function = TypeVar("Function", bound=Callable[..., Any])


def decoder(function: Function) -> Function:
    """Mark a function as a decoder of bodies, and return it.

    Args:
        function: Called with the body and a dictionary of the headers; returns a dictionary of JSON values.
    """
    setattr(function, MARK, True)
    return function
