"""The operator's YAML file, read strictly into plain frozen values.

``load(path)`` is the whole interface. Its result has no YAML in it: sizes are bytes, durations are nanoseconds, every
rule is complete (with the file's ``defaults:`` and the built-in ones). A refusal contains file, line, key, what was
expected, what came, and the nearest name; all faults of a file are reported at once.

    units        sizes, durations, times of day: text to numbers and back, without YAML
    nodes        the result of parsing YAML: nodes with their line
    yaml_lines   YAML text to nodes; duplicates are refused
    values       the types of values: text of a file to a Python value and back
    keys         an entry of a table of keys
    settings     the table of a destination's settings, of what a rule adds to them, and of the limits
    model        the other values of a configuration
    schema       the tables of keys for each place of the file, and of keys that this version does not offer
    rule_checks  the keys of a rule that need or exclude one another
    load         reads nodes by the tables
    users        the users file, read in the same way
    users_edit   changes one user's entry in it, as text

Patterns and partition templates are text here: their grammar belongs to ``radiator.routing``, one layer up, and is
checked by ``Rules(config)``, which raises the same ConfigError.
"""

from __future__ import annotations

from radiator.config.load import load, load_text, parse_listen
from radiator.config.model import AdminAddress, AuthConfig, Config, HeartBeat, Listen, LoggingConfig, Tls
from radiator.config.settings import LimitsConfig, Rule, Settings
from radiator.config.values import SyncPolicy

__all__ = [
    "AdminAddress",
    "AuthConfig",
    "Config",
    "HeartBeat",
    "LimitsConfig",
    "Listen",
    "LoggingConfig",
    "Rule",
    "Settings",
    "SyncPolicy",
    "Tls",
    "load",
    "load_text",
    "parse_listen",
]
