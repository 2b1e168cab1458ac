"""The functions that exist twice, in Python and compiled (``radiator/speed.py``), and how a test runs on both.

A file of tests says ``pytestmark = pytest.mark.usefixtures("both_speeds")``: each of its tests then runs on the
functions in Python and on the compiled ones. Where the extension is not built, there is no second half.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from radiator import speed
from radiator.broker.publishing import sending
from radiator.stomp import encoder, ordinary
from radiator.storage import format as codec
from radiator.storage.journal import format as journal
from radiator.tunnels import messages


def _compiled() -> ModuleType | None:
    """The extension, also where ``RADIATOR_PURE`` leaves it unused."""
    try:
        from radiator import _speed
    except ImportError:
        return None
    return _speed


COMPILED = _compiled()
BUILT = ("pure",) if COMPILED is None else ("pure", "compiled")
needs_compiled = pytest.mark.skipif(COMPILED is None, reason="radiator._speed is not built")
TWICE = (encoder, ordinary, codec, journal, sending, messages)
assert {each.__name__ for each in TWICE} <= set(sys.modules), "they register what they have twice"


def pair(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function in Python and the compiled one."""
    return speed.PAIRS[name][0], getattr(COMPILED, name)


def use(which: str, patch: pytest.MonkeyPatch) -> None:
    """Have all modules of radiator use the functions of one of BUILT."""
    for name, (pure, _) in speed.PAIRS.items():
        compiled = getattr(COMPILED, name, pure)
        for module in [each for key, each in sys.modules.items() if key.startswith("radiator.")]:
            if getattr(module, name, None) in (pure, compiled):
                patch.setattr(module, name, pure if which == "pure" else compiled)
