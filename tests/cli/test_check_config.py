"""radiator check-config refuses what a start would refuse, as far as that shows without starting."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from radiator.config import load
from radiator.server.hooks import register_schemas
from radiator.server.passwords import make_hash
from radiator.storage.files import FileSystem

ROOT = Path(__file__).parent.parent.parent


def check(path: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    path.write_text(text)
    command = [sys.executable, "-m", "radiator", "check-config", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)


@pytest.mark.parametrize(
    ("listen", "told"),
    [
        ("unix:/tmp/" + "x" * 120, "expected a path of at most 107 bytes"),
        ("stomp://no.such.host.invalid:61613", "the host is unknown"),
    ],
)
def test_a_place_where_nobody_can_listen_is_refused(tmp_path: Path, listen: str, told: str) -> None:
    done = check(tmp_path / "c.yaml", f"listen: ['{listen}']\n")
    assert done.returncode == 2, done.stdout
    assert told in done.stderr and listen in done.stderr


def test_a_schema_that_refuses_what_an_earlier_version_describes_is_refused_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    schema, path, data = tmp_path / "s.json", tmp_path / "c.yaml", tmp_path / "data"
    text = f"data_dir: {data}\ndestinations:\n  - {{match: /topic/a, schema: '{schema}'}}\n"
    schema.write_text(json.dumps({"type": "object", "properties": {"a": {"type": "string"}}}))
    assert check(path, text).returncode == 0
    assert not data.exists()
    config = load(path)
    register_schemas(config.rules, config.source, FileSystem(), config.data_dir)
    kept = sorted(data.rglob("*"))
    schema.write_text(json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}))
    done = check(path, text)
    assert done.returncode == 2 and "version 1 allows" in done.stderr
    assert sorted(data.rglob("*")) == kept


def test_hashes_whose_cost_tells_who_is_known_are_a_warning(tmp_path: Path) -> None:
    users = tmp_path / "users.yaml"
    cheap = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash("x")
    users.write_text(
        f'users: {{a: {{password: "{make_hash("x")}", read: /a}}, old: {{password: "{cheap}", read: /a}}}}'
    )
    text = f"auth: {{users_file: {users}}}\n"
    done = check(tmp_path / "c.yaml", text)
    assert done.returncode == 0 and "warning: " in done.stdout and "old is known here" in done.stdout
    as_json = json.loads(check(tmp_path / "c.yaml", text, "--json").stdout)
    assert len(as_json["warnings"]) == 1
