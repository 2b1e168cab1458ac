"""``radiator top``: a live screen of the destinations, clients and cursors of a running broker.

A sample is two requests on the admin channel: ``overview``, and one page of the list that is shown, sorted by the
broker if it can. The rates of destinations are differences between two samples.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from radiator.cli.common import OK, BrokerOptions, connection_options, json_option, put_json, size
from radiator.cli.online import TEMPORARY
from radiator.words import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from radiator.client import Connection

PAGE: Final = 500  # entries of a list; those of a sample are sorted by rates, and the rest is not shown
LINES_AROUND: Final = 6  # of the screen, beside the rows of the table
WIDTH_MAX: Final = 1_000  # of a line in a pipe or a file
LINES_MIN: Final = 3  # rows of the table, however low the screen is
PROBLEMS_SHOWN: Final = 1
RATE_SECONDS_MIN: Final = 0.5  # a rate over a shorter time, after a key, would jump
ESCAPE: Final = "\x1b"
SEQUENCE: Final = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]")  # of a key such as an arrow
BACKSPACE: Final = ("\x7f", "\x08")
VIEWS: Final = ("destinations", "clients", "cursors")
SORTS: Final[Mapping[str, Mapping[str, str]]] = {  # by view: what is shown, and the field; the first is the default
    "destinations": {
        "ready": "ready",
        "in flight": "in_flight",
        "in/s": "in_per_second",
        "out/s": "out_per_second",
        "consumers": "consumers",
        "size": "bytes",
        "name": "name",
    },
    "clients": {"in flight": "in_flight", "unsent": "unsent_bytes", "address": "address"},
    "cursors": {"lag": "lag", "in flight": "in_flight", "name": "cursor"},
}
BROKER_SORTS: Final = {"in_per_second": "published", "out_per_second": "published"}  # the nearest that a broker has
KEYS: Final = "q quit   s sort   v view   / filter"


class Sample(NamedTuple):
    """What the broker has answered at one time.

    Attributes:
        at: The monotonic time in seconds.
        facts: The answer to ``overview``.
        entries: The entries of the list that is shown.
        matched: The number of entries that exist, or None if the broker does not say.
    """

    at: float
    facts: dict[str, Any]
    entries: list[dict[str, Any]]
    matched: int | None


class Top:
    """The state of the screen: which list, its order and filter, and the last two samples.

    Args:
        connection: A connection of an administrator.
        address: The address of the broker, for the first line.
    """

    def __init__(self, connection: Connection, address: str) -> None:
        self._connection = connection
        self._address = address
        self._earlier: deque[Sample] = deque()  # the first is what rates refer to
        self.sample: Sample | None = None
        self.view = VIEWS[0]
        self.sort = next(iter(SORTS[self.view]))
        self.filter = ""
        self.typing = False  # the filter is being typed

    # --- samples ------------------------------------------------------------------------------------------------------

    def take(self) -> None:
        """Ask the broker for another sample."""
        from radiator.client.admin import ask

        facts = ask(self._connection, "overview")
        entries, matched = getattr(self, f"_take_{self.view}")()
        now, earlier = Sample(time.monotonic(), facts, entries, matched), self._earlier
        if self.sample is not None:
            earlier.append(self.sample)
        while len(earlier) > 1 and now.at - earlier[1].at >= RATE_SECONDS_MIN:
            earlier.popleft()
        if earlier and self.view == "destinations":
            _add_rates(earlier[0], now)
        field = SORTS[self.view][self.sort]
        now.entries.sort(key=lambda each: _order(each, field))
        self.sample = now

    def _take_destinations(self) -> tuple[list[dict[str, Any]], int | None]:
        from radiator.client.admin import ask

        field = SORTS["destinations"][self.sort]
        args: dict[str, Any] = {"limit": PAGE, "sort": BROKER_SORTS.get(field, field), "descending": field != "name"}
        if self.filter:
            args["search"] = self.filter
        answer = ask(self._connection, "destinations.ls", **args)
        return self._filtered(answer["destinations"], "name"), answer.get("matched")

    def _take_clients(self) -> tuple[list[dict[str, Any]], int | None]:
        from radiator.client.admin import ask

        answer = ask(self._connection, "clients.ls", limit=PAGE)
        return self._filtered(answer["clients"], "session", "user", "address"), answer.get("matched")

    def _take_cursors(self) -> tuple[list[dict[str, Any]], int | None]:
        from radiator.client.admin import ask

        furthest_behind = ask(self._connection, "stats")["cursors"]
        return self._filtered(furthest_behind, "cursor", "partition"), None

    def _filtered(self, entries: list[dict[str, Any]], *fields: str) -> list[dict[str, Any]]:
        text = self.filter.lower()
        return [each for each in entries if any(text in each[field].lower() for field in fields)]

    # --- what is shown ------------------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """Return the sample as ``--json`` prints it."""
        assert self.sample is not None
        facts = self.sample.facts
        return {
            "version": facts["version"],
            "now": facts["now"],
            "rates": facts["rates"],
            "problems": [each["text"] for each in facts["problems"]],
            "sort": self.sort,
            "matched": self.sample.matched,
            self.view: self.sample.entries,
        }

    # --- keys ---------------------------------------------------------------------------------------------------------

    def press(self, key: str) -> bool:
        """React to a key. Return False for the one that ends the screen."""
        if self.typing:
            if key in ("\r", "\n"):
                self.typing = False
            elif key == ESCAPE:
                self.typing, self.filter = False, ""
            elif key in BACKSPACE:
                self.filter = self.filter[:-1]
            elif key.isprintable():
                self.filter += key
            return True
        if key in ("s", "S"):
            self.sort = _next(list(SORTS[self.view]), self.sort)
        elif key in ("v", "\t"):
            self.view = _next(VIEWS, self.view)
            self.sort = next(iter(SORTS[self.view]))
            self.sample = None
            self._earlier.clear()
        elif key == "/":
            self.typing = True
        elif key == ESCAPE:
            self.filter = ""
        return key not in ("q", "Q", "\x03")

    # --- the screen ---------------------------------------------------------------------------------------------------

    def screen(self, height: int, fills: bool = True, keys: bool = True) -> RenderableType:
        """Return the whole screen, in so many lines.

        Args:
            height: The number of lines.
            fills: The table is as wide as the terminal; otherwise as wide as its values.
            keys: The last line explains the keys.
        """
        from rich.console import Group
        from rich.text import Text

        assert self.sample is not None
        facts = self.sample.facts
        now, memory = facts["now"], facts["now"].get("memory", {})
        parts = [f"{facts['version']}  {self._address}"]
        if facts.get("uptime_seconds") is not None:
            parts.append(f"up {_duration(facts['uptime_seconds'])}")
        if facts.get("draining"):
            parts.append("DRAINING")
        parts += [f"{counted(now['sessions'], 'connection')}", f"{counted(now['destinations'], 'destination')}"]
        flow = [f"{name} {_rate(facts['rates'][name])}/s" for name in ("published", "delivered", "acknowledged")]
        held = [f"memory {size(memory['total'])} of {size(memory['limit'])}"] if memory else []
        if disk := facts.get("disk"):
            held.append(f"disk {size(disk['free'])} free of {size(disk['size'])}")
        lines = [
            Text("  ".join(parts), style="bold"),
            Text("  ".join(flow)),
            Text("  ".join(held)),
            _problem_line([each["text"] for each in facts["problems"]]),
        ]
        rows = max(LINES_MIN, height - LINES_AROUND)
        foot = _one_line(Text(self._foot(rows, keys), style="dim"))
        return Group(*(_one_line(line) for line in lines), self._table(rows, fills), foot)

    def _table(self, rows: int, fills: bool) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        from radiator.cli.formats import visible

        assert self.sample is not None
        columns = COLUMNS[self.view]
        table = Table(box=None, expand=fills, padding=(0, 1), pad_edge=False, header_style="reverse")
        for number, column in enumerate(columns):
            heading = f"{column.heading}*" if column.heading == self.sort else column.heading
            if number and column.number:
                table.add_column(heading, justify="right", no_wrap=True)
            else:
                table.add_column(heading, ratio=column.ratio, no_wrap=True, overflow="ellipsis")
        shown = self.sample.entries[:rows]
        for each in shown:
            table.add_row(*(Text(visible(column.show(each))) for column in columns))
        for _ in range(rows - len(shown)):
            table.add_row()
        return table

    def _foot(self, rows: int, keys: bool) -> str:
        assert self.sample is not None
        if self.typing:
            return f"filter: {self.filter}_   Enter keeps it, Esc removes it"
        entries = len(self.sample.entries)
        total = entries if self.sample.matched is None or self.view != "destinations" else self.sample.matched
        shown = f"{self.view} {min(rows, entries)} of {total:,}"
        chosen = f"filter {self.filter!r}" if self.filter else ""
        return "   ".join(filter(None, (shown, chosen, KEYS if keys else "")))


class Shown(NamedTuple):
    """A column of the screen. Text columns share what the numbers leave of the width, by ``ratio``."""

    heading: str
    show: Callable[[dict[str, Any]], str]
    number: bool = True
    ratio: int = 1


def _field(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda each: "-" if each.get(name) is None else f"{each[name]:,}"


def _named(each: dict[str, Any], field: str) -> str:
    return f"{each[field]} (paused)" if each.get("paused") else str(each[field])


def _bytes(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda each: size(each[name])


def _rate_of(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda each: _rate(each.get(name))


def _consumers(each: dict[str, Any]) -> str:
    return f"{each.get('consumers', each['subscribers']):,}"


def _subscriptions(each: dict[str, Any]) -> str:
    names = [name for one in each["subscriptions"] if not (name := one["destination"]).startswith(TEMPORARY)]
    return ", ".join(names) or "-"


COLUMNS: Final[Mapping[str, tuple[Shown, ...]]] = {
    "destinations": (
        Shown("name", lambda each: _named(each, "name"), number=False),
        Shown("ready", _field("ready")),
        Shown("in flight", _field("in_flight")),
        Shown("in/s", _rate_of("in_per_second")),
        Shown("out/s", _rate_of("out_per_second")),
        Shown("consumers", _consumers),
        Shown("size", _bytes("bytes")),
    ),
    "clients": (
        Shown("user", lambda each: each["user"] or "-", number=False),
        Shown("address", lambda each: each["address"], number=False, ratio=2),
        Shown("subscriptions", _subscriptions, number=False, ratio=3),
        Shown("window", _field("window")),
        Shown("in flight", _field("in_flight")),
        Shown("unsent", _bytes("unsent_bytes")),
    ),
    "cursors": (
        Shown("name", lambda each: _named(each, "cursor"), number=False),
        Shown("log", lambda each: each["partition"], number=False),
        Shown("lag", _field("lag")),
        Shown("in flight", _field("in_flight")),
        Shown("members", _field("members")),
    ),
}


def _add_rates(before: Sample, now: Sample) -> None:
    """Add ``in_per_second`` and ``out_per_second`` to the destinations that both samples have."""
    seconds = max(now.at - before.at, 1e-3)
    earlier = {each["name"]: each for each in before.entries}
    for each in now.entries:
        other = earlier.get(each["name"])
        if other is None:
            continue
        for field, total in (("in_per_second", _published), ("out_per_second", _settled)):
            first, last = total(other), total(each)
            if first is not None and last is not None:
                each[field] = round(max(last - first, 0) / seconds, 3)


def _published(each: dict[str, Any]) -> int | None:
    published: int | None = each["published"]
    return published


def _settled(each: dict[str, Any]) -> int | None:
    published, total = _published(each), each.get("total")
    # ``total`` also counts messages that are being written.
    return None if published is None or total is None else max(0, int(published - total))


def _order(entry: dict[str, Any], field: str) -> tuple[float, str]:
    value = entry.get(field)
    name = str(entry.get("name") or entry.get("cursor") or entry.get("address") or "")
    return (0.0, str(value)) if isinstance(value, str) else (-float(value if value is not None else -1), name)


def _next(values: list[str] | tuple[str, ...], value: str) -> str:
    return values[(values.index(value) + 1) % len(values)]


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or not value else f"{value:.1f}"


def _duration(seconds: float) -> str:
    minutes, _ = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _problem_line(problems: list[str]) -> Any:
    from rich.text import Text

    from radiator.cli.formats import visible

    if not problems:
        return Text("no problems", style="green")
    more = f" (and {len(problems) - PROBLEMS_SHOWN} more)" if len(problems) > PROBLEMS_SHOWN else ""
    return Text(f"{counted(len(problems), 'problem')}: {visible(problems[0])}{more}", style="red")


def _one_line(text: Any) -> Any:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits at most so many seconds for keys, and returns them. For a terminal on stdin."""
    if not sys.stdin.isatty():
        yield _no_keys
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def wait(seconds: float) -> str:
        ready, _, _ = select.select([fd], [], [], max(seconds, 0))
        if not ready:
            return ""
        data = os.read(fd, 1_024)
        return SEQUENCE.sub("", data.decode("utf-8", "ignore")) if data else "q"  # the terminal is gone

    try:
        tty.setcbreak(fd)
        yield wait
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _no_keys(seconds: float) -> str:
    time.sleep(max(seconds, 0))
    return ""


