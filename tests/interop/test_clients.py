"""Clients of other makes, unchanged, against a real broker: each client, transport and version does every scenario.

Each scenario is a test. A client that is not installed, or lacks what it needs for a transport, is skipped there; the
reason says what is missing; with RADIATOR_INTEROP=require it is a failure.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.runs import Case, Place, Runs, cases, must_be_here, todo


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Every case that some selected test asks for is on its way as soon as the first one asks."""
    wanted: dict[Case, list[str]] = {}
    for item in request.session.items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if item.path == request.path and "case" in parameters and not parameters["case"].missing:
            wanted.setdefault(parameters["case"], []).append(parameters["name"])
    place = Place(tmp_path_factory.mktemp("interop"), wanted)
    place.broker.start()
    started = Runs(wanted, place)
    yield started
    started.close()
    assert place.broker.stop() == 0, place.broker.text()


QUICK = {  # in ``make test``: each transport, and clients in five languages
    "raw-ws-1.2", "raw-wss-1.1", "stomp.py-tcp-1.2", "stompest-tls-1.0", "stompjs-ws-1.2", "rx-stomp-wss-1.1",
    "net-stomp-tls-1.1", "stomp-gem-tcp-1.2", "php-stomp-tcp-1.0",
}  # fmt: skip
EACH = [
    pytest.param(case, name, id=f"{case}-{name}", marks=() if str(case) in QUICK else pytest.mark.thorough)
    for case in cases()
    for name in todo(case)
]
assert {str(case) for case in cases()} >= QUICK


@pytest.mark.parametrize(("case", "name"), EACH)
def test_a_client_can(case: Case, name: str, request: pytest.FixtureRequest) -> None:
    must_be_here(case.client, case.transport)
    wrong = request.getfixturevalue("runs").outcome(case, name)
    if wrong:
        pytest.fail(f"{case}, {name}: {wrong}", pytrace=False)
