"""``/metrics`` of a real broker: every number of ``/stats`` is a series, in the formats of Prometheus."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import sys
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
from radiator.broker.admin import by_rule, detail, gauges
from radiator.broker.stats import COUNTERS, FAMILIES
from tests.running import BrokerProcess, free_port
from tests.server.wire import Wire

StartBroker = Callable[..., BrokerProcess]
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PACKAGING = Path(__file__).parents[2] / "packaging"
ALERTS = PACKAGING / "prometheus" / "alerts.yml"
DASHBOARD = PACKAGING / "grafana" / "radiator.json"
CONFIG = """
admin: http://127.0.0.1:0
destinations:
  - {match: "/queue/orders.>", dead_letter: /queue/dead}
  - {match: "/topic/prices.>"}
"""
needs_prometheus = pytest.mark.skipif(
    shutil.which("promtool") is None or shutil.which("prometheus") is None,
    reason="prometheus is not installed; `make clients` installs it",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), CONFIG)
    broker.start()
    with Wire(broker).open() as wire:
        for number in range(3):
            wire.say("SEND", b"four", destination="/queue/a", receipt=str(number))
        wire.hear_many("RECEIPT", 3)
        wire.say("SEND", b"x", destination="/temp-queue/gone@1", receipt="r")
        wire.hear("RECEIPT")
        wire.say("SUBSCRIBE", id="a", destination="/queue/orders.a", ack="client-individual")
        for number in range(3):
            wire.say("SEND", b"x", destination="/queue/orders.a", receipt=f"order-{number}")
        wire.say("NACK", id=wire.hear("MESSAGE").headers["ack"], requeue="false", receipt="nack")
        wire.say("ACK", id=wire.hear("MESSAGE").headers["ack"], receipt="ack")
        wire.hear("RECEIPT", receipt_id="nack")
        wire.hear("RECEIPT", receipt_id="ack")
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.text()


def admin_port(broker: BrokerProcess) -> int:
    return int(re.findall(r"admin: http://127\.0\.0\.1:(\d+)", broker.text())[0])


def ask(broker: BrokerProcess, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", admin_port(broker), timeout=20)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def get(broker: BrokerProcess, path: str, accept: str = "") -> tuple[str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", admin_port(broker), timeout=20)
    connection.request("GET", path, headers={"Accept": accept})
    answer = connection.getresponse()
    assert answer.status == 200
    return answer.getheader("Content-Type", ""), answer.read().decode()


def samples(
    broker: BrokerProcess, accept: str = "", path: str = "/metrics"
) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    parse: Any = openmetrics if accept else prometheus
    _, text = get(broker, path, accept)
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value for family in parse(text) for each in family.samples
    }


@pytest.mark.parametrize("accept", ["", OPENMETRICS], ids=["text", "openmetrics"])
def test_every_number_of_stats_is_a_series(broker: BrokerProcess, accept: str) -> None:
    found = samples(broker, accept)
    shown = json.loads(get(broker, "/stats")[1])
    tables = {"stats": COUNTERS, "now": [metric for metric, _ in gauges.NOW], "store": gauges.STORE}
    moving = {"longest_turn_ms", "turn_work_peak", "commits", "syncs", "outbox_bytes", "memory", "journal_bytes"}
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
    assert found["radiator_messages_published_total", ()] == 6
    assert found["radiator_published_bytes_total", ()] == 15
    assert found["radiator_messages_dropped_total", (("reason", "no_reply_queue"),)] == 1
    assert found["radiator_ready", ()] == 1
    assert found["radiator_disk_size_bytes", ()] > found["radiator_disk_free_bytes", ()] > 0
    assert any(name == "radiator_build_info" and dict(labels)["version"] == __version__ for name, labels in found)
    assert found["process_resident_memory_bytes", ()] > 1 << 20


def test_deliveries_and_dead_letters_have_their_kind_and_reason(broker: BrokerProcess) -> None:
    found = samples(broker)
    rule = ("rule", "/queue/orders.>")
    assert found["radiator_messages_delivered_total", (("kind", "new"),)] >= 2
    assert found["radiator_messages_delivered_total", (("kind", "redelivered"),)] == 0
    assert found["radiator_dead_letters_total", (("reason", "rejected"),)] == 1
    assert found["radiator_rule_messages_published_total", (rule,)] == 3
    assert found["radiator_rule_messages_acknowledged_total", (rule,)] == 1
    assert found["radiator_queue_ready", (rule,)] == 1
    assert found["radiator_queue_ready", (("rule", "(defaults)"),)] == 4, "three and a dead letter"
    assert found["radiator_queue_ready_without_consumer", (("rule", "(defaults)"),)] == 3, "not the dead letter"
    assert found["radiator_log_bytes", (rule,)] > 0


@pytest.mark.parametrize("accept", ["", OPENMETRICS], ids=["text", "openmetrics"])
def test_every_sum_and_every_histogram_is_in_stats_too(broker: BrokerProcess, accept: str) -> None:
    found = samples(broker, accept)
    shown = json.loads(get(broker, "/stats")[1])
    for rule, values in shown["rules"].items():
        for metric in by_rule.TABLE:
            name, labels = metric.series
            key = f"radiator_{name}" + ("_total" if metric.type == "counter" else "")
            assert found[key, tuple(sorted({**labels, "rule": rule}.items()))] == values[metric.name], (
                rule,
                metric.name,
            )
    for metric, _ in gauges.HISTOGRAMS:
        name = f"radiator_{metric.series[0]}"
        summary = shown["histograms"][metric.name]
        assert set(summary) == {"count", "sum", "p50", "p90", "p99", "p100"}
        assert 0 < summary["p50"] <= summary["p90"] <= summary["p99"] <= summary["p100"]
        assert 0 < found[f"{name}_count", ()] <= summary["count"]
        assert found[f"{name}_bucket", (("le", "+Inf"),)] == found[f"{name}_count", ()]


def test_the_receipt_of_each_message_is_measured(broker: BrokerProcess) -> None:
    found = samples(broker)
    assert found["radiator_receipt_seconds_count", ()] == 7, "six messages and a dead letter"
    assert 0 < found["radiator_receipt_seconds_sum", ()] < 60


@pytest.mark.parametrize("accept", ["", OPENMETRICS], ids=["text", "openmetrics"])
def test_a_pattern_selects_the_destinations_that_have_series(broker: BrokerProcess, accept: str) -> None:
    found = samples(broker, accept, "/metrics/detailed?family=queue&match=/queue/orders.%3E")
    labels = (("destination", "/queue/orders.a"), ("rule", "/queue/orders.>"))
    assert found["radiator_detailed_queue_messages_total", labels] == 3
    assert found["radiator_detailed_queue_ready", labels] == 1
    assert found["radiator_detailed_queue_delivered_total", labels] == 3
    assert found["radiator_detailed_queue_settled_total", labels] == 2
    assert found["radiator_detailed_series_left_out", ()] == 0
    assert {pairs for _, pairs in found} == {labels, ()}


@pytest.mark.parametrize("family", detail.FAMILIES)
def test_every_family_has_the_series_of_its_table_and_no_others(broker: BrokerProcess, family: str) -> None:
    _, text = get(broker, f"/metrics/detailed?family={family}", OPENMETRICS)
    table = {f"radiator_{metric.series[0]}" for metric in (*detail.FAMILIES[family].table, detail.LEFT_OUT)}
    assert {each.name for each in openmetrics(text)} == table


def test_a_family_of_many_samples_has_one_head(broker: BrokerProcess) -> None:
    with Wire(broker).open() as wire:
        for number in range(80):
            wire.say("SEND", b"x", destination=f"/topic/prices.{number}", receipt=str(number))
        wire.hear_many("RECEIPT", 80)
    found = samples(broker, OPENMETRICS, "/metrics/detailed?family=topic&match=/topic/prices.*")
    assert sum(name == "radiator_detailed_topic_messages_total" for name, _ in found) == 80
    _, text = get(broker, "/metrics/detailed?family=topic", "")
    assert text.count("# TYPE radiator_detailed_topic_messages_total ") == 1


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("", "expected family"),
        ("?family", "expected a query such as family="),
        ("?match=/queue/a", "expected family"),
        ("?family=connection", "unknown family 'connection'"),
        ("?family=queue&family=topic", "at most once"),
        ("?family=queue&limit=5", "at most once"),
        ("?family=queue&match=", "expected a pattern of 1 to"),
        ("?family=queue&match=a,,b", "expected a pattern on each side of a comma"),
        ("?family=queue&match=%FF", "expected a query such as family="),
        ("?family=queue&" + "&".join(f"x{number}=1" for number in range(50)), "expected a query such as family="),
        ("?family=queue&match=" + "a" * 2_000, "expected a pattern of 1 to"),
    ],
)
def test_a_query_without_meaning_gets_400_and_the_reason(broker: BrokerProcess, query: str, why: str) -> None:
    status, text = ask(broker, f"/metrics/detailed{query}")
    assert status == 400 and why in json.loads(text)["error"]


@pytest.mark.parametrize("accept", ["", OPENMETRICS], ids=["text", "openmetrics"])
def test_a_name_with_control_characters_stays_one_label(broker: BrokerProcess, accept: str) -> None:
    """Many, because samples are encoded in portions, and of these but the first one the head is cut off."""
    names = {f'/topic/control.{number}\r# EOF\r\n"\\\x85\u2028' for number in range(40)}
    with Wire(broker).open() as wire:
        for name in names:
            wire.say("SEND", b"x", destination=name, receipt="r")
            wire.hear("RECEIPT")
    _, text = get(broker, "/metrics/detailed?family=topic&match=/topic/control.%23", accept)
    lines = text.split("\n")
    assert lines[-2:] == (["# EOF", ""] if accept else [lines[-2], ""]) and text.count("\n# EOF\n") == bool(accept)
    pattern = r'radiator_detailed_topic_messages_total\{destination="((?:[^"\\]|\\.)*)",rule="[^"]*"\} [12]\.0'
    found = {match[1] for line in lines if (match := re.fullmatch(pattern, line, re.DOTALL))}
    escapes = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
    assert {re.sub(r"\\.", lambda each: escapes[each[0]], name) for name in found} == names


@pytest.mark.parametrize(
    "accept", [f"{OPENMETRICS}.x", "application/openmetrics-text;version=x", "text/plain;version=x"]
)
def test_an_accept_header_with_a_malformed_version_is_answered(broker: BrokerProcess, accept: str) -> None:
    assert "radiator_ready" in get(broker, "/metrics", accept)[1]


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


@pytest.mark.thorough
def test_the_measurement_of_scrapes_runs() -> None:
    """``python -m bench.scrape``, whose figures docs/metrics.md has, with a hundredth of the destinations."""
    sizes = ["--destinations", "500", "--connections", "50", "--rounds", "1", "--seconds", "2"]
    command = [sys.executable, "-m", "bench.scrape", *sizes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=PACKAGING.parent)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["scrapes"] > 0 and figures["p99_ms_beside_scrapes"] > 0


# --- Prometheus -------------------------------------------------------------------------------------------------------


def expressions() -> list[str]:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert len(rules) > 10
    return [rule["expr"] for rule in rules]


def queries() -> list[str]:
    """The queries of the dashboard, with values for its variables."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(found) > 40
    values = {"$__rate_interval": "20s", "$instance": ".*", "$rule": ".*"}
    for name, value in values.items():
        found = [text.replace(name, value) for text in found]
    return found


