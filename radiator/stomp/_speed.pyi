from radiator.stomp.frames import Frame
from radiator.stomp.heads import HeadReader

INTERFACE: int

def take_ordinary(
    buf: bytes, pos: int, reader: HeadReader, block_bytes_max: int, body_bytes_max: int, frames: list[Frame]
) -> int: ...
def same_head_run(frames: list[Frame], start: int, most: int) -> tuple[list[bytes], list[bytes], int]: ...
def receipts_with_offsets(ids: list[bytes], offsets: list[int], suffixes: list[bytes]) -> bytes: ...
