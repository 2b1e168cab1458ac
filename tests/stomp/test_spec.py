"""The tables agree with one another and with the specifications where they can be counted."""

from __future__ import annotations

from radiator.stomp import spec


def test_every_command_names_its_required_headers_for_every_version() -> None:
    for table in (spec.CLIENT_COMMANDS, spec.SERVER_COMMANDS):
        for command, required in table.items():
            assert tuple(required) == spec.VERSIONS, command


def test_client_and_server_have_no_command_in_common() -> None:
    assert not set(spec.CLIENT_COMMANDS) & set(spec.SERVER_COMMANDS)
    assert spec.OPENING_COMMANDS.issubset({*spec.CLIENT_COMMANDS, *spec.SERVER_COMMANDS})


def test_a_header_of_the_hop_is_not_reserved_as_well() -> None:
    assert not spec.HOP_BY_HOP & spec.RESERVED


def test_escapes_grow_with_the_version() -> None:
    assert tuple(spec.ESCAPES) == spec.VERSIONS
    assert spec.ESCAPES["1.0"] == {}
    assert set(spec.ESCAPES["1.2"]) - set(spec.ESCAPES["1.1"]) == {"\r"}
    for table in spec.ESCAPES.values():
        assert len(set(table.values())) == len(table)
