"""Writing into a real broker through Spark itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from radiator.client import connect
from radiator.client.message import Message
from radiator.server.passwords import make_hash
from radiator.spark import collect, read
from radiator.spark.report import reason
from radiator.spark.sink_ids import SHAPE
from tests.running import BrokerProcess
from tests.spark.stores import START_NS

pytestmark = pytest.mark.spark


def held(broker: BrokerProcess, destination: str) -> list[Message]:
    """All that the broker holds there."""
    with connect(broker.address) as connection:
        return list(connection.subscribe(destination, start_position="first", stop_position="end"))


def bodies(broker: BrokerProcess, destination: str) -> list[str]:
    return [each.text for each in held(broker, destination)]


def write(df: Any, broker: BrokerProcess, **options: Any) -> None:
    writer = df.write.format("radiator").mode("append").option("url", f"stomp://{broker.address}")
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def test_what_was_read_is_written_back_as_it_was(spark: Any, shared_broker: BrokerProcess) -> None:
    every_byte = bytes(range(256))
    with connect(shared_broker.address, transmit_time=False) as connection:
        connection.send_many(
            [
                ("/queue/original.a", every_byte, {"tag-country": "NZ", "event-time": "2013-01-01T05:00:00.5Z"}),
                ("/queue/original.a", "ö\n".encode(), {"note: \\\n": "a:b\\c\r\n", "content-type": "text/plain"}),
                ("/queue/original.b", b"", {"transmit-time": str(START_NS + 1), "event-time": str(START_NS)}),
                ("/queue/original.b", b"x", {"producer-id": "p", "sequence": 1, "tag-dest": "", "partition-key": "k"}),
                ("/queue/original.b", b"y", {"delay": "1ms", "expires": 1_356_998_400_000}),
            ]
        )
    data = str(shared_broker.data)
    write(read(spark, data, destination="/queue/original.>"), shared_broker, destination="/topic/copied")

    columns = ["body", "headers", "tags", "event_ns", "transmit_ns"]
    before = collect(read(spark, data, columns=columns, destination="/queue/original.>"))
    after = collect(read(spark, data, columns=columns, destination="/topic/copied"))
    for row in before:
        for of_its_own in ("producer-id", "sequence", "deliver-at"):  # its identity, and a moment that has passed
            row["headers"].pop(of_its_own, None)
    ids = [row["headers"].pop("dedup-id") for row in after]
    assert sorted(before, key=repr) == sorted(after, key=repr)
    assert len(set(ids)) == 5 and all(re.search(SHAPE, each) for each in ids)  # reports know by it who wrote them


def test_without_ids_nothing_is_added_and_those_of_the_first_sending_are_left_out(
    spark: Any, shared_broker: BrokerProcess
) -> None:
    with connect(shared_broker.address, transmit_time=False) as connection:
        connection.send("/topic/own", b"1", {"a": "b"}, dedup_id="own-1")
        connection.send("/topic/own", b"2", {"a": "b"})
    data = str(shared_broker.data)
    write(read(spark, data, destination="/topic/own"), shared_broker, destination="/topic/own.copy", dedup="none")
    rows = collect(read(spark, data, columns=["headers"], destination="/topic/own,/topic/own.copy"))
    assert [row["headers"] for row in rows] == [{"a": "b", "dedup-id": "own-1"}, *[{"a": "b"}] * 3]


def test_rows_without_a_message_id_are_not_taken_for_those_of_another_task(
    spark: Any, shared_broker: BrokerProcess
) -> None:
    alike = spark.range(0, 2, 1, 2).selectExpr("cast(null AS string) AS message_id", "'beat' AS body")
    write(alike, shared_broker, destination="/topic/beats")
    assert len(collect(read(spark, str(shared_broker.data), columns=["body"], destination="/topic/beats"))) == 2


def test_a_frame_of_ones_own_becomes_messages_of_its_columns(spark: Any, shared_broker: BrokerProcess) -> None:
    df = spark.sql(
        """SELECT concat('/topic/made.', id % 2) AS destination, concat('{"n":', id, '}') AS body,
                  map('colour', 'red', 'nothing', cast(null AS string)) AS headers,
                  map('n', cast(id AS string)) AS tags,
                  timestamp_micros(1357034400000000 + id) AS event_time, concat('k', id) AS key,
                  'application/json' AS content_type, cast(7 AS int) AS priority,
                  timestamp_millis(4102444800000) AS expires, concat('my-', id) AS dedup_id
           FROM range(4)"""
    )
    write(df, shared_broker)
    assert sorted(bodies(shared_broker, "/topic/made.0")) == ['{"n":0}', '{"n":2}']
    (message,) = (each for each in held(shared_broker, "/topic/made.1") if each.tags["n"] == "3")
    mine = {name: value for name, value in message.headers.items() if name in (
        "colour", "nothing", "partition-key", "content-type", "priority", "expires", "dedup-id")}  # fmt: skip
    assert mine == {
        "colour": "red", "partition-key": "k3", "content-type": "application/json", "priority": "7",
        "expires": "4102444800000", "dedup-id": "my-3",
    }  # fmt: skip
    assert message.event_time == 1_357_034_400_000_003_000
    assert message.transmit_time is not None  # the frame says nothing of it, so it is the time of sending


def test_kafkas_columns_are_understood(spark: Any, shared_broker: BrokerProcess) -> None:
    write(spark.sql("SELECT 'k' AS key, cast('v' AS binary) AS value"), shared_broker, destination="/topic/kafkas")
    (message,) = held(shared_broker, "/topic/kafkas")
    assert (message.text, message.headers["partition-key"]) == ("v", "k")


def test_rows_that_are_alike_are_all_written(spark: Any, shared_broker: BrokerProcess) -> None:
    write(spark.range(0, 500, 1, 3).selectExpr("'same' AS body"), shared_broker, destination="/topic/alike")
    assert bodies(shared_broker, "/topic/alike") == 500 * ["same"]


def test_a_job_that_runs_again_under_its_name_doubles_nothing(spark: Any, shared_broker: BrokerProcess) -> None:
    df = spark.range(0, 300, 1, 3).selectExpr("cast(id % 10 AS string) AS body")
    for _ in range(2):
        write(df, shared_broker, destination="/topic/nightly", query="nightly 2013-01-01")
    assert len(bodies(shared_broker, "/topic/nightly")) == 300
    write(df, shared_broker, destination="/topic/nightly")  # without the name it is another job
    assert len(bodies(shared_broker, "/topic/nightly")) == 600


def test_records_of_a_log_are_known_again_whatever_task_has_them(spark: Any, shared_broker: BrokerProcess) -> None:
    with connect(shared_broker.address) as connection:
        connection.send_many([("/topic/cut", f"{n % 7}") for n in range(100)])
    df = read(spark, str(shared_broker.data), columns=["message_id", "body"], destination="/topic/cut")
    options = {"destination": "/topic/cut.copy", "query": "cut"}
    write(df.repartition(3), shared_broker, **options)
    write(df.repartition(2), shared_broker, **options)
    assert sorted(bodies(shared_broker, "/topic/cut.copy")) == sorted(f"{n % 7}" for n in range(100))


def test_dedup_by_identifies_the_row_in_any_order(spark: Any, shared_broker: BrokerProcess) -> None:
    df = spark.range(0, 300).selectExpr("id AS order", "concat('order ', id) AS body")
    options = {"destination": "/topic/orders", "query": "orders", "dedup_by": "order"}
    write(df.repartition(2), shared_broker, **options)
    write(df.where("order % 3 = 0").repartition(1), shared_broker, **options)
    assert sorted(bodies(shared_broker, "/topic/orders")) == sorted(f"order {n}" for n in range(300))


@pytest.mark.thorough
def test_twenty_thousand_rows_arrive(spark: Any, shared_broker: BrokerProcess) -> None:
    df = spark.range(0, 20_000, 1, 4).selectExpr("cast(id AS string) AS body")
    write(df, shared_broker, destination="/topic/many")
    found = read(spark, str(shared_broker.data), columns=["body"], destination="/topic/many")
    total, different = found.agg(F.count("*"), F.countDistinct("body")).collect()[0]
    assert (total, different) == (20_000, 20_000)


# --- what is refused ------------------------------------------------------------------------------------------------


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:  # Spark's own classes; the text is what counts
        action()
    return reason(caught.value) or str(caught.value)


def test_overwrite_is_refused_before_a_row_is_sent(spark: Any, shared_broker: BrokerProcess) -> None:
    rows = spark.sql("SELECT 'x' AS body").write.format("radiator").option("url", shared_broker.address)
    told = refusal(lambda: rows.option("destination", "/topic/over").mode("overwrite").save())
    assert told.startswith('mode "overwrite" is refused')
    assert bodies(shared_broker, "/topic/over") == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT 'x' AS bodi", "column 'bodi' cannot be written (did you mean body?)"),
        ("SELECT 1 AS body", "column body: expected string or binary, got int; cast it"),
        ("SELECT map('a', 1) AS headers, 'x' AS body", "column headers: expected map<string,string>"),
        ("SELECT 'x' AS body, 'y' AS value", "columns body and value mean the same"),
        ("SELECT 'x' AS content_type", "expected a column body (or value)"),
        ("SELECT cast(null AS string) AS body", "row 0: expected a body, got null"),
        ("SELECT 'x' AS body, map('receipt', '1') AS headers", "row 0: column headers: 'receipt' belongs to the frame"),
        ("SELECT 'x' AS body, 1L AS event_ns, timestamp_micros(1) AS event_time", "say different times"),
        ("SELECT 'x' AS body, concat('a', chr(0)) AS content_type", "header 'content-type': expected no NUL"),
    ],
)
def test_rows_that_cannot_be_written_are_reported(
    spark: Any, shared_broker: BrokerProcess, sql: str, told: str
) -> None:
    assert told in refusal(lambda: write(spark.sql(sql), shared_broker, destination="/topic/never"))


def test_a_frame_that_does_not_say_where_to_is_refused(spark: Any, shared_broker: BrokerProcess) -> None:
    assert "the destination is missing" in refusal(lambda: write(spark.sql("SELECT 'x' AS body"), shared_broker))


@pytest.mark.thorough
def test_a_wrong_password_is_reported_and_not_shown(spark: Any, start_broker: Any, tmp_path: Path) -> None:
    users = tmp_path / "users.yaml"
    users.write_text(
        f'users: {{ann: {{password: "{make_hash("right-one")}", write: ">"}}}}\nanonymous: {{browse: ">", read: ">"}}\n'
    )
    broker = start_broker(f"auth: {{users_file: {users}}}\n")
    df = spark.sql("SELECT 'x' AS body")
    told = refusal(lambda: write(df, broker, destination="/topic/a", login="ann", passcode="wrong-one"))
    assert "denied" in told and broker.address in told and "options login and passcode, or passcodeFile" in told
    assert "wrong-one" not in told
    told = refusal(lambda: write(df, broker, destination="/topic/a"))
    assert "denied" in told

    secret = tmp_path / "secret"
    secret.write_text("right-one\n")
    write(df, broker, destination="/topic/a", login="ann", passcode_file=str(secret))
    assert bodies(broker, "/topic/a") == ["x"]
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    plans = [executions.apply(number).physicalPlanDescription() for number in range(executions.size())]
    assert plans and not any("-one" in plan for plan in plans)


def test_a_full_queue_that_rejects_fails_the_job_with_the_reason(spark: Any, start_broker: Any) -> None:
    broker = start_broker("destinations:\n  - match: /queue/small\n    max_messages: 10\n    on_full: reject\n")
    df = spark.range(0, 50, 1, 1).selectExpr("cast(id AS string) AS body")
    told = refusal(lambda: write(df, broker, destination="/queue/small"))
    assert "full" in told and "/queue/small" in told
    assert broker.running


def test_an_absent_broker_is_reported_at_once(spark: Any, start_broker: Any) -> None:
    broker = start_broker()
    broker.stop()
    told = refusal(lambda: write(spark.sql("SELECT 'x' AS body"), broker, destination="/topic/a", timeout="0.1s"))
    assert f"cannot connect to {broker.address}" in told and told.endswith("(option url)")


@pytest.mark.thorough
def test_a_queue_that_is_full_and_blocks_is_reported_with_the_option_that_waits(spark: Any, start_broker: Any) -> None:
    broker = start_broker("destinations:\n  - match: /queue/small\n    max_messages: 10\n    on_full: block\n")
    df = spark.range(0, 50, 1, 1).selectExpr("cast(id AS string) AS body")
    told = refusal(lambda: write(df, broker, destination="/queue/small", timeout="1s"))
    assert "(option timeout)" in told and "the queue may be full" in told


def test_files_of_tls_that_are_not_right_are_reported_with_their_options(
    spark: Any, shared_broker: BrokerProcess
) -> None:
    df = spark.sql("SELECT 'x' AS body").write.format("radiator").mode("append").option("destination", "/topic/a")
    df.option("url", f"stomp+tls://{shared_broker.address}").option("ca", "/none.pem")
    told = refusal(df.save)
    assert "/none.pem: cannot read the file" in told and told.endswith("(options url, ca, cert, key)")
