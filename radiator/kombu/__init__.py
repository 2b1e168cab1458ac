"""A transport for kombu, and so for Celery: queues of tasks that radiator keeps.

    import radiator.kombu
    from celery import Celery

    app = Celery("tasks", broker="radiator://127.0.0.1:61613//")

Importing this module tells kombu the name ``radiator`` (and ``radiator+tls``). Where nothing can be imported first, the
name ``radiator.kombu.transport://127.0.0.1:61613//`` does as well. ``docs/celery.md`` is the guide. The parts: ``link``
(the connection, subscriptions and bindings) and ``virtual`` (what kombu calls).
"""

from kombu.transport import TRANSPORT_ALIASES

from radiator.kombu.virtual import Transport

NAME = "radiator"

transport = Transport
TRANSPORT_ALIASES[NAME] = TRANSPORT_ALIASES[f"{NAME}+tls"] = f"{__name__}:Transport"

__all__ = ["Transport", "transport"]