@click.command(short_help="Show a live screen of a running broker.")
@click.option("--interval", type=click.FloatRange(0.1, 3_600), default=2.0, show_default=True, metavar="SECONDS",
              help="Time between two samples.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print one screen, after one interval, and end.")
@connection_options
@json_option
def top(interval: float, once: bool, broker: BrokerOptions, as_json: bool) -> int:
    """Show rates, backlogs, consumers and problems of a running broker on a live screen.

    Keys: q quits, s changes the sort, v shows clients or cursors instead, / filters by name. If stdout is no terminal
    it is as with --once. With --json each sample is a line. Needs the monitor right.
    """
    live = not once and (as_json or sys.stdout.isatty())
    if not live:
        return _show(interval, live, broker, as_json)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the terminal is restored, as after Ctrl-C
    try:
        return _show(interval, live, broker, as_json)
    except KeyboardInterrupt:
        return OK


def _show(interval: float, live: bool, broker: BrokerOptions, as_json: bool) -> int:
    with broker.connect_admin() as connection:
        screen = Top(connection, _without_login(broker.url))
        screen.take()
        if as_json or not live:
            while True:
                time.sleep(interval)
                screen.take()
                if as_json:
                    put_json(screen.as_json())
                    sys.stdout.flush()
                else:
                    _print_once(screen)
                if not live:
                    return OK
        _run(screen, interval)
    return OK


def _without_login(url: str) -> str:
    scheme, separator, rest = url.rpartition("//")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _print_once(screen: Top) -> None:
    from rich.console import Console

    assert screen.sample is not None
    fills = sys.stdout.isatty()
    console = Console(highlight=False, width=None if fills else WIDTH_MAX)
    console.print(screen.screen(LINES_AROUND + max(1, len(screen.sample.entries)), fills, keys=False))


def _run(screen: Top, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with ExitStack() as stack:
        keys = stack.enter_context(_keys())
        live = Live(screen.screen(console.height), console=console, screen=True, auto_refresh=False)
        stack.callback(live.stop)  # first, because a signal may come while it starts
        live.start(refresh=True)
        due = time.monotonic() + interval
        while True:
            for key in keys(due - time.monotonic()):
                if not screen.press(key):
                    return
                due = due if screen.typing else 0.0
            if time.monotonic() >= due:
                screen.take()
                due = time.monotonic() + interval
            live.update(screen.screen(console.height), refresh=True)
