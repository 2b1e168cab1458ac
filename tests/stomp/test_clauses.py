"""STOMP 1.0, 1.1 and 1.2 clause by clause, against a real broker: the tables are in ``tests/stomp/clauses``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import BrokerProcess
from tests.stomp.clauses import consuming, ending, framing, opening, rows_1_0, rows_1_1, rows_1_2, sending
from tests.stomp.clauses.stage import LEVELS, Case, Clause, Stage

TABLES: dict[str, list[Clause]] = {"1.0": rows_1_0.CLAUSES, "1.1": rows_1_1.CLAUSES, "1.2": rows_1_2.CLAUSES}
NOTHING = {"1.0": rows_1_0.NOTHING_TO_SHOW, "1.1": rows_1_1.NOTHING_TO_SHOW, "1.2": rows_1_2.NOTHING_TO_SHOW}
CASES = (consuming, ending, framing, opening, sending)
PROTOCOL = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")

# The headings of the three documents, in their order.
SECTIONS = {
    "1.0": """Connecting|Client Commands|SEND|SUBSCRIBE|UNSUBSCRIBE|BEGIN|COMMIT|ACK|ABORT|DISCONNECT|Standard Headers
        |Receipt|Server Frames|MESSAGE|RECEIPT|ERROR|Augmented BNF""",
    "1.1": """Abstract|Overview|Background|Protocol Overview|Design Philosophy|Conformance|STOMP Frames|Value Encoding
        |Body|Standard Headers|Header content-length|Header content-type|Header receipt|Repeated Header Entries
        |Size Limits|Connecting|CONNECT or STOMP Frame|CONNECTED Frame|Protocol Negotiation|Once Connected
        |Client Frames|SEND|SUBSCRIBE|SUBSCRIBE id Header|SUBSCRIBE ack Header|UNSUBSCRIBE|ACK|NACK|BEGIN|COMMIT|ABORT
        |DISCONNECT|Server Frames|MESSAGE|RECEIPT|ERROR|Heart-beating|Augmented BNF|License""",
    "1.2": """Abstract|Overview|Background|Protocol Overview|Changes in the Protocol|Design Philosophy|Conformance
        |STOMP Frames|Value Encoding|Body|Standard Headers|Header content-length|Header content-type|Header receipt
        |Repeated Header Entries|Size Limits|Connection Lingering|Connecting|CONNECT or STOMP Frame|CONNECTED Frame
        |Protocol Negotiation|Heart-beating|Client Frames|SEND|SUBSCRIBE|SUBSCRIBE id Header|SUBSCRIBE ack Header
        |UNSUBSCRIBE|ACK|NACK|BEGIN|COMMIT|ABORT|DISCONNECT|Server Frames|MESSAGE|RECEIPT|ERROR|Frames and Headers
        |Augmented BNF|License""",
}


def sections(version: str) -> list[str]:
    return [each.strip() for each in SECTIONS[version].split("|")]


def showings() -> Iterator[tuple[str, Case]]:
    """Each case once for each version with a clause that it shows."""
    for version, table in TABLES.items():
        yield from ((version, case) for case in dict.fromkeys(clause.case for clause in table))


@pytest.mark.parametrize(("version", "case"), list(showings()), ids=lambda each: getattr(each, "__name__", str(each)))
def test_a_clause_holds(shared_broker: BrokerProcess, version: str, case: Case) -> None:
    stage = Stage(shared_broker, version)
    try:
        case(stage)
    except AssertionError as error:
        clauses = [f"{each.section} {each.level}: {each.words}" for each in TABLES[version] if each.case is case]
        raise AssertionError(f"STOMP {version}, {'; '.join(clauses)}\n{error}") from error
    finally:
        stage.close()


@pytest.mark.parametrize("version", TABLES)
def test_every_section_has_a_clause_or_says_why_it_has_none(version: str) -> None:
    shown = {clause.section for clause in TABLES[version]}
    assert shown <= set(sections(version))
    assert set(sections(version)) - shown == set(NOTHING[version])


@pytest.mark.parametrize("version", TABLES)
def test_every_clause_is_whole(version: str) -> None:
    known = {case for module in CASES for _, case in inspect.getmembers(module, inspect.isfunction)}
    for clause in TABLES[version]:
        assert clause.level in LEVELS
        assert clause.words
        assert clause.case in known
    assert len({(clause.section, clause.words) for clause in TABLES[version]}) == len(TABLES[version])


def test_every_case_shows_a_clause() -> None:
    shown = {case for _, case in showings()}
    for module in CASES:
        for name, case in inspect.getmembers(module, inspect.isfunction):
            if case.__module__ == module.__name__:
                assert case in shown, f"{module.__name__}.{name}"


def test_every_deviation_is_in_the_document_with_its_reason() -> None:
    table = PROTOCOL.split("\n## Deviations", 1)[1]
    documented = re.findall(r"(?m)^\| (.*?) \|", table)[1:]
    for version, clauses in TABLES.items():
        for clause in clauses:
            if clause.deviates:
                assert clause.deviates in documented, f"{version} {clause.section}: {clause.deviates}"
