"""The pages of the console in a real Chromium, with a real broker: full, empty, without rights, with hostile data."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from radiator.client import Connection, ServerError, connect
from tests.console.browser import Browser
from tests.console.served import PASSCODE, Served

pytestmark = pytest.mark.thorough

PAGES = {
    "overview": "Overview",
    "destinations": "Destinations",
    "messages": "Messages",
    "letters": "Dead letters",
    "clients": "Consumers and connections",
    "actions": "Actions",
}
RULES = """
destinations:
  - {match: /queue/jobs.>, dead_letter: /queue/dead, redeliver: {max: 1, delay: 0ms}}
"""
SCRIPT = "<img src=x onerror='document.title=1'><script>document.title=1</script>"
TURNED = "abc\u202edef\u2066ghi\u200b"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    driven = Browser()
    yield driven
    driven.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    broker = Served(tmp_path_factory.mktemp("served"), RULES)
    broker.start()
    broker.fill(
        {
            "/topic/flights": [json.dumps({"flight": number}).encode() for number in range(120)],
            "/queue/orders": [b"plain text", b'{"a": {"b": [1, 2]}}', bytes(range(256)), b""],
        },
        origin="JFK",
    )
    yield broker
    assert broker.stop() == 0, broker.text()


@pytest.fixture(scope="module")
def with_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    broker = Served(tmp_path_factory.mktemp("users"), RULES, users=True)
    broker.start()
    broker.fill({"/queue/orders": [b"for the eyes of readers"]})
    yield broker
    assert broker.stop() == 0, broker.text()


@pytest.fixture(autouse=True)
def no_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves an error in the console of the browser: neither of a script, nor of the policy."""
    yield
    driven: Browser = request.getfixturevalue("browser")
    driven.window(1600, 1000)
    assert driven.faults() == []


@pytest.fixture
def letters(served: Served) -> Iterator[Callable[[int, str], None]]:
    """``letters(count, queue)`` makes dead letters out of messages of that queue."""
    with served.connect() as client:

        def make(count: int, queue: str) -> None:
            for number in range(count):
                client.send(queue, f"job {number}".encode(), {"kind": "job"})
            with client.subscribe(queue, ack="client-individual", prefetch=count) as inbox:
                for _ in range(count):
                    message = inbox.fetch(10)
                    assert message is not None
                    message.reject(receipt=True)

        yield make


def drain(client: Connection, queue: str) -> list[bytes]:
    return [message.body for message in client.subscribe(queue, headers={"browser": "true"})]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1600])
def test_each_page_fits_the_window(browser: Browser, served: Served, width: int, dark: bool) -> None:
    browser.window(width, 900, dark=dark)
    more = {
        "messages": "?d=/queue/orders&from=first",
        "destinations": "?name=/queue/orders",
        "clients": "?view=durable",
    }
    for page, title in PAGES.items():
        for query in {"", more.get(page, "")}:
            browser.open(f"{served.url}#/{page}{query}")
            browser.see(title)
            browser.until(lambda: "Loading" not in browser.text and "Connecting" not in browser.text, "expected data")
            assert browser.overflow() <= 0, (page, query)
    background = browser.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background.strip("rgb()").split(","))) < 200) is dark


def test_the_number_of_destinations_on_the_overview_says_that_it_has_temporary_queues(
    browser: Browser, served: Served
) -> None:
    browser.open(f"{served.url}#/overview")
    browser.see("with temporary queues")  # the page has one itself, and the list of destinations does not show it


def test_the_choice_of_colours_lasts(browser: Browser, served: Served) -> None:
    from selenium.webdriver.support.ui import Select

    browser.open(served.url)
    Select(browser.find(".theme select")).select_by_value("dark")
    browser.open(served.url)
    browser.find("html[data-theme=dark]")
    Select(browser.find(".theme select")).select_by_value("auto")
    browser.until(lambda: browser.count("html[data-theme]") == 0, "expected the colours of the system")


