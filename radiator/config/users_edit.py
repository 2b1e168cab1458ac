"""Change one user's entry in a users file, as text: comments, order and everything else stay as they are.

YAML's own marks give the places. The result is parsed again and compared: if it is not exactly the wanted change, it is
refused, and a person must edit the file.

This module knows YAML's marks. It does not know passcodes or files.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec
import yaml

from radiator.config.users import Grants, User, Users, load_users_text
from radiator.errors import ConfigError

STEP: Final = "  "
PLAIN: Final = re.compile(r"[A-Za-z][\w.@-]*")
WORDS: Final = {"yes", "no", "on", "off", "true", "false", "null", "y", "n"}


def set_password(text: str, source: str, name: str, hash_: str) -> str:
    """Return the file with this hash for this user, who is added if missing. Raises ConfigError."""
    before = load_users_text(text, source)
    user = before.users.get(name, User(grants=Grants()))
    wanted = {**before.users, name: msgspec.structs.replace(user, password=hash_)}
    return _checked(_set(text, name, f'"{hash_}"'), source, before, wanted, name)


def delete_user(text: str, source: str, name: str) -> str:
    """Return the file without this user, who must exist. Raises ConfigError."""
    before = load_users_text(text, source)
    wanted = {each: user for each, user in before.users.items() if each != name}
    return _checked(_delete(text, name), source, before, wanted, name)


def _checked(text: str | None, source: str, before: Users, wanted: dict[str, User], name: str) -> str:
    if text is not None:
        try:
            after = load_users_text(text, source)
        except ConfigError:
            after = None
        if after is not None and _facts(after) == _facts(msgspec.structs.replace(before, users=wanted)):
            return text
    raise ConfigError(
        f"{source}: the entry of {name!r} cannot be changed alone; write the file as a block (users: with a line for "
        f"each name under it), without anchors and password_file for that user, or edit it by hand"
    )


def _facts(users: Users) -> Any:
    def grants(each: Grants) -> Grants:
        return msgspec.structs.replace(each, line=0)

    return (
        {name: (user.password, grants(user.grants)) for name, user in users.users.items()},
        None if users.anonymous is None else grants(users.anonymous),
        {name: grants(each) for name, each in users.certificates.items()},
    )


# --- where to write ---------------------------------------------------------------------------------------------------


def _set(text: str, name: str, hash_: str) -> str | None:
    key = name if PLAIN.fullmatch(name) and name.lower() not in WORDS else json.dumps(name, ensure_ascii=False)
    entry = f"{STEP}{key}:\n{STEP * 2}password: {hash_}\n"
    root = _compose(text)
    if root is None:
        return f"{_whole_lines(text)}users:\n{entry}"
    section = _find(root, "users")
    if section is None:
        return None if root.flow_style else f"{_whole_lines(text)}users:\n{entry}"
    where, users = section
    if not isinstance(users, yaml.MappingNode) or not users.value:
        at = (
            users.start_mark.index if isinstance(users, yaml.MappingNode) else text.index(":", where.end_mark.index) + 1
        )
        end = users.end_mark.index if isinstance(users, yaml.MappingNode) else at
        return f"{text[:at]}\n{entry.rstrip()}{text[end:]}"
    found = _find(users, name)
    if found is not None:
        return _set_in(text, *found, hash_)
    if users.flow_style:
        return _insert(text, users.start_mark.index + 1, f"{key}: {{password: {hash_}}}, ")
    indent = " " * users.value[0][0].start_mark.column
    at = _line_end(text, _end(users))
    return _insert(text, at, f"\n{indent}{key}:\n{indent}{STEP}password: {hash_}")


def _set_in(text: str, key: yaml.Node, value: yaml.Node, hash_: str) -> str | None:
    if not isinstance(value, yaml.MappingNode):
        indent = " " * (key.start_mark.column + len(STEP))
        return _insert(text, text.index(":", key.end_mark.index) + 1, f"\n{indent}password: {hash_}")
    found = _find(value, "password")
    if found is not None:
        return text[: found[1].start_mark.index] + hash_ + text[found[1].end_mark.index :]
    if value.flow_style:
        return _insert(text, value.start_mark.index + 1, f"password: {hash_}" + (", " if value.value else ""))
    first = value.value[0][0].start_mark
    return _insert(text, first.index, f"password: {hash_}\n{' ' * first.column}")


def _delete(text: str, name: str) -> str | None:
    root = _compose(text)
    section = None if root is None else _find(root, "users")
    if section is None or not isinstance(section[1], yaml.MappingNode):
        return None
    users = section[1]
    found = _find(users, name)
    if found is None:
        return None
    start, end = found[0].start_mark.index, max(_end(found[1]), found[0].end_mark.index + 1)
    if users.flow_style:
        rest = re.match(r"\s*,\s*", text[end:])
        return text[:start] + text[end + (rest.end() if rest else 0) :]
    return text[: text.rfind("\n", 0, start) + 1] + text[_line_end(text, end) + 1 :]


def _compose(text: str) -> yaml.MappingNode | None:
    """Return the root; None if there is none. Raises ConfigError for aliases, whose marks are those of the anchor."""
    if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text, Loader=yaml.SafeLoader)):
        raise ConfigError("the users file has anchors and aliases: edit it by hand")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return root if isinstance(root, yaml.MappingNode) else None


def _find(mapping: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    return next((pair for pair in mapping.value if pair[0].value == name), None)


def _end(node: yaml.Node) -> int:
    """Return where the last word of a node ends: a block's own mark is behind the comments that follow it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return max(map(_end, last)) if isinstance(last, tuple) else _end(last)
    return int(node.end_mark.index)


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _insert(text: str, at: int, what: str) -> str:
    return text[:at] + what + text[at:]


def _whole_lines(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
