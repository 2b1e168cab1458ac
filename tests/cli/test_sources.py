from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from radiator.cli.common import CommandFailed
from radiator.cli.formats import json_line
from radiator.cli.sources import FORMATS, format_of, open_files
from radiator.client.message import Message
from radiator.client.sending import Outgoing


def read(tmp_path: Path, kind: str, content: bytes, destination: str = "/a", **headers: str) -> list[Outgoing]:
    path = tmp_path / "input"
    path.write_bytes(content)
    messages = []
    total = 0
    with path.open("rb") as file:
        for chunk, size in FORMATS[kind](file, "input", destination, headers):
            messages += chunk
            total += size
    assert total in (len(content), len(content) + 1)  # the last line may lack its end
    return messages


def bodies(messages: list[Outgoing]) -> list[object]:
    return [message.body for message in messages]


def test_each_line_is_a_body(tmp_path: Path) -> None:
    found = read(tmp_path, "lines", b"one\n\n three \r\nlast\xff", x="y")
    assert bodies(found) == [b"one", b"", b" three ", b"last\xff"]
    assert found[0] == Outgoing("/a", b"one", {"x": "y"})
    assert read(tmp_path, "lines", b"") == []


def test_lines_longer_than_one_read_are_whole(tmp_path: Path) -> None:
    long = b"x" * 700_000
    assert bodies(read(tmp_path, "lines", long + b"\nshort\n" + long)) == [long, b"short", long]


def test_a_line_from_a_pipe_does_not_wait_for_the_next() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as file, os.fdopen(writer, "wb", buffering=0) as pipe:
        chunks = FORMATS["lines"](file, "pipe", "/a", {})
        pipe.write(b"one\nhal")
        assert bodies(next(chunks)[0]) == [b"one"]
        pipe.write(b"f\nthree\n")
        assert bodies(next(chunks)[0]) == [b"half", b"three"]
        pipe.close()
        assert list(chunks) == []


def test_json_lines_are_checked_and_sent_as_they_stand(tmp_path: Path) -> None:
    found = read(tmp_path, "json", b'{"a":  1}\n\n[2]\n"x"')
    assert bodies(found) == [b'{"a":  1}', b"[2]", b'"x"']
    assert found[0].headers == {"content-type": "application/json"}
    assert read(tmp_path, "json", b"1", **{"content-type": "x"})[0].headers == {"content-type": "x"}


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="input:3: expected a JSON value on each line"):
        read(tmp_path, "json", b"1\n\n{oops}\n")


def test_csv_rows_become_objects(tmp_path: Path) -> None:
    content = '\ufeffname,count\n"Smith, J",007\n\n"two\nlines",2\n'.encode()
    found = [json.loads(bytes(body)) for body in bodies(read(tmp_path, "csv", content))]  # type: ignore[call-overload]
    assert found == [{"name": "Smith, J", "count": "007"}, {"name": "two\nlines", "count": "2"}]
    assert read(tmp_path, "csv", b"") == []
    assert len(read(tmp_path, "csv", b"a\n" + b"1\n" * 1_200)) == 1_200


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"a,b\n1\n", "input:2: expected 2 fields, got 1"),
        (b"a,a\n1,2\n", "input:1: expected different names of columns, got a, a"),
        (b"a\n\xff\n", "input:2: expected UTF-8"),
        (b'a\n"x', "input:2: "),
    ],
)
def test_a_bad_csv_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    with pytest.raises(CommandFailed, match=complaint):
        read(tmp_path, "csv", content)


def test_a_whole_file_is_one_body(tmp_path: Path) -> None:
    assert bodies(read(tmp_path, "whole", b"a\nb\0\n")) == [b"a\nb\0\n"]
    assert bodies(read(tmp_path, "whole", b"")) == [b""]


def test_records_are_what_tail_prints(tmp_path: Path) -> None:
    headers = {"destination": "/topic/a", "message-id": "p@1", "offset": "1", "subscription": "s", "tag-x": "y",
               "transmit-time": "5", "event-time": "6", "content-length": "3"}  # fmt: skip
    lines = [json_line(Message(headers, body, None)) for body in (b"one", b"\xff\0")]  # type: ignore[arg-type]
    assert read(tmp_path, "records", b"".join(lines), destination="") == [
        Outgoing("/topic/a", b"one", {"tag-x": "y", "event-time": "6"}),
        Outgoing("/topic/a", b"\xff\0", {"tag-x": "y", "event-time": "6"}),
    ]
    assert read(tmp_path, "records", lines[0], destination="/b", z="1")[0] == Outgoing(
        "/b", b"one", {"tag-x": "y", "event-time": "6", "z": "1"}
    )


@pytest.mark.parametrize(
    "line", [b"1", b"{}", b'{"destination":"/a"}', b'{"body":1,"destination":"/a"}', b"{", b"\xff"]
)
def test_a_bad_record_is_named(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(CommandFailed, match="input:2: expected an object with destination, headers"):
        read(tmp_path, "records", b'{"destination":"/a","body":""}\n' + line, destination="")


def test_the_suffix_suggests_a_format() -> None:
    names = ["a.json", "a.JSONL", "a.ndjson", "a.csv", "a.txt", "a", "-"]
    assert [format_of(name) for name in names] == ["json", "json", "json", "csv", "lines", "lines", "lines"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="nowhere: cannot be read: No such file"):
        list(open_files([str(tmp_path / "nowhere")]))
