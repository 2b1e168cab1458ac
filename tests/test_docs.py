"""The documents say what the code does: keys and defaults, examples that load, paths and links that exist.

Tables in documents are compared with the tables in the code, both ways: what exists is documented, and what is
documented exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from radiator.broker import stats
from radiator.broker.admin import by_rule, detail, gauges
from radiator.broker.stats import Metric
from radiator.config import load, load_text, schema
from radiator.config.keys import AT_START, Key
from radiator.routing.pattern import parse_list
from radiator.routing.rules import Rules

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text("utf-8")
METRICS = (ROOT / "docs" / "metrics.md").read_text("utf-8")
FULL_CONF = (ROOT / "conf" / "radiator.yaml").read_text("utf-8")
CONFS = sorted((ROOT / "conf").glob("*.yaml"))
ENVIRON = {"RADIATOR_DATA": "/var/lib/radiator"}


def rows(text: str, header: str) -> list[list[str]]:
    """The cells of every table in ``text`` whose first column is called ``header``."""
    found: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            inside = False
        elif cells[0] == header:
            inside = True
        elif inside and set(cells[0]) - set("-: "):
            found.append(cells)
    return found


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# --- configuration ----------------------------------------------------------------------------------------------------

KEY_ROWS = {words(cells[0])[0]: cells for cells in rows(CONFIGURATION, "key")}
KEYS = {key.path: key for key in (*schema.TOP, *schema.RULE)}


def test_every_key_is_documented_and_every_documented_key_exists() -> None:
    assert sorted(KEY_ROWS) == sorted([*KEYS, *schema.OTHERS])


@pytest.mark.parametrize("path", KEYS)
def test_a_documented_default_is_the_default(path: str) -> None:
    assert words(KEY_ROWS[path][2]) == ([KEYS[path].default] if KEYS[path].default else [])


def test_the_documented_listen_default_is_the_default() -> None:
    assert words(KEY_ROWS["listen"][2]) == [schema.DEFAULT_LISTEN]


@pytest.mark.parametrize("key", (*schema.TOP, *schema.RULE), ids=lambda key: key.path)
def test_the_documents_say_whether_a_running_broker_can_take_another_value_and_why_not(key: Key) -> None:
    assert KEY_ROWS[key.path][3] == str(key.applies)
    assert key.applies is not AT_START or key.path == "version", "a key has a reason of its own"


@pytest.mark.parametrize("path", KEYS)
def test_a_documented_range_is_the_range(path: str) -> None:
    """``1B to 8MiB`` in the table: both ends are accepted, and are what the error says."""
    bounds = re.search(r"(\S+) to (\S+?)(?:,|$)", KEY_ROWS[path][1])
    if bounds is None:
        return
    KEYS[path].type.read(bounds[1])
    KEYS[path].type.read(bounds[2])
    with pytest.raises(ValueError, match=f"{re.escape(bounds[1])} to {re.escape(bounds[2])}"):
        KEYS[path].type.read("1000000TiB" if "B" in bounds[2] else "99999d" if bounds[2][-1] in "smhd" else "99999999")


@pytest.mark.parametrize("cells", rows(CONFIGURATION, "pattern"), ids=lambda cells: str(cells[0]))
def test_a_documented_pattern_matches_what_the_document_says(cells: list[str]) -> None:
    patterns = parse_list(words(cells[0])[0])
    assert all(patterns.matches(name) for name in words(cells[1]))
    assert not any(patterns.matches(name) for name in words(cells[2]))


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", CONFIGURATION, re.DOTALL))
def test_a_documented_configuration_loads(text: str) -> None:
    Rules(load_text(text, "docs/configuration.md", ENVIRON))


@pytest.mark.parametrize(
    "told",
    [
        ("limits: {message: 4MB}", "limits.message: expected a size such as"),
        ("destinations: [{match: a, retenton: {age: 1d}}]", "destinations[0].retenton: unknown key; did you mean"),
        ("destinations: [{match: a}, {match: b, fsync: off}]", "destinations[1].fsync: expected always, never or a"),
    ],
)
def test_a_documented_error_is_what_one_gets(told: tuple[str, str]) -> None:
    text, error = told
    assert error in CONFIGURATION
    with pytest.raises(Exception, match=re.escape(error)):
        load_text(text)


# --- metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "metrics"),
    [
        ("stats", stats.COUNTERS),
        ("now", [metric for metric, _ in gauges.NOW]),
        ("store", gauges.STORE),
        ("rules", by_rule.TABLE),
        ("histograms", [metric for metric, _ in gauges.HISTOGRAMS]),
        ("host", gauges.HOST),
        *((f"detailed: {name}", family.table) for name, family in detail.FAMILIES.items()),
    ],
)
def test_a_table_of_metrics_is_the_table_in_the_code(section: str, metrics: Iterable[Metric]) -> None:
    """A failure shows the row that is missing in docs/metrics.md or differs there."""
    documented = rows(METRICS.split(f"## `{section}`")[1].split("\n## ")[0], "name")
    metrics = list(metrics)
    units = {each: f"{each.unit} by {each.label.replace(',', ', ')}" if each.label else each.unit for each in metrics}
    assert documented == [
        [f"`{each.name}`", each.type, units[each], f"`{series_of(each)}`", each.help] for each in metrics
    ]


def series_of(metric: Metric) -> str:
    """The name in ``/metrics``, with its labels."""
    name, labels = metric.series
    suffix = "_total" if metric.type == "counter" else ""
    more = dict.fromkeys(metric.label.split(","), "...") if metric.label else {}
    pairs = [f'{key}="{value}"' for key, value in {**labels, **more}.items()]
    return f"radiator_{name}{suffix}" + (f"{{{','.join(pairs)}}}" if pairs else "")


# --- conf/ ------------------------------------------------------------------------------------------------------------


def with_examples(text: str) -> str:
    """The full sample with the rules that stand at its end as comments."""
    settings, examples = text.split("destinations: []", 1)
    _, *lines = examples.splitlines()
    assert all(line.startswith("#") for line in lines)
    return settings + "\n".join(line[1:] for line in lines)


@pytest.mark.parametrize("path", CONFS, ids=lambda path: path.name)
def test_a_sample_configuration_loads(path: Path) -> None:
    Rules(load(path, ENVIRON))


def test_the_full_sample_is_the_defaults() -> None:
    assert msgspec.structs.replace(load(ROOT / "conf" / "radiator.yaml"), source=None) == load(None)


def test_the_full_sample_has_every_key() -> None:
    text = with_examples(FULL_CONF)
    config = load_text(text, "conf/radiator.yaml", {})
    assert len(Rules(config).config.rules) >= 5
    assert config.archive and config.schedules and config.subscriptions
    for path in (*KEYS, *schema.OTHERS, *(key.path for key in (*schema.ARCHIVE, *schema.SCHEDULE))):
        assert re.search(rf"(^|[\s{{]){path.split('.')[-1]}:", text, re.MULTILINE), path


def test_the_full_sample_says_what_each_key_costs() -> None:
    for line in FULL_CONF.splitlines():
        if re.match(r"\s*[a-z_]+: \S", line):
            assert "#" in line, line


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_the_readme_is_shorter_than_200_lines() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 200


# --- all documents ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_link_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text("utf-8")):
        if "://" not in target and not target.startswith("mailto:"):
            assert (path.parent / target).exists(), target


def anchors(path: Path) -> set[str]:
    """What the headings of a page can be linked to by."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_link_to_a_section_leads_to_one(path: Path) -> None:
    for target, section in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", path.read_text("utf-8")):
        if "://" not in target:
            assert section in anchors(path.parent / target if target else path), f"{target}#{section}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_row_of_a_table_is_below_a_header(path: Path) -> None:
    text = re.sub(r"^( *)```.*?^\1```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for first, second in re.findall(r"(?:\A|^(?!\|).*\n)(\|.*)\n(.*)$", text, re.MULTILINE):
        assert re.fullmatch(r"\|[ :|-]+\|", second), first


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_named_in_a_document_exists(path: Path) -> None:
    for name in re.findall(r"`((?:radiator|tests|conf|docs|examples)/[\w./-]+)`", path.read_text("utf-8")):
        assert (ROOT / name).exists(), name
