"""The folder `deploy`: its compose file is one that `stratagem manifest` writes, its Dockerfile installs the wheel."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import yaml
from click.testing import CliRunner
from tests.schemas import faults

from stratagem.manifest.__main__ import main

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


def test_the_compose_file_is_written_by_the_command_at_its_top() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    command = text.splitlines()[1].removeprefix("#     stratagem manifest ")
    done = CliRunner().invoke(main, command.split())
    assert done.stdout.splitlines()[2:] == text.splitlines()[2:]
    assert faults("compose", yaml.safe_load(text)) == []


def test_the_image_has_what_the_compose_file_runs() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    instructions = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert {line.split()[0] for line in instructions} <= {"FROM", "ARG", "COPY", "RUN", "USER", "WORKDIR", "ENV", "CMD"}
    version = re.search(r"^FROM python:3\.(\d+)-slim$", text, re.MULTILINE)
    least = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert version is not None
    assert int(version[1]) >= int(least.removeprefix(">=3."))
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["worker-0"]
    assert f'CMD ["{service["command"][0]}", "{service["command"][1]}"]' in text
    assert (DEPLOY / ".dockerignore").read_text() == "secret\n"  # it stays out of the image
    for line in instructions:
        if line.startswith("RUN "):
            subprocess.run(["sh", "-n", "-c", line.removeprefix("RUN ")], check=True)
