"""Send requests and replies over queues, with radiator.client: a service, and many requests at once.

    python examples/request_reply.py [--url HOST:PORT]

Replies come through a private ``/temp-queue/``, and the client matches each reply with its request. Two services share
the queue of requests. A request without a reply in time is an error, and its late reply is dropped.
"""

from __future__ import annotations

import argparse
import threading
from concurrent.futures import ThreadPoolExecutor

from radiator.client import ClientError, Connection, Message, TimedOut, connect

QUEUE = "/queue/prime"


def is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def answer(question: Message) -> None:
    question.reply("yes" if is_prime(int(question.text)) else "no")


def serve(connection: Connection) -> None:
    try:
        connection.subscribe(QUEUE, prefetch=20).listen(answer)
    except ClientError:
        pass  # the connection was closed: the service ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="127.0.0.1:61613")
    options = parser.parse_args()

    with connect(options.url) as client:
        services = [connect(options.url) for _ in range(2)]
        threads = [threading.Thread(target=serve, args=(service,)) for service in services]
        for thread in threads:
            thread.start()
        with ThreadPoolExecutor(10) as pool:
            replies = list(pool.map(lambda n: client.request(QUEUE, str(n), timeout=30).text, range(100)))
        for service in services:
            service.close()
        for thread in threads:
            thread.join()
        primes = [number for number, reply in enumerate(replies) if reply == "yes"]
        assert len(primes) == 25, primes
        print("primes below 100:", *primes)
        try:
            client.request("/queue/nobody-serves-this", "?", timeout=0.2)
        except TimedOut as error:
            print("and as it should be:", error)


if __name__ == "__main__":
    main()
