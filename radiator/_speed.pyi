from collections.abc import Sequence

from radiator.broker.clients.receipts import ReceiptLine
from radiator.routing.rights import Rights
from radiator.stomp.frames import Frame
from radiator.stomp.heads import HeadReader

INTERFACE: int

def take_ordinary(
    buf: bytes, pos: int, reader: HeadReader, block_bytes_max: int, body_bytes_max: int, frames: list[Frame]
) -> int: ...
def same_head_run(frames: list[Frame], start: int, most: int) -> tuple[list[bytes], list[bytes], int]: ...
def receipts_with_offsets(ids: list[bytes], offsets: list[int], suffixes: list[bytes]) -> bytes: ...
def encode_few(
    base_offset: int,
    receive_ns: Sequence[int],
    event_ns: Sequence[int] | None,
    transmit_ns: Sequence[int] | None,
    name: str,
    blocks: Sequence[bytes],
    bodies: Sequence[bytes],
    flags: int,
    salt: int,
    bytes_max: int,
) -> list[bytes] | None: ...
def add_batch_part(sealed: list[bytes], parts: list[bytes], partition: bytes, pieces: list[bytes]) -> int: ...
def append_plain(
    frames: list[Frame],
    start: int,
    stop: int,
    generation: int,
    rights: Rights,
    version: str,
    receipts: ReceiptLine,
    now_ns: int,
) -> tuple[int, int, int]: ...
def take_messages(data: bytes, start: int, most: int, masked: bool) -> tuple[bytes, int, int, int]: ...
def as_messages(data: bytes, opcode: int) -> bytes: ...
