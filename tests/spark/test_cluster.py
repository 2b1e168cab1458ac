"""Executors in processes of their own, which do not have the package: ``--py-files`` and Spark Connect bring it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from radiator.client import connect
from radiator.limits import MIB
from radiator.spark.java import use_java
from tests.columns.bulk import huge, message, tiny, write_log
from tests.running import START_SECONDS_MAX, STOP_SECONDS_MAX, BrokerProcess, free_port
from tests.spark import archives
from tests.spark.stores import Writer, numbered

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

ROOT = str(Path(__file__).parents[2])
JOB = Path(__file__).with_name("cluster_job.py")
SECONDS_MAX = 570.0
WORKER_BYTES_MAX = 384 * MIB  # what docs/spark.md says that one needs
QUICK = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}  # starting matters, running does not


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A Python with what is installed here, except for radiator: as on the machines of a cluster."""
    packages = Path(importlib.util.find_spec("pyarrow").origin).parent.parent  # type: ignore[union-attr, arg-type]
    made = tmp_path / "python3"
    made.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    made.chmod(0o755)
    ask = [str(made), "-c", "import pyarrow, importlib.util as u; print(u.find_spec('radiator'))"]
    assert subprocess.check_output(ask, cwd="/", env={"PATH": os.environ["PATH"]}, text=True) == "None\n"
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Spark's own directory, in which executors have theirs."""
    installed = Path(importlib.util.find_spec("pyspark").origin).parent  # type: ignore[union-attr, arg-type]
    made = tmp_path / "spark"
    made.mkdir()
    for each in installed.iterdir():
        (made / each.name).symlink_to(each)
    return made


@pytest.fixture
def environment(bare: Path, home: Path) -> dict[str, str]:
    """Without the package, wherever the tests have it."""
    wanted = {name: text for name, text in os.environ.items() if name in ("PATH", "HOME", "JAVA_HOME", "RADIATOR_JAVA")}
    use_java(wanted)
    python = {"PYSPARK_PYTHON": str(bare), "PYSPARK_DRIVER_PYTHON": str(bare)}
    return {**wanted, **python, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture
def store(tmp_path: Path) -> str:
    writer = Writer(tmp_path / "data")
    for name in ("a", "b"):
        writer.write(name, numbered(f"/topic/{name}", 300))
    writer.close()
    return writer.root


@pytest.fixture
def archive(tmp_path: Path, store: str) -> str:
    made = tmp_path / "archive"
    archives.archive(made, store, {"a": 100, "b": 300})
    return str(made)


def submit(home: Path, master: str, package: Path, *settings: str) -> list[str]:
    """The command before the job, once the package is made."""
    made = [sys.executable, "-m", "radiator.spark.package", str(package)]
    subprocess.run(made, env={**os.environ, "PYTHONPATH": ROOT}, check=True)
    command = [str(home / "bin" / "spark-submit"), "--master", master, "--py-files", str(package)]
    for setting in ("spark.ui.enabled=false", "spark.driver.host=127.0.0.1", "spark.log.level=ERROR", *settings):
        command += ["--conf", setting]
    return command


def reported(command: list[str], environment: dict[str, str], directory: Path) -> dict[str, Any]:
    run = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, timeout=SECONDS_MAX)
    lines = [line for line in run.stdout.splitlines() if line.startswith("told:")]
    words = [line for line in run.stderr.splitlines() if not line.lstrip().startswith("at ")]  # frames of the JVM
    assert run.returncode == 0 and lines, run.stdout[-3000:] + "\n".join(words)[-6000:]
    found: dict[str, Any] = json.loads(lines[0].removeprefix("told:"))
    return found


