"""What the Python programs share: orders are read, answers are written, as ``tests/interop/driver.py`` says."""

from __future__ import annotations

import base64
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any


class Lost(Exception):
    """The connection is gone, or the broker refused it."""


def text_or_bytes(order: dict[str, Any]) -> str | bytes:
    body = base64.b64decode(order["body"])
    return body.decode() if order["text"] else body


def message(handle: int, headers: dict[str, Any], body: str | bytes) -> dict[str, Any]:
    raw = body.encode() if isinstance(body, str) else bytes(body)
    return {"handle": handle, "headers": dict(headers), "body": base64.b64encode(raw).decode()}


def serve(name: str, connect: Callable[[dict[str, Any]], Any]) -> None:
    """``connect(order)`` makes a connection: an object with a method for each further order."""
    connections: dict[str, Any] = {}
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a client prints is no answer
    for line in sys.stdin:
        order = json.loads(line)
        op = order["op"]
        answer: dict[str, Any] = {"ok": None}
        try:
            if op == "hello":
                answer["ok"] = name
            elif op == "forget":
                for each in connections.values():
                    each.forget()
                connections.clear()
            elif op == "connect":
                connections[order["c"]] = one = connect(order)
                answer["ok"] = one.version
            else:
                answer["ok"] = getattr(connections[order["c"]], op)(order)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