@pytest.mark.parametrize("texts", [expressions, queries], ids=["alerts", "dashboard"])
def test_every_series_of_alert_rules_and_dashboard_exists(
    broker: BrokerProcess, texts: Callable[[], list[str]]
) -> None:
    names = {name for name, _ in samples(broker)}
    named = {name for text in texts() for name in re.findall(r"(?:radiator|process)_\w+", text)}
    assert named and named <= names


def test_every_panel_of_the_dashboard_says_what_it_shows() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert all(panel["title"] and panel["description"].endswith(".") for panel in panels)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in dashboard["panels"]]
    cells = [(x + dx, y + dy) for x, y, w, h in places for dx in range(w) for dy in range(h)]
    assert len(set(cells)) == len(cells), "panels overlap"
    used = set(re.findall(r"\$(\w+)", " ".join(target["expr"] for panel in panels for target in panel["targets"])))
    named = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert used - {"__rate_interval"} <= named


@needs_prometheus
def test_promtool_accepts_the_metrics_and_the_alert_rules(broker: BrokerProcess) -> None:
    _, text = get(broker, "/metrics")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if line.startswith("radiator_")] == []
    done = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def symptom(alert: str, series: dict[str, str]) -> dict[str, Any]:
    """A test of promtool: with these series, a value a minute, this alert and no other fires; none if it is empty."""
    sample = {"labels": f'{{alertname="{alert}"}}', "value": 1}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "50m",
                "exp_samples": [sample] if alert else [],
            }
        ],
    }