def test_an_empty_broker_has_pages_that_say_so(browser: Browser, tmp_path: Path) -> None:
    broker = Served(tmp_path)
    broker.start()
    try:
        for page, text in {
            "overview": "No problems.",
            "destinations": "There are no destinations yet.",
            "messages": "Name a destination to read its messages.",
            "letters": "No rule names a dead-letter queue that exists.",
            "clients": "127.0.0.1",
            "clients?view=durable": "There are none on this page.",
            "messages?d=/topic/none": "No messages.",
        }.items():
            browser.open(f"{broker.url}#/{page}")
            browser.see(text)
    finally:
        assert broker.stop() == 0, broker.text()


def test_a_user_logs_in_and_out(browser: Browser, with_users: Served) -> None:
    browser.log_in(with_users.url, "root", "wrong")
    browser.until(lambda: browser.count("[role=alert]") == 1, "expected the reason")
    browser.type("Login", "root")
    browser.type("Passcode", PASSCODE)
    browser.press("Log in")
    browser.see("Overview", "root")
    browser.press("Log out")
    browser.see("Log in with a user of this broker.")
    browser.open(with_users.url)
    browser.see("Log in with a user of this broker.")


def test_a_login_is_optional_where_the_broker_has_no_users(browser: Browser, served: Served) -> None:
    browser.open(served.url)
    browser.see("no login", "Problems")
    browser.press("Log in")
    browser.see("Log in with a user of this broker.")
    browser.press("Continue without a login")
    browser.see("Problems")


def test_the_right_monitor_shows_numbers_and_changes_nothing(browser: Browser, with_users: Served) -> None:
    browser.log_in(f"{with_users.url}#/destinations", "watcher", PASSCODE)
    browser.press("/queue/orders")
    browser.see("Consumers", "Storage")
    assert not {"Pause", "Purge"} & set(browser.buttons())
    browser.press("Consumers and connections")
    browser.see("watcher")
    assert "Disconnect" not in browser.buttons()
    browser.press("Actions")
    browser.see("this user may change nothing")
    browser.press("Destinations")
    browser.press("/queue/orders")
    browser.press("Messages", "main")
    browser.see("Not permitted")
    assert "for the eyes of readers" not in browser.text


def test_a_user_without_the_right_monitor_may_still_publish(browser: Browser, with_users: Served) -> None:
    browser.log_in(f"{with_users.url}#/overview", "worker", PASSCODE)
    for title in ("Overview", "Destinations", "Dead letters", "Consumers and connections"):
        browser.press(title, "nav")
        browser.until(lambda title=title: browser.find("main h1").text == title, f"expected the page {title}")
        browser.see("Not permitted")
    browser.press("Messages", "nav")
    browser.press("Publish a message")
    browser.type("Destination", "/queue/worker", ".publish")
    browser.press("Publish")
    browser.see("Stored at the offset 0")
    browser.type("Destination", "/topic/forbidden", ".publish")
    browser.press("Publish")
    browser.see("Not permitted")


def test_destinations_are_searched_sorted_and_paged_by_the_broker(browser: Browser, served: Served) -> None:
    served.fill({f"/queue/many.{number:03d}": [b"x"] * (1 + (number == 77)) for number in range(120)})
    browser.open(f"{served.url}#/destinations")
    browser.type("Search", "many.")
    browser.see("120 destinations, page 1 of 3")
    browser.press("Next")
    browser.see("page 2 of 3", "/queue/many.050")
    browser.press("Ready")
    browser.until(lambda: browser.find("tbody tr td a").text == "/queue/many.077", "expected the longest queue first")
    assert browser.find("th[aria-sort]").get_attribute("aria-sort") == "descending"
    browser.driver.back()
    browser.see("page 2 of 3")
    browser.press("/queue/many.050")
    browser.see("Oldest message", "Nobody is subscribed.")


def test_a_body_is_shown_as_text_as_json_and_as_bytes(browser: Browser, served: Served) -> None:
    browser.open(f"{served.url}#/messages?d=/queue/orders&from=first")
    browser.see("4 messages", "plain text")
    rows = browser.driver.find_elements("css selector", "button.row")
    rows[1].click()
    browser.until(lambda: '"b": [\n' in browser.find("pre.body").text, "expected pretty JSON")
    browser.press("Hex")
    browser.until(lambda: browser.find("pre.body").text.startswith("000000  7b 22 61"), "expected bytes")
    rows[2].click()
    browser.until(lambda: "256 B" in browser.find(".message").text, "expected the third message")
    assert [text for text in browser.buttons(".message") if text in ("Text", "JSON", "Hex")] == ["Hex"]
    assert "JFK" in browser.find(".message table").text
    with served.connect() as client:
        assert len(drain(client, "/queue/orders")) == 4, "nothing was consumed"


