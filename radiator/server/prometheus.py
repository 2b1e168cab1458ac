"""Render the metrics of the broker for Prometheus: ``/metrics``.

Every counter and every current value of ``/stats`` is one series, with the name that its table says
(``broker.stats``, ``broker.admin.gauges``). The number of series does not depend on destinations or connections.
``prometheus_client`` writes the formats and has the metrics of the process.

Source: https://prometheus.io/docs/practices/naming/ and the text formats of Prometheus and OpenMetrics.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from radiator import __version__, speed
from radiator.broker.admin import gauges, readiness
from radiator.broker.broker import Broker
from radiator.broker.stats import COUNTERS, FAMILIES, Metric

PREFIX = "radiator_"
SECONDS = {"milliseconds": 1e-3}


class Exposition(Collector):
    """The metrics of one broker.

    Args:
        broker: The broker.
        data_dir: Its data directory, whose disk is measured.
    """

    def __init__(self, broker: Broker, data_dir: str) -> None:
        self._broker = broker
        self._data_dir = data_dir
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[str, bytes]:
        """Return the content type and the text for a request with this header ``Accept``."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def describe(self) -> list[Family]:
        """Return no families: registering must not read the broker."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield all families. Called by ``prometheus_client`` for each scrape."""
        broker = self._broker
        yield from _families(COUNTERS, broker.stats.as_dict())
        yield from _families([metric for metric, _ in gauges.NOW], gauges.now(broker))
        yield from _families(gauges.STORE, broker.store.facts())
        ready = GaugeMetricFamily(PREFIX + "ready", "Whether the broker is ready, as /ready says.")
        ready.add_metric([], not readiness.reasons(broker))
        yield ready
        yield from self._disk()
        labels = {"version": __version__, "mode": speed.IN_USE}
        build = GaugeMetricFamily(PREFIX + "build_info", "The version, and whether compiled functions are in use.")
        build.add_sample(PREFIX + "build_info", labels, 1)
        yield build

    def _disk(self) -> Iterator[Family]:
        try:
            facts = os.statvfs(self._data_dir)
        except OSError:
            return  # the broker reports the missing directory by /ready
        sizes = {"free": facts.f_bavail * facts.f_frsize, "size": facts.f_blocks * facts.f_frsize}
        for name, size in sizes.items():
            family = GaugeMetricFamily(f"{PREFIX}disk_{name}_bytes", f"Bytes of the disk of data_dir: {name}.")
            family.add_metric([], size)
            yield family


def _families(metrics: Any, values: Mapping[str, Any]) -> Iterator[Family]:
    """Yield the families of one table with their values."""
    families: dict[str, Family] = {}
    for metric in metrics:
        name, labels = metric.series
        family = families.get(name)
        if family is None:
            make: Callable[..., Family] = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
            family = families[name] = make(PREFIX + name, FAMILIES.get(name, metric.help))
        suffix = "_total" if metric.type == "counter" else ""
        for more, value in _samples(metric, values[metric.name]):
            family.add_sample(PREFIX + name + suffix, {**labels, **more}, value)
    yield from families.values()


def _samples(metric: Metric, value: Any) -> list[tuple[dict[str, str], float]]:
    if metric.label:
        return [({metric.label: key}, each) for key, each in value.items()]
    return [({}, value * SECONDS.get(metric.unit, 1))]
