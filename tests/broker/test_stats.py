"""The tables of metrics have every number that the broker reports, and each number has the type of its entry."""

from __future__ import annotations

from typing import Any

import pytest

from radiator.broker.admin import by_rule, detail, gauges, readiness
from radiator.broker.stats import COUNTERS, Metric, Stats
from tests.broker.harness import World

TABLES = {"stats": COUNTERS, "now": tuple(metric for metric, _ in gauges.NOW), "store": gauges.STORE}
OTHERS = (
    by_rule.TABLE,
    tuple(metric for metric, _ in gauges.HISTOGRAMS),
    gauges.HOST,
    *(family.table for family in detail.FAMILIES.values()),
)


def reported(section: str) -> dict[str, Any]:
    found: dict[str, Any] = readiness.figures(World().broker)[section]
    return found


@pytest.mark.parametrize("section", TABLES)
def test_every_reported_number_is_in_its_table_in_order(section: str) -> None:
    assert list(reported(section)) == [metric.name for metric in TABLES[section]]


@pytest.mark.parametrize("section", TABLES)
def test_a_metric_with_a_label_has_a_value_for_each_label_and_others_have_one(section: str) -> None:
    values = reported(section)
    for metric in TABLES[section]:
        value = values[metric.name]
        assert isinstance(value, dict) == bool(metric.label), metric
        for each in value.values() if isinstance(value, dict) else [value]:
            assert isinstance(each, int | float), metric


def test_counters_are_zero_at_the_start() -> None:
    assert set(Stats().as_dict().values()) == {0}


@pytest.mark.parametrize(
    "metric", [metric for table in (*TABLES.values(), *OTHERS) for metric in table], ids=lambda each: each.name
)
def test_the_help_of_a_metric_is_one_line_that_ends_with_a_full_stop(metric: Metric) -> None:
    assert metric.help.endswith(".") and "\n" not in metric.help and metric.unit