@pytest.fixture
def standalone(environment: dict[str, str], home: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of a cluster of Spark's own: a master, and a worker that has two cores."""
    port, *pages = (str(free_port()) for _ in range(3))
    url, here = f"spark://127.0.0.1:{port}", ["--host", "127.0.0.1"]
    parts = (
        ["master.Master", *here, "--port", port, "--webui-port", pages[0]],
        ["worker.Worker", *here, "--webui-port", pages[1], "-c", "2", "-m", "1200m", "-d", str(tmp_path / "work"), url],
    )
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number, (name, *arguments) in enumerate(parts):
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
            with (tmp_path / f"standalone-{number}.log").open("wb") as log:
                own = {**environment, **QUICK}
                running.append(subprocess.Popen(command, env=own, cwd=tmp_path, stdout=log, stderr=log))
        deadline = time.monotonic() + START_SECONDS_MAX
        while "Registering worker" not in (tmp_path / "standalone-0.log").read_text():
            assert time.monotonic() < deadline and all(each.poll() is None for each in running)
            time.sleep(0.05)
        yield url
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(STOP_SECONDS_MAX)


@pytest.mark.slow
def test_a_standalone_cluster_runs_the_same(
    environment: dict[str, str], home: Path, standalone: str, store: str, archive: str,
    shared_broker: BrokerProcess, tmp_path: Path,
) -> None:  # fmt: skip
    settings = ("spark.executor.cores=1", "spark.executor.memory=512m")
    command = submit(home, standalone, tmp_path / "radiator.zip", *settings)
    job = [str(JOB), store, archive, shared_broker.address, str(tmp_path / "checkpoint"), "standalone", "stream"]
    found = reported([*command, *job], {**environment, **QUICK}, tmp_path)
    assert found["totals"] == {"/topic/a": 300, "/topic/b": 300}
    assert found["table"] == 600
    assert all("radiator.zip" in place["package"] for place in found["places"])
    assert all(str(tmp_path / "work") in place["directory"] for place in found["places"])
    check_written(shared_broker, "/topic/copied.standalone", "/topic/streamed.standalone")


def check_written(broker: BrokerProcess, *destinations: str) -> None:
    """All of it once, whoever sent it."""
    expected = sorted(2 * [each.body for each in numbered("", 300)])
    with connect(broker.address) as connection:
        for destination in destinations:
            history = connection.subscribe(destination, start_position="first", stop_position="end")
            assert sorted(message.body for message in history) == expected


@pytest.mark.parametrize("asked", [[], pytest.param(["stream"], marks=pytest.mark.slow)], ids=["batch", "stream"])
def test_executors_of_their_own_have_the_package_from_py_files(
    environment: dict[str, str],
    home: Path,
    store: str,
    archive: str,
    shared_broker: BrokerProcess,
    tmp_path: Path,
    asked: list[str],
) -> None:
    name = "-".join(["cluster", *asked])
    command = submit(home, "local-cluster[2,1,1024]", tmp_path / "radiator.zip")
    job = [str(JOB), store, archive, shared_broker.address, str(tmp_path / "checkpoint"), name, *asked]
    found = reported([*command, *job], {**environment, **QUICK}, tmp_path)
    assert found["totals"] == {"/topic/a": 300, "/topic/b": 300}
    assert found["table"] == 600
    assert all("radiator.zip" in place["package"] for place in found["places"])
    assert len({place["directory"] for place in found["places"]}) == 2  # both executors took part
    check_written(shared_broker, f"/topic/copied.{name}", *(f"/topic/streamed.{name}" for _ in asked))


def test_spark_connect_needs_the_package_only_where_the_client_is(
    environment: dict[str, str], store: str, archive: str, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    pytest.importorskip("grpc_status")
    here = f"import runpy, sys; sys.path.insert(0, {ROOT!r}); runpy.run_path({str(JOB)!r}, run_name='__main__')"
    job = [sys.executable, "-c", here, store, archive, shared_broker.address, str(tmp_path / "checkpoint"), "connect"]
    server = {"SPARK_REMOTE": "local[2]", "SPARK_TESTING": "1"}  # at any free port
    found = reported([*job, "ship", "stream"], {**environment, **QUICK, **server}, tmp_path)
    assert "connect" in found["session"]
    assert found["totals"] == {"/topic/a": 300, "/topic/b": 300}
    assert found["table"] == 600
    assert all("radiator-" in place["package"] and ".zip" in place["package"] for place in found["places"])
    check_written(shared_broker, "/topic/copied.connect", "/topic/streamed.connect")
    with connect(shared_broker.address) as connection:
        beats = connection.subscribe("/topic/each.connect", start_position="first", stop_position="end")
        assert [message.text for message in beats] == 600 * ["beat"]  # of two epochs, which say the same
    assert 'expected option("epoch", epoch) beside query' in found["refused"]


@pytest.mark.slow
def test_a_store_larger_than_the_memory_of_all_executors_is_counted_hashed_and_aggregated(
    environment: dict[str, str], home: Path, tmp_path: Path
) -> None:
    """1 GiB and more, of tiny commits, of the largest batches and of compressed ones, in two executors of 471 MiB."""
    store = tmp_path / "data"
    logs = {"tiny": tiny(500_000), "huge": huge(60), "packed": huge(60, level=3)}
    sizes = [write_log(store, name, batches) for name, batches in logs.items()]
    records = sum(count for count, _ in sizes)
    assert sum(size for _, size in sizes) > 2 * 480 * MIB
    memory = ("spark.executor.memory=471m", "spark.sql.shuffle.partitions=2")
    command = submit(home, "local-cluster[2,1,512]", tmp_path / "radiator.zip", *memory)
    found = reported([*command, str(JOB.with_name("memory_job.py")), str(store)], environment, tmp_path)
    peaks = found.pop("peaks")
    assert found == {
        "destination": "/topic/bulk",
        "messages": records,
        "bytes": records * len(message(0).body),
        "hash": sum(zlib.crc32(message(number).body) for number in range(1000)) * records // 1000,
        "tagged": records,
        "headers": 2 * records,
    }
    assert peaks
    assert max(peaks) < WORKER_BYTES_MAX, peaks
