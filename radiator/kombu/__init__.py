"""A kombu transport, and so a Celery broker: task queues that radiator stores.

Example:
    With a broker on 127.0.0.1:61613::

        import radiator.kombu
        from celery import Celery

        app = Celery("tasks", broker="radiator://127.0.0.1:61613//")

Importing this module registers the names ``radiator`` and ``radiator+tls`` with kombu. Without an import, use the name
``radiator.kombu.transport://127.0.0.1:61613//``. ``docs/celery.md`` is the guide. The modules: ``link`` (connection,
subscriptions and bindings) and ``virtual`` (the classes that kombu calls).
"""

from kombu.transport import TRANSPORT_ALIASES

from radiator.kombu.virtual import Transport

NAME = "radiator"

transport = Transport
TRANSPORT_ALIASES[NAME] = TRANSPORT_ALIASES[f"{NAME}+tls"] = f"{__name__}:Transport"

__all__ = ["Transport", "transport"]
