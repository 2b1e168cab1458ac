"""Spans of producers and consumers: names, attributes, and the context that travels with a message."""

from __future__ import annotations

import re

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from radiator.client import ServerError, connect
from radiator.client.tracing import Tracing
from tests.running import BrokerProcess

TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Recorded:
    """A tracing whose spans are kept in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._provider = TracerProvider()
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(self._provider)

    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_a_message_carries_the_span_of_its_producer_to_its_consumer(broker: BrokerProcess, recorded: Recorded) -> None:
    with connect(broker.address) as connection:
        messages = connection.subscribe("/queue/traced")
        with recorded.tracing.sending("/queue/traced", {"colour": "red"}) as headers:
            connection.send("/queue/traced", b"body", headers)
        message = messages.fetch(timeout=10)
        with recorded.tracing.processing(message):
            message.ack()
    assert TRACEPARENT.fullmatch(message.headers["traceparent"]) and message.headers["colour"] == "red"
    sent, processed = recorded.spans()
    assert (sent.name, sent.kind) == ("send /queue/traced", SpanKind.PRODUCER)
    assert (processed.name, processed.kind) == ("process /queue/traced", SpanKind.CONSUMER)
    assert sent.context.span_id == processed.parent.span_id == processed.links[0].context.span_id
    assert sent.context.trace_id == processed.context.trace_id
    assert dict(sent.attributes or {}) == {
        "messaging.system": "radiator",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "/queue/traced",
    }
    assert dict(processed.attributes or {}) == {
        "messaging.system": "radiator",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "/queue/traced",
        "messaging.destination.partition.id": "/queue/traced",
        "messaging.message.id": message.headers["message-id"],
        "messaging.message.body.size": 4,
    }


def test_within_an_active_span_the_producer_is_a_link_and_no_parent(broker: BrokerProcess, recorded: Recorded) -> None:
    tracing = recorded.tracing
    with connect(broker.address) as connection:
        messages = connection.subscribe("/queue/nested", prefetch=2)
        with tracing.sending("/queue/nested", count=2) as headers:
            connection.send_many([("/queue/nested", b"1", headers), ("/queue/nested", b"2", headers)])
        batch = [messages.fetch(timeout=10), messages.fetch(timeout=10)]
        with tracing.sending("/queue/result"):
            for message in batch:
                with tracing.processing(message):
                    message.ack()
    sent, first, second, around = recorded.spans()
    assert (sent.attributes or {})["messaging.batch.message_count"] == 2
    for processed in (first, second):
        assert processed.parent is not None and processed.parent.span_id == around.context.span_id
        assert [link.context.span_id for link in processed.links] == [sent.context.span_id]


def test_an_exception_is_recorded_and_raised(broker: BrokerProcess, recorded: Recorded) -> None:
    with (
        pytest.raises(ServerError),
        connect(broker.address) as connection,
        recorded.tracing.sending("no-destination") as headers,
    ):
        connection.send("no-destination\n" * 100, b"", headers)
    (span,) = recorded.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "ServerError"


def test_a_message_without_context_begins_a_trace(broker: BrokerProcess, recorded: Recorded) -> None:
    with connect(broker.address) as connection:
        messages = connection.subscribe("/queue/plain", ack="auto")
        connection.send("/queue/plain", b"", {"traceparent": "nonsense"})
        with recorded.tracing.processing(messages.fetch(timeout=10)):
            pass
    (span,) = recorded.spans()
    assert span.parent is None and not span.links


def test_names_of_spans_are_few_for_temporary_queues(recorded: Recorded) -> None:
    with recorded.tracing.sending("/temp-queue/answers@1234"):
        pass
    (span,) = recorded.spans()
    assert span.name == "send (temporary)"
    assert (span.attributes or {})["messaging.destination.temporary"] is True


def test_without_an_sdk_the_headers_stay_as_they_are() -> None:
    with Tracing().sending("/queue/a", {"n": 1}) as headers:
        assert headers == {"n": "1"}
