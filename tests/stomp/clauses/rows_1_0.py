"""STOMP 1.0, clause by clause. It has no MUST and no SHOULD in capitals: most rows are what it ``says``.

The opening paragraphs have no heading; they stand under "Connecting" here.
"""

from __future__ import annotations

from tests.stomp.clauses import consuming as c
from tests.stomp.clauses import ending as e
from tests.stomp.clauses import framing as f
from tests.stomp.clauses import opening as o
from tests.stomp.clauses import sending as s
from tests.stomp.clauses.stage import Clause

NOTHING_TO_SHOW: dict[str, str] = {}

CLAUSES = [
    Clause(
        "Connecting", "says", "a frame: command, LF, headers each with LF, blank line, body, NUL", f.parts_of_a_frame
    ),
    Clause("Connecting", "says", "CONNECT with login and passcode begins the conversation", o.login_may_be_there),
    Clause(
        "Connecting",
        "says",
        "the examples have blanks before values",
        f.blanks_are_padding_in_1_0,
        "blanks around 1.0 values",
    ),
    Clause("Connecting", "says", "CONNECT is answered CONNECTED", o.connect_is_answered_connected),
    Clause("Connecting", "says", "CONNECTED has a session that is unique", o.session_is_named),
    Clause("Connecting", "says", "other commands come after CONNECTED only", o.connect_comes_first),
    Clause(
        "Client Commands",
        "says",
        "SEND, SUBSCRIBE, UNSUBSCRIBE, BEGIN, COMMIT, ABORT, ACK, DISCONNECT",
        o.each_frame_is_known,
    ),
    Clause("SEND", "says", "destination is required", s.send_needs_a_destination),
    Clause("SEND", "says", "the body is the message", s.the_body_is_the_message),
    Clause("SEND", "says", "names are any text; the server decides what they mean", s.names_are_opaque),
    Clause("SEND", "says", "transaction makes the message part of one", s.sends_in_a_transaction),
    Clause("SEND", "SHOULD", "content-length is recommended", f.our_client_gives_lengths),
    Clause("SEND", "says", "content-length bytes are read whatever they are", f.length_counts_bytes),
    Clause("SEND", "says", "the NUL is needed after them too", f.nul_after_a_body_with_length),
    Clause("SEND", "says", "without content-length the first NUL ends the frame", f.nul_ends_a_body_without_length),
    Clause("SUBSCRIBE", "says", "destination is required", c.subscribe_needs_a_destination),
    Clause("SUBSCRIBE", "says", "messages come as MESSAGE from then on", c.messages_come_from_then_on),
    Clause("SUBSCRIBE", "says", "ack may be left out and is auto then", c.auto_is_the_default),
    Clause(
        "SUBSCRIBE",
        "says",
        "under ack:client a message is delivered once it is acknowledged",
        c.unacknowledged_is_not_consumed,
    ),
    Clause("SUBSCRIBE", "says", "auto and client are the values of ack", c.a_failed_subscribe_is_an_error),
    Clause("SUBSCRIBE", "says", "the body is ignored", f.body_on_other_frames),
    Clause("SUBSCRIBE", "MAY", "selectors", c.selectors),
    Clause(
        "SUBSCRIBE",
        "says",
        "with an id several subscriptions can be told apart",
        c.several_subscriptions_on_one_connection,
    ),
    Clause("SUBSCRIBE", "SHOULD", "with an id MESSAGE has a header subscription", c.message_names_its_subscription),
    Clause("UNSUBSCRIBE", "says", "ends a subscription by destination", c.unsubscribe_by_destination),
    Clause("UNSUBSCRIBE", "says", "or by its id", c.unsubscribe_ends_it),
    Clause("UNSUBSCRIBE", "says", "one of the two is required", c.unsubscribe_names_a_subscription),
    Clause("BEGIN", "says", "sends and acks of a transaction happen together", s.a_transaction_is_whole),
    Clause("BEGIN", "says", "transaction is required, and binds frames to it", s.transactions_are_named),
    Clause("COMMIT", "says", "makes the transaction happen", s.sends_in_a_transaction),
    Clause("COMMIT", "says", "transaction is required", s.transactions_are_known),
    Clause("ACK", "says", "under ack:client nothing is consumed before it", c.unacknowledged_is_not_consumed),
    Clause("ACK", "says", "message-id is required and names a MESSAGE", c.ack_names_a_delivery),
    Clause("ACK", "says", "it consumes", c.ack_consumes),
    Clause("ACK", "MAY", "a transaction may be named", s.acks_in_a_transaction),
    Clause("ABORT", "says", "undoes the transaction", s.abort_undoes),
    Clause("ABORT", "says", "transaction is required", s.transactions_are_known),
    Clause("DISCONNECT", "says", "ends the connection with grace", e.disconnect_without_receipt),
    Clause("Standard Headers", "says", "some headers work on most frames", s.a_receipt_for_any_frame),
    Clause("Receipt", "MAY", "any client frame but CONNECT may ask for a receipt", s.a_receipt_for_any_frame),
    Clause("Receipt", "says", "CONNECT may not", s.receipt_on_connect, "`receipt` on CONNECT"),
    Clause("Receipt", "says", "receipt-id has the value of receipt", e.disconnect_is_answered_last),
    Clause("Server Frames", "says", "MESSAGE, RECEIPT and ERROR, besides CONNECTED", e.server_frames_are_these),
    Clause("MESSAGE", "says", "destination is the one that it was sent to", c.message_says_where_it_was_sent),
    Clause("MESSAGE", "says", "message-id is unique", c.message_ids_are_unique),
    Clause("MESSAGE", "says", "the body is what was sent", s.the_body_is_the_message),
    Clause("MESSAGE", "SHOULD", "content-length is recommended", f.our_bodies_have_a_length),
    Clause("RECEIPT", "says", "comes if it was asked for, and only then", e.receipts_only_if_asked),
    Clause("RECEIPT", "says", "has receipt-id and no body", e.receipts_follow_the_effect),
    Clause("ERROR", "MAY", "comes if something goes wrong", o.other_frames_are_refused),
    Clause("ERROR", "SHOULD", "has a header message and may have a body", e.errors_have_a_message),
    Clause("ERROR", "SHOULD", "content-length is recommended", f.our_bodies_have_a_length),
    Clause("Augmented BNF", "says", "LF may follow the NUL", f.line_ends_between_frames),
    Clause("Augmented BNF", "says", "lines end in LF alone", f.carriage_returns, "CR LF"),
    Clause(
        "Augmented BNF",
        "says",
        "names and values are at least a character long",
        f.empty_header_value,
        "header without a value to a 1.0 peer",
    ),
    Clause("Augmented BNF", "says", "a header has a name", f.a_header_without_a_name),
    Clause("Augmented BNF", "says", "a value may hold a colon; there are no escapes", f.no_escapes_in_1_0),
    Clause("Augmented BNF", "says", "characters are ASCII", f.text_is_utf8, "text encoding of 1.0"),
    Clause("Augmented BNF", "says", "what we send is of this grammar", f.grammar_of_our_frames),
    Clause("Augmented BNF", "says", "a frame may have no header and no body", f.no_headers_at_all),
    Clause("Augmented BNF", "says", "the frames are a stream", f.frames_in_any_pieces),
    Clause("Augmented BNF", "says", "other commands there are none", c.nack_in_1_0, "NACK in 1.0"),
]
