"""Spans of OpenTelemetry for producers and consumers.

``connect(tracing=Tracing())`` of both clients makes all spans. A program that wants only some uses the context managers
around what it sends and what it processes. They work with blocking and with asynchronous code. The context of the
producer's span travels in the headers ``traceparent`` and ``tracestate``, which every broker and client passes on.

It needs the extra ``otel`` (``opentelemetry-api``). Without an SDK in the program the spans are not recorded.

Source: https://www.w3.org/TR/trace-context/ and OpenTelemetry's "Semantic conventions for messaging spans".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from radiator import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.util.types import AttributeValue

    from radiator.client.contents import MessageView
    from radiator.client.sending import Headers, Sendable

SYSTEM: Final = "radiator"
TEMPORARY: Final = "/temp-"
TEMPORARY_NAME: Final = "(temporary)"  # in the names of spans, which must be few


class Tracing:
    """Makes the spans of one program.

    Args:
        provider: The tracer provider; by default the global one.
        propagator: Writes and reads the context in headers; by default that of W3C.
    """

    def __init__(self, provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None) -> None:
        self._tracer = trace.get_tracer("radiator.client", __version__, provider)
        self._propagator = propagator or TraceContextTextMapPropagator()

    @contextmanager
    def sending(self, destination: str, headers: Headers | None = None, *, count: int = 1) -> Iterator[dict[str, str]]:
        """Make a producer's span around sending messages, as a context manager.

        The span ends with the block, so a block that waits for the receipt measures it. An exception is recorded.

        Args:
            destination: The destination.
            headers: The headers of the messages.
            count: The number of messages that get the headers.

        Yields:
            The headers to send: the given ones, and the context of the span.
        """
        attributes: dict[str, AttributeValue] = {}
        if count != 1:
            attributes["messaging.batch.message_count"] = count
        found = {name: str(value) for name, value in (headers or {}).items()}
        with self._span("send", destination, SpanKind.PRODUCER, attributes, None, None):
            self._propagator.inject(found)
            yield found

    def has_context(self, headers: Headers | None) -> bool:
        """Return True if a message has the context of a span already.

        Args:
            headers: The headers of the message.
        """
        return bool(headers) and not self._propagator.fields.isdisjoint(headers or ())

    def create(self, destination: str, headers: Headers | None) -> Headers | None:
        """Make a producer's span of a message that is sent later or with others, and return its headers.

        The span ends at once. A message that has the context of a span already gets no other one.

        Args:
            destination: The destination.
            headers: The headers of the message.

        Returns:
            The headers to send: the given ones, and the context of the span.
        """
        if self.has_context(headers):
            return headers
        found = {name: str(value) for name, value in (headers or {}).items()}
        with self._span("create", destination, SpanKind.PRODUCER, {}, None, None):
            self._propagator.inject(found)
        return found

    def created(self, messages: Iterable[Sendable]) -> list[Sendable]:
        """Return messages with the contexts of their spans (``create``).

        Args:
            messages: The messages.
        """
        return [(each[0], each[1], self.create(each[0], each[2] if len(each) > 2 else None)) for each in messages]

    @contextmanager
    def processing(self, message: MessageView) -> Iterator[Span]:
        """Make a consumer's span around processing a message, as a context manager.

        The span has a link to the producer's span. That is its parent too, unless a span is active already. An
        exception is recorded; the caller decides between ACK and NACK as without spans.

        Args:
            message: The message.

        Yields:
            The span.
        """
        headers = message.headers
        context = self._propagator.extract(headers)
        remote = trace.get_current_span(context).get_span_context()
        destination = headers.get("destination", "")
        attributes: dict[str, AttributeValue] = {"messaging.message.body.size": len(message.body)}
        for attribute, header in _OF_HEADERS.items():
            if header in headers:
                attributes[attribute] = headers[header]
        active = trace.get_current_span().get_span_context().is_valid
        link = Link(remote) if remote.is_valid else None
        parent = None if active else context
        with self._span("process", destination, SpanKind.CONSUMER, attributes, parent, link) as span:
            yield span

    @contextmanager
    def _span(
        self,
        operation: str,
        destination: str,
        kind: SpanKind,
        attributes: dict[str, AttributeValue],
        parent: Context | None,
        link: Link | None,
    ) -> Iterator[Span]:
        temporary = destination.startswith(TEMPORARY)
        attributes |= {
            "messaging.system": SYSTEM,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": destination,
        }
        if temporary:
            attributes["messaging.destination.temporary"] = True
        name = f"{operation} {TEMPORARY_NAME if temporary else destination}"
        with self._tracer.start_as_current_span(name, parent, kind, attributes, [] if link is None else [link]) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise


class Loop:
    """The consumer's span of the message that a loop processes. It is active until ``end``, or until the loop is left.

    Args:
        tracing: Makes the spans.
    """

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._active = ExitStack()

    def begin(self, message: MessageView) -> None:
        """Begin the span of a message, after the end of the one before.

        Args:
            message: The message.
        """
        self._active.enter_context(self._tracing.processing(message))

    def end(self) -> None:
        """End the span, if one is active."""
        self._active.close()

    def __del__(self) -> None:
        self._active.close()


_OF_HEADERS: Final = {
    "messaging.message.id": "message-id",
    "messaging.message.conversation_id": "correlation-id",
    "messaging.destination.partition.id": "partition",
}
