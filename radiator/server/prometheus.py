"""Render the metrics of the broker for Prometheus: ``/metrics`` and ``/metrics/detailed``.

Every number of ``/stats`` is a series, with the name that its table says (``broker.stats``, ``broker.admin.gauges``,
``broker.admin.by_rule``). The number of series on ``/metrics`` depends on the number of rules, and not on destinations
or connections. ``/metrics/detailed`` has the series of single destinations that a request selects
(``broker.admin.detail``). ``prometheus_client`` writes the formats and has the metrics of the process.

An answer is made in slices (``server.paced``), so a scrape does not delay clients.

Source: https://prometheus.io/docs/practices/naming/ and the text formats of Prometheus and OpenMetrics.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, chain
from typing import Any
from urllib.parse import parse_qsl

import gevent
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.utils import floatToGoString

from radiator import __version__, speed
from radiator.broker.admin import by_rule, detail, gauges, readiness
from radiator.broker.broker import Broker
from radiator.broker.stats import COUNTERS, FAMILIES, Metric
from radiator.clock import NS_PER_SECOND
from radiator.errors import ProtocolError
from radiator.histogram import BOUNDS_SECONDS, Histogram
from radiator.server.admin import BadRequest
from radiator.server.paced import Pace

PREFIX = "radiator_"
SECONDS = {"milliseconds": 1e-3}
PARAMETERS = ("family", "match")
SAMPLES_TOGETHER = 32  # encoded at a time: half a millisecond


class Exposition:
    """The metrics of one broker.

    Args:
        broker: The broker.
        data_dir: Its data directory, whose disk is measured.
    """

    def __init__(self, broker: Broker, data_dir: str) -> None:
        self._broker = broker
        self._data_dir = data_dir
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def render(self, accept: str) -> tuple[str, bytes]:
        """Return the content type and the text of ``/metrics`` for a request with this header ``Accept``."""
        pace = Pace()
        sums = pace.run(by_rule.sums(self._broker))
        # Counting the open files of 5,000 connections takes 5 ms, so a thread does it.
        process = gevent.get_hub().threadpool.apply(lambda: list(self._process.collect()))
        return _encode(chain(self._families(sums), process), accept, pace)

    def render_detailed(self, query: str, accept: str) -> tuple[str, bytes]:
        """Return the content type and the text of ``/metrics/detailed``.

        Args:
            query: The query of the URL, such as ``family=queue&match=/queue/orders.>``.
            accept: The header ``Accept`` of the request.

        Raises:
            BadRequest: The query is not valid.
        """
        family, match = _selection(query)
        pace = Pace()
        try:
            found = pace.run(detail.select(self._broker, family, match))
        except ProtocolError as error:
            raise BadRequest(f"{error.message}: {error.detail}") from None
        families = [
            *_detailed(detail.FAMILIES[family].table, found.rows),
            *_of_table([detail.LEFT_OUT], found._asdict()),
        ]
        return _encode(families, accept, pace)

    def _families(self, sums: by_rule.Sums) -> Iterator[Family]:
        broker = self._broker
        yield from _of_table(COUNTERS, broker.stats.as_dict())
        yield from _of_table([metric for metric, _ in gauges.NOW], gauges.now(broker))
        yield from _of_table(gauges.STORE, broker.store.facts())
        rules = {metric.name: {rule: values[metric.name] for rule, values in sums.items()} for metric in by_rule.TABLE}
        yield from _of_table(by_rule.TABLE, rules)
        for metric, read in gauges.HISTOGRAMS:
            yield _histogram(metric, read(broker))
        yield from _of_table(gauges.HOST, self._host())

    def _host(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "ready": not readiness.reasons(self._broker),
            "build_info": {(__version__, speed.IN_USE): 1},
        }
        try:
            facts = os.statvfs(self._data_dir)
        except OSError:
            return found  # the broker reports the missing directory by /ready
        found["disk_free_bytes"] = facts.f_bavail * facts.f_frsize
        found["disk_size_bytes"] = facts.f_blocks * facts.f_frsize
        return found


def _selection(query: str) -> tuple[str, str]:
    """Return the family and the patterns of a query. Raises BadRequest."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=8)
    except ValueError as error:
        expected = f"family={'|'.join(detail.FAMILIES)}&match=PATTERN"
        raise BadRequest(f"expected a query such as {expected}, got {query[:200]!r} ({error})") from None
    values = dict(pairs)
    unknown = [name for name, _ in pairs if name not in PARAMETERS]
    if unknown or len(values) < len(pairs):
        raise BadRequest(f"expected each of {', '.join(PARAMETERS)} at most once, got {query[:200]!r}")
    if "family" not in values:
        raise BadRequest(f"expected family, one of {', '.join(detail.FAMILIES)}")
    return values["family"], values.get("match", "#")


def _of_table(metrics: Iterable[Metric], values: Mapping[str, Any]) -> Iterator[Family]:
    """Yield the families of one table with their values. A metric without a value is left out."""
    families: dict[str, Family] = {}
    for metric in metrics:
        if metric.name not in values:
            continue
        name, labels = metric.series
        family = families.get(name)
        if family is None:
            family = families[name] = _empty(metric)
        for more, value in _samples(metric, values[metric.name]):
            family.add_sample(_sample_name(metric), {**labels, **more}, value)
    yield from families.values()


def _empty(metric: Metric) -> Family:
    name, _ = metric.series
    make: Callable[..., Family] = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
    return make(PREFIX + name, FAMILIES.get(name, metric.help))


def _sample_name(metric: Metric) -> str:
    return PREFIX + metric.series[0] + ("_total" if metric.type == "counter" else "")


def _samples(metric: Metric, value: Any) -> list[tuple[dict[str, str], float]]:
    if not metric.label:
        return [({}, value * SECONDS.get(metric.unit, 1))]
    names = metric.label.split(",")
    if len(names) == 1:
        return [({metric.label: key}, each) for key, each in value.items()]
    return [(dict(zip(names, keys, strict=True)), each) for keys, each in value.items()]


def _detailed(table: Iterable[Metric], rows: list[detail.Row]) -> Iterator[Family]:
    for metric in table:
        family, sample = _empty(metric), _sample_name(metric)
        for labels, values in rows:
            family.add_sample(sample, labels, values[metric.name])
        yield family


def _histogram(metric: Metric, histogram: Histogram) -> Family:
    bounds = [*map(floatToGoString, BOUNDS_SECONDS), "+Inf"]
    family = HistogramMetricFamily(PREFIX + metric.series[0], metric.help)
    buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
    family.add_metric([], buckets, histogram.sum_ns / NS_PER_SECOND)
    return family


class _Registry:
    """What an encoder of ``prometheus_client`` needs of a registry."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> list[Family]:
        return [self._family]


def _encode(families: Iterable[Family], accept: str, pace: Pace) -> tuple[str, bytes]:
    """Return the content type and the text of families, encoded in slices."""
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is no number
        encode, content_type = choose_encoder("")
    pieces: list[bytes] = []
    end = b""
    for family in families:
        samples = family.samples
        for first in range(0, len(samples) or 1, SAMPLES_TOGETHER):
            part = Family(family.name, family.documentation, family.type, family.unit)
            part.samples.extend(samples[first : first + SAMPLES_TOGETHER])
            lines = encode(_Registry(part)).split(b"\n")[:-1]  # not splitlines(): a label may contain CR
            if lines and lines[-1] == b"# EOF":
                end = b"# EOF\n"
                lines.pop()
            pieces += [line + b"\n" for line in lines if not (first and line.startswith(b"# "))]
            pace.pause()
    return content_type, b"".join([*pieces, end])
