"""The operator's YAML file, read strictly into plain frozen values.

``load(path)`` is the whole interface. What it returns has no YAML in it: sizes are bytes, durations are nanoseconds,
every rule is complete (the file's ``defaults:`` and our own are already under it). What it refuses, it refuses with
file, line, key, what was expected, what came, and the nearest name; all faults of a file are reported at once.

    units        sizes, durations, times of day        text <-> numbers; knows nothing of YAML
    nodes        what a YAML file is read into: nodes that know their line
    yaml_lines   YAML text -> nodes, duplicates refused
    values       the types of values: text of a file <-> Python value
    keys         what a table of keys is made of
    settings     the table of a destination's settings, of what a rule adds to them, and of the limits
    model        the other values that come out
    listening    the entries of ``listen:``
    schema       the tables of keys for each place of the file; and of those not offered by this version
    load         walks nodes by the table
    users        the users file, by the same walk
    users_edit   one user's entry in it, changed as text

Patterns and partition templates are text here: their grammar belongs to ``radiator.routing``, one layer up, and is
checked by ``Rules(config)``, which raises the same ConfigError.
"""

from __future__ import annotations

from radiator.config.load import load, load_text, parse_listen
from radiator.config.model import AdminAddress, AuthConfig, Config, HeartBeat, Listen, Tls
from radiator.config.settings import LimitsConfig, Rule, Settings
from radiator.config.values import SyncPolicy

__all__ = [
    "AdminAddress",
    "AuthConfig",
    "Config",
    "HeartBeat",
    "LimitsConfig",
    "Listen",
    "Rule",
    "Settings",
    "SyncPolicy",
    "Tls",
    "load",
    "load_text",
    "parse_listen",
]
