"""STOMP 1.1: what it says otherwise than 1.2."""

from __future__ import annotations

from tests.stomp.clauses import consuming as c
from tests.stomp.clauses import ending as e
from tests.stomp.clauses import framing as f
from tests.stomp.clauses import opening as o
from tests.stomp.clauses import rows_both
from tests.stomp.clauses.stage import Clause

NOTHING_TO_SHOW = rows_both.NOTHING_TO_SHOW

CLAUSES = [
    *rows_both.CLAUSES,
    Clause("STOMP Frames", "says", "lines end in LF alone", f.carriage_returns, "CR LF"),
    Clause(
        "Connecting",
        "says",
        "a closed connection lingers a little, so that an ERROR can arrive",
        e.errors_arrive_although_more_is_sent,
    ),
    Clause("Connecting", "says", "clients may connect and leave rapidly", e.rapid_connections),
    Clause("Once Connected", "MAY", "these frames may be sent in any order", o.each_frame_is_known),
    Clause("ACK", "says", "message-id is required and names a MESSAGE", c.ack_names_a_delivery),
    Clause("ACK", "says", "subscription is required", c.ack_without_subscription, "ACK without `subscription` in 1.1"),
    Clause("ACK", "says", "our client sends both", c.our_client_names_deliveries),
    Clause("NACK", "says", "client: covers all before it", c.nack_is_cumulative_under_client),
]
