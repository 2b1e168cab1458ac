"""Request and reply as a client of another make does it: over ``reply-to``, with a queue that nobody subscribed to."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from tests.interop.clients import CLIENTS, PROGRAMS
from tests.interop.runs import must_be_here
from tests.running import BrokerProcess, free_port

SECONDS_MAX = 60


def test_a_hundred_calls_of_rx_stomps_rpc_are_answered_each_with_its_own(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    (client,) = [client for client in CLIENTS if client.name == "rx-stomp"]
    must_be_here(client, "ws")
    address = f"ws://127.0.0.1:{free_port()}/stomp"
    start_broker(None, ["--listen", address])
    command = [client.command[0], str(PROGRAMS / "rx_rpc.mjs"), address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.stdout.splitlines() == [f"QUESTION {number}" for number in range(100)], done.stderr
