"""Load the middleware and the schemas of rules, at the start and at a reload.

A rule names a file with a JSON Schema. Each version that was in force is stored under
``<data_dir>/schemas/<match of the rule, percent-encoded>@<n>.json``. A schema that differs from the last version
becomes the next version. With ``schema_changes: compatible`` this needs every document that an earlier version
*describes* to fit the new one, so that a reader with the new schema can read the whole history. JSON Schema allows
properties that a schema does not name; this comparison leaves them out, because no version describes them.

Uses files, JSON and imports. Must not import sessions or frames.

Errors: a ConfigError names the line of the rule, the file, and what was expected.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from radiator.broker.rule_hooks import RuleHooks, Validate
from radiator.config import Rule
from radiator.decoder import load
from radiator.errors import ConfigError
from radiator.middleware import Middleware
from radiator.storage import layout, typed_rules
from radiator.storage.files import FileSystem, read_file, replace_file
from radiator.storage.layout import encode_name
from radiator.storage.typed_rules import TAKEN, TypedRule, derived_column

SCHEMA_BYTES_MAX: Final = 1 << 20
VERSIONS_MAX: Final = 1_000  # of one schema; a start compares with each
COMPLAINTS_MAX: Final = 5  # of one message, sent to its producer


def load_hooks(rules: tuple[Rule, ...], source: str | None) -> dict[int, RuleHooks]:
    """Return the middleware and the validator of each rule that has some, by the index of the rule.

    Args:
        rules: The rules of the configuration.
        source: The path of the YAML file, for error messages, or None.

    Raises:
        ConfigError: Middleware or a schema cannot be loaded.
    """
    found: dict[int, RuleHooks] = {}
    for index, rule in enumerate(rules):
        where = f"{source or 'configuration'}:{rule.line}: destinations[{index}]"
        middleware = tuple((name, _function(name, f"{where}.middleware")) for name in rule.middleware)
        validate = None
        if rule.decoder is not None and rule.schema is None:
            raise ConfigError(f"{where}.decoder: expected a schema too, which describes what the decoder returns")
        if rule.schema is not None:
            validate = validator(read_schema(rule.schema, f"{where}.schema"), f"{where}.schema: {rule.schema}")
        if rule.decoder is not None:  # only readers decode these bodies
            validate = None
        if middleware or validate is not None:
            found[index] = RuleHooks(middleware, validate)
    return found


def missing_decoders(rules: tuple[Rule, ...], source: str | None) -> list[str]:
    """Return a warning for each decoder that cannot be imported here. The broker itself needs none.

    Args:
        rules: The rules of the configuration.
        source: The path of the YAML file, or None.
    """
    found = []
    for index, rule in enumerate(rules):
        try:
            if rule.decoder is not None:
                load(rule.decoder)
        except ConfigError as error:
            found.append(
                f"{source or 'configuration'}:{rule.line}: destinations[{index}].decoder: {error}; where that fails, "
                "radiator archive stops at the first message of this rule, and Spark cannot read its struct column"
            )
    return found


# --- middleware -------------------------------------------------------------------------------------------------------


def _function(name: str, where: str) -> Middleware:
    module_name, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{where}: {name}: there is no module {error.name!r}; expected one on PYTHONPATH, or installed"
        ) from None
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{where}: {name}: importing it failed: {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(f"{where}: {name}: expected a function {attribute!r} in {module_name}, got {found!r}")
    function: Middleware = found
    return function


# --- schemas ----------------------------------------------------------------------------------------------------------


def read_schema(path: str, where: str) -> Any:
    """Return the JSON Schema in a file.

    Args:
        path: The path of the file.
        where: The place in the configuration, for error messages.

    Raises:
        ConfigError: The file cannot be read, or is not JSON.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(SCHEMA_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{where}: {path}: cannot read the schema: {error.strerror}") from None
    if len(data) > SCHEMA_BYTES_MAX:
        raise ConfigError(f"{where}: {path}: expected a JSON Schema of at most {SCHEMA_BYTES_MAX} bytes, got more")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {path}: expected a JSON Schema, and it is not JSON: {error}") from None


def validator(schema: Any, where: str) -> Validate:
    """Return a function from a body to a text that says what is wrong with it, or None.

    Args:
        schema: A JSON Schema.
        where: The place in the configuration, for error messages.

    Raises:
        ConfigError: This is not a JSON Schema, or the package for schemas is not installed.
    """
    library = _library(where)
    try:
        compiled = library.validator_for(schema)
    except Exception as error:
        raise ConfigError(f"{where}: not a JSON Schema: {error}") from None
    loads: Callable[[bytes], Any] = json.loads

    def validate(body: bytes) -> str | None:
        try:
            document = loads(body)
        except (ValueError, RecursionError) as error:
            return f"The body is not JSON: {error}."
        try:
            return None if compiled.is_valid(document) else _complaints(compiled.iter_errors(document))
        except ValueError as error:  # not Unicode, or nested too deeply for the library
            return f"The body cannot be compared with the schema: {error}."

    return validate


def _complaints(faults: Iterable[Any]) -> str:
    complaints: list[str] = []
    for fault in faults:
        if len(complaints) == COMPLAINTS_MAX:
            complaints.append("and more")
            break
        place = "".join(f"/{part}" for part in fault.instance_path) or "the document"
        complaints.append(f"{place}: {fault.message[:500]}")
    return "; ".join(complaints) + "."


def register_schemas(rules: tuple[Rule, ...], source: str | None, fs: FileSystem, data_dir: str) -> list[str]:
    """Store new versions of the schemas of rules, and return notes for the log.

    Args:
        rules: The rules of the configuration.
        source: The path of the YAML file, for error messages, or None.
        fs: The file system.
        data_dir: The data directory.

    Raises:
        ConfigError: A change is not allowed; then no version was stored.
    """
    due = new_schemas(rules, source, fs, data_dir)
    store_schemas(due, fs, data_dir)
    return [note for _, _, note in due]


def store_schemas(due: list[tuple[str, bytes, str]], fs: FileSystem, data_dir: str) -> None:
    """Store the versions that ``new_schemas`` has returned."""
    if due:
        fs.mkdir(layout.schemas_path(data_dir))
    for path, data, _ in due:
        replace_file(fs, path, data)


def new_schemas(
    rules: tuple[Rule, ...], source: str | None, fs: FileSystem, data_dir: str
) -> list[tuple[str, bytes, str]]:
    """Return the versions that a start would store: paths, contents and notes. Writes nothing.

    Raises:
        ConfigError: A change is not allowed.
    """
    due: list[tuple[str, bytes, str]] = []
    typed: list[TypedRule] = []
    documents: dict[str, tuple[Any, int]] = {}  # by column: the schema, and the line of its rule
    for index, rule in enumerate(rules):
        name = rule.match if rule.match is not None else f"regex {rule.match_regex}"
        if rule.schema is None:
            typed.append(TypedRule(name))
            continue
        where = f"{source or 'configuration'}:{rule.line}: destinations[{index}].schema"
        schema = read_schema(rule.schema, where)
        stem = f"{layout.schemas_path(data_dir)}/{_file_name(name, where)}@"
        versions = _versions(fs, stem)
        column = _column(rule, schema, where, documents)
        number = versions[-1][0] if versions else 0
        same = bool(versions) and versions[-1][1] == schema
        file = f"{stem.rpartition('/')[2]}{number + (not same)}.json"
        typed.append(TypedRule(name, file, column, rule.decoder))
        if same:
            continue
        if rule.schema_changes_compatible:
            for number, earlier in versions:
                example = lost_by(schema, earlier, f"{where}: {rule.schema}")
                if example is not None:
                    raise ConfigError(
                        f"{where}: {rule.schema}: it refuses messages that version {number} allows, for example those "
                        f"that fit {example[:900]}; expected a schema that accepts all earlier versions, or "
                        f"schema_changes: any"
                    )
        number += 1
        if number > VERSIONS_MAX:
            raise ConfigError(f"{where}: {rule.schema}: expected at most {VERSIONS_MAX} versions, see {stem}*")
        data = json.dumps(schema, indent=2, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"
        due.append((f"{stem}{number}.json", data, f"{rule.schema} is version {number} for {name}"))
    path, data = typed_rules.path(data_dir), typed_rules.encode(typed)
    stored = read_file(fs, path)
    if stored != data and (documents or stored is not None):
        columns = ", ".join(f"{each.column} of {each.match}" for each in typed if each.column)
        due.append((path, data, f"struct columns for readers: {columns or 'none'}"))
    return due


def _column(rule: Rule, schema: Any, where: str, documents: dict[str, tuple[Any, int]]) -> str:
    """Return the struct column of a rule. Raises ConfigError if the name is taken."""
    column = rule.schema_column or derived_column(schema, rule.schema or "")
    key = column.lower()
    if key in TAKEN:
        raise ConfigError(f"{where}_column: expected a name that is not a column of the table, got {column!r}")
    known, line = documents.setdefault(key, (schema, rule.line))
    if known != schema:
        raise ConfigError(
            f"{where}: {rule.schema}: its column {column!r} is that of the rule on line {line}, which has another "
            "schema; expected schema_column: with another name"
        )
    return column


def lost_by(schema: Any, earlier: Any, where: str) -> str | None:
    """Return a schema of the documents that ``earlier`` describes and ``schema`` refuses, or None if there are none.

    Raises:
        ConfigError: The schemas cannot be compared.
    """
    library = _library(where)
    try:
        new, old = library.canonicalize(schema), library.canonicalize(closed(earlier))
        if new.covers(old) == library.canonical.Containment.YES:
            return None
        lost = old.subtract(new).to_json_schema()
    except Exception as error:
        raise ConfigError(
            f"{where}: it cannot be compared with its earlier versions ({error}); simplify it, or set schema_changes: "
            f"any"
        ) from None
    lost.pop("$schema", None)
    return json.dumps(lost, ensure_ascii=False)


def closed(schema: Any) -> Any:
    """Return the schema without documents that it only tolerates: objects with listed properties have no others.

    Parts of combinations (``allOf`` and others) stay unchanged, because each part lists only some properties.
    """
    if not isinstance(schema, dict):
        return schema
    changed = dict(schema)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        changed["properties"] = {name: closed(value) for name, value in properties.items()}
        combined = {"allOf", "anyOf", "oneOf", "not", "if", "$ref", "dependentSchemas", "patternProperties"}
        if "additionalProperties" not in schema and combined.isdisjoint(schema):
            changed["additionalProperties"] = False
    if isinstance(schema.get("items"), dict):
        changed["items"] = closed(schema["items"])
    return changed


def _versions(fs: FileSystem, stem: str) -> list[tuple[int, Any]]:
    """Return the earlier versions of a schema with their numbers, the oldest first."""
    directory, _, prefix = stem.rpartition("/")
    middles = [name[len(prefix) : -5] for name in fs.listdir(directory) if name.startswith(prefix)]
    found = []
    for number in sorted(int(middle) for middle in middles if middle.isdecimal()):
        path = f"{stem}{number}.json"
        try:
            found.append((number, json.loads(read_file(fs, path) or b"")))
        except ValueError as error:
            raise ConfigError(f"{path}: expected a JSON Schema, version {number} of one, got damage: {error}") from None
    return found


def _file_name(name: str, where: str) -> str:
    try:
        return encode_name(name)
    except ValueError as error:
        raise ConfigError(f"{where}: the match of its rule is too long for a file name: {error}") from None


def _library(where: str) -> Any:
    try:
        import jsonschema_rs
    except ModuleNotFoundError:
        raise ConfigError(f"{where}: schemas need one more package: pip install 'radiator-broker[schema]'") from None
    return jsonschema_rs
