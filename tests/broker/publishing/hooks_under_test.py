"""Middleware that the tests' rules name."""

from __future__ import annotations

from radiator.middleware import DROP, Message, Reject


def stamp(message: Message) -> object:
    message.headers["tag-seen"] = f"{message.user or 'nobody'} {message.destination}"
    return message


def upper(message: Message) -> object:
    message.body = message.body.upper()
    return message


def drop_empty(message: Message) -> object:
    return message if message.body else DROP


def refuse_secrets(message: Message) -> object:
    if b"secret" in message.body:
        raise Reject("No secrets here:\nexpected a body without them.")
    return message


def by_carrier(message: Message) -> object:
    message.destination = f"/topic/carrier.{message.headers.get('carrier', 'none')}"
    return message


def ping(message: Message) -> object:
    message.destination = "/topic/pong"
    return message


def pong(message: Message) -> object:
    message.destination = "/topic/ping"
    return message


def asks_the_broker(message: Message) -> object:
    message.destination = "/radiator/admin"
    return message


def breaks(message: Message) -> object:
    raise ZeroDivisionError(message.destination)


class Strange(BaseException):
    """No Exception, as a time-out of gevent is none."""


def ends_the_process(message: Message) -> object:
    kinds = {b"exit": SystemExit(3), b"interrupt": KeyboardInterrupt(), b"generator": GeneratorExit()}
    raise kinds.get(message.body, Strange("whatever"))


def forgets_to_return(message: Message) -> object:
    return None


def puts_numbers(message: Message) -> object:
    message.headers["count"] = 3  # type: ignore[assignment]
    return message


def inflates(message: Message) -> object:
    message.body *= 1000
    return message


not_a_function = 3
