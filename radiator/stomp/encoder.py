"""Encode frames.

``encode`` writes any frame of any version; the other functions write frames that are frequent or have rules of their
own. A body always comes with ``content-length``, so it may contain any byte. The broker joins stored header blocks
itself when it sends MESSAGE frames in bulk; all other frames are written here.
"""

from __future__ import annotations

from collections.abc import Iterable

from radiator.errors import Conflict, ProtocolError
from radiator.speed import accelerated
from radiator.stomp.headers import join
from radiator.stomp.spec import OPENING_COMMANDS, SERVER_COMMANDS, VERSIONS

HEARTBEAT = b"\n"

# What ends a frame of the server. The EOL behind the NUL may be there in every version; PHP's extension takes it for
# granted (as ActiveMQ and RabbitMQ send it) and loses the next frame without it.
SERVER_END = b"\0\n"

# Of an ERROR's body. With the charset, which is also the whole truth: over a bare text/plain, stompit ends its process.
CONTENT_TYPE = "text/plain;charset=utf-8"


def encode(command: str, headers: Iterable[tuple[str, str]] = (), body: bytes = b"", version: str = "1.2") -> bytes:
    """Return one frame.

    Headers are escaped as ``version`` demands, those of CONNECT, STOMP and CONNECTED never. ``content-length`` is
    written here and only here (a wrong one would break the stream): with every body, and on every MESSAGE.
    """
    lines = [pair for pair in headers if pair[0] != "content-length"]
    text = command + join(lines, "1.0" if command in OPENING_COMMANDS else version)
    end = SERVER_END if command in SERVER_COMMANDS else b"\0"
    if body or command == "MESSAGE":
        return f"{text}\ncontent-length:{len(body)}\n\n".encode() + body + end
    return f"{text}\n\n".encode() + end


def connected(
    version: str, headers: Iterable[tuple[str, str]] = (), heart_beat: tuple[int, int] | None = None
) -> bytes:
    """Return a CONNECTED frame. A 1.0 client gets ``headers`` only: it has neither version nor heart-beat."""
    lines = list(headers)
    if version != "1.0":
        lines.insert(0, ("version", version))
        if heart_beat is not None:
            lines.append(("heart-beat", f"{heart_beat[0]},{heart_beat[1]}"))
    return encode("CONNECTED", lines, b"", version)


def receipt(receipt_id: bytes, extra: bytes = b"") -> bytes:
    """Return a RECEIPT for raw ``receipt_id``. ``extra``: header lines, each with its LF in front."""
    return b"RECEIPT\nreceipt-id:" + receipt_id + extra + b"\n\n" + SERVER_END


@accelerated
def receipts_with_offsets(ids: list[bytes], offsets: list[int], suffixes: list[bytes]) -> bytes:
    """Return the RECEIPTs of stored messages, joined. It has a compiled twin (``speed.py``).

    Args:
        ids: The raw ids of the receipts.
        offsets: The offset of each message, which fits 64 bits without a sign.
        suffixes: What follows the offset in each frame, from the LF in front of the next header to the frame's end.

    Raises:
        ValueError: The lists differ in their lengths.
    """
    return b"".join(
        [b"RECEIPT\nreceipt-id:%b\noffset:%d%b" % each for each in zip(ids, offsets, suffixes, strict=True)]
    )


def error(problem: ProtocolError, receipt_id: bytes | None = None, version: str | None = None) -> bytes:
    """Return an ERROR: one line for people, the stable code, the receipt it answers, the detail as its body.

    Args:
        problem: The error.
        receipt_id: The raw receipt of the refused frame.
        version: The agreed version; None: none was agreed, so nothing is escaped.
    """
    headers = [("message", problem.message), ("error-code", problem.code), ("content-type", CONTENT_TYPE)]
    if problem.code == "bad-version":
        headers.append(("version", ",".join(VERSIONS)))
    if isinstance(problem, Conflict):
        headers += [("partition", problem.partition), ("next-offset", str(problem.next_offset))]
    body = (problem.detail or problem.message).encode()
    head = f"ERROR{join(headers, version or '1.0')}\ncontent-length:{len(body)}".encode()
    if receipt_id is not None:
        head += b"\nreceipt-id:" + receipt_id
    return head + b"\n\n" + body + SERVER_END
