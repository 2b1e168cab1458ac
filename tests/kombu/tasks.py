"""An application of Celery whose tasks write down that they ran, a line each, for the tests to read."""

from __future__ import annotations

import os
import time

from celery import Celery

import radiator.kombu  # noqa: F401 - makes the transport known

app = Celery("tasks", broker=os.environ["BROKER"], backend="rpc://")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=2,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"timeout": 10.0},
    worker_cancel_long_running_tasks_on_connection_loss=False,
)


@app.task(name="note")  # type: ignore[untyped-decorator]
def note(number: int) -> int:
    time.sleep(0.02)
    with open(os.environ["NOTES"], "a", encoding="utf-8") as file:
        file.write(f"{number}\n")
    return number * number
