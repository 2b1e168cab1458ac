"""Choose between the compiled functions of radiator and the same functions in Python.

The extension ``radiator._speed`` is optional. Each of its functions exists in Python too, under the same name, where it
is documented and decorated with ``accelerated``. Both versions give the same results and raise the same errors. No
other module imports the extension. With ``RADIATOR_PURE=1`` in the environment it is not used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

VARIABLE = "RADIATOR_PURE"
INTERFACE = 6  # an extension with another number was built from other sources; raise both when a function changes

PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {}  # name: in Python, compiled


def _load(forced: str) -> tuple[ModuleType | None, str]:
    """Return the extension, or None if it is not used, and the text of ``IN_USE``."""
    if forced not in ("", "0"):
        return None, f"pure Python, {VARIABLE} is set"
    try:
        from radiator import _speed
    except ImportError:
        return None, "pure Python"
    if _speed.INTERFACE != INTERFACE:
        return None, "pure Python, the extension was built from other sources"
    return _speed, "accelerated"


_extension, IN_USE = _load(os.environ.get(VARIABLE, ""))


def accelerated(pure: Function) -> Function:
    """Return the compiled version of a function, or the function itself if the extension is not used.

    Args:
        pure: The version in Python.
    """
    compiled: Function | None = getattr(_extension, pure.__name__, None)
    PAIRS[pure.__name__] = pure, compiled
    return pure if compiled is None else compiled
