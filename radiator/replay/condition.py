"""A selector over records, with the values of a record that a selector can use."""

from __future__ import annotations

from radiator.broker.logs.selection import DEFAULT_PRIORITY, JMS, OF_A_DELIVERY
from radiator.broker.logs.wire import RECORD_HEADERS
from radiator.clock import NS_PER_MS
from radiator.errors import ProtocolError
from radiator.export.rows import Row
from radiator.routing.selector import compile_selector


class Condition:
    """A selector over rows. Raises ProtocolError (bad-selector)."""

    def __init__(self, text: str) -> None:
        selector = compile_selector(text)
        for name in selector.names:
            if name in OF_A_DELIVERY or name == "content-length":
                raise ProtocolError("bad-selector", f"{name} cannot be used: a selector reads what was sent")
        self._test = selector.test
        self._names = selector.names

    def takes(self, row: Row) -> bool:
        """Return whether a row is selected."""
        return self._test([_value(row, name) for name in self._names]) is True


def _value(row: Row, name: str) -> str | None:
    if name == "JMSPriority":
        return row.headers.get("priority", DEFAULT_PRIORITY)
    if name == "JMSTimestamp":
        return str(row.receive_ns // NS_PER_MS)
    asked = JMS.get(name, name)
    of_record = RECORD_HEADERS.get(asked)
    return row.headers.get(asked) if of_record is None else of_record(row)
