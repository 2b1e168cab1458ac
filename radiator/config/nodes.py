"""The result of parsing YAML: nodes with their line.

They are separate from the parser (``yaml_lines``), so that a broker without a configuration file does not load PyYAML.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias


class YamlError(Exception):
    """The text cannot be used: ``line`` (from 1) and a one-line ``str()``."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclasses.dataclass(frozen=True, slots=True)
class Scalar:
    """A single value."""

    line: int
    text: str
    reads_as: str  # its YAML type: str, int, float, bool, null, timestamp
    block: bool  # written with > or |

    def __str__(self) -> str:
        return "nothing" if self.reads_as == "null" and not self.text else repr(self.text)


@dataclasses.dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    line: int
    items: list[Node]

    def __str__(self) -> str:
        return "a list"


@dataclasses.dataclass(frozen=True, slots=True)
class Mapping:
    """Keys with their nodes."""

    line: int
    items: dict[str, Node]
    key_lines: dict[str, int]

    def __str__(self) -> str:
        return "a mapping" if self.items else "an empty mapping"


Node: TypeAlias = Scalar | Sequence | Mapping
