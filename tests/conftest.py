"""What holds for every test: how much Hypothesis tries, and that no test depends on how fast the machine is.

Besides, the fixtures that give a test a real broker (``tests/running.py``).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import speeds
from tests.running import BrokerProcess

# The tests start hundreds of Python processes. Without stored bytecode, each of them compiles radiator for 0.3 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell that runs the tests in the background has them ignore SIGINT, and so would every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("default", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", parent=settings.get_profile("default"), max_examples=25)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=2_000)
settings.load_profile("default")


def pytest_collection_finish() -> None:
    """Keep the modules and the collected tests out of what the collector searches during each test."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", params=speeds.BUILT)
def both_speeds(request: pytest.FixtureRequest) -> Iterator[None]:
    """The functions that exist twice: those in Python, then the compiled ones."""
    with pytest.MonkeyPatch.context() as patch:
        speeds.use(request.param, patch)
        yield


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """``start_broker(config_text, options)`` starts a real broker; whatever still runs at the end is killed."""
    started: list[BrokerProcess] = []

    def start(config: str | None = None, options: Sequence[str] = ()) -> BrokerProcess:
        directory = tmp_path / f"broker-{len(started)}"
        directory.mkdir()
        broker = BrokerProcess(directory, config, options)
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        if broker.running:
            broker.kill()


@pytest.fixture
def broker(start_broker: Callable[..., BrokerProcess]) -> Iterator[BrokerProcess]:
    """A real broker with the default configuration; it must survive the test and end well."""
    process = start_broker()
    yield process
    if process.running:
        assert process.stop() == 0, process.text()


@pytest.fixture(scope="module")
def broker_with(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], BrokerProcess]]:
    """``broker_with(config)`` gives one broker for each configuration to all tests of a file."""
    brokers: dict[str, BrokerProcess] = {}

    def started(config: str) -> BrokerProcess:
        if config not in brokers:
            process = BrokerProcess(tmp_path_factory.mktemp("broker"), config)
            process.start()
            brokers[config] = process
        return brokers[config]

    yield started
    for process in brokers.values():
        assert process.stop() == 0, process.text()


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of a file; they must use destinations of their own."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    assert process.running, f"the broker ended during the tests:\n{process.text()}"
    assert process.stop() == 0, process.text()
