"""The services of a broker over its core: durable subscriptions, destination creation, returned messages, access.

The handlers of frames (``frames``) and the admin channel (``admin``) take a ``Services``. ``broker.Broker`` is one.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from radiator.broker.access import Access
from radiator.broker.core import Core
from radiator.broker.destination_creation import DestinationCreation
from radiator.broker.durable.declared import Declarations
from radiator.broker.durable.orphaned_partitions import OrphanedPartitions
from radiator.broker.durable.subscriptions import DurableSubscriptions
from radiator.broker.maintenance_run import MaintenanceRun
from radiator.broker.monitoring.monitor import Monitor
from radiator.broker.outcomes.dead_letters import DeadLetters
from radiator.broker.outcomes.delivery_log import DeliveryLog
from radiator.broker.outcomes.dropped import DroppedLog
from radiator.broker.outcomes.redelivery import Returns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from radiator.broker.clients.session import Session
    from radiator.broker.reload import Reloader
    from radiator.broker.rule_hooks import RuleHooks
    from radiator.routing.rules import Rules
    from radiator.storage.store import Store


class Services(Core):
    """The core of a broker with its services. The arguments are those of ``Core``."""

    def __init__(
        self,
        rules: Rules,
        store: Store,
        wake: Callable[[Session], None],
        *,
        hooks: Mapping[int, RuleHooks] = MappingProxyType({}),
        late: Callable[[], bool] = bool,
    ) -> None:
        super().__init__(rules, store, wake, hooks, late)
        self.durable = DurableSubscriptions(self)
        self.creation = DestinationCreation(self, self.durable)
        dropped = DroppedLog(self.peer_log, self.timing)
        self.delivery_log = DeliveryLog(self, self.creation.receiver)
        self.dead_letters = DeadLetters(self, self.creation.receiver, dropped, self.delivery_log)
        self.returns = Returns(self, self.dead_letters, dropped)
        self.timing.decide_by(self.returns)
        self.access = Access(self, self.durable)
        self.maintenance_run = MaintenanceRun(self)
        self.registry.listen(self.creation.created, self.creation.priority_opened)
        self.durable.load()
        self.registry.revive()
        self.durable.loaded()
        self.idle.restart()
        self.orphaned = OrphanedPartitions(self, self.durable)
        self.monitor = Monitor(self, self.durable)
        self.declarations = Declarations(self, self.durable)
        self.reloader: Reloader | None = None

    def use_reloader(self, reloader: Reloader) -> None:
        """Let ``reloader`` reload the configuration when a client asks for it."""
        self.reloader = reloader
