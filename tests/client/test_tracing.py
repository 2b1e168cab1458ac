"""Spans of producers and consumers: names, attributes, and the context that travels with a message."""

from __future__ import annotations

import asyncio
import re

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from radiator.client import ServerError, aio, connect
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


def linked(sent: ReadableSpan, processed: ReadableSpan) -> bool:
    return bool(processed.links) and processed.links[0].context.span_id == sent.get_span_context().span_id


def test_a_connection_with_tracing_makes_spans_of_all_messages_in_loops(
    broker: BrokerProcess, recorded: Recorded
) -> None:
    with connect(broker.address, tracing=recorded.tracing) as connection:
        messages = connection.subscribe("/queue/all", prefetch=10)
        connection.send("/queue/all", "one")
        connection.send_many([("/queue/all", "two", {"colour": "red"})])
        with connection.transaction() as transaction:
            transaction.send("/queue/all", "three")
        with connection.producer() as producer:
            producer.send("/queue/all", "four")
        for message in messages:
            if message.text == "two":
                connection.send("/queue/answers", "child")
            message.ack()
            if message.text == "four":
                break
        assert not trace.get_current_span().is_recording(), "leaving the loop ends the last span"
    spans = recorded.spans()
    made = [each for each in spans if each.kind is SpanKind.PRODUCER and each.parent is None]
    assert [each.name for each in made] == ["send /queue/all"] + 3 * ["create /queue/all"]
    processed = [each for each in spans if each.kind is SpanKind.CONSUMER]
    assert [each.name for each in processed] == 4 * ["process /queue/all"]
    assert all(map(linked, made, processed))
    (child,) = [each for each in spans if each.name == "send /queue/answers"]
    assert child.parent is not None and child.parent.span_id == processed[1].get_span_context().span_id


def test_receive_and_listen_make_spans_and_record_what_is_raised(broker: BrokerProcess, recorded: Recorded) -> None:
    with connect(broker.address, tracing=recorded.tracing) as connection:
        messages = connection.subscribe("/queue/listened", prefetch=1)
        with recorded.tracing.sending("/queue/listened") as headers:
            connection.send("/queue/listened", "1", headers)
        with pytest.raises(RuntimeError), messages.receive(timeout=10):
            raise RuntimeError("not now")
        assert messages.listen(lambda message: None, count=1) == 1
    sent, failed, done = recorded.spans()
    assert (failed.attributes or {})["error.type"] == "RuntimeError" and failed.status.status_code is StatusCode.ERROR
    assert linked(sent, failed) and linked(sent, done) and done.status.status_code is StatusCode.UNSET


def test_the_asyncio_client_makes_the_same_spans(broker: BrokerProcess, recorded: Recorded) -> None:
    async def main() -> None:
        async with aio.connect(broker.address, tracing=recorded.tracing) as client:
            await client.send("/queue/async", "one")
            await client.send_many([("/queue/async", "two")])
            async with client.transaction() as transaction:
                await transaction.send("/queue/async", "three")
            async with client.producer() as producer:
                await producer.send("/queue/async", "four")
            messages = client.subscribe("/queue/async", prefetch=10)
            async with messages.receive(timeout=10) as first:
                assert first is not None and first.text == "one"
            async for message in messages:
                assert trace.get_current_span().is_recording()
                await message.ack()
                if message.text == "four":
                    break
            assert not trace.get_current_span().is_recording()

    asyncio.run(main())
    spans = recorded.spans()
    made = [each for each in spans if each.kind is SpanKind.PRODUCER]
    processed = [each for each in spans if each.kind is SpanKind.CONSUMER]
    assert [each.name for each in made] == ["send /queue/async"] + 3 * ["create /queue/async"]
    assert len(processed) == 4 and all(map(linked, made, processed))