def slow(name: str, bound: str) -> dict[str, str]:
    """A histogram in which nearly all values are above a bound."""
    labels = 'job="radiator",instance="b"'
    buckets = {bound: "0+1x60", "10.0": "0+100x60", "+Inf": "0+100x60"}
    return {f'{name}_bucket{{{labels},le="{le}"}}': values for le, values in buckets.items()}


RULE = '{job="radiator",instance="b",rule="/queue/a"}'
SYMPTOMS = {
    "RadiatorBacklogWithoutConsumer": {f"radiator_queue_ready_without_consumer{RULE}": "5x60"},
    "RadiatorLagGrows": {f"radiator_consumer_lag_messages{RULE}": "20000+600x60"},
    "RadiatorSyncSlow": slow("radiator_sync_seconds", "0.1"),
    "RadiatorReceiptsSlow": slow("radiator_receipt_seconds", "1.0"),
    "RadiatorEventLoopLag": slow("radiator_event_loop_lag_seconds", "0.1"),
    "RadiatorDeadLetters": {'radiator_dead_letters_total{job="radiator",instance="b",reason="rejected"}': "0+1x60"},
    "RadiatorNotReady": {'radiator_ready{job="radiator",instance="b"}': "0x60"},
}
HEALTHY = {
    f"radiator_queue_ready_without_consumer{RULE}": "0x60",
    f"radiator_consumer_lag_messages{RULE}": "20000-100x60",
    'radiator_dead_letters_total{job="radiator",instance="b",reason="rejected"}': "7x60",
    'radiator_ready{job="radiator",instance="b"}': "1x60",
    'radiator_sync_seconds_bucket{job="radiator",instance="b",le="0.001"}': "0+100x60",
    'radiator_sync_seconds_bucket{job="radiator",instance="b",le="+Inf"}': "0+100x60",
}