def test_messages_are_read_from_any_position(browser: Browser, served: Served) -> None:
    topic = f"{served.url}#/messages?d=/topic/flights"
    browser.open(f"{topic}&from=first")
    browser.see("50 messages, and more")
    browser.press("50 more")
    browser.see("100 messages, and more")
    browser.press("50 more")
    browser.see("120 messages")
    assert "and more" not in browser.text
    for query, text in {
        "from=last&value=3": "3 messages",
        "from=offset&value=110": "10 messages",
        "from=ago&value=1h&selector=origin%20%3D%20'LGA'": "No messages.",
        "from=time&value=2001-01-01T00:00:00Z": "50 messages, and more",
        "from=last&value=bad": "Failed",
        "from=first&selector=%3D": "Failed",
    }.items():
        browser.open(f"{topic}&{query}")
        browser.see(text)


def test_new_messages_are_followed_and_can_be_paused(browser: Browser, served: Served) -> None:
    browser.open(f"{served.url}#/messages?d=/queue/live&live=true")
    browser.see("Waiting for new messages.")
    browser.until(lambda: subscribed(served, "/queue/live"), "expected a subscription")
    served.fill({"/queue/live": [b"first of the day"]})
    browser.see("first of the day", "following")
    browser.press("Pause")
    served.fill({"/queue/live": [b"second", b"third"]})
    browser.see("paused, 2 new")
    assert "third" not in browser.text
    browser.press("Show 2 new")
    browser.see("third", "second", "following")
    with served.connect() as client:
        assert len(drain(client, "/queue/live")) == 3, "nothing was consumed"


def test_a_message_is_published(browser: Browser, served: Served) -> None:
    browser.open(f"{served.url}#/messages")
    browser.press("Publish a message")
    browser.type("Destination", "/queue/published", ".publish")
    browser.type("Headers, a line each", "colour: red\nsize:7", ".publish")
    browser.type("Body", "grüße", ".publish")
    browser.press("Publish")
    browser.see("Stored at the offset 0")
    with served.connect() as client:
        (message,) = client.subscribe("/queue/published", headers={"browser": "true"})
        assert message.body == "grüße".encode()
        assert (message.headers["colour"], message.headers["size"]) == ("red", "7")
    assert served.logs("radiator.audit", 'SEND {"destination": "/queue/published", "bytes": 7}: ok')


def test_a_range_is_downloaded_as_lines_of_json(browser: Browser, served: Served, tmp_path: Path) -> None:
    behaviour = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    browser.open(f"{served.url}#/messages?d=/topic/flights&from=first")
    browser.press("Download …")
    browser.type("At most", "60", "dialog")
    browser.press("Download", "dialog")
    browser.see("60 messages; there are more.")
    path = tmp_path / "_topic_flights.jsonl"
    browser.until(path.exists, "expected the file")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["offset"] for line in lines] == list(range(60))
    assert json.loads(lines[7]["body"]) == {"flight": 7}


def test_dead_letters_are_sent_back_and_dropped(
    browser: Browser, served: Served, letters: Callable[[int, str], None]
) -> None:
    letters(5, "/queue/jobs.a")
    letters(3, "/queue/jobs.b")
    browser.open(f"{served.url}#/letters")
    browser.press("/queue/dead")
    browser.see("8 messages", "rejected", "/queue/jobs.a", "/queue/jobs.b")
    browser.find("tbody input[type=checkbox]").click()
    browser.press("Send back the selected 1 …")
    browser.press("Send back", "dialog")
    browser.see("1 message was sent back.")
    browser.press("Close", "dialog")
    browser.see("7 messages")
    with served.connect() as client:
        assert drain(client, "/queue/jobs.a") == [b"job 0"]
    browser.open(f"{served.url}#/letters?queue=/queue/dead&reason=rejected&origin=/queue/jobs.b")
    browser.press("Drop all 3 …")
    browser.press("Drop", "dialog")
    browser.see("3 messages were dropped.")
    browser.press("Close", "dialog")
    browser.see("4 messages")
    browser.press("Show all reasons")
    browser.press("Send back all 4 …")
    browser.press("Send back", "dialog")
    browser.see("4 messages were sent back.")
    browser.press("Close", "dialog")
    browser.see("The queue is empty.")
    with served.connect() as client:
        assert sorted(drain(client, "/queue/jobs.a")) == [f"job {number}".encode() for number in range(5)]
        headers = next(iter(client.subscribe("/queue/jobs.a", headers={"browser": "true"}))).headers
        assert headers["kind"] == "job" and "dlq-reason" not in headers
    assert served.logs("radiator.audit", 'COMMIT {"sent": ["1 /queue/jobs.a"], "acknowledged": ["1 /queue/dead"]}: ok')
    assert served.logs("radiator.audit", 'COMMIT {"acknowledged": ["3 /queue/dead"]}: ok')


