"""Commands of docs/clusters.md work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from stratagem.manifest.__main__ import main

GUIDE = Path(__file__).parents[3] / "docs" / "clusters.md"
COMMANDS = re.findall(r"^stratagem manifest (.*?) > (\S+)$", GUIDE.read_text(), re.MULTILINE)


def test_each_kind_has_an_example() -> None:
    kinds = {command.split()[1] for command, _ in COMMANDS}
    assert kinds == {"slurm", "indexed-job", "jobset", "trainjob", "sagemaker", "compose"}


@pytest.mark.parametrize(("command", "file"), COMMANDS)
def test_a_command_of_the_guide_writes_its_file(command: str, file: str) -> None:
    done = CliRunner().invoke(main, shlex.split(command))
    assert (done.exit_code, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 30, file
