"""Which pyspark is needed: what setup.py requires is what the code accepts, and an older one is refused in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from radiator.errors import ConfigError

pyspark = pytest.importorskip("pyspark")
from radiator.spark import session  # noqa: E402 - it needs pyspark

SETUP = Path(__file__).parents[2] / "setup.py"


def test_setup_requires_the_oldest_pyspark_that_the_code_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    required = re.search(r'"pyspark>=([0-9.]+),', SETUP.read_text())
    assert required is not None
    assert tuple(map(int, required[1].split("."))) == session.PYSPARK_MIN
    for version in (required[1] + ".0", pyspark.__version__, "4.10.0", "5.0.0.dev1"):
        monkeypatch.setattr(pyspark, "__version__", version)
        session.require_pyspark()


@pytest.mark.parametrize("version", ["3.5.6", "4.0.0", "4.1.4"])
def test_an_older_pyspark_is_refused_before_a_jvm_is_started(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    for attempt in (session.get_session, lambda: session.register(None)):
        with pytest.raises(ConfigError, match=rf"pyspark: expected version 4\.2 or newer, got {version}"):
            attempt()
