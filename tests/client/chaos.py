"""Real trouble between a client and a real broker: a broker that is killed again and again, and a cutting proxy."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator

from tests.running import BrokerProcess


@contextlib.contextmanager
def killing(broker: BrokerProcess, times: int, seconds: float) -> Iterator[threading.Event]:
    """Kill and start the broker while the block runs; the event is set when it was killed often enough."""
    done = threading.Event()
    stop = threading.Event()
    problems: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(times):
                if stop.wait(seconds):
                    break
                broker.kill()
                broker.start()
        except BaseException as problem:
            problems.append(problem)
        finally:
            done.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join(60)
        assert not problems, problems


class CuttingProxy:
    """Passes bytes between clients and a broker, and cuts each connection after a random number of bytes."""

    def __init__(self, port: int, seed: int, bytes_max: int) -> None:
        self.cuts = 0
        self.calm = False  # cuts no more
        self._port = port
        self._random = random.Random(seed)
        self._bytes_max = bytes_max
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._port))
            self._open |= {client, broker}
            left = [self._random.randrange(self._bytes_max), self._random.randrange(self._bytes_max)]
            for pair, allowed in (((client, broker), left[0]), ((broker, client), left[1])):
                threading.Thread(target=self._pass, args=(*pair, allowed), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, allowed: int) -> None:
        try:
            while data := source.recv(65536):
                if not self.calm and len(data) > allowed:
                    target.sendall(data[:allowed])
                    self.cuts += 1
                    break
                allowed -= len(data)
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        for each in self._open:
            each.close()