def test_a_client_is_disconnected(browser: Browser, served: Served) -> None:
    with served.connect() as client, client.subscribe("/queue/held", ack="client-individual", prefetch=7):
        client.send("/queue/held", b"held")
        browser.open(f"{served.url}#/clients")
        own = next(
            row["session"]
            for row in served.ask("clients.ls")["clients"]
            if any(each["destination"] == "/queue/held" for each in row["subscriptions"])
        )
        browser.press(own)
        browser.see("/queue/held", "window")
        browser.press("Disconnect")
        browser.press("Disconnect", "dialog")
        browser.see("The client is disconnected.")
    assert all(row["session"] != own for row in served.ask("clients.ls")["clients"])
    assert served.logs("radiator.audit", "clients.disconnect")


def test_the_cursor_of_a_group_is_moved_reset_and_deleted(browser: Browser, served: Served) -> None:
    with served.connect() as client:
        with client.subscribe("/topic/flights", ack="client", headers={"group": "workers", "start-position": "first"}):
            pass
    browser.open(f"{served.url}#/clients?view=durable")
    browser.see("group:workers")

    def lag() -> int:
        return int(served.ask("cursors.ls", match="workers")["cursors"][0]["lag"])

    browser.press("Move")
    browser.type("Position", "last:20", "dialog")
    browser.press("Move", "dialog")
    browser.see("The cursor is moved.")
    browser.press("Close", "dialog")
    assert lag() == 20
    browser.press("Reset")
    browser.press("Reset", "dialog")
    browser.see("The cursor is at the end.")
    browser.press("Close", "dialog")
    assert lag() == 0
    browser.press("Pause")
    browser.press("Pause", "dialog")
    browser.see("The queue is paused.")
    browser.press("Close", "dialog")
    browser.see("paused")
    browser.press("Resume")
    browser.press("Resume", "dialog")
    browser.see("The queue is resumed.")
    browser.press("Close", "dialog")
    browser.press("Delete")
    assert not browser.button("Delete", "dialog").is_enabled()
    browser.type("Type group:workers to confirm", "group:workers", "dialog")
    browser.press("Delete", "dialog")
    browser.see("The cursor is deleted.")
    browser.press("Close", "dialog")
    browser.see("There are none on this page.")


def test_a_queue_is_purged_only_after_its_name_is_typed(browser: Browser, served: Served) -> None:
    served.fill({"/queue/old": [b"x"] * 5})
    browser.open(f"{served.url}#/destinations?name=/queue/old")
    browser.press("Purge")
    assert not browser.button("Purge", "dialog").is_enabled()
    browser.type("Type /queue/old to confirm", "/queue/old", "dialog")
    browser.press("Purge", "dialog")
    browser.see("5 messages were purged.")
    with served.connect() as client:
        assert drain(client, "/queue/old") == []


def test_a_queue_is_paused_and_resumed(browser: Browser, served: Served) -> None:
    served.fill({"/queue/slow": [b"x"]})
    browser.open(f"{served.url}#/destinations?name=/queue/slow")
    browser.press("Pause")
    browser.press("Pause", "dialog")
    browser.see("The queue is paused.")
    browser.press("Close", "dialog")
    browser.see("Paused: messages are accepted, none is delivered.")
    assert served.ask("destinations.show", name="/queue/slow")["paused"]
    browser.open(f"{served.url}#/actions")
    browser.type("Queue", "/queue/slow")
    browser.press("Resume")
    browser.press("Resume", "dialog")
    browser.see("The queue is resumed.")
    assert not served.ask("destinations.show", name="/queue/slow")["paused"]