@needs_prometheus
def test_an_alert_fires_by_its_symptom_and_no_other_does(tmp_path: Path) -> None:
    tests = [symptom(alert, series) for alert, series in {**SYMPTOMS, "": HEALTHY}.items()]
    rules = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(rules))
    command = ["promtool", "test", "rules", tmp_path / "test.yml"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def ask_prometheus(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """A Prometheus that has scraped the broker several times; the fixture is the function that asks it."""
    path, port = tmp_path_factory.mktemp("prometheus"), free_port()
    config = {
        "global": {"scrape_interval": "300ms", "scrape_timeout": "300ms", "evaluation_interval": "300ms"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {"job_name": "radiator", "static_configs": [{"targets": [f"127.0.0.1:{admin_port(broker)}"]}]}
        ],
    }
    (path / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        "prometheus",
        f"--config.file={path / 'prometheus.yml'}",
        f"--storage.tsdb.path={path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]

    def ask(path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{port}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return None if error.code == 503 else json.load(error)  # 503: it is starting
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    with subprocess.Popen(command) as server:
        try:
            scrapes = "count_over_time(radiator_receipt_seconds_count[20s]) >= 3"
            within(30, lambda: value_of(ask("/api/v1/query", query=scrapes)))
            yield ask
        finally:
            server.kill()  # it has nothing to store


@needs_prometheus
def test_a_prometheus_evaluates_every_alert(ask_prometheus: Ask) -> None:
    for text in expressions():
        assert ask_prometheus("/api/v1/query", query=text)["status"] == "success", text
    groups = within(30, lambda: evaluated(ask_prometheus("/api/v1/rules")))
    assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}


@needs_prometheus
def test_a_prometheus_has_data_for_every_query_of_the_dashboard(ask_prometheus: Ask) -> None:
    for text in queries():
        answer = ask_prometheus("/api/v1/query", query=text)
        assert answer["status"] == "success", (text, answer)
        assert answer["data"]["result"], text


@needs_prometheus
def test_the_variables_of_the_dashboard_have_values(ask_prometheus: Ask) -> None:
    rules = ask_prometheus("/api/v1/label/rule/values", **{"match[]": "radiator_rule_destinations"})["data"]
    assert rules == ["(defaults)", "(temporary)", "/queue/orders.>", "/topic/prices.>"]
    assert len(ask_prometheus("/api/v1/label/instance/values", **{"match[]": "radiator_build_info"})["data"]) == 1


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
