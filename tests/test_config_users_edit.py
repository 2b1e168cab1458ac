"""One entry of a users file is changed, and nothing else: comments, order, blanks, whatever the style."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.config.users import load_users_text
from radiator.config.users_edit import delete_user, set_password
from radiator.errors import ConfigError

OLD = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$b2xk"
NEW = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$bmV3"

BLOCK = f"""\
# who may come in
users:
  alice:            # the first
    # a comment of hers
    password: {OLD}   # since May
    read: /topic/a
  bob:
    read:
      - /topic/b
      # and more

  carol: {{password: "{OLD}", write: "#"}}
  dora:
# at the end
anonymous: {{read: /topic/c}}
"""


def password(text: str, name: str) -> str | None:
    return load_users_text(text, "users.yaml", {}).users[name].password


def without(text: str, *parts: str) -> list[str]:
    """The lines that have none of these."""
    return [line for line in text.splitlines() if not any(part in line for part in parts)]


@pytest.mark.parametrize("name", ["alice", "bob", "carol", "dora", "new", "on", "a b: c", 'ü"x'])
def test_one_hash_is_set_and_everything_else_stays(name: str) -> None:
    text = set_password(BLOCK, "users.yaml", name, NEW)
    assert password(text, name) == NEW
    assert password(text, "alice") in (OLD, NEW)
    kept = without(BLOCK, "password:", "carol", "dora:")
    assert [line for line in text.splitlines() if line in kept] == kept
    assert "# since May" in text and text.count("\n") - BLOCK.count("\n") <= 2


@pytest.mark.parametrize("name", ["alice", "bob", "carol", "dora"])
def test_a_user_is_deleted_and_the_others_stay(name: str) -> None:
    text = delete_user(BLOCK, "users.yaml", name)
    found = load_users_text(text, "users.yaml", {})
    assert list(found.users) == [each for each in ("alice", "bob", "carol", "dora") if each != name]
    assert found.anonymous is not None
    assert "# who may come in" in text and "# at the end" in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing yet\n",
        "users:\n",
        "users: {}\n",
        "users: {}",
        "users: # none\n",
        "anonymous: {read: a}",
        "users:",
    ],
)
def test_the_first_user_of_a_file_is_added(text: str) -> None:
    made = set_password(text, "users.yaml", "alice", NEW)
    assert password(made, "alice") == NEW
    gone = delete_user(made, "users.yaml", "alice")
    assert not load_users_text(gone, "users.yaml", {}).users


def test_a_flow_mapping_is_edited_in_place() -> None:
    text = f"users: {{a: {{read: x}}, b: {{password: '{OLD}'}}, c: {{}}}}\n"
    for name in ("a", "b", "c", "d"):
        assert password(set_password(text, "users.yaml", name, NEW), name) == NEW
    for name in ("a", "b", "c"):
        assert name not in load_users_text(delete_user(text, "users.yaml", name), "users.yaml", {}).users


@pytest.mark.parametrize(
    "text",
    [
        "users:\n  a: &one {read: x}\n  b: *one\n",
        "users:\n  b: {password_file: FILE}\n",
    ],
)
def test_what_cannot_be_edited_is_refused(text: str, tmp_path: object) -> None:
    file = f"{tmp_path}/hash"
    with open(file, "w") as hash_file:
        hash_file.write(OLD)
    with pytest.raises(ConfigError):
        set_password(text.replace("FILE", file), "users.yaml", "b", NEW)


NAMES = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=8)


@given(st.lists(NAMES, max_size=6, unique=True), NAMES)
def test_any_names_can_be_added_one_after_another_and_deleted_again(names: list[str], other: str) -> None:
    text = ""
    for name in names:
        text = set_password(text, "users.yaml", name, OLD)
    assert set(load_users_text(text, "users.yaml", {}).users) == set(names)
    text = set_password(text, "users.yaml", other, NEW)
    assert password(text, other) == NEW
    for name in {*names, other}:
        text = delete_user(text, "users.yaml", name)
    assert not load_users_text(text, "users.yaml", {}).users