def test_a_reload_shows_its_changes_before_it_applies_them(browser: Browser, tmp_path: Path) -> None:
    broker = Served(tmp_path, RULES)
    broker.start()
    try:
        browser.open(f"{broker.url}#/actions")
        browser.press("Compare with the file")
        browser.see("Nothing has changed.")
        path = tmp_path / "radiator.yaml"
        path.write_text(path.read_text().replace("max: 1,", "max: 7,"))
        browser.press("Compare with the file")
        browser.see("redeliver.max", "7", "now")
        browser.press("Reload …")
        browser.press("Reload", "dialog")
        browser.see("The configuration is reloaded.")
    finally:
        assert broker.stop() == 0, broker.text()


def test_a_drain_ends_other_clients_and_is_cancelled_on_the_same_page(browser: Browser, tmp_path: Path) -> None:
    broker = Served(tmp_path, RULES)
    broker.start()
    try:
        with connect(broker.address) as client:
            browser.open(f"{broker.url}#/actions")
            browser.press("Drain")
            browser.find("dialog input").send_keys("1")
            browser.press("Drain", "dialog")
            browser.see("The broker is draining")
            with pytest.raises(ServerError, match="going down"):
                subscription = client.subscribe("/queue/live")
                while True:
                    subscription.fetch(timeout=0.1)
        browser.press("Close", "dialog")
        browser.press("Cancel the drain")
        browser.press("Cancel the drain", "dialog")
        browser.see("The broker accepts connections.")
        with connect(broker.address) as client:
            client.send("/queue/live", "again")
    finally:
        assert broker.stop() == 0, broker.text()


def test_texts_of_others_stay_texts(browser: Browser, served: Served) -> None:
    """Names, headers and bodies with markup, with characters that turn the text around, and of 1 MiB."""
    name = f"/queue/{SCRIPT}{TURNED}"[:70]
    served.fill({name: [SCRIPT.encode(), TURNED.encode(), b"y" * 1024 * 1024]}, **{TURNED: SCRIPT})
    browser.open(f"{served.url}#/destinations?search=img")
    browser.see("<img src=x", "1 destination")
    browser.open(f"{served.url}#/messages?d={quote(name)}&from=first")
    browser.see("3 messages", "<img src=x", "abcU+202Edef")
    rows = browser.driver.find_elements("css selector", "button.row")
    rows[2].click()
    browser.see("The first 64 KiB of 1 MiB are shown.")
    assert len(browser.find("pre.body").text) == 64 * 1024
    rows[0].click()
    browser.until(lambda: "U+202E" in browser.find(".message table").text, "expected the header")
    assert browser.count("main img, main script") == 0
    assert browser.driver.title == "Messages – radiator"
    longest = "/queue/" + "w" * 200
    served.fill({longest: [b"z" * 100_000]}, **{"h" * 300: "v" * 3000})
    for width in (390, 1600):
        browser.window(width, 900)
        for place in (f"destinations?name={longest}", "destinations?search=www", f"messages?d={longest}&from=first"):
            browser.open(f"{served.url}#/{place}")
            browser.see("1 message" if "messages" in place else "wwww")
            if "messages" in place:
                browser.find("button.row").click()
                browser.find("pre.body")
            assert browser.overflow() <= 0, (width, place)


def test_the_keyboard_is_enough(browser: Browser, served: Served) -> None:
    """A queue is purged with the keyboard alone; the focus is always visible, and returns from the dialog."""
    from selenium.webdriver.common.keys import Keys

    served.fill({"/queue/keys": [b"x"] * 3})
    browser.open(f"{served.url}#/destinations?name=/queue/keys")
    browser.see("Ready", "Purge")
    focus = browser.driver.switch_to

    def tab_to(text: str) -> None:
        for _ in range(60):
            focus.active_element.send_keys(Keys.TAB)
            outline = browser.driver.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", focus.active_element.text
            if focus.active_element.text.strip() == text:
                return
        raise AssertionError(f"{text} is not reached")

    browser.driver.find_element("css selector", "body").send_keys(Keys.TAB)
    assert focus.active_element.text == "Skip to the content"
    focus.active_element.send_keys(Keys.ENTER)
    tab_to("Purge")
    focus.active_element.send_keys(Keys.ENTER)
    browser.find("dialog[open]")
    browser.until(lambda: browser.count("dialog :focus") == 1, "expected the focus in the dialog")
    focus.active_element.send_keys(Keys.ESCAPE)
    browser.until(lambda: browser.count("dialog[open]") == 0, "expected no dialog")
    assert focus.active_element.text == "Purge"
    focus.active_element.send_keys(Keys.ENTER)
    browser.find("dialog[open]")
    browser.until(lambda: browser.count("dialog input:focus") == 1, "expected the focus in the field")
    focus.active_element.send_keys("/queue/keys", Keys.ENTER)
    browser.see("3 messages were purged.")


