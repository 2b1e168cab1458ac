"""STOMP 1.2: what it says otherwise than 1.1, or has said more clearly."""

from __future__ import annotations

from tests.stomp.clauses import consuming as c
from tests.stomp.clauses import ending as e
from tests.stomp.clauses import framing as f
from tests.stomp.clauses import opening as o
from tests.stomp.clauses import rows_both
from tests.stomp.clauses import sending as s
from tests.stomp.clauses.stage import Clause

NOTHING_TO_SHOW = rows_both.NOTHING_TO_SHOW

CLAUSES = [
    *rows_both.CLAUSES,
    Clause("Changes in the Protocol", "says", "lines may end in CR LF", f.carriage_returns),
    Clause(
        "Changes in the Protocol", "says", "ACK names a delivery by a header of its own", c.our_client_names_deliveries
    ),
    Clause("STOMP Frames", "MAY", "a CR may stand before each LF", f.carriage_returns),
    Clause("Header content-length", "MUST", "a body with NULs comes with it", f.our_client_gives_lengths),
    Clause("Header receipt", "says", "the receipt tells that the frame was processed", e.receipts_follow_the_effect),
    Clause("Connection Lingering", "MUST", "clients may connect and leave rapidly", e.rapid_connections),
    Clause(
        "Connection Lingering",
        "says",
        "a closed connection lingers for a short time",
        e.errors_arrive_although_more_is_sent,
    ),
    Clause("CONNECT or STOMP Frame", "MAY", "a host that is not known gets a default one", o.host_of_any_name_or_none),
    Clause("SUBSCRIBE ack Header", "SHOULD", "clients NACK what they did not process", c.nack_refuses),
    Clause(
        "SUBSCRIBE ack Header",
        "MUST NOT",
        "client-individual: a NACK covers one message",
        c.nack_is_single_under_individual,
    ),
    Clause("ACK", "MUST", "id is there, and is the ack header of the MESSAGE", c.ack_names_a_delivery),
    Clause("NACK", "says", "client: covers all before it", c.nack_is_cumulative_under_client),
    Clause("NACK", "says", "client-individual: covers one message", c.nack_is_single_under_individual),
    Clause("NACK", "says", "id is required", c.ack_names_a_delivery),
    Clause("BEGIN", "MUST", "transactions of a connection differ in name", s.transactions_differ),
    Clause("DISCONNECT", "says", "we do not close too soon for the receipt", e.disconnect_is_answered_last),
    Clause("MESSAGE", "SHOULD", "destination is as it was in SEND", s.names_are_opaque),
    Clause(
        "MESSAGE",
        "MUST",
        "ack is there if the subscription's mode asks for ACK",
        c.message_has_an_ack_header_when_it_must_be_acknowledged,
    ),
    Clause("MESSAGE", "says", "ack relates it to ACK and NACK", c.ack_consumes),
    Clause(
        "RECEIPT",
        "says",
        "frames before it may not have been processed yet: with us they have",
        s.receipts_are_in_order,
    ),
    Clause(
        "Frames and Headers",
        "says",
        "CONNECT: accept-version, host; login, passcode, heart-beat",
        o.our_client_says_connect,
    ),
    Clause("Frames and Headers", "says", "CONNECTED: version; session, server, heart-beat", o.heart_beats_are_declared),
    Clause("Frames and Headers", "says", "SEND: destination; transaction", s.sends_in_a_transaction),
    Clause("Frames and Headers", "says", "SUBSCRIBE: destination, id; ack", c.subscribe_needs_an_id),
    Clause("Frames and Headers", "says", "UNSUBSCRIBE: id", c.unsubscribe_names_a_subscription),
    Clause("Frames and Headers", "says", "ACK, NACK: id; transaction", c.ack_names_a_delivery),
    Clause("Frames and Headers", "says", "BEGIN, COMMIT, ABORT: transaction", s.transactions_are_named),
    Clause("Frames and Headers", "says", "DISCONNECT: receipt", e.disconnect_is_answered_last),
    Clause(
        "Frames and Headers",
        "says",
        "MESSAGE: destination, message-id, subscription; ack",
        c.message_names_its_subscription,
    ),
    Clause("Frames and Headers", "says", "RECEIPT: receipt-id", e.receipts_follow_the_effect),
    Clause("Frames and Headers", "says", "ERROR: message", e.errors_have_a_message),
    Clause("Frames and Headers", "MAY", "SEND and MESSAGE have headers of one's own", s.users_headers_go_through),
    Clause("Frames and Headers", "MAY", "ERROR has headers that name the frame at fault", e.errors_name_the_receipt),
    Clause("Augmented BNF", "says", "EOL is LF or CR LF, in any number between frames", f.line_ends_between_frames),
]
