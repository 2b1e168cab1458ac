"""Parse YAML text to nodes with their line.

PyYAML's composer is used, its constructor is not: a constructor silently turns ``off`` into False, ``12:30`` into 750
and a repeated key into its last value. Here a scalar stays the text of the file, with YAML's type beside it; the reader
of the key decides. Repeated keys, keys that are not text, merge keys and explicit tags are refused. Aliases are allowed
(they are the same node twice, so nothing can grow).
"""

from __future__ import annotations

from typing import Final

import yaml

from radiator.config.nodes import Mapping, Node, Scalar, Sequence, YamlError

TAG: Final = "tag:yaml.org,2002:"
PLAIN_TAGS: Final = {TAG + name: name for name in ("str", "int", "float", "bool", "null", "timestamp", "value")}


def compose(text: str) -> Node | None:
    """Return the one document of ``text``; None if it has only comments. Raises YamlError."""
    try:
        loader = yaml.SafeLoader(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
        node = None if root is None else _convert(root, [], {})
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(mark.line + 1 if mark else 1, _explain(error)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(line, f"expected text, got the character U+{ord(text[error.position]):04X}") from None
    except RecursionError:
        raise YamlError(1, "nested too deeply: a configuration has three levels") from None
    return None if isinstance(node, Scalar) and node.reads_as == "null" else node


def _explain(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "this is not YAML"
    if "found character '\\t'" in problem:
        return "a tab: YAML needs spaces for indentation"
    if "alias" in problem or "alias" in (error.context or ""):
        return f'{problem}: a text that begins with * must be quoted, as in match: "*"'
    if "but found another document" in problem:
        return "a second document (---): a configuration is one document"
    return problem if not error.context else f"{problem} ({error.context})"


def _convert(node: yaml.Node, open_nodes: list[yaml.Node], done: dict[yaml.Node, Node]) -> Node:
    """Return a node for ours. ``done`` has those that are converted: aliases of aliases would take for ever."""
    line = node.start_mark.line + 1
    known = done.get(node)
    if known is not None:
        return known
    if any(node is other for other in open_nodes):
        raise YamlError(line, "an alias inside its own anchor")
    if isinstance(node, yaml.ScalarNode):
        _check_characters(node.value, line)
        reads_as = PLAIN_TAGS.get(node.tag)
        if reads_as is None:
            raise YamlError(line, f"the tag {node.tag.replace(TAG, '!!')} is not supported here")
        return Scalar(line, node.value, reads_as, node.style in (">", "|"))
    open_nodes.append(node)
    try:
        if isinstance(node, yaml.SequenceNode) and node.tag == TAG + "seq":
            done[node] = found = Sequence(line, [_convert(item, open_nodes, done) for item in node.value])
            return found
        if isinstance(node, yaml.MappingNode) and node.tag == TAG + "map":
            done[node] = mapping = _mapping(node, line, open_nodes, done)
            return mapping
        raise YamlError(line, f"the tag {node.tag.replace(TAG, '!!')} is not supported here")
    finally:
        open_nodes.pop()


def _check_characters(text: str, line: int) -> None:
    """Refuse half characters, which an escape in quotes can write."""
    surrogate = next((character for character in text if "\ud800" <= character <= "\udfff"), None)
    if surrogate is not None:
        raise YamlError(line, f"expected text, got the half character U+{ord(surrogate):04X}")


def _mapping(node: yaml.MappingNode, line: int, open_nodes: list[yaml.Node], done: dict[yaml.Node, Node]) -> Mapping:
    items: dict[str, Node] = {}
    key_lines: dict[str, int] = {}
    for key_node, value_node in node.value:
        key_line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise YamlError(key_line, "a key that is not a word; a text with { or [ in it must be quoted")
        key = key_node.value
        _check_characters(key, key_line)
        if key_node.tag == TAG + "merge":
            raise YamlError(key_line, "merge keys (<<) are not supported here; put common values under defaults:")
        if key in items:
            raise YamlError(key_line, f"duplicate key {key!r}, first on line {key_lines[key]}")
        key_lines[key] = key_line
        items[key] = _convert(value_node, open_nodes, done)
    return Mapping(line, items, key_lines)