def test_what_needs_a_label_has_one(browser: Browser, served: Served) -> None:
    script = """
        return [...document.querySelectorAll("button, a, input, select, textarea")].filter((each) => {
          const labels = [...(each.labels || [])].map((label) => label.textContent);
          return !(each.textContent || each.getAttribute("aria-label") || labels.join("")).trim();
        }).map((each) => each.outerHTML.slice(0, 200))"""
    for page in PAGES:
        browser.open(f"{served.url}#/{page}")
        browser.see(PAGES[page])
        browser.until(lambda: "Loading" not in browser.text and "Connecting" not in browser.text, "expected data")
        assert browser.driver.execute_script(script) == []
        assert browser.count("main") == 1 and browser.count("h1") == 1 and browser.count("nav[aria-label]") >= 1


def test_the_page_goes_on_after_a_restart_of_the_broker(browser: Browser, tmp_path: Path) -> None:
    broker = Served(tmp_path)
    broker.start()
    broker.fill({"/queue/before": [b"x"]})
    browser.open(f"{broker.url}#/destinations")
    browser.see("/queue/before")
    assert broker.stop() == 0, broker.text()
    browser.see("The connection to the broker is lost.", "/queue/before")
    broker.start()
    broker.fill({"/queue/after": [b"x"]})
    browser.see("/queue/after")
    assert "lost" not in browser.text
    assert broker.stop() == 0, broker.text()


def test_a_page_that_is_left_disconnects_and_connects_again_when_the_user_goes_back(
    browser: Browser, served: Served
) -> None:
    def connections() -> int:
        return len(served.ask("clients.ls")["clients"]) - 1  # without this request's own

    browser.open(f"{served.url}#/messages?d=/topic/left&live=true")
    browser.until(lambda: subscribed(served, "/topic/left"), "expected the page to follow")
    browser.driver.get("about:blank")
    browser.until(lambda: connections() == 0, "expected no connection of a page that was left")
    browser.driver.back()
    browser.until(lambda: subscribed(served, "/topic/left"), "expected the page to follow again")
    served.fill({"/topic/left": [b"after the return"]})
    browser.see("after the return")
    browser.until(lambda: "is lost" not in browser.text, "expected the page to connect again")


@pytest.mark.parametrize("page", ["overview", "messages?d=/topic/live&live=true", "letters", "clients"])
def test_each_page_has_new_figures_after_a_restart(browser: Browser, tmp_path: Path, page: str) -> None:
    news = {  # what a client does after the restart, and the page shows
        "overview": "2 in total",
        "messages?d=/topic/live&live=true": "after the restart",
        "letters": "/queue/dead",
        "clients": "2 connections",
    }
    broker = Served(tmp_path, RULES)
    broker.start()
    browser.open(f"{broker.url}#/{page}")
    browser.until(lambda: "Loading" not in browser.text and "Connecting" not in browser.text, "expected data")
    assert broker.stop() == 0, broker.text()
    browser.see("The connection to the broker is lost.")
    broker.start()
    with broker.connect() as client:
        client.subscribe("/topic/followed")
        browser.until(lambda: "is lost" not in browser.text, "expected the page to connect again")
        if "live" in page:
            browser.until(lambda: subscribed(broker, "/topic/live"), "expected the page to follow again")
        client.send("/topic/live", b"after the restart")
        client.send("/queue/dead", b"a letter")
        browser.see(news[page])
    assert broker.stop() == 0, broker.text()


