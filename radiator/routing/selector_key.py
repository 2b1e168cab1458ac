"""Find the header value that every message must have which a selector selects.

This module knows the tree of a selector. It does not know values, messages or how a selector is tested. Invariant: if
``key_of`` returns a header and a text, the selector is true only of messages whose header is that text.
"""

from __future__ import annotations

from radiator.routing import selector_tree as tree
from radiator.routing.selector_tree import Literal, Name, Node


def key_of(root: Node) -> tuple[str, str] | None:
    """Return a header and its value, from ``name = 'text'`` as the whole condition or as an operand of its AND."""
    for node in root.operands if isinstance(root, tree.And) else (root,):
        match node:
            case tree.Compare("=", Name(name), Literal(str(text))) | tree.Compare("=", Literal(str(text)), Name(name)):
                return name, text
            case tree.And():
                key = key_of(node)
                if key is not None:
                    return key
    return None
