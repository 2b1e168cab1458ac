"""``/metrics`` of a real broker: every number of ``/stats`` is a series, in the formats of Prometheus."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from radiator import __version__
from radiator.broker.admin import by_rule, gauges
from radiator.broker.stats import COUNTERS, FAMILIES
from tests.running import BrokerProcess, free_port
from tests.server.wire import Wire

StartBroker = Callable[..., BrokerProcess]
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
ALERTS = Path(__file__).parents[2] / "packaging" / "prometheus" / "alerts.yml"
needs_prometheus = pytest.mark.skipif(
    shutil.which("promtool") is None or shutil.which("prometheus") is None,
    reason="prometheus is not installed; `make clients` installs it",
)


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


def admin_port(broker: BrokerProcess) -> int:
    return int(re.findall(r"admin: http://127\.0\.0\.1:(\d+)", broker.text())[0])


def get(broker: BrokerProcess, path: str, accept: str = "") -> tuple[str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", admin_port(broker), timeout=20)
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
    metrics = [*COUNTERS, *(metric for metric, _ in gauges.NOW), *gauges.STORE, *by_rule.TABLE, *gauges.HOST]
    series = [(metric.series[0], tuple(metric.series[1].items())) for metric in metrics]
    assert len(set(series)) == len(series)
    shared = {name for name, labels in series if labels}
    assert shared == set(FAMILIES)


# --- Prometheus -------------------------------------------------------------------------------------------------------


def expressions() -> list[str]:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert len(rules) > 10
    return [rule["expr"] for rule in rules]


def test_every_series_of_the_alert_rules_exists(broker: BrokerProcess) -> None:
    names = {name for name, _ in samples(broker)}
    named = {name for text in expressions() for name in re.findall(r"radiator_\w+", text)}
    assert named and named <= names


@needs_prometheus
def test_promtool_accepts_the_metrics_and_the_alert_rules(broker: BrokerProcess) -> None:
    _, text = get(broker, "/metrics")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if line.startswith("radiator_")] == []
    done = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
def test_a_prometheus_scrapes_the_broker_and_evaluates_every_alert(broker: BrokerProcess, tmp_path: Path) -> None:
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {"job_name": "radiator", "static_configs": [{"targets": [f"127.0.0.1:{admin_port(broker)}"]}]}
        ],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        "prometheus",
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]

    def ask(path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{port}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    with subprocess.Popen(command) as server:
        try:
            published = within(30, lambda: value_of(ask("/api/v1/query", query="radiator_messages_published_total")))
            assert published >= 3
            for text in expressions():
                assert ask("/api/v1/query", query=text)["status"] == "success", text
            groups = within(30, lambda: evaluated(ask("/api/v1/rules")))
            assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}
        finally:
            server.terminate()


def value_of(answer: Any) -> float | None:
    """The value of the only series of an answer; None if there is no series yet."""
    found = answer["data"]["result"] if answer else []
    return float(found[0]["value"][1]) if found else None


def evaluated(answer: Any) -> Any:
    """The groups of rules, once all are evaluated."""
    groups = answer["data"]["groups"] if answer else []
    return groups if groups and all(rule["health"] != "unknown" for each in groups for rule in each["rules"]) else None


def within(seconds: float, read: Callable[[], Any]) -> Any:
    """What ``read`` returns, once that is not None."""
    deadline = time.monotonic() + seconds
    while (found := read()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found
