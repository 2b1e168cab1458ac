"""The commands and the YAML of ``docs/beanstalkd.md``, as they stand there, with a real broker."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from radiator.cli.main import run
from radiator.client import connect

TEXT = (Path(__file__).parents[2] / "docs" / "beanstalkd.md").read_text("utf-8")
COMMANDS = sorted(set(re.findall(r"`radiator ([^`]+)`", TEXT)))
YAML = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


def test_every_command_and_the_yaml_do_what_the_page_says(
    start_broker: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (yaml,) = YAML
    broker = start_broker(yaml)
    monkeypatch.setenv("RADIATOR_URL", broker.address)
    with connect(broker.address) as worker:
        for body in ("reserved", "ready", "buried"):
            worker.send("/queue/email", body, {"priority": "2" if body == "ready" else "7"})
        worker.send("/queue/email", "delayed", {"delay": "1h"})
        inbox = worker.subscribe("/queue/email", ack="client-individual", prefetch=2)
        for _ in range(2):
            job = inbox.fetch(20)
            assert job is not None
            if job.text == "buried":
                job.reject(receipt=True)
        said = {}
        for command in COMMANDS:
            assert run(shlex.split(command.replace("HOST:PORT", broker.address))) == 0, command
            said[command] = capfd.readouterr().out
        assert sorted(said) == [
            "dlq replay /queue/dead.email --all", "ls --url HOST:PORT", "ls --url HOST:PORT /queue/email"
        ]  # fmt: skip
        assert said["dlq replay /queue/dead.email --all"] == (
            "1 message of /queue/dead.email sent back: 1 to /queue/email\n"
        )
        assert "/queue/dead.email" in said["ls --url HOST:PORT"]
        assert "/queue/dead.email" not in said["ls --url HOST:PORT /queue/email"]
        assert run(["ls", "--url", broker.address, "/queue/email", "--json"]) == 0
        (tube,) = json.loads(capfd.readouterr().out)["destinations"]
        assert tube["delayed"] == 1 and tube["in_flight"] + tube["ready"] == 3 and tube["total"] == 4
