"""``/metrics`` of a real broker: every number of ``/stats`` is a series, in the formats of Prometheus."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from radiator import __version__
from radiator.broker.admin import gauges
from radiator.broker.stats import COUNTERS, FAMILIES
from tests.running import BrokerProcess
from tests.server.wire import Wire

StartBroker = Callable[..., BrokerProcess]
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), "admin: http://127.0.0.1:0\n")
    broker.start()
    with Wire(broker).open() as wire:
        for number in range(3):
            wire.say("SEND", b"four", destination="/queue/a", receipt=str(number))
        wire.hear_many("RECEIPT", 3)
        wire.say("SEND", b"x", destination="/temp-queue/gone@1", receipt="r")
        wire.hear("RECEIPT")
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.text()


def get(broker: BrokerProcess, path: str, accept: str = "") -> tuple[str, str]:
    port = int(re.findall(r"admin: http://127\.0\.0\.1:(\d+)", broker.text())[0])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers={"Accept": accept})
    answer = connection.getresponse()
    assert answer.status == 200
    return answer.getheader("Content-Type", ""), answer.read().decode()


def samples(broker: BrokerProcess, accept: str = "") -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    parse: Any = openmetrics if accept else prometheus
    _, text = get(broker, "/metrics", accept)
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value for family in parse(text) for each in family.samples
    }


@pytest.mark.parametrize("accept", ["", OPENMETRICS], ids=["text", "openmetrics"])
def test_every_number_of_stats_is_a_series(broker: BrokerProcess, accept: str) -> None:
    found = samples(broker, accept)
    shown = json.loads(get(broker, "/stats")[1])
    tables = {"stats": COUNTERS, "now": [metric for metric, _ in gauges.NOW], "store": gauges.STORE}
    moving = {"longest_turn_ms", "turn_work_peak", "commits", "syncs", "outbox_bytes", "memory"}
    for section, metrics in tables.items():
        assert set(shown[section]) >= {metric.name for metric in metrics}
        for metric in metrics:
            name, labels = metric.series
            key = f"radiator_{name}" + ("_total" if metric.type == "counter" else "")
            if metric.label:
                assert any(each == key and metric.label in dict(pairs) for each, pairs in found), key
                continue
            value = found[key, tuple(sorted(labels.items()))]
            assert metric.name in moving or value == shown[section][metric.name], metric.name


def test_counters_and_the_state_of_the_broker_are_right(broker: BrokerProcess) -> None:
    found = samples(broker)
    assert found["radiator_messages_published_total", ()] == 3
    assert found["radiator_published_bytes_total", ()] == 12
    assert found["radiator_messages_dropped_total", (("reason", "no_reply_queue"),)] == 1
    assert found["radiator_ready", ()] == 1
    assert found["radiator_disk_size_bytes", ()] > found["radiator_disk_free_bytes", ()] > 0
    assert any(name == "radiator_build_info" and dict(labels)["version"] == __version__ for name, labels in found)
    assert found["process_resident_memory_bytes", ()] > 1 << 20


def test_the_format_is_what_the_request_accepts(broker: BrokerProcess) -> None:
    assert get(broker, "/metrics")[0].startswith("text/plain; version=0.0.4")
    content_type, text = get(broker, "/metrics", OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text") and text.endswith("# EOF\n")


def test_the_number_of_series_does_not_depend_on_destinations(broker: BrokerProcess) -> None:
    before = len(samples(broker))
    with Wire(broker).open() as wire:
        for number in range(50):
            wire.say("SEND", b"x", destination=f"/queue/many.{number}", receipt=str(number))
        wire.hear_many("RECEIPT", 50)
        assert len(samples(broker)) == before


def test_no_series_has_two_meanings() -> None:
    metrics = [*COUNTERS, *(metric for metric, _ in gauges.NOW), *gauges.STORE]
    series = [(metric.series[0], tuple(metric.series[1].items())) for metric in metrics]
    assert len(set(series)) == len(series)
    shared = {name for name, labels in series if labels}
    assert shared == set(FAMILIES)


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool, of Debian's package prometheus, is not installed"
)
def test_promtool_finds_nothing_wrong(broker: BrokerProcess) -> None:
    _, text = get(broker, "/metrics")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if line.startswith("radiator_")]
    assert complaints == []
