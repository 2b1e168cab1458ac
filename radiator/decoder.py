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

Uses errors only, so that a module with a decoder imports little. ``docs/configuration.md`` has the rules of the key
``decoder``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from radiator.errors import ConfigError

MARK: Final = "__radiator_decoder__"

Decode = Callable[[bytes, Mapping[str, str]], Any]
Function = TypeVar("Function", bound=Callable[..., Any])


def decoder(function: Function) -> Function:
    """Mark a function as a decoder of bodies, and return it.

    Args:
        function: Called with the body and a dictionary of the headers; returns a dictionary of JSON values.
    """
    setattr(function, MARK, True)
    return function


def load(name: str) -> Decode:
    """Import a decoder.

    Args:
        name: ``module:function``.

    Raises:
        ConfigError: It cannot be imported, or is not marked.
    """
    module_name, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{name}: importing it failed: {type(error).__name__}: {error}; expected a module that "
            "every process that reads or archives can import (PYTHONPATH)"
        ) from None
    if not getattr(found, MARK, False):
        raise ConfigError(f"{name}: expected a function marked with @decoder of radiator.decoder, got {found!r}")
    function: Decode = found
    return function
