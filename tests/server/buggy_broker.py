"""A broker with bugs: a SEND with the header ``bug`` raises what nobody foresaw, and with ``bug:twice`` the answer to
that raises as well.

``python -m tests.server.buggy_broker serve ...``.
"""

from __future__ import annotations

from typing import Any

from radiator.broker.broker import Broker
from radiator.broker.publishing import sending
from radiator.cli.main import main


def install() -> None:
    send, refuse = sending.send, Broker.refuse

    def buggy_send(broker: Any, session: Any, plan: Any, frame: Any, now: Any) -> None:
        if "bug" in frame.headers:
            raise KeyError(frame.headers["bug"])
        send(broker, session, plan, frame, now)

    def buggy_refuse(broker: Any, session: Any, error: Any, receipt: Any = None) -> None:
        if error.code == "internal" and receipt == b"twice":
            raise KeyError("twice")
        refuse(broker, session, error, receipt)

    sending.send = buggy_send
    Broker.refuse = buggy_refuse  # type: ignore[method-assign]


if __name__ == "__main__":
    install()
    main()
