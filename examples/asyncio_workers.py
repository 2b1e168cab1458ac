"""Produce and consume in one event loop, with radiator.client.aio, over connections that come back when they are lost.

    python examples/asyncio_workers.py [--url HOST:PORT[,HOST:PORT...]]

A producer sends jobs in the background. Three workers share the queue and acknowledge each job when its result is
stored. Restart the broker meanwhile: the program continues, and each job and each result is stored once.
"""

from __future__ import annotations

import argparse
import asyncio

from radiator.client import Reconnect, StaleDelivery
from radiator.client.aio import Client, connect

JOBS, RESULTS, COUNT = "/queue/squares", "/queue/results", 300


async def produce(client: Client) -> None:
    async with client.producer() as producer:
        for number in range(COUNT):
            await producer.send(JOBS, str(number))


async def work(client: Client, done: set[int]) -> None:
    async with client.subscribe(JOBS, prefetch=10) as jobs:
        while len(done) < COUNT:
            message = await jobs.fetch(timeout=0.2)
            if message is None:
                continue
            number = int(message.text)
            await client.send(RESULTS, str(number**2), dedup_id=f"square-{message.id}")
            try:
                await message.ack()
            except StaleDelivery:
                continue  # the connection was lost: the job comes again, and its result is stored once
            done.add(number)


async def run(url: str) -> None:
    done: set[int] = set()
    async with connect(url, reconnect=Reconnect(timeout=60.0)) as client:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce(client))
            for _ in range(3):
                tasks.create_task(work(client, done))
        results = client.subscribe(RESULTS, browser=True)
        total = sum([int(message.text) async for message in results])
    assert total == sum(number**2 for number in range(COUNT)), total
    print(f"{len(done)} jobs done, the sum of their squares is {total}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="127.0.0.1:61613")
    asyncio.run(run(parser.parse_args().url))


if __name__ == "__main__":
    main()