def test_a_hidden_page_asks_nothing_and_asks_at_once_when_it_is_shown(browser: Browser, served: Served) -> None:
    browser.open(f"{served.url}#/overview")
    browser.see("Problems", "Connections")
    hide = """
        window.asked = 0;
        const send = WebSocket.prototype.send;
        WebSocket.prototype.send = function (data) {
          if (String(data).includes("/radiator/admin")) window.asked += 1;
          return send.call(this, data);
        };
        window.isHidden = true;
        Object.defineProperty(document, "hidden", { get: () => window.isHidden });
        const [done] = arguments;
        setTimeout(() => { window.asked = 0; }, 4000);  // an answer may be on its way, and its timer still run
        setTimeout(() => done(window.asked), 15000);"""
    browser.driver.set_script_timeout(30)
    assert browser.driver.execute_async_script(hide) == 0, "longer than all intervals of the page"
    browser.driver.execute_script("window.isHidden = false; document.dispatchEvent(new Event('visibilitychange'))")
    browser.until(lambda: browser.driver.execute_script("return window.asked") >= 2, "expected requests")


def test_a_hundred_thousand_destinations_are_paged(browser: Browser, tmp_path: Path) -> None:
    """In memory, since their files are not the point here."""
    broker = Served(tmp_path, "destinations:\n  - {match: /topic/many.>, store: memory}\n")
    broker.start()
    try:
        with broker.connect() as client:
            for first in range(0, 99_900, 900):
                client.send_many([(f"/topic/many.{number:06d}", b"x") for number in range(first, first + 900)])
        browser.open(f"{broker.url}#/destinations")
        browser.see("99,900 destinations, page 1 of 1,998", "/topic/many.000000")
        browser.type("Search", "99899")
        browser.see("1 destination,", "/topic/many.099899")
        browser.open(f"{broker.url}#/destinations?sort=name&descending=true")
        browser.see("/topic/many.099899")
        assert browser.count("tbody tr") == 50
        for page, text in {
            "overview": "99,900",
            "messages?d=/topic/many.099899&from=first": "1 message",
            "letters": "No rule names a dead-letter queue that exists.",
            "clients": "127.0.0.1",
            "clients?view=durable": "There are none on this page.",
            "actions": "Drain",
        }.items():
            browser.open(f"{broker.url}#/{page}")
            browser.see(text)
    finally:
        assert broker.stop() == 0, broker.text()


def test_a_browser_that_stops_reading_does_not_hurt_the_broker(browser: Browser, served: Served) -> None:
    """The page follows a destination, and its thread is blocked: the broker keeps the rest in the log."""
    browser.open(f"{served.url}#/messages?d=/topic/flood&live=true")
    browser.see("Waiting for new messages.")
    browser.until(lambda: subscribed(served, "/topic/flood"), "expected a subscription")
    browser.driver.execute_script(
        "setTimeout(() => { const end = Date.now() + 4000; while (Date.now() < end); document.title = 'free'; }, 0)"
    )
    served.fill({"/topic/flood": [bytes(64 * 1024)] * 400})
    figures = served.ask("stats")
    assert figures["now"]["sessions"] >= 2
    assert max(row["unsent_bytes"] for row in served.ask("clients.ls")["clients"]) <= 2 * 1024 * 1024
    browser.until(lambda: browser.driver.title == "free", "expected the page to go on")
    browser.see("following", "65,536 bytes, not text")


def subscribed(served: Served, destination: str) -> bool:
    """Return True if a client is subscribed to the destination."""
    clients = served.ask("clients.ls")["clients"]
    return any(each["destination"] == destination for row in clients for each in row["subscriptions"])


@pytest.mark.thorough
def test_an_open_console_costs_the_broker_less_than_a_percent_of_a_core(browser: Browser, tmp_path: Path) -> None:
    broker = Served(tmp_path)
    broker.start()

    def cpu_seconds() -> float:
        fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def used_while(seconds: float) -> float:
        before = cpu_seconds()
        time.sleep(seconds)  # what is measured takes this long
        return cpu_seconds() - before

    try:
        browser.open("about:blank")
        idle = used_while(20)
        browser.open(f"{broker.url}#/overview")
        browser.see("The last hour")
        assert used_while(20) - idle < 20 / 100
    finally:
        assert broker.stop() == 0, broker.text()
