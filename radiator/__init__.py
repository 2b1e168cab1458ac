"""radiator: a message broker that stores messages in logs and serves them over STOMP.

This package imports none of its parts. Import each part by its own name; so a Spark worker needs no gevent, and the
broker needs no pyspark (``docs/architecture.md``, "Layers"). ``radiator.Broker``, a broker inside another program
(``radiator.server.embedded``), is imported at its first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own costs a third of the start of a command
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "Broker":
        from importlib import import_module

        return import_module("radiator.server.embedded").Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
