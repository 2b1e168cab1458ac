"""Scripts that know nothing of one another talk through the private broker of a home."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import radiator.local
from radiator.client import Disconnected, ServerError
from radiator.local import HomeError
from radiator.local import home as homes
from radiator.local.channels import FETCHED_MAX, destination

WAIT_SECONDS = 30.0


@pytest.fixture
def home(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "h"
    yield str(path)
    until(lambda: not homes.listens(str(path)), "the broker of a home did not end")


def until(condition: object, words: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, words
        time.sleep(0.02)


def connect(home: str, idle: float = 0.3) -> radiator.local.Channels:
    return radiator.local.connect(home, idle=idle, timeout=WAIT_SECONDS)


def broker_pid(home: str) -> int:
    lines = (Path(home) / homes.LOG).read_text().splitlines()
    return int([line for line in lines if "started, process" in line][-1].rpartition(" ")[2])


def script(text: str, home: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "RADIATOR_HOME": home}
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, env=environment)


def test_two_unrelated_scripts_talk_without_any_set_up(home: str) -> None:
    listener = script(
        "import radiator.local\n"
        "with radiator.local.connect(idle=0.3) as channels:\n"
        "    for message in channels.subscribe('news.=', timeout=30):\n"
        "        print(message.destination, message.text)\n"
        "        break\n",
        home,
    )
    speaker = script(
        "import radiator.local, time\n"
        "with radiator.local.connect(idle=0.3) as channels:\n"
        "    while not channels.publish('news.sport', '1:0'):\n"
        "        time.sleep(0.01)\n",
        home,
    )
    assert listener.communicate(timeout=WAIT_SECONDS)[0] == "/topic/news.sport 1:0\n"
    assert speaker.wait(WAIT_SECONDS) == 0


def test_the_broker_ends_without_clients_and_the_next_has_its_messages(home: str) -> None:
    with connect(home) as channels:
        channels.publish("/queue/jobs", "one")
        first = broker_pid(home)
    until(lambda: not homes.listens(home), "the broker did not end")
    with connect(home) as channels:
        message = channels.fetch("/queue/jobs", timeout=WAIT_SECONDS)
        assert message is not None
        assert message.text == "one"
        assert broker_pid(home) != first


def test_a_broker_that_was_killed_is_replaced(home: str) -> None:
    with connect(home) as channels:
        channels.publish("/queue/jobs", "one")
        os.kill(broker_pid(home), signal.SIGKILL)
        until(lambda: channels._connection is not None and channels._connection.closed, "nobody noticed")
        message = channels.fetch("/queue/jobs", timeout=WAIT_SECONDS)
        assert message is not None
        assert message.text == "one"


def test_many_that_begin_at_once_share_one_broker(home: str) -> None:
    found: list[radiator.local.Channels] = []
    threads = [threading.Thread(target=lambda: found.append(connect(home, idle=2))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (Path(home) / homes.LOG).read_text().count("started, process") == 1
    taken = [found[0].connection.subscribe("/topic/all") for _ in found]
    assert found[-1].publish("all", "x") == len(taken)
    for channels in found:
        channels.close()


@pytest.mark.thorough
def test_a_client_that_comes_while_the_broker_ends_gets_the_next_one(home: str) -> None:
    """A broker that ends after almost no time, and several who come and go: every one of them is served."""
    faults: list[BaseException] = []

    def come_and_go() -> None:
        try:
            for _ in range(8):
                with connect(home, idle=0.02) as channels:
                    channels.publish("/queue/a", "x")
                time.sleep(0.03)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    with connect(home) as channels:
        got = 0
        while channels.fetch("/queue/a", timeout=0.5) is not None:
            got += 1
        assert got == 24


def test_channels_have_patterns_and_fetch_takes_what_has_come(home: str) -> None:
    assert destination("a.=.b") == "/topic/a.*.b"
    assert destination("a.+") == "/topic/a.*.#"
    assert destination("/queue/=") == "/queue/="
    with connect(home) as channels:
        assert channels.fetch("a.+") is None
        assert channels.publish("a.b.c", "1") == 1
        assert channels.publish("a", "2") == 0
        assert channels.publish("a.b", "3") == 1
        bodies = [channels.fetch("a.+", timeout=WAIT_SECONDS) for _ in range(2)]
        assert [message.text for message in bodies if message is not None] == ["1", "3"]
        assert channels.fetch("a.+") is None


def test_a_channel_not_fetched_from_for_long_gives_its_subscription_back(home: str) -> None:
    with connect(home) as channels:
        for number in range(FETCHED_MAX + 1):
            channels.fetch(f"c{number}")
        assert channels.publish("c0", "x") == 0
        assert channels.publish("c1", "x") == 1


def test_a_subscription_ends_when_nothing_comes_and_gives_back_what_was_in_hand(home: str) -> None:
    with connect(home) as channels:
        for body in ("one", "two"):
            channels.publish("/queue/jobs", body)
        assert [message.text for message in channels.subscribe("/queue/jobs", timeout=0.2)] == ["one", "two"]
        channels.publish("/queue/jobs", "three")
        with pytest.raises(KeyError), contextlib.closing(channels.subscribe("/queue/jobs", timeout=5)) as jobs:  # type: ignore[type-var]
            next(jobs)
            raise KeyError
        message = channels.fetch("/queue/jobs", timeout=WAIT_SECONDS)
        assert message is not None
        assert (message.text, message.delivery_count) == ("three", 2)


def test_a_call_is_answered_and_one_without_a_server_fails_at_once(home: str) -> None:
    with connect(home) as asking, connect(home) as answering:
        with pytest.raises(ServerError, match="no subscription matches"):
            asking.call("square", "7")
        questions = answering.subscribe("square", timeout=WAIT_SECONDS)
        worker = threading.Thread(target=lambda: next(questions).reply("49"))
        worker.start()
        assert asking.call("square", "7", timeout=WAIT_SECONDS).text == "49"  # the refusal has cost no more than a call
        worker.join()
        questions.close()  # type: ignore[attr-defined]


def test_what_was_closed_stays_closed(home: str) -> None:
    channels = connect(home)
    channels.close()
    channels.close()
    with pytest.raises(Disconnected):
        channels.publish("a", "x")


@pytest.mark.thorough
def test_a_configuration_in_the_home_is_used(home: str) -> None:
    os.mkdir(home, 0o700)
    (Path(home) / homes.CONFIG).write_text("destinations:\n  - {match: /queue/no, create: deny}\n")
    with connect(home) as channels, pytest.raises(ServerError, match="may not be created"):
        channels.publish("/queue/no", "x")


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir(mode=0o700)
    (home / homes.CONFIG).write_text("datadir: x\n")
    with pytest.raises(HomeError, match="did you mean data_dir"):
        connect(str(home))


def test_a_home_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(HomeError, match="0700"):
        connect(str(tmp_path))


def test_a_home_with_too_long_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match="too long"):
        connect(str(tmp_path / ("x" * 100)))


def test_the_home_is_the_users_and_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(homes.ENVIRONMENT, raising=False)
    monkeypatch.delenv(homes.RUNTIME, raising=False)
    assert homes.default_home().endswith(f"radiator-{os.getuid()}")
    monkeypatch.setenv(homes.RUNTIME, str(tmp_path))
    assert homes.default_home() == str(tmp_path / "radiator")
    monkeypatch.setenv(homes.ENVIRONMENT, "/somewhere")
    assert homes.default_home() == "/somewhere"


@pytest.mark.thorough
def test_files_of_a_home_are_the_users_alone(home: str) -> None:
    with connect(home):
        assert os.stat(home).st_mode & 0o777 == 0o700
        for name in (homes.SOCKET, homes.LOCK):
            assert os.stat(os.path.join(home, name)).st_mode & 0o777 == 0o600


@pytest.mark.thorough
def test_threads_that_fetch_from_one_channel_share_what_comes(home: str) -> None:
    with connect(home) as channels:
        for number in range(20):
            channels.publish("/queue/jobs", str(number))
        got: list[str] = []

        def take() -> None:
            while (message := channels.fetch("/queue/jobs", timeout=1)) is not None:
                got.append(message.text)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(map(int, got)) == list(range(20))


@pytest.mark.thorough
def test_a_broker_that_gets_sigterm_is_replaced_without_an_error(home: str) -> None:
    with connect(home, idle=5) as channels:
        for number in range(5):
            pid = broker_pid(home)
            os.kill(pid, signal.SIGTERM)
            until(lambda: channels._connection is not None and channels._connection.closed, "nobody noticed")
            assert channels.publish("/queue/a", str(number)) == 0
            assert broker_pid(home) != pid
    os.kill(broker_pid(home), signal.SIGTERM)


@pytest.mark.thorough
def test_a_starter_that_is_killed_leaves_a_broker_for_the_next(home: str) -> None:
    for _ in range(3):
        starter = script("import radiator.local\nradiator.local.connect(idle=0.3)\n", home)
        time.sleep(0.25)  # somewhere in the middle of it
        starter.kill()
        starter.wait()
        with connect(home) as channels:
            channels.publish("/queue/a", "x")


def test_no_idle_time_at_all_is_time_enough_to_connect(home: str) -> None:
    with connect(home, idle=0) as channels:
        assert channels.publish("a", "x") == 0


# --- a broker that is killed while it is used -------------------------------------------------------------------------


def kill(home: str) -> None:
    os.kill(broker_pid(home), signal.SIGKILL)
    until(lambda: not homes.listens(home), "the broker was not killed")


@pytest.mark.thorough
def test_a_message_is_published_once_though_the_broker_is_killed_before_and_while_it_is_sent(home: str) -> None:
    with connect(home) as channels:
        channels.publish("/queue/jobs", "1")
        kill(home)
        channels.publish("/queue/jobs", "2")
        stop = threading.Event()

        def killing() -> None:
            while not stop.is_set():
                with contextlib.suppress(ProcessLookupError, IndexError):
                    os.kill(broker_pid(home), signal.SIGKILL)
                stop.wait(0.7)

        thread = threading.Thread(target=killing)
        thread.start()
        try:
            for number in range(3, 30):
                channels.publish("/queue/jobs", str(number))
                stop.wait(0.02)
        finally:
            stop.set()
            thread.join()
        seen = []
        while (message := channels.fetch("/queue/jobs", timeout=1.0)) is not None:
            seen.append(message.text)
        assert seen == [str(number) for number in range(1, 30)]


def test_an_identity_of_the_callers_own_stays_as_it_is(home: str) -> None:
    with connect(home) as channels:
        channels.publish("/queue/jobs", "a", {"dedup-id": "one"})
        channels.publish("/queue/jobs", "b", {"dedup-id": "one"})
        channels.publish("/queue/jobs", "c", {"producer-id": "p", "sequence": "1"})
        first, second = channels.fetch("/queue/jobs", timeout=5), channels.fetch("/queue/jobs", timeout=5)
        assert first is not None and second is not None
        assert [first.text, second.text] == ["a", "c"] and "dedup-id" not in second.headers


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["subscribe", "fetch"])
@pytest.mark.parametrize("name", ["/queue/jobs", "news"])
def test_a_waiting_client_goes_on_with_the_next_broker(home: str, way: str, name: str) -> None:
    taken = []
    with connect(home) as waiting, connect(home) as sending:
        if way == "subscribe":
            messages = waiting.subscribe(name, timeout=WAIT_SECONDS)
            take = lambda: next(messages)  # noqa: E731
        else:
            take = lambda: waiting.fetch(name, timeout=WAIT_SECONDS)  # noqa: E731
            assert waiting.fetch(name) is None
        thread = threading.Thread(target=lambda: taken.append(take()))
        thread.start()
        kill(home)
        deadline = time.monotonic() + WAIT_SECONDS
        while not taken and time.monotonic() < deadline:
            sending.publish(name, "after")
            thread.join(0.05)
        thread.join()
        assert [message.text for message in taken] == ["after"]


def test_a_close_ends_a_wait(home: str) -> None:
    channels = connect(home)
    raised = []

    def wait() -> None:
        try:
            channels.fetch("/queue/jobs", timeout=WAIT_SECONDS)
        except Disconnected as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: channels._fetching, "nobody waits")
    channels.close()
    thread.join(WAIT_SECONDS)
    assert raised
